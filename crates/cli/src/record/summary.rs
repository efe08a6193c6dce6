//! What a recording says of itself at its end.

use super::Series;
use ahead::record::LeftOut;
use ahead_learn::Counters;
use ahead_profile::{Precision, Profile};
use ahead_report::number;
use ahead_report::text::printable;
use ahead_sys::machine;
use serde_json::{Value, json};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::Duration;

/// What is known beside the profile: of the last run, if there were several.
pub struct Summary {
    runs: usize,
    runs_asked: usize,
    took: Duration,
    setup: Duration,
    evaluation: Duration,
    left_out: LeftOut,
    counters: Counters,
    /// Entries that did not fit into the profile.
    pub beyond_limits: u64,
    /// Whether what was waited for came; `None`: nothing was.
    ready: Option<bool>,
    /// How it was broken off, if it was.
    pub interrupted: Option<String>,
    /// The status of a program that failed.
    failed: Option<i32>,
    /// The profile was saved; otherwise the one of before stays.
    kept: bool,
}

impl Summary {
    pub fn of(series: &Series, waited: bool, kept: bool) -> Summary {
        let last = series.runs.last().expect("there is at least one run");
        Summary {
            runs: series.runs.len(),
            runs_asked: series.asked,
            took: Duration::from_micros(last.profile.recording.duration_us),
            setup: last.setup,
            evaluation: last.finish,
            left_out: last.left_out,
            counters: last.counters,
            beyond_limits: 0,
            ready: waited.then_some(last.finished.ready),
            interrupted: series.interrupted(),
            failed: series.failed(),
            kept,
        }
    }

    /// What is missing from the profile and why, with the key for programs and the words for people.
    fn missing(&self, profile: &Profile) -> [(u64, &'static str, &'static str); 10] {
        let LeftOut { unreachable, without_device, made_here, other_kinds, .. } = self.left_out;
        let LeftOut { unseen_namespaces, not_looked_for, unkept_lookups, .. } = self.left_out;
        let unkept = self.counters.unkept + unkept_lookups;
        [
            (profile.recording.lost_events, "lost_events", "events LOST: the profile is incomplete"),
            (unreachable, "unreachable_files", "files on file systems that cannot be reached from here"),
            (without_device, "files_without_device", "files without a device (tmpfs and the like)"),
            (made_here, "files_made_here", "files that were made or grew meanwhile"),
            (other_kinds, "other_inodes", "other inodes"),
            (unseen_namespaces, "unseen_namespaces", "mount namespaces that ended before their paths could be seen"),
            (self.counters.unreadable, "unreadable_lookups", "looked-up paths that could not be read"),
            (unkept, "unkept_events", "of the lost events for want of memory: record a shorter run"),
            (
                self.beyond_limits,
                "entries_beyond_limits",
                "entries beyond what a profile may hold: record a shorter run",
            ),
            (not_looked_for, "files_not_looked_for", "files taken for deleted, in directories too large to be read"),
        ]
    }

    /// For programs.
    pub fn json(&self, profile: &Profile, output: &Path) -> Value {
        let mut value = json!({
            "profile": output.to_string_lossy(),
            "files": profile.files.len(),
            "bytes": profile.data_bytes(),
            "metadata_bytes": profile.metadata_bytes(),
            "metadata_seen": profile.recording.metadata_seen,
            "precise": profile.recording.precision == Precision::Precise,
            "runs": self.runs,
            "runs_asked": self.runs_asked,
            "duration_s": self.took.as_secs_f64(),
            "setup_s": self.setup.as_secs_f64(),
            "evaluation_s": self.evaluation.as_secs_f64(),
            "ready": self.ready,
            "interrupted": self.interrupted.is_some(),
            "failed_status": self.failed,
            "kept": self.kept,
        });
        for (count, key, _) in self.missing(profile) {
            value[key] = json!(count);
        }
        value
    }

    /// For people: what was recorded, in one line, and in a second one what is missing, if anything is.
    pub fn print(&self, profile: &Profile, output: &Path) {
        if let Some(how) = self.interrupted.as_ref().filter(|_| !self.kept) {
            let file = printable(output.as_os_str().as_bytes());
            eprintln!("ahead: interrupted {how}: nothing is kept, and {file} stays as it was");
            return;
        }
        if self.interrupted.is_none() && self.ready == Some(false) {
            eprintln!("ahead: it ended before what --until-... waits for came");
        }
        if let Some(status) = self.failed.filter(|_| !self.kept) {
            let file = printable(output.as_os_str().as_bytes());
            eprintln!(
                "ahead: the program failed with status {status}: its profile is not kept, and {file} stays as it was \
                 (record --even-if-failed replaces it)"
            );
            return;
        }
        let recording = &profile.recording;
        let data = number::size(profile.data_bytes());
        let metadata = match recording.metadata_seen {
            true => format!("{} of metadata", number::size(profile.metadata_bytes())),
            false if profile.metadata_bytes() > 0 => {
                format!("{} of metadata (record --cold to see all)", number::size(profile.metadata_bytes()))
            }
            false => "no metadata (record --cold to see it)".into(),
        };
        let precision = match recording.precision {
            Precision::Precise => "precise",
            Precision::UpperBound => "upper bound",
        };
        let (files, took) = (profile.files.len(), self.took());
        let place = printable(output.as_os_str().as_bytes());
        eprintln!("ahead: {files} files, {data}, {metadata}, {precision}, {took}: {place}");
        if let Some(how) = &self.interrupted {
            eprintln!("ahead: interrupted {how}: this profile ends there, and says so");
        } else if let Some(status) = self.failed {
            eprintln!("ahead: the program failed with status {status}: this profile is of that run");
        }
        let missing = self.missing(profile);
        let notes = missing.iter().filter(|(count, ..)| *count > 0).map(|(count, _, what)| format!("{count} {what}"));
        let notes: Vec<String> = notes.collect();
        if !notes.is_empty() {
            eprintln!("ahead: left out: {}", notes.join(", "));
        }
        if recording.source.contains("add_to_page_cache") && !recording.cold {
            eprintln!("ahead: {} shows only what was not cached; record --cold to see all", machine::kernel_release());
        }
    }

    /// `2 runs, the last in 0.43 s (set-up 0.12 s, evaluation 0.05 s)`.
    fn took(&self) -> String {
        let [took_s, setup_s, evaluation_s] = [self.took, self.setup, self.evaluation].map(|time| time.as_secs_f64());
        let runs = if self.runs == 1 { String::new() } else { format!("{} runs, the last ", self.runs) };
        format!("{runs}in {took_s:.3} s (set-up {setup_s:.3} s, evaluation {evaluation_s:.3} s)")
    }
}
