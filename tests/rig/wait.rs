//! Waits for a condition, with a limit. A test never sleeps for a time in which something is expected to happen.

use std::time::{Duration, Instant};

/// Each step takes seconds at most. The limit ends a step that hangs.
pub const LONGEST: Duration = Duration::from_secs(60);

/// Waits until `done` holds.
pub fn wait_until(what: &str, done: impl FnMut() -> bool) {
    wait_within(LONGEST, what, done);
}

/// The same with another limit.
pub fn wait_within(limit: Duration, what: &str, mut done: impl FnMut() -> bool) {
    let began = Instant::now();
    while !done() {
        assert!(began.elapsed() < limit, "{what}: not within {limit:?}");
        std::thread::yield_now();
    }
}
