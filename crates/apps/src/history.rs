//! What is known of the starts of one program: how long they waited for the disk, cold, with a prefetch and without one.
//!
//! ```text
//!     cold starts     plain  observed  prefetched  prefetched  left alone  prefetched …
//!                     ╰─ unprepared ─╯ ╰───── prefetched ─────╯ ╰─ alone
//!     gain            median wait of those left alone (before there is one: of unprepared ones, an estimate) − median wait of prefetched ones
//! ```
//!
//! Starts whose pages were resident show nothing, and do not count. A stored history is a file that its user may write: it is cut to its limits
//! when it is read, and no number in it can overflow.

use crate::key::AppVersion;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, VecDeque};

/// Starts that are remembered, and measured starts of each kind. A page's support counts as many (see [`crate::KEPT_STARTS`]).
pub const RECENT_STARTS: usize = 8;
/// A start is cold if more than this share of its profile was absent, percent. Below it, what other programs have left in the cache decides
/// more than the disk.
pub const COLD_PERCENT: u8 = 20;
/// Days with savings that are remembered: two months of the page that shows them.
const KEPT_DAYS: usize = 62;

/// What was done at a start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Treatment {
    /// Nothing, and only its waits were measured.
    #[default]
    Plain,
    /// Recorded, without a prefetch.
    Observed,
    /// Prefetched, and perhaps recorded.
    Prefetched,
    /// Nothing, for comparison: it has a profile.
    LeftAlone,
    /// Nothing: a start around it is recorded, prefetched or left alone.
    Covered,
}

/// One start, measured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct AppStart {
    /// What was done.
    pub treatment: Treatment,
    /// When, seconds since 1970, by a clock that may be wrong.
    pub unix_s: u64,
    /// The share of the profile that was absent at exec, percent; `None`: unknown, or there was no profile.
    pub absent_percent: Option<u8>,
    /// Time that it waited for disks, microseconds.
    pub waited_us: u64,
    /// From exec to the end of the start, microseconds.
    pub elapsed_us: u64,
    /// Bytes that the prefetch requested.
    pub issued_bytes: u64,
    /// Requested and used, bytes.
    pub useful_bytes: u64,
    /// Requested and not used, bytes.
    pub wasted_bytes: u64,
    /// The share of the profile that was stale, percent.
    pub stale_percent: u8,
}

impl AppStart {
    /// Whether most of what it needs was on the disk.
    pub fn is_cold(&self) -> bool {
        self.absent_percent.is_some_and(|absent| absent > COLD_PERCENT)
    }

    fn timing(&self) -> StartTiming {
        StartTiming { waited_us: self.waited_us, elapsed_us: self.elapsed_us }
    }
}

/// How long a cold start took, microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct StartTiming {
    /// Of this it waited for disks.
    pub waited_us: u64,
    /// From exec to the end of the start.
    pub elapsed_us: u64,
}

/// What a prefetch brings to one cold start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StartGain {
    /// Median wait without a prefetch less median wait with it, microseconds. Below 0: slower.
    pub saved_us: i64,
    /// Median time of a start without a prefetch, microseconds.
    pub start_us: u64,
    /// Measured against starts that were left alone; else an estimate from starts before there was a profile.
    pub is_measured: bool,
}

/// The starts of a program.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct History {
    /// The program's file at the last start.
    pub version: AppVersion,
    /// Starts.
    pub starts: u64,
    /// Cold ones, as far as known.
    pub cold_starts: u64,
    /// The last starts, the latest last; at most [`RECENT_STARTS`].
    pub recent: VecDeque<AppStart>,
    /// Cold starts that were left alone, since the last update.
    pub alone: VecDeque<StartTiming>,
    /// Cold starts with a prefetch, since the last update.
    pub prefetched: VecDeque<StartTiming>,
    /// Starts without a profile that waited for the disk, since the last update.
    pub unprepared: VecDeque<StartTiming>,
    /// How many cold starts were left alone, since the last update.
    pub left_alone: u32,
    /// Cold starts, prefetched or left alone, since the last update.
    pub compared: u32,
    /// Cold starts with a prefetch since the last one that was left alone.
    pub cold_since_alone: u32,
    /// Starts since the last recording.
    pub starts_since_recording: u32,
    /// The file was replaced since the last recording.
    pub was_updated: bool,
    /// Saved by all cold starts, measured, microseconds.
    pub measured_us: i64,
    /// The same, where it is an estimate.
    pub estimated_us: i64,
    /// Saved by day (days since 1970), measured or estimated, microseconds.
    pub days: BTreeMap<u32, i64>,
    /// Bytes that were requested, and those of them that were not used.
    pub issued_bytes: u64,
    /// See above.
    pub wasted_bytes: u64,
    /// The day of use (see [`crate::UseDays`]) of the last start.
    pub last_use_day: u32,
}

