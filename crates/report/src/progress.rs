//! Progress on standard error: a bar on a terminal, nothing elsewhere.

use crate::text::one_line;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::time::Duration;

/// Interval of a spinner: fast enough to look alive, slow enough not to disturb a measured program.
const TICK: Duration = Duration::from_millis(200);

/// A progress bar with a message. Hidden if standard error is not a terminal.
#[derive(Debug)]
pub struct Progress(ProgressBar);

impl Progress {
    /// A bar of `total` steps.
    pub fn new(total: u64) -> Self {
        let bar = ProgressBar::with_draw_target(Some(total), ProgressDrawTarget::stderr());
        let style = ProgressStyle::with_template("{spinner} {bar:30} {pos}/{len} {wide_msg}");
        bar.set_style(style.expect("a template that is known at compile time"));
        Progress(bar)
    }

    /// A spinner for work of unknown length.
    pub fn spinner() -> Self {
        let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
        bar.enable_steady_tick(TICK);
        Progress(bar)
    }

    /// Shows the current step. The message may contain names from outside: control characters are escaped.
    pub fn say(&self, step: impl Into<String>) {
        self.0.set_message(one_line(&step.into()));
        self.0.tick();
    }

    /// Shows `done` of `total` steps and the current step.
    pub fn at(&self, done: u64, total: u64, step: impl Into<String>) {
        self.0.set_length(total);
        self.0.set_position(done);
        self.say(step);
    }

    /// One step is done.
    pub fn step(&self) {
        self.0.inc(1);
    }

    /// Prints a line above the bar, or alone if there is none. Control characters are escaped.
    pub fn note(&self, line: &str) {
        let line = one_line(line);
        self.0.suspend(|| eprintln!("{line}"));
    }
}

/// The bar disappears when the work ends, also after an error: only the result stays on the screen.
impl Drop for Progress {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Regression: the name of a target, which for FUSE its user chooses, was shown without escaping.
    #[test]
    fn control_characters_in_messages_are_escaped() {
        let progress = Progress(ProgressBar::hidden());
        progress.at(1, 2, "\u{1b}[2Jx\ny\u{202e}");
        assert_eq!(progress.0.message(), "\\u{1b}[2Jx\\ny\\u{202e}");
    }
}
