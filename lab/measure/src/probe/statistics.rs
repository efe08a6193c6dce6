//! Statistics of the answers: quantiles, means with their intervals, the most frequent of several outcomes, the boundary between two
//! kinds of times.

use ahead_model::random::SplitMix64;

/// Half the width of the 95 % interval of a mean, in standard errors (normal distribution).
const Z95: f64 = 1.96;

/// Pseudo-random numbers, the same ones in each run.
#[derive(Clone, Debug)]
pub struct Chance(SplitMix64);

impl Chance {
    /// Begins with this seed.
    pub fn new(seed: u64) -> Chance {
        Chance(SplitMix64::new(seed))
    }

    /// A random number below `end`, which is not 0. The remainder, because recorded results come from these places.
    pub fn below(&mut self, end: u64) -> u64 {
        self.0.number() % end
    }

    /// The same number of values, each drawn from all of them: the possible result of another experiment (the bootstrap, Efron 1979).
    pub fn resample(&mut self, values: &[f64]) -> Vec<f64> {
        values.iter().map(|_| values[self.below(values.len() as u64) as usize]).collect()
    }
}

/// The quantile of some values (0 to 1), by rank; 0 without values.
pub fn quantile(values: &[f64], share: f64) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let rank = share * sorted.len().saturating_sub(1) as f64;
    sorted.get(rank.round() as usize).copied().unwrap_or(0.0)
}

/// The median of some values; 0 without values.
pub fn median(values: &[f64]) -> f64 {
    quantile(values, 0.5)
}

/// The mean of some values and its 95 % interval.
pub fn mean(values: &[f64]) -> (f64, [f64; 2]) {
    let count = values.len().max(1) as f64;
    let mean = values.iter().sum::<f64>() / count;
    let variance = values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / (count - 1.0).max(1.0);
    let half = Z95 * (variance / count).sqrt();
    (mean, [mean - half, mean + half])
}

/// The 95 % interval of a distribution's median, by ranks: a binomial's deviation around the middle of the values that were drawn from
/// the distribution.
pub fn median_range(values: &[f64]) -> [f64; 2] {
    let half = Z95 / 2.0 / (values.len().max(1) as f64).sqrt();
    [quantile(values, (0.5 - half).max(0.0)), quantile(values, (0.5 + half).min(1.0))]
}

/// The most frequent outcome, with the number of agreeing and of all outcomes; the first one of several with the same frequency.
pub fn most_frequent<T: PartialEq + Copy>(outcomes: &[T]) -> Option<(T, (u64, u64))> {
    let count = |outcome: &T| outcomes.iter().filter(|other| *other == outcome).count();
    let mut best: Option<(T, usize)> = None;
    for outcome in outcomes {
        let count = count(outcome);
        if best.is_none_or(|(_, most)| count > most) {
            best = Some((*outcome, count));
        }
    }
    best.map(|(outcome, agree)| (outcome, (agree as u64, outcomes.len() as u64)))
}

/// The boundary between fast and slow times. It is the geometric mean of the slowest fast time (99 of 100) and the fastest slow time (1
/// of 100). `None` if these differ by less than a factor of three: then a time does not show the kind.
pub fn parting(quick: &[f64], slow: &[f64]) -> Option<f64> {
    let (above, below) = (quantile(quick, 0.99), quantile(slow, 0.01));
    (above > 0.0 && below >= 3.0 * above).then(|| (above * below).sqrt())
}

/// The limit above which a value is an outlier: the median plus `deviations` median absolute deviations. It finds change points of a
/// level that returns at once, as with an indirect block between two reads of a file.
pub fn stands_out_above(values: &[f64], deviations: f64) -> f64 {
    let middle = median(values);
    let away: Vec<f64> = values.iter().map(|value| (value - middle).abs()).collect();
    middle + deviations * median(&away).max(middle * 1e-3).max(f64::MIN_POSITIVE)
}

/// The slope and the value at 0 of the line through some points (least squares). `None` with fewer than two different places.
pub fn line(points: &[(f64, f64)]) -> Option<(f64, f64)> {
    let count = points.len() as f64;
    let (x, y) = points.iter().fold((0.0, 0.0), |sum, point| (sum.0 + point.0 / count, sum.1 + point.1 / count));
    let across: f64 = points.iter().map(|point| (point.0 - x).powi(2)).sum();
    let both: f64 = points.iter().map(|point| (point.0 - x) * (point.1 - y)).sum();
    (across > 0.0).then(|| (both / across, y - both / across * x))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn boundary_exists_only_between_distant_times() {
        let quick = [1.0, 2.0, 3.0];
        assert_eq!(parting(&quick, &[48.0, 100.0]), Some(12.0));
        assert_eq!(parting(&quick, &[8.0, 100.0]), None);
    }

    #[test]
    fn most_frequent_outcome_has_its_votes() {
        assert_eq!(most_frequent(&[1, 2, 2]), Some((2, (2, 3))));
        assert_eq!(most_frequent::<u8>(&[]), None);
    }

    #[test]
    fn outlier_is_above_the_limit() {
        let above = stands_out_above(&[10.0, 11.0, 9.0, 30.0, 10.0], 10.0);
        assert!((11.0..30.0).contains(&above), "{above}");
    }

    proptest! {
        #[test]
        fn line_through_points_has_slope_and_value(slope in -1e3..1e3f64, at_0 in -1e3..1e3f64, places in 2..20u32) {
            let points: Vec<(f64, f64)> = (0..places).map(|x| (f64::from(x), at_0 + slope * f64::from(x))).collect();
            let (found, found_at_0) = line(&points).unwrap();
            prop_assert!((found - slope).abs() < 1e-6 && (found_at_0 - at_0).abs() < 1e-6);
        }

        #[test]
        fn quantiles_increase(mut values in proptest::collection::vec(0.0..1e9f64, 1..50), low in 0.0..1.0f64, high in 0.0..1.0f64) {
            prop_assert!(quantile(&values, low.min(high)) <= quantile(&values, low.max(high)));
            values.sort_by(f64::total_cmp);
            prop_assert_eq!(quantile(&values, 1.0), *values.last().unwrap());
        }
    }
}
