//! What was seen and done: one type for the summary at the end and for the metrics.

use crate::log::{LoggedAct, Outcome};
use crate::refusal::Refusal;
use crate::times::{Percentiles, Times};
use ahead_model::PAGE_BYTES;
use ahead_observe::MachineCounters;
use serde::ser::SerializeStruct;
use serde::{Serialize, Serializer};
use std::collections::BTreeMap;
use std::fmt;

/// What a run has seen and done so far. As JSON and as text it is the summary of the run.
#[derive(Clone, Debug, Default)]
pub struct Counts {
    /// Its duration.
    pub(crate) seconds: f64,
    /// Whether acts were only logged.
    pub(crate) dry_run: bool,
    /// Processor time of this process, without its start. Unit: seconds.
    pub(crate) cpu_seconds: f64,
    /// Decisions of the kernel that were received.
    pub(crate) events: u64,
    /// Decisions and counts that the observer had no room for.
    pub(crate) lost_events: u64,
    /// Open files of which a decision was seen.
    pub(crate) files: u64,
    /// Acts by kind and outcome.
    pub(crate) acts: BTreeMap<(LoggedAct, Outcome), u64>,
    /// Open files and processes that are left alone, and acts that were not done, by reason.
    pub(crate) refusals: BTreeMap<&'static str, u64>,
    /// Acts that were undone because they did not help.
    pub(crate) undone: u64,
    /// Windows that were put back, at the end or before.
    pub(crate) windows_restored: u64,
    /// Pages whose fetch was started.
    pub(crate) fetched_pages: u64,
    /// Fetches that were dropped because they had waited too long.
    pub(crate) expired_fetches: u64,
    /// Time from a decision whose reader waits to the window that followed.
    pub(crate) latency: Times,
    /// Time from a decision to the end of the requests that followed.
    pub(crate) fetch_latency: Times,
    /// Time for which a taken descriptor was held.
    pub(crate) held: Times,
    /// Time for which the window of a disk had another value: an open file that is opened in it inherits that value.
    pub(crate) exposed: Times,
    /// Counts of the observer.
    pub(crate) machine: MachineCounters,
    /// Open files that are tracked now, that have a changed window now, and for which pages are fetched now.
    pub(crate) tracked: usize,
    pub(crate) windows: usize,
    pub(crate) fetching: usize,
    /// Own descriptors of fetched files that are open now.
    pub(crate) own_descriptors: usize,
    /// Whether tasks wait for memory.
    pub(crate) has_pressure: bool,
}

impl Counts {
    /// Counts an act.
    pub(crate) fn act(&mut self, act: LoggedAct, outcome: Outcome) {
        *self.acts.entry((act, outcome)).or_default() += 1;
    }

    /// Counts a refusal.
    pub(crate) fn refusal(&mut self, why: &Refusal) {
        if let Some(label) = why.label() {
            *self.refusals.entry(label).or_default() += 1;
        }
    }

    /// The number of acts of a kind with this outcome.
    fn acts(&self, act: LoggedAct, outcome: Outcome) -> u64 {
        self.acts.get(&(act, outcome)).copied().unwrap_or(0)
    }

    /// Acts that would have been done without `--dry-run`.
    fn planned(&self) -> u64 {
        self.acts.iter().filter(|((_, outcome), _)| *outcome == Outcome::Planned).map(|(_, count)| count).sum()
    }

    /// Fetches that were dropped: too many, or too late.
    fn dropped_fetches(&self) -> u64 {
        self.acts(LoggedAct::Fetch, Outcome::Dropped) + self.expired_fetches
    }
}

/// The summary; docs/reference/json.md describes the keys.
impl Serialize for Counts {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut summary = serializer.serialize_struct("Counts", 19)?;
        summary.serialize_field("seconds", &self.seconds)?;
        summary.serialize_field("dry_run", &self.dry_run)?;
        summary.serialize_field("events", &self.events)?;
        summary.serialize_field("lost_events", &self.lost_events)?;
        summary.serialize_field("files_seen", &self.files)?;
        summary.serialize_field("windows_set", &self.acts(LoggedAct::Window, Outcome::Done))?;
        summary.serialize_field("windows_restored", &self.windows_restored)?;
        summary.serialize_field("fetches", &self.acts(LoggedAct::Fetch, Outcome::Done))?;
        summary.serialize_field("fetched_bytes", &(self.fetched_pages * PAGE_BYTES))?;
        summary.serialize_field("dropped_fetches", &self.dropped_fetches())?;
        summary.serialize_field("undone", &self.undone)?;
        summary.serialize_field("planned", &self.planned())?;
        summary.serialize_field("refusals", &self.refusals)?;
        summary.serialize_field("latency_us", &self.latency.percentiles())?;
        summary.serialize_field("fetch_latency_us", &self.fetch_latency.percentiles())?;
        summary.serialize_field("hold_us", &self.held.percentiles())?;
        summary.serialize_field("exposed_us", &self.exposed.percentiles())?;
        summary.serialize_field("exposed_total_us", &(self.exposed.sum().as_secs_f64() * 1e6))?;
        summary.serialize_field("cpu_seconds", &self.cpu_seconds)?;
        summary.end()
    }
}

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Counts { seconds, events, lost_events, files, .. } = self;
        writeln!(f, "{seconds:.1} s: {events} decisions about {files} open files, {lost_events} lost")?;
        if self.dry_run {
            writeln!(f, "acts that were only planned: {}", self.planned())?;
        }
        writeln!(
            f,
            "windows set: {}, put back: {}; fetched: {} KiB in {} requests, {} dropped; undone: {}",
            self.acts(LoggedAct::Window, Outcome::Done),
            self.windows_restored,
            (self.fetched_pages * PAGE_BYTES) >> 10,
            self.acts(LoggedAct::Fetch, Outcome::Done),
            self.dropped_fetches(),
            self.undone
        )?;
        for (why, count) in &self.refusals {
            writeln!(f, "left alone: {count} × {why}")?;
        }
        let mut line = |name: &str, times: Option<Percentiles>| match times {
            Some(times) => writeln!(f, "{name}: {times}"),
            None => Ok(()),
        };
        line("decision to window", self.latency.percentiles())?;
        line("decision to fetch", self.fetch_latency.percentiles())?;
        line("descriptor held", self.held.percentiles())?;
        line("another value in a disk's setting", self.exposed.percentiles())?;
        let share = self.cpu_seconds / self.seconds.max(1e-9) * 100.0;
        write!(f, "processor time: {:.3} s ({share:.2} % of one core)", self.cpu_seconds)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn summary_names_what_was_left_alone() {
        let mut counts = Counts { seconds: 2.0, events: 5, cpu_seconds: 0.01, ..Counts::default() };
        (0..3).for_each(|_| counts.refusal(&Refusal::Rules(String::new())));
        let text = counts.to_string();
        assert!(text.contains("left alone: 3 × excluded by the rules") && text.contains("0.50 %"), "{text}");
        let json = serde_json::to_value(&counts).unwrap();
        assert_eq!((&json["events"], &json["refusals"]["excluded by the rules"]), (&5.into(), &3.into()));
    }
}
