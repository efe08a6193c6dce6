//! How promptly decisions are looked at, and how many acts follow.
//!
//! ```text
//!     few decisions      each one wakes this process: an act follows within microseconds
//!     a storm of them    taken in groups: a context switch for each would cost the readers more than an act can bring them
//! ```

use std::time::{Duration, Instant};

/// Interval in which decisions are counted.
const INTERVAL: Duration = Duration::from_millis(100);

/// More decisions than this in an interval are a storm: 5,000 per second, from dozens of open files that all miss.
const STORM: u64 = 500;

/// Pause between two groups of decisions in a storm.
const PAUSE: Duration = Duration::from_millis(5);

/// Counts decisions.
#[derive(Debug)]
pub(crate) struct Pace {
    began: Instant,
    count: u64,
    is_storm: bool,
}

impl Pace {
    pub(crate) fn new(now: Instant) -> Pace {
        Pace { began: now, count: 0, is_storm: false }
    }

    /// Some decisions were taken. Returns the time before which no others should be taken.
    pub(crate) fn taken(&mut self, count: u64, now: Instant) -> Option<Instant> {
        if now.saturating_duration_since(self.began) >= INTERVAL {
            // An interval without decisions ends a storm.
            self.is_storm = self.count > STORM && now.saturating_duration_since(self.began) < 2 * INTERVAL;
            (self.began, self.count) = (now, 0);
        }
        self.count += count;
        (self.is_storm || self.count > STORM).then(|| now + PAUSE)
    }
}

/// Limits the number of acts per second.
#[derive(Debug)]
pub(crate) struct RateLimit {
    per_second: u64,
    second: u64,
    used: u64,
}

impl RateLimit {
    pub(crate) fn new(per_second: u32) -> RateLimit {
        RateLimit { per_second: u64::from(per_second), second: 0, used: 0 }
    }

    /// Whether one more act is permitted now.
    pub(crate) fn take(&mut self, now_ns: u64) -> bool {
        let second = now_ns / 1_000_000_000;
        if second != self.second {
            (self.second, self.used) = (second, 0);
        }
        self.used += 1;
        self.used <= self.per_second
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn acts_of_a_second_are_limited() {
        let mut limit = RateLimit::new(2);
        assert_eq!([1, 2, 3, 1_000_000_000].map(|now| limit.take(now)), [true, true, false, true]);
    }

    #[test]
    fn storm_begins_with_many_decisions_and_ends_after_an_interval_with_few() {
        let began = Instant::now();
        let at = |ms| began + Duration::from_millis(ms);
        let mut pace = Pace::new(began);
        assert_eq!(pace.taken(STORM, at(10)), None);
        assert_eq!(pace.taken(1, at(20)), Some(at(20) + PAUSE));
        assert_eq!(pace.taken(1, at(101)), Some(at(101) + PAUSE), "the interval before was one of a storm");
        assert_eq!(pace.taken(1, at(202)), None);
        assert!(pace.taken(2 * STORM, at(203)).is_some());
        assert_eq!(pace.taken(1, at(1000)), None, "after a pause of the readers");
    }
}
