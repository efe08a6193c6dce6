//! Medians and spread of a handful of runs.

use serde::Serialize;

/// What repeated measurements of one thing gave, seconds.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Spread {
    pub median_s: f64,
    pub min_s: f64,
    pub max_s: f64,
}

impl Spread {
    /// Of at least one measurement; an even number of them has the mean of the two middle ones as its median.
    pub fn of(seconds: &[f64]) -> Option<Spread> {
        let mut sorted = seconds.to_vec();
        sorted.sort_by(f64::total_cmp);
        let middle = sorted.len() / 2;
        let median_s = match sorted.len() {
            0 => return None,
            n if n % 2 == 1 => sorted[middle],
            _ => (sorted[middle - 1] + sorted[middle]) / 2.0,
        };
        Some(Spread { median_s, min_s: sorted[0], max_s: sorted[sorted.len() - 1] })
    }

    /// How far runs differ by chance: twice the smaller half of the spread, so that one slow run does not speak for all.
    pub fn noise_s(&self) -> f64 {
        2.0 * (self.max_s - self.median_s).min(self.median_s - self.min_s)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_the_middle() {
        let spread = Spread::of(&[3.0, 1.0, 2.0]).unwrap();
        assert_eq!(spread, Spread { median_s: 2.0, min_s: 1.0, max_s: 3.0 });
        assert_eq!(Spread::of(&[4.0, 1.0, 2.0, 3.0]).unwrap().median_s, 2.5);
        assert_eq!(Spread::of(&[]), None);
    }

    /// Regression: one slow run of five took the recovered share away.
    #[test]
    fn one_slow_run_is_no_noise_of_all() {
        assert_eq!(Spread::of(&[1.0, 1.5, 9.0]).unwrap().noise_s(), 1.0);
    }
}
