//! A histogram of times in constant memory.
//!
//! Eight buckets for each power of two: a percentile is at most an eighth too large. Largest value, sum and count are exact.

use serde::Serialize;
use std::fmt;
use std::time::Duration;

/// Buckets of each power of two, as a power of two.
const FINE_BITS: u32 = 3;

/// The number of buckets for all values of 64 bits.
const BUCKETS: usize = (64 - FINE_BITS as usize + 1) << FINE_BITS;

/// Measured times.
#[derive(Clone, Debug)]
pub(crate) struct Times {
    buckets: Box<[u64; BUCKETS]>,
    count: u64,
    sum_ns: u64,
    max_ns: u64,
}

/// The distribution of measured times. Unit: microseconds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Percentiles {
    /// Number of times.
    pub count: u64,
    /// Half of them are at most this.
    pub median: f64,
    /// 99 of 100 are at most this.
    pub p99: f64,
    /// The longest.
    pub max: f64,
}

impl Default for Times {
    fn default() -> Times {
        Times { buckets: Box::new([0; BUCKETS]), count: 0, sum_ns: 0, max_ns: 0 }
    }
}

impl Times {
    pub(crate) fn add(&mut self, time: Duration) {
        let ns = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        self.buckets[bucket(ns)] += 1;
        self.count += 1;
        self.sum_ns = self.sum_ns.saturating_add(ns);
        self.max_ns = self.max_ns.max(ns);
    }

    /// Adds the times of another histogram.
    pub(crate) fn merge(&mut self, other: &Times) {
        self.buckets.iter_mut().zip(other.buckets.iter()).for_each(|(own, others)| *own += others);
        self.count += other.count;
        self.sum_ns = self.sum_ns.saturating_add(other.sum_ns);
        self.max_ns = self.max_ns.max(other.max_ns);
    }

    pub(crate) fn count(&self) -> u64 {
        self.count
    }

    pub(crate) fn sum(&self) -> Duration {
        Duration::from_nanos(self.sum_ns)
    }

    /// The number of times up to a limit, rounded to buckets.
    pub(crate) fn count_up_to(&self, limit: Duration) -> u64 {
        let ns = u64::try_from(limit.as_nanos()).unwrap_or(u64::MAX);
        self.buckets[..=bucket(ns)].iter().sum()
    }

    /// `None` without times.
    pub(crate) fn percentiles(&self) -> Option<Percentiles> {
        let us = |ns: u64| ns as f64 / 1e3;
        (self.count > 0).then(|| Percentiles {
            count: self.count,
            median: us(self.at(0.5)),
            p99: us(self.at(0.99)),
            max: us(self.max_ns),
        })
    }

    /// The upper end of the bucket that has this share of all times below it.
    fn at(&self, share: f64) -> u64 {
        let wanted = (self.count as f64 * share).ceil() as u64;
        let mut below = 0;
        let reached = self.buckets.iter().position(|count| {
            below += count;
            below >= wanted
        });
        reached.map_or(self.max_ns, upper_end).min(self.max_ns)
    }
}

/// Values below eight have a bucket each; of others, the highest four bits decide.
fn bucket(ns: u64) -> usize {
    let magnitude = ns.checked_ilog2().unwrap_or(0).max(FINE_BITS);
    let shift = magnitude - FINE_BITS;
    ((shift as usize) << FINE_BITS) + (ns >> shift) as usize
}

/// The largest value of a bucket.
fn upper_end(bucket: usize) -> u64 {
    let shift = (bucket >> FINE_BITS).saturating_sub(1) as u32;
    let mantissa = (bucket - ((shift as usize) << FINE_BITS)) as u64;
    ((mantissa + 1) << shift).wrapping_sub(1)
}

impl fmt::Display for Percentiles {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "median {:.0} µs, 99 % {:.0} µs, longest {:.0} µs ({} times)",
            self.median, self.p99, self.max, self.count
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn percentiles_of_equal_steps() {
        let mut times = Times::default();
        assert_eq!(times.percentiles(), None);
        (1..=1000).for_each(|us| times.add(Duration::from_micros(us)));
        let found = times.percentiles().unwrap();
        assert_eq!((found.count, found.max), (1000, 1000.0));
        assert!((500.0..=563.0).contains(&found.median) && (990.0..=1000.0).contains(&found.p99), "{found:?}");
        assert_eq!(times.sum(), Duration::from_micros(500_500));
        let mut both = times.clone();
        both.merge(&times);
        assert_eq!((both.count(), both.percentiles().unwrap().median), (2000, found.median));
        assert_eq!(times.count_up_to(Duration::from_secs(1)), 1000);
    }

    proptest! {
        #[test]
        fn every_value_is_within_an_eighth_of_its_bucket(ns: u64) {
            let end = upper_end(bucket(ns));
            prop_assert!(end >= ns && end - ns <= ns / 8);
            let mut times = Times::default();
            times.add(Duration::from_nanos(ns));
            prop_assert_eq!(times.max_ns, ns);
        }
    }
}
