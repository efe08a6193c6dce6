//! How fast the program consumes items. Pure: the caller gives the time.

use std::time::Duration;

/// Shortest interval that is measured: below, scheduling of the threads is measured and not the program.
const SHORTEST_INTERVAL: Duration = Duration::from_millis(10);

/// Weight of the last interval in the rate: the rate follows a change within about four intervals, and one slow item does not halve it.
const WEIGHT: f64 = 0.25;

/// Items ahead before a rate is known: one for each of the default workers.
const FIRST_ITEMS: usize = 16;

/// The smoothed rate of consumption.
#[derive(Debug, Default)]
pub struct Pace {
    items_per_second: Option<f64>,
    /// Count of taken items and time at the begin of the interval.
    last: Option<(u64, Duration)>,
}

impl Pace {
    /// Notes that `taken` items were taken until `now`.
    pub fn note(&mut self, taken: u64, now: Duration) {
        let Some((before, since)) = self.last else {
            self.last = Some((taken, now));
            return;
        };
        let interval = now.saturating_sub(since);
        if interval < SHORTEST_INTERVAL {
            return;
        }
        let rate = taken.saturating_sub(before) as f64 / interval.as_secs_f64();
        self.items_per_second = Some(self.items_per_second.map_or(rate, |old| old + WEIGHT * (rate - old)));
        self.last = Some((taken, now));
    }

    /// Items that the program consumes within `horizon`, at least one.
    pub fn items_within(&self, horizon: Duration) -> usize {
        match self.items_per_second {
            Some(rate) => (rate * horizon.as_secs_f64()).round().max(1.0) as usize,
            None => FIRST_ITEMS,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn items_ahead_follow_the_rate() {
        let (mut pace, second) = (Pace::default(), Duration::from_secs(1));
        assert_eq!(pace.items_within(second), FIRST_ITEMS);
        for n in 0..100u32 {
            pace.note(u64::from(10 * n), second / 10 * n);
        }
        assert_eq!((pace.items_within(second), pace.items_within(second / 4)), (100, 25));
        for n in 0..100u32 {
            pace.note(u64::from(990 + n), second * (10 + n));
        }
        assert_eq!((pace.items_within(5 * second), pace.items_within(Duration::ZERO)), (5, 1));
    }

    #[test]
    fn short_intervals_are_not_measured() {
        let mut pace = Pace::default();
        for n in 0..9u32 {
            pace.note(u64::from(n * 1000), Duration::from_millis(1) * n);
        }
        assert_eq!(pace.items_within(Duration::from_secs(1)), FIRST_ITEMS);
    }
}
