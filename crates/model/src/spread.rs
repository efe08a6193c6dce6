//! Median, minimum and maximum of repeated measurements, and how well the median is known.

use crate::sorting;
use serde::Serialize;

/// Repeated measurements of one thing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Spread {
    /// The middle value; the mean of the middle two for an even number of values.
    pub median: f64,
    /// The smallest.
    pub min: f64,
    /// The largest.
    pub max: f64,
}

impl Spread {
    /// The spread of these values; all zero without values.
    pub fn of(values: impl IntoIterator<Item = f64>) -> Spread {
        let mut sorted: Vec<f64> = values.into_iter().collect();
        sorting::sort_by(&mut sorted, f64::total_cmp);
        let (Some(min), Some(max)) = (sorted.first().copied(), sorted.last().copied()) else {
            return Spread::default();
        };
        let middle = sorted.len() / 2;
        let median = if sorted.len() % 2 == 1 { sorted[middle] } else { (sorted[middle - 1] + sorted[middle]) / 2.0 };
        Spread { median, min, max }
    }

    /// Noise of the measurements: twice the smaller half of the spread, so that one slow run does not decide.
    pub fn noise(&self) -> f64 {
        2.0 * (self.max - self.median).min(self.median - self.min)
    }
}

/// The least confidence of an interval.
const CONFIDENCE: f64 = 0.95;

/// The interval that holds the true median of what is measured with a confidence of 95 % at least; `None`: fewer than six values.
///
/// Its ends are two of the values, the k-th smallest and the k-th largest, with the largest k that suffices: the true median lies below the
/// k-th smallest of n values only if fewer than k of them lie below it, and each does so by the toss of a coin. So it holds for measurements of
/// any distribution (Hahn and Meeker, Statistical Intervals, 5.3), where one of the mean needs a normal one.
pub fn median_interval(values: impl IntoIterator<Item = f64>) -> Option<(f64, f64)> {
    let mut sorted: Vec<f64> = values.into_iter().collect();
    sorting::sort_by(&mut sorted, f64::total_cmp);
    let count = sorted.len();
    // The probability that exactly `k` of the values lie below the median, in logarithms: 2^-1000 is no number.
    let (mut log_probability, mut outside) = (-(count as f64) * std::f64::consts::LN_2, 0.0);
    let mut ranks = 0;
    for k in 0..count / 2 {
        outside += 2.0 * libm::exp(log_probability);
        if outside > 1.0 - CONFIDENCE {
            break;
        }
        ranks = k + 1;
        log_probability += libm::log((count - k) as f64 / (k + 1) as f64);
    }
    (ranks > 0).then(|| (sorted[ranks - 1], sorted[count - ranks]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Ranks from Hahn and Meeker, table A.15a, and from every textbook of the sign test.
    #[test]
    fn interval_of_the_median_has_the_ranks_of_the_table() {
        for (count, ranks) in [
            (5, None),
            (6, Some(1)),
            (8, Some(1)),
            (9, Some(2)),
            (12, Some(3)),
            (20, Some(6)),
            (30, Some(10)),
            (100, Some(40)),
        ] {
            let interval = median_interval((1..=count).map(f64::from));
            assert_eq!(interval, ranks.map(|rank: i32| (f64::from(rank), f64::from(count + 1 - rank))), "{count}");
        }
        assert!(median_interval((1..=5000).map(f64::from)).is_some());
    }

    proptest! {
        #[test]
        fn interval_holds_the_median_and_lies_within_the_values(values in prop::collection::vec(-1e9f64..1e9, 6..200)) {
            let (low, high) = median_interval(values.iter().copied()).unwrap();
            let spread = Spread::of(values.iter().copied());
            prop_assert!(spread.min <= low && low <= spread.median && spread.median <= high && high <= spread.max);
            let reversed = median_interval(values.iter().rev().copied());
            prop_assert_eq!(reversed, Some((low, high)));
        }
    }

    #[test]
    fn median_is_the_middle_value() {
        assert_eq!(Spread::of([3.0, 1.0, 2.0]), Spread { median: 2.0, min: 1.0, max: 3.0 });
        assert_eq!(Spread::of([4.0, 1.0, 2.0, 3.0]).median, 2.5);
        assert_eq!(Spread::of([]), Spread::default());
    }

    /// Regression: one slow run of five took the recovered share away.
    #[test]
    fn one_slow_run_is_not_noise() {
        assert_eq!(Spread::of([1.0, 1.5, 9.0]).noise(), 1.0);
    }
}