impl History {
    /// Takes over which file was executed. A replaced one is measured again.
    pub fn see_version(&mut self, version: AppVersion) {
        let before = std::mem::replace(&mut self.version, version);
        if before == version || before == AppVersion::default() {
            return;
        }
        [&mut self.alone, &mut self.prefetched, &mut self.unprepared].into_iter().for_each(VecDeque::clear);
        (self.left_alone, self.compared, self.cold_since_alone) = (0, 0, 0);
        self.was_updated = true;
    }

    /// Adds a start. `use_day`: the day of use; `waited`: whether a start that waited for so long counts as one that waits for the disk.
    pub fn add(&mut self, start: AppStart, use_day: u32, waited: bool) {
        self.starts = self.starts.saturating_add(1);
        self.last_use_day = use_day;
        self.starts_since_recording = self.starts_since_recording.saturating_add(1);
        push(&mut self.recent, start);
        self.issued_bytes = self.issued_bytes.saturating_add(start.issued_bytes);
        self.wasted_bytes = self.wasted_bytes.saturating_add(start.wasted_bytes);
        match start.treatment {
            Treatment::Plain | Treatment::Observed if waited => push(&mut self.unprepared, start.timing()),
            _ => {}
        }
        if !start.is_cold() {
            return;
        }
        self.cold_starts = self.cold_starts.saturating_add(1);
        match start.treatment {
            Treatment::LeftAlone => {
                push(&mut self.alone, start.timing());
                self.left_alone = self.left_alone.saturating_add(1);
                self.cold_since_alone = 0;
            }
            Treatment::Prefetched => {
                self.cold_since_alone = self.cold_since_alone.saturating_add(1);
                push(&mut self.prefetched, start.timing());
                self.save(start);
            }
            _ => return,
        }
        self.compared = self.compared.saturating_add(1);
    }

    /// A recording of the last start was kept.
    pub fn recorded(&mut self) {
        (self.starts_since_recording, self.was_updated) = (0, false);
    }

    fn save(&mut self, start: AppStart) {
        let Some((without, is_measured)) = self.without() else { return };
        let saved_us = difference(without.waited_us, start.waited_us);
        let sum = if is_measured { &mut self.measured_us } else { &mut self.estimated_us };
        *sum = sum.saturating_add(saved_us);
        let day = u32::try_from(start.unix_s / 86_400).unwrap_or(u32::MAX);
        let of_day = self.days.entry(day).or_default();
        *of_day = of_day.saturating_add(saved_us);
        while self.days.len() > KEPT_DAYS {
            self.days.pop_first();
        }
    }

    /// The median start without a prefetch, and whether it was left alone for comparison.
    pub fn without(&self) -> Option<(StartTiming, bool)> {
        median(&self.alone).map(|timing| (timing, true)).or(median(&self.unprepared).map(|timing| (timing, false)))
    }

    /// The gain of a cold start by a prefetch. `None`: none was prefetched, or there is nothing to compare with.
    pub fn gain(&self) -> Option<StartGain> {
        let ((without, is_measured), with) = (self.without()?, median(&self.prefetched)?);
        let saved_us = difference(without.waited_us, with.waited_us);
        Some(StartGain { saved_us, start_us: without.elapsed_us, is_measured })
    }

    /// A history as it may be: of a file that anybody may have written.
    pub fn cut(mut self) -> History {
        let first = |list: &mut VecDeque<StartTiming>| {
            list.drain(..list.len().saturating_sub(RECENT_STARTS));
        };
        [&mut self.alone, &mut self.prefetched, &mut self.unprepared].into_iter().for_each(first);
        self.recent.drain(..self.recent.len().saturating_sub(RECENT_STARTS));
        while self.days.len() > KEPT_DAYS {
            self.days.pop_first();
        }
        self
    }
}

