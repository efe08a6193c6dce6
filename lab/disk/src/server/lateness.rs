//! A histogram of the lateness of answers, with steps of at most 1/16 of the value.

/// Steps in each power of two.
const STEPS: u64 = 16;
/// Buckets for all values of 64 bits.
const BUCKETS: usize = (64 * STEPS) as usize;

/// Counts of answers by their lateness, nanoseconds.
#[derive(Clone, Debug)]
pub struct Lateness {
    buckets: Box<[u64; BUCKETS]>,
    count: u64,
    max_ns: u64,
}

impl Default for Lateness {
    fn default() -> Self {
        Lateness { buckets: Box::new([0; BUCKETS]), count: 0, max_ns: 0 }
    }
}

impl Lateness {
    /// Counts an answer.
    pub fn add(&mut self, late_ns: u64) {
        self.buckets[bucket(late_ns)] += 1;
        self.count += 1;
        self.max_ns = self.max_ns.max(late_ns);
    }

    /// The quantile `share` (0 to 1) of the lateness, microseconds; at most the largest value.
    pub fn quantile_us(&self, share: f64) -> f64 {
        let wanted = (share * self.count as f64).ceil() as u64;
        let mut seen = 0;
        for (index, count) in self.buckets.iter().enumerate() {
            seen += count;
            if seen >= wanted.max(1) {
                return upper_bound(index).min(self.max_ns) as f64 / 1e3;
            }
        }
        0.0
    }

    /// The largest lateness, microseconds.
    pub fn max_us(&self) -> f64 {
        self.max_ns as f64 / 1e3
    }
}

fn bucket(value: u64) -> usize {
    if value < STEPS {
        return value as usize;
    }
    let power = u64::from(value.ilog2());
    let step = (value >> (power - 4)) - STEPS;
    ((power - 3) * STEPS + step) as usize
}

/// The largest value in a bucket.
fn upper_bound(index: usize) -> u64 {
    let index = index as u64;
    if index < STEPS {
        return index;
    }
    let (power, step) = (index / STEPS + 3, index % STEPS);
    ((u128::from(STEPS + step + 1) << (power - 4)) - 1).min(u128::from(u64::MAX)) as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn value_is_at_most_the_bound_of_its_bucket(value in any::<u64>()) {
            let index = bucket(value);
            prop_assert!(index < BUCKETS);
            prop_assert!(upper_bound(index) >= value);
            prop_assert!(index == 0 || upper_bound(index - 1) < value);
            prop_assert!((upper_bound(index) - value) as f64 <= value as f64 / 16.0 + 1.0);
        }

        #[test]
        fn quantiles_are_near_the_sorted_values(mut values in proptest::collection::vec(0u64..10_000_000, 1..200), share in 0.01f64..1.0) {
            let mut lateness = Lateness::default();
            values.iter().for_each(|v| lateness.add(*v));
            values.sort_unstable();
            let exact = values[((share * values.len() as f64).ceil() as usize).max(1) - 1] as f64 / 1e3;
            let found = lateness.quantile_us(share);
            prop_assert!(found >= exact - 1e-9 && found <= exact * (1.0 + 1.0 / 16.0) + 0.001, "{} {}", found, exact);
        }
    }

    #[test]
    fn quantile_without_values_is_zero() {
        assert_eq!(Lateness::default().quantile_us(0.99), 0.0);
    }
}
