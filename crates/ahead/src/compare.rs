//! Comparing ways of doing the same thing: interleaved, round after round, and judged by medians and spread.
//!
//! ```text
//!     round 1    cold │ ahead │ warm │ (others)          each run by a Runner, which says what it cost (Sample)
//!     round 2    cold │ ahead │ ahead again │ warm │ …    a disturbed run is measured again, within a limit
//!                                                        ──▶ Measured: median, spread, device reads of each
//! ```
//!
//! A noisy machine disturbs interleaved runs alike. [`Comparison`] is this logic over any [`Runner`]; [`Closures`] runs code of the
//! calling program; `ProgramComparison` (feature `observe`) runs a program cold, with its profile and warm, and makes a [`Report`];
//! [`ColdAndWarm`] needs no profile.
//!
//! Times come from the runner. This module must never wait by itself, and never drop a run without counting it.

mod bound;
mod closures;
mod cold_and_warm;
mod input;
mod late;
mod programs;
mod report;
mod scratch;
mod timed;
mod usage;

pub use ahead_model::Spread;
pub use bound::BoundBy;
pub use closures::Closures;
pub use cold_and_warm::{ColdAndWarm, ColdReport, Enough, INTERVAL_SHARE, LEAST_RUNS};
pub use input::Input;
pub use programs::{ProgramComparison, Rival};
pub use report::{ColdState, Report, RivalResult};
pub use timed::observe_evictions;

use crate::Result;
use ahead_model::sorting;
use serde::Serialize;

/// Runs one variant of what is compared, once.
pub trait Runner {
    /// Identifies a variant.
    type Variant;

    /// Prepares a run (evicts, say), does it, and says what it cost. Only the run's own time counts.
    ///
    /// # Errors
    /// The comparison ends with this error.
    fn run(&mut self, variant: &Self::Variant) -> Result<Sample>;
}

/// One run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Sample {
    /// Its time, seconds.
    pub s: f64,
    /// Reads of the devices involved, the kernel's own included, and those that a prefetch has requested when the program ends.
    pub requests: u64,
    /// The same, bytes.
    pub bytes: u64,
    /// What the page cache lost of the file systems involved during the run though their files still had it, bytes; `None`: not observed.
    pub evicted_bytes: Option<u64>,
    /// Processor time in user mode of the processes that the run waited for, seconds.
    pub user_s: f64,
    /// The same in the kernel.
    pub system_s: f64,
    /// Its exit status.
    pub status: i32,
}

impl Sample {
    /// Reclaim, or another process that drops caches, took pages away during the run: it read them again.
    pub fn is_disturbed(&self) -> bool {
        self.evicted_bytes.is_some_and(|bytes| bytes > 0)
    }
}

/// Device reads of one run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct DeviceReads {
    /// Completed read requests.
    pub requests: u64,
    /// Bytes.
    pub bytes: u64,
}

/// A spread with the unit in its names.
#[derive(Serialize)]
#[serde(remote = "Spread")]
struct Seconds {
    #[serde(rename = "median_s")]
    median: f64,
    #[serde(rename = "min_s")]
    min: f64,
    #[serde(rename = "max_s")]
    max: f64,
}

/// All runs of one variant.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Measured {
    /// Of their times, seconds.
    #[serde(flatten, serialize_with = "Seconds::serialize")]
    pub spread: Spread,
    /// Of the run with the median time.
    pub device: DeviceReads,
    /// The most that any of the runs lost, bytes; see [`Sample::evicted_bytes`].
    pub evicted_bytes: Option<u64>,
    /// Each run that counts, in order.
    pub samples: Vec<Sample>,
    /// Disturbed runs that do not count, because they were measured again.
    pub repeated: Vec<Sample>,
}

impl Measured {
    /// `samples`: one at least.
    fn new(samples: Vec<Sample>, repeated: Vec<Sample>) -> Measured {
        let mut by_time: Vec<&Sample> = samples.iter().collect();
        sorting::sort_by(&mut by_time, |a, b| a.s.total_cmp(&b.s));
        let median = by_time[(by_time.len() - 1) / 2];
        Measured {
            spread: Spread::of(samples.iter().map(|run| run.s)),
            device: DeviceReads { requests: median.requests, bytes: median.bytes },
            evicted_bytes: samples.iter().filter_map(|run| run.evicted_bytes).max(),
            samples,
            repeated,
        }
    }
}

/// How to compare.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Comparison {
    /// Rounds; each variant runs once in each. 0 counts as 1.
    pub rounds: u32,
    /// Disturbed runs of each variant that are measured again at most.
    pub repeats: u32,
}

impl Comparison {
    /// A comparison with this number of rounds. Up to half as many disturbed runs are measured again: on a machine that always
    /// reclaims, the comparison takes half as long again, and it ends.
    pub fn new(rounds: u32) -> Comparison {
        Comparison { rounds, repeats: rounds.div_ceil(2) }
    }

    /// Runs all variants in every round. `before_run` is called before each run, with the index of its variant. The result has one entry for
    /// each variant, in their order.
    ///
    /// # Errors
    /// The first error of the runner.
    pub fn measure<R: Runner>(
        &self,
        runner: &mut R,
        variants: &[R::Variant],
        before_run: &mut dyn FnMut(usize),
    ) -> Result<Vec<Measured>> {
        self.measure_while(runner, variants, before_run, &mut |_| true)
    }

