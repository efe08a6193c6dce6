//! Progress on standard error: a bar on a terminal, nothing elsewhere.

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

    /// Says what is being done now.
    pub fn say(&self, what: impl Into<String>) {
        self.0.set_message(what.into());
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

    /// Prints a line above the bar (or alone, where there is none).
    pub fn note(&self, line: &str) {
        self.0.suspend(|| eprintln!("{line}"));
    }
}

/// The bar goes away when the work ends, however it ends: what remains on the screen is the result.
impl Drop for Progress {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}
