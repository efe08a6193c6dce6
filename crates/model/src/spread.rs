//! Median, minimum and maximum of repeated measurements.

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

#[cfg(test)]
mod tests {
    use super::*;

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
