//! What a comparison of program runs found, as `ahead compare --json` prints it.

use super::bound::BoundBy;
use super::{DeviceReads, Measured};
use crate::cold::Kept;
use crate::prefetch::Account;
use crate::store::note::Verdict;
use ahead_model::Spread;
use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};

/// A program cold, with its profile, and warm. Fields as in docs/reference/json.md; the command line comes before them.
#[derive(Clone, Debug, Default, Serialize)]
#[non_exhaustive]
pub struct Report {
    /// `uname -r`.
    pub kernel: String,
    /// Architecture, processors and memory, for people.
    pub machine: String,
    /// The read-ahead window of the disk that is measured, KiB.
    pub read_ahead_kb: Option<u64>,
    /// All windows that were seen before and after the runs: more than one if another process changed it meanwhile.
    pub read_ahead_kb_seen: Vec<u64>,
    /// Another recording had switched fault-around off during a run, on the whole machine.
    pub recorded_meanwhile: bool,
    /// The end of the measurement, seconds since 1970 (UTC).
    pub measured_unix_s: u64,
    /// Rounds.
    pub runs: u32,
    /// The first exit status of the program that was not 0, or 0.
    pub program_status: i32,
    /// Whether the end that was asked for came in every run; `null`: none was asked for.
    pub ready: Option<bool>,
    /// The emulated disk's model, where the files lie on one.
    pub model: Option<String>,
    /// The emulated disk is slower to emulate than its model: times are upper bounds.
    pub beyond_rig: bool,
    /// Without a profile, everything evicted before.
    pub cold: Measured,
    /// The same, through `ahead run`.
    pub ahead: Measured,
    /// Without a profile, everything cached.
    pub warm: Measured,
    /// How the page cache was emptied, and what stayed.
    pub cold_state: ColdState,
    /// cold / ahead, of the medians; `null` where the runs were not cold.
    pub speedup: Option<f64>,
    /// The lower bound ([`super::bound`]), seconds; `null` where the disk is not an emulated one, or the runs were not cold. On btrfs an
    /// estimate.
    pub bound_s: Option<f64>,
    /// What sets it; `null` where there is no bound.
    pub bound_by: Option<BoundBy>,
    /// (cold − ahead) / (cold − bound), of the medians; with the warm time for a bound where there is none. `null` where the runs were not cold.
    pub recovered_share: Option<f64>,
    /// Of the run that prefetched the median amount, judged; its late bytes are those of the observed run.
    #[serde(flatten, serialize_with = "judged_figures")]
    pub account: Account,
    /// The source of the used bytes: a recorded run or the profile.
    pub used_according_to: &'static str,
    /// Device reads of the median `ahead` run.
    pub device: DeviceReads,
    /// Other prefetchers.
    pub against: Vec<RivalResult>,
    /// One sentence: the result.
    pub verdict: String,
}

/// The figures of a judged account that are part of the report, `null` where unknown.
fn judged_figures<S: Serializer>(account: &Account, serializer: S) -> Result<S::Ok, S::Error> {
    let mut map = serializer.serialize_map(None)?;
    map.serialize_entry("prefetched_bytes", &account.issued_bytes)?;
    map.serialize_entry("used_bytes", &account.used_bytes)?;
    map.serialize_entry("bridged_bytes", &account.bridged_bytes)?;
    map.serialize_entry("wasted_bytes", &account.wasted_bytes)?;
    map.serialize_entry("late_bytes", &account.late_bytes)?;
    map.serialize_entry("stale_bytes", &account.stale_bytes)?;
    map.end()
}

impl Report {
    /// What the next `ahead run` has to know: that the profile gains nothing here. `None`: it gains, or the runs do not show it.
    pub fn note(&self) -> Option<Verdict> {
        if !self.cold_state.is_cold || self.ready == Some(false) || self.ahead.spread.max < self.cold.spread.min {
            return None;
        }
        let as_us = |seconds: f64| (seconds * 1e6) as u64;
        let issued_bytes = self.account.issued_bytes;
        match self.account.wasted_bytes {
            Some(wasted_bytes) if wasted_bytes > issued_bytes / 2 => {
                Some(Verdict::Wasted { wasted_bytes, issued_bytes })
            }
            _ if self.ahead.spread.min > self.cold.spread.max => Some(Verdict::Slower {
                ahead_us: as_us(self.ahead.spread.median),
                cold_us: as_us(self.cold.spread.median),
            }),
            _ => None,
        }
    }
}

/// How cold the cold runs were.
#[derive(Clone, Debug, Default, Serialize)]
#[non_exhaustive]
pub struct ColdState {
    /// `everything` (caches dropped), or `data` (only the pages of files that the caller may evict).
    pub evicted: &'static str,
    /// The most bytes of the profile's files that stayed cached when they were evicted before a run.
    pub kept_bytes: u64,
    /// The most bytes of the profile of which the kernel did not report whether they were cached (files of other users).
    pub unknown_bytes: u64,
    /// The share of the profile's bytes, metadata included, that stayed cached before a run, 0 to 1: the median of the runs. 0 without any.
    pub kept_share: f64,
    /// Whether the cold runs were cold: `kept_share` is below one half.
    pub is_cold: bool,
}

/// From this share of the profile on that stayed cached, runs are not cold: most of what they would read is not read. Below it the
/// result is that of a start beside the same programs, which keep the C library cached on every machine.
const NOT_COLD: f64 = 0.5;