    /// The same, and ends early after a round for which `goes_on` is false. It gets the samples of each variant.
    ///
    /// # Errors
    /// As [`Comparison::measure`].
    pub fn measure_while<R: Runner>(
        &self,
        runner: &mut R,
        variants: &[R::Variant],
        before_run: &mut dyn FnMut(usize),
        goes_on: &mut dyn FnMut(&[&[Sample]]) -> bool,
    ) -> Result<Vec<Measured>> {
        let mut measured: Vec<(Vec<Sample>, Vec<Sample>)> = variants.iter().map(|_| Default::default()).collect();
        for _ in 0..self.rounds.max(1) {
            for (index, (variant, (samples, repeated))) in variants.iter().zip(&mut measured).enumerate() {
                before_run(index);
                let mut sample = runner.run(variant)?;
                if sample.is_disturbed() && repeated.len() < self.repeats as usize {
                    before_run(index);
                    let mut again = runner.run(variant)?;
                    // Of two disturbed runs the less disturbed one counts: chosen by what was evicted, never by time.
                    if again.evicted_bytes <= sample.evicted_bytes {
                        std::mem::swap(&mut sample, &mut again);
                    }
                    repeated.push(again);
                }
                samples.push(sample);
            }
            let so_far: Vec<&[Sample]> = measured.iter().map(|(samples, _)| &samples[..]).collect();
            if !goes_on(&so_far) {
                break;
            }
        }
        Ok(measured.into_iter().map(|(samples, repeated)| Measured::new(samples, repeated)).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Error;

    /// Answers from a list, and notes which variant ran.
    struct Scripted {
        samples: Vec<Result<Sample>>,
        ran: Vec<&'static str>,
    }

    impl Runner for Scripted {
        type Variant = &'static str;

        fn run(&mut self, variant: &&'static str) -> Result<Sample> {
            self.ran.push(variant);
            self.samples.remove(0)
        }
    }

    fn sample(s: f64, requests: u64, bytes: u64, evicted: u64) -> Result<Sample> {
        Ok(Sample { s, requests, bytes, evicted_bytes: Some(evicted), ..Sample::default() })
    }

    #[test]
    fn variants_take_turns_in_every_round() {
        let samples = (0..6).map(|n| sample(f64::from(n), 1, 1, 0)).collect();
        let mut runner = Scripted { samples, ran: Vec::new() };
        let mut announced = Vec::new();
        let measured =
            Comparison::new(2).measure(&mut runner, &["a", "b", "c"], &mut |index| announced.push(index)).unwrap();
        assert_eq!(runner.ran, ["a", "b", "c", "a", "b", "c"]);
        assert_eq!(announced, [0, 1, 2, 0, 1, 2]);
        let medians: Vec<f64> = measured.iter().map(|one| one.spread.median).collect();
        assert_eq!(medians, [1.5, 2.5, 3.5]);
    }

    #[test]
    fn disturbed_run_is_measured_again_within_the_limit() {
        let samples = vec![
            sample(9.0, 9, 9, 500),
            sample(1.0, 1, 1, 0),
            sample(8.0, 8, 8, 400),
            // As disturbed as before, and the limit is reached.
            sample(2.0, 2, 2, 600),
            sample(7.0, 7, 7, 300),
        ];
        let mut runner = Scripted { samples, ran: Vec::new() };
        let comparison = Comparison { rounds: 3, repeats: 2 };
        let measured = comparison.measure(&mut runner, &["a"], &mut |_| {}).unwrap().remove(0);
        assert_eq!((runner.ran.len(), measured.repeated.len()), (5, 2));
        let kept: Vec<u64> = measured.samples.iter().map(|sample| sample.requests).collect();
        assert_eq!((kept, measured.evicted_bytes), (vec![1, 8, 7], Some(400)));
    }

    #[test]
    fn runs_that_are_not_observed_are_never_repeated() {
        let unobserved = |s| Ok(Sample { s, ..Sample::default() });
        let mut runner = Scripted { samples: vec![unobserved(1.0), unobserved(3.0)], ran: Vec::new() };
        let measured = Comparison::new(2).measure(&mut runner, &["a"], &mut |_| {}).unwrap().remove(0);
        assert_eq!((measured.repeated.len(), measured.evicted_bytes, measured.spread.median), (0, None, 2.0));
    }

    #[test]
    fn error_of_the_runner_ends_the_comparison() {
        let mut runner =
            Scripted { samples: vec![sample(1.0, 1, 1, 0), Err(Error::Failed("broken".into()))], ran: Vec::new() };
        let error = Comparison::new(5).measure(&mut runner, &["a", "b"], &mut |_| {}).unwrap_err();
        assert_eq!((error.to_string(), runner.ran.len()), ("broken".into(), 2));
    }

    #[test]
    fn rounds_end_when_the_samples_suffice() {
        let samples = (0..20).map(|n| sample(f64::from(n), 1, 1, 0)).collect();
        let mut runner = Scripted { samples, ran: Vec::new() };
        let enough = &mut |samples: &[&[Sample]]| samples[1].len() < 3;
        let measured = Comparison::new(9).measure_while(&mut runner, &["a", "b"], &mut |_| {}, enough).unwrap();
        assert_eq!((runner.ran.len(), measured[0].samples.len(), measured[1].samples.len()), (6, 3, 3));
    }

    /// Regression: requests and bytes were separate medians, which belonged to no run.
    #[test]
    fn reads_are_those_of_the_run_with_the_median_time() {
        let device = |runs: &[(f64, u64, u64)]| {
            let samples = runs.iter().map(|&(s, requests, bytes)| sample(s, requests, bytes, 0).unwrap()).collect();
            let DeviceReads { requests, bytes } = Measured::new(samples, Vec::new()).device;
            (requests, bytes)
        };
        assert_eq!(device(&[(3.0, 5, 50), (1.0, 9, 10), (2.0, 1, 90)]), (1, 90));
        assert_eq!(device(&[(2.0, 1, 90), (1.0, 9, 10)]), (9, 10));
    }
}
