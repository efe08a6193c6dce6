//! Progress on standard error: a bar on a terminal, nothing elsewhere.

use crate::text::one_line;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::time::Duration;

/// How often a spinner moves: fast enough to look alive, slow enough to cost nothing beside a measured program.
const TICK: Duration = Duration::from_millis(200);

/// Steps of a known number, with what is being done beside them. Hidden where standard error is no terminal.
#[derive(Debug)]
pub struct Progress(ProgressBar);

impl Progress {
    /// `total` steps.
    pub fn new(total: u64) -> Self {
        let bar = ProgressBar::with_draw_target(Some(total), ProgressDrawTarget::stderr());
        let style = ProgressStyle::with_template("{spinner} {bar:30} {pos}/{len} {wide_msg}");
        bar.set_style(style.expect("a template that is known at compile time"));
        Progress(bar)
    }

    /// Something that takes as long as it takes.
    pub fn spinner() -> Self {
        let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
        bar.enable_steady_tick(TICK);
        Progress(bar)
    }

    /// Says what is being done now. Names from outside may be in it: what would move the cursor is written out.
    pub fn say(&self, what: impl Into<String>) {
        self.0.set_message(one_line(&what.into()));
        self.0.tick();
    }

    /// So many of so many steps are done, and this is done now.
    pub fn at(&self, done: u64, total: u64, what: impl Into<String>) {
        self.0.set_length(total);
        self.0.set_position(done);
        self.say(what);
    }

    /// One step is done.
    pub fn step(&self) {
        self.0.inc(1);
    }

    /// Prints a line above the bar (or alone, where there is none), in the same way.
    pub fn note(&self, line: &str) {
        let line = one_line(line);
        self.0.suspend(|| eprintln!("{line}"));
    }
}

/// The bar goes away when the work ends, however it ends: what remains on the screen is the result.
impl Drop for Progress {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Regression: the name of a target, which for FUSE is what its user calls it, was shown as it is.
    #[test]
    fn what_is_said_does_not_move_the_cursor() {
        let progress = Progress(ProgressBar::hidden());
        progress.at(1, 2, "\u{1b}[2Jx\ny\u{202e}");
        assert_eq!(progress.0.message(), "\\u{1b}[2Jx\\ny\\u{202e}");
    }
}