impl ColdState {
    /// `kept`: what stayed before each run, of a profile with this many bytes.
    pub(super) fn new(evicted: &'static str, kept: &[Kept], profile_bytes: u64) -> ColdState {
        let most = kept.iter().copied().fold(Kept::default(), Kept::max);
        // Another process may have used the files beside one of the runs.
        let mut cached: Vec<u64> = kept.iter().map(|kept| kept.cached).collect();
        cached.sort_unstable();
        let usual = cached.get(cached.len() / 2).copied().unwrap_or(0);
        let kept_share = if profile_bytes == 0 { 0.0 } else { (usual as f64 / profile_bytes as f64).min(1.0) };
        let (kept_bytes, unknown_bytes) = (most.cached, most.unknown);
        ColdState { evicted, kept_bytes, unknown_bytes, kept_share, is_cold: kept_share < NOT_COLD }
    }

    /// The result of runs that were not cold.
    pub(super) fn verdict(&self) -> Option<String> {
        let share = self.kept_share * 100.0;
        (!self.is_cold).then(|| {
            format!("no verdict: not cold, because other processes kept {share:.0} % of the profile in memory")
        })
    }
}

/// Another prefetcher.
#[derive(Clone, Debug, Default, Serialize)]
#[non_exhaustive]
pub struct RivalResult {
    /// As it was named.
    pub name: String,
    /// The first exit status of the rival, not of the program, that was not 0, or 0.
    pub status: i32,
    /// Its runs.
    #[serde(flatten)]
    pub measured: Measured,
    /// As in [`Report`].
    pub recovered_share: Option<f64>,
}

/// The share of the possible gain that was gained; `None` if the possible gain is within the noise of the runs (`noise_s`).
pub fn recovered_share(cold_s: f64, fetched_s: f64, bound_s: f64, noise_s: f64) -> Option<f64> {
    let gain_possible = cold_s - bound_s;
    // Below a millisecond the quotient says nothing.
    (gain_possible > noise_s.max(1e-3)).then(|| (cold_s - fetched_s) / gain_possible)
}

/// The result, in one sentence. A difference within the spread of the runs is no difference. `runs`: of each variant.
pub fn verdict(cold: &Spread, ahead: &Spread, runs: u32) -> String {
    let scope = if runs == 1 { "in the one run of each" } else { "in every run" };
    if ahead.max < cold.min {
        format!("{:.1} times faster with ahead, {scope}", cold.median / ahead.median)
    } else if ahead.min > cold.max {
        format!("SLOWER with ahead: {:.2} times the cold time, {scope}", ahead.median / cold.median)
    } else {
        "no gain here: the runs with ahead and without overlap".into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spread(min_s: f64, median_s: f64, max_s: f64) -> Spread {
        Spread { median: median_s, min: min_s, max: max_s }
    }

    #[test]
    fn overlapping_runs_are_no_gain() {
        let verdict = |cold, ahead| verdict(&cold, &ahead, 5);
        assert!(verdict(spread(1.0, 2.0, 3.0), spread(0.5, 1.0, 1.5)).starts_with("no gain"));
        let faster = verdict(spread(2.0, 2.0, 3.0), spread(0.5, 1.0, 1.5));
        assert_eq!(faster, "2.0 times faster with ahead, in every run");
        assert!(verdict(spread(1.0, 1.0, 1.0), spread(2.0, 2.0, 2.0)).starts_with("SLOWER"));
    }

    /// Regression: one run of each was "every run".
    #[test]
    fn one_run_is_not_called_every_run() {
        let (slow, fast) = (spread(2.0, 2.0, 2.0), spread(1.0, 1.0, 1.0));
        assert_eq!(verdict(&slow, &fast, 1), "2.0 times faster with ahead, in the one run of each");
        assert_eq!(verdict(&fast, &slow, 1), "SLOWER with ahead: 2.00 times the cold time, in the one run of each");
    }

    /// Regression: of a file that another process had mapped, the verdict was "SLOWER", with a bound that was 35 times the cold time.
    #[test]
    fn runs_that_are_not_cold_have_no_verdict_and_no_bound() {
        let kept = |cached| Kept { cached, unknown: 0 };
        let state = |cached| ColdState::new("everything", &[kept(cached)], 1000);
        let mapped = state(990);
        assert_eq!(
            mapped.verdict().unwrap(),
            "no verdict: not cold, because other processes kept 99 % of the profile in memory"
        );
        assert!(!mapped.is_cold);
        // The C library of a small program.
        let beside = state(200);
        assert!(beside.is_cold && beside.verdict().is_none());
        assert!(ColdState::new("data", &[], 0).is_cold);
        assert_eq!(ColdState::new("data", &[kept(2000)], 1000).kept_share, 1.0);
        // Another process used the files beside one of three runs.
        let once = ColdState::new("everything", &[kept(10), kept(990), kept(20)], 1000);
        assert_eq!((once.kept_bytes, once.kept_share, once.is_cold), (990, 0.02, true));
    }

    #[test]
    fn share_needs_a_possible_gain() {
        assert_eq!(recovered_share(3.0, 2.0, 1.0, 0.1), Some(0.5));
        assert_eq!(recovered_share(1.0, 1.0, 1.0, 0.0), None);
        // Regression: 13 ms more than a cold time of 5.0 ms (4.8 to 6.2), with a bound of 3.9 ms, was "-1217 %".
        assert_eq!(recovered_share(0.0050, 0.0184, 0.0039, 0.0014), None);
    }
}
