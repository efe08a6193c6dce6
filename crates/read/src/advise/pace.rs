//! When to look again. Pure: durations go in and out.
//!
//! A look costs a system call or two. It pays if the reader has come closer to the end of the requests, so the interval is a part of the time
//! that the reader needs to get there, and at least a hundred times what a look costs: one per cent of a processor.

use std::time::Duration;

/// Shortest interval: the timer slack of a thread (prctl(2)) makes shorter ones as long.
const SHORTEST: Duration = Duration::from_micros(50);

/// Longest interval while the reader moves: a reader that becomes fast is noticed within 10 ms.
const LONGEST: Duration = Duration::from_millis(10);

/// Longest interval for a reader that has not moved for [`IDLE_AFTER`].
const LONGEST_IDLE: Duration = Duration::from_millis(50);

/// A reader that has not moved for so long does something else.
const IDLE_AFTER: Duration = Duration::from_secs(2);

/// An interval is this many times as long as a look takes.
const INTERVALS_FOR_A_LOOK: u32 = 100;

/// Looks at the window without movement, after which the reader is searched elsewhere.
const STILL_LOOKS: u32 = 4;

/// The speed of one reader, and the time until the next look.
#[derive(Debug, Default)]
pub struct Pace {
    /// Time for one unit, seconds; 0: unknown.
    unit_seconds: f64,
    since_move: Duration,
    interval: Duration,
    still_looks: u32,
}

impl Pace {
    /// The reader has moved by some units in a time.
    pub fn moved(&mut self, units: u64, in_time: Duration) {
        let seconds = in_time.as_secs_f64() / units.max(1) as f64;
        self.unit_seconds = if self.unit_seconds == 0.0 { seconds } else { (self.unit_seconds + seconds) / 2.0 };
        (self.since_move, self.still_looks) = (Duration::ZERO, 0);
    }

    /// The reader has not moved for a time.
    pub fn stood(&mut self, since_move: Duration) {
        self.since_move = since_move;
        self.still_looks = self.still_looks.saturating_add(1);
    }

    /// Whether the reader may be elsewhere.
    pub fn is_still(&self) -> bool {
        self.still_looks >= STILL_LOOKS
    }

    /// Time until the next look. `ahead`: units to the end of the requests; `cost`: of this look.
    pub fn next(&mut self, ahead: u64, cost: Duration) -> Duration {
        let longest = if self.since_move > IDLE_AFTER { LONGEST_IDLE } else { LONGEST };
        let wanted = if self.still_looks > 0 {
            2 * self.interval
        } else {
            // A quarter: the requests of the next group need some of the time, too.
            Duration::from_secs_f64((self.unit_seconds * ahead as f64 / 4.0).min(1.0))
        };
        self.interval = wanted.max(INTERVALS_FOR_A_LOOK * cost).clamp(SHORTEST, longest);
        self.interval
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const US: Duration = Duration::from_micros(1);

    #[test]
    fn interval_follows_the_reader_and_the_cost_of_a_look() {
        let mut pace = Pace::default();
        pace.moved(100, 1000 * US);
        assert_eq!(pace.next(200, US), 500 * US);
        assert_eq!(pace.next(200, 20 * US), 2000 * US);
        assert_eq!(pace.next(0, Duration::ZERO), SHORTEST);
        assert_eq!(pace.next(1 << 40, Duration::ZERO), LONGEST);
    }

    #[test]
    fn interval_of_a_reader_that_stands_doubles() {
        let mut pace = Pace::default();
        pace.moved(1, 10 * US);
        assert_eq!(pace.next(1, Duration::ZERO), SHORTEST);
        let mut intervals = Vec::new();
        for _ in 0..12 {
            pace.stood(1000 * US);
            intervals.push(pace.next(1, Duration::ZERO));
        }
        assert_eq!(intervals[..3], [100 * US, 200 * US, 400 * US]);
        assert_eq!(intervals.last(), Some(&LONGEST));
        assert!(pace.is_still());
        pace.stood(3 * IDLE_AFTER);
        pace.next(1, Duration::ZERO);
        assert_eq!((0..5).map(|_| pace.next(1, Duration::ZERO)).last(), Some(LONGEST_IDLE));
        pace.moved(1, US);
        assert!(!pace.is_still());
        assert_eq!(pace.next(1, Duration::ZERO), SHORTEST);
    }
}