fn push<T>(list: &mut VecDeque<T>, last: T) {
    list.push_back(last);
    list.drain(..list.len().saturating_sub(RECENT_STARTS));
}

/// The lower medians of both times, each by itself.
fn median(timings: &VecDeque<StartTiming>) -> Option<StartTiming> {
    let of = |time: fn(&StartTiming) -> u64| {
        let mut times: Vec<u64> = timings.iter().map(time).collect();
        times.sort_unstable();
        times.get(times.len().checked_sub(1)? / 2).copied()
    };
    Some(StartTiming { waited_us: of(|at| at.waited_us)?, elapsed_us: of(|at| at.elapsed_us)? })
}

fn difference(one: u64, other: u64) -> i64 {
    let signed = |number: u64| i64::try_from(number).unwrap_or(i64::MAX);
    signed(one).saturating_sub(signed(other))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cold(treatment: Treatment, waited_us: u64) -> AppStart {
        AppStart { treatment, absent_percent: Some(90), waited_us, elapsed_us: 100_000, ..AppStart::default() }
    }

    #[test]
    fn gain_is_an_estimate_until_a_start_was_left_alone() {
        let mut history = History::default();
        let plain = AppStart { absent_percent: None, ..cold(Treatment::Plain, 60_000) };
        history.add(plain, 1, true);
        assert_eq!(history.gain(), None);
        history.add(cold(Treatment::Prefetched, 10_000), 1, false);
        let gain = |saved_us, is_measured| Some(StartGain { saved_us, start_us: 100_000, is_measured });
        assert_eq!(history.gain(), gain(50_000, false));
        history.add(cold(Treatment::LeftAlone, 40_000), 1, true);
        history.add(cold(Treatment::Prefetched, 12_000), 2, false);
        assert_eq!(history.gain(), gain(30_000, true));
        assert_eq!((history.estimated_us, history.measured_us, history.days[&0]), (50_000, 28_000, 78_000));
        assert_eq!((history.starts, history.cold_starts, history.compared, history.left_alone), (4, 3, 3, 1));
    }

    #[test]
    fn warm_and_covered_starts_show_nothing() {
        let mut history = History::default();
        for absent_percent in [None, Some(0), Some(COLD_PERCENT)] {
            for treatment in [Treatment::Prefetched, Treatment::LeftAlone, Treatment::Covered] {
                history.add(AppStart { absent_percent, ..cold(treatment, 9_000_000) }, 1, true);
            }
        }
        history.add(cold(Treatment::Covered, 9), 1, true);
        assert_eq!((history.gain(), history.without(), history.compared, history.cold_starts), (None, None, 0, 1));
        assert_eq!(history.recent.len(), RECENT_STARTS);
    }

    #[test]
    fn replaced_program_is_measured_again_and_keeps_what_it_saved() {
        let mut history = History::default();
        let version = |inode| AppVersion { inode, ..AppVersion::default() };
        history.see_version(version(1));
        history.add(cold(Treatment::LeftAlone, 9000), 1, true);
        history.add(cold(Treatment::Prefetched, 1000), 1, false);
        history.see_version(version(1));
        assert!(history.gain().is_some() && !history.was_updated);
        history.see_version(version(2));
        assert!(history.gain().is_none() && history.was_updated);
        assert_eq!((history.measured_us, history.starts), (8000, 2));
    }

    #[test]
    fn hostile_numbers_do_not_overflow_and_lists_are_cut() {
        let start = AppStart {
            waited_us: u64::MAX,
            wasted_bytes: u64::MAX,
            unix_s: u64::MAX,
            ..cold(Treatment::Prefetched, 0)
        };
        let mut history = History {
            starts: u64::MAX,
            measured_us: i64::MIN,
            left_alone: u32::MAX,
            wasted_bytes: 1,
            days: (0..1000).map(|day| (day, i64::MIN)).collect(),
            alone: vec![StartTiming::default(); 100].into(),
            ..History::default()
        };
        history = history.cut();
        assert_eq!((history.days.len(), history.alone.len()), (KEPT_DAYS, RECENT_STARTS));
        for _ in 0..3 {
            history.add(start, u32::MAX, true);
        }
        history.add(AppStart { treatment: Treatment::LeftAlone, ..start }, u32::MAX, true);
        assert_eq!((history.measured_us, history.starts, history.left_alone), (i64::MIN, u64::MAX, u32::MAX));
    }
}
