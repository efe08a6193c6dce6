//! Medians and spread of a few runs.

use ahead_model::sorting;
use serde::Serialize;

/// Repeated measurements of one thing, seconds.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Spread {
    /// Their median.
    pub median_s: f64,
    /// The smallest.
    pub min_s: f64,
    /// The largest.
    pub max_s: f64,
}

impl Spread {
    /// `None` of no measurement. The median of an even number is the mean of the two in the middle.
    pub fn of(seconds: &[f64]) -> Option<Spread> {
        let mut sorted = seconds.to_vec();
        sorting::sort_by(&mut sorted, f64::total_cmp);
        let middle = sorted.len() / 2;
        let median_s = match sorted.len() {
            0 => return None,
            n if n % 2 == 1 => sorted[middle],
            _ => (sorted[middle - 1] + sorted[middle]) / 2.0,
        };
        Some(Spread { median_s, min_s: sorted[0], max_s: sorted[sorted.len() - 1] })
    }

    /// Noise of the runs, seconds: twice the smaller half of the spread, so that one slow run does not decide.
    pub fn noise_s(&self) -> f64 {
        2.0 * (self.max_s - self.median_s).min(self.median_s - self.min_s)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn median_is_the_middle() {
        let spread = Spread::of(&[3.0, 1.0, 2.0]).unwrap();
        assert_eq!(spread, Spread { median_s: 2.0, min_s: 1.0, max_s: 3.0 });
        assert_eq!(Spread::of(&[4.0, 1.0, 2.0, 3.0]).unwrap().median_s, 2.5);
        assert_eq!(Spread::of(&[]), None);
    }

    /// Regression: one slow run of five took the recovered share away.
    #[test]
    fn one_slow_run_is_not_noise() {
        assert_eq!(Spread::of(&[1.0, 1.5, 9.0]).unwrap().noise_s(), 1.0);
    }
}
