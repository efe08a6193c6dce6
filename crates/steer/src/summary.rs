//! What a run has done.

use crate::times::Percentiles;
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt;

/// What a run has done.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Summary {
    /// Its duration.
    pub seconds: f64,
    /// Whether acts were only logged.
    pub dry_run: bool,
    /// Decisions of the kernel that were received.
    pub events: u64,
    /// Decisions and counts that the observer had no room for.
    pub lost_events: u64,
    /// Open files of which a decision was seen.
    pub files_seen: u64,
    /// Windows that were set.
    pub windows_set: u64,
    /// Windows that were put back, at the end or before.
    pub windows_restored: u64,
    /// Groups of pages that were requested ahead of a reader.
    pub fetches: u64,
    /// Their bytes.
    pub fetched_bytes: u64,
    /// Requests that were dropped: too many, or too late.
    pub dropped_fetches: u64,
    /// Acts that were undone because they did not help.
    pub undone: u64,
    /// Acts that would have been done without `--dry-run`.
    pub planned: u64,
    /// Open files and processes that were left alone, and acts that were not done, by reason.
    pub refusals: BTreeMap<String, u64>,
    /// Time from a decision whose reader waits to the window that followed.
    pub latency_us: Option<Percentiles>,
    /// Time from a decision to the end of the requests that followed.
    pub fetch_latency_us: Option<Percentiles>,
    /// Time for which a taken descriptor was held.
    pub hold_us: Option<Percentiles>,
    /// Time for which the window of a disk had another value: an open file that is opened in it inherits that value.
    pub exposed_us: Option<Percentiles>,
    /// The sum of these times.
    pub exposed_total_us: f64,
    /// Processor time of this process, without its start. Unit: seconds.
    pub cpu_seconds: f64,
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Summary { seconds, events, lost_events, files_seen, .. } = self;
        writeln!(f, "{seconds:.1} s: {events} decisions about {files_seen} open files, {lost_events} lost")?;
        if self.dry_run {
            writeln!(f, "acts that were only planned: {}", self.planned)?;
        }
        writeln!(
            f,
            "windows set: {}, put back: {}; fetched: {} KiB in {} requests, {} dropped; undone: {}",
            self.windows_set,
            self.windows_restored,
            self.fetched_bytes >> 10,
            self.fetches,
            self.dropped_fetches,
            self.undone
        )?;
        for (why, count) in &self.refusals {
            writeln!(f, "left alone: {count} × {why}")?;
        }
        let mut line = |name: &str, times: Option<Percentiles>| match times {
            Some(times) => writeln!(f, "{name}: {times}"),
            None => Ok(()),
        };
        line("decision to window", self.latency_us)?;
        line("decision to fetch", self.fetch_latency_us)?;
        line("descriptor held", self.hold_us)?;
        line("another value in a disk's setting", self.exposed_us)?;
        let share = self.cpu_seconds / self.seconds.max(1e-9) * 100.0;
        write!(f, "processor time: {:.3} s ({share:.2} % of one core)", self.cpu_seconds)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn summary_names_what_was_left_alone() {
        let refusals = BTreeMap::from([("excluded by the rules".to_owned(), 3)]);
        let summary = Summary { seconds: 2.0, events: 5, refusals, cpu_seconds: 0.01, ..Summary::default() };
        let text = summary.to_string();
        assert!(text.contains("left alone: 3 × excluded by the rules") && text.contains("0.50 %"), "{text}");
        assert_eq!(serde_json::to_value(&summary).unwrap()["events"], 5);
    }
}
