//! The result of a recording, as text and as JSON.

use ahead::record::Recording;
use ahead_profile::Precision;
use ahead_report::number;
use ahead_report::text::printable;
use ahead_sys::machine;
use serde_json::{Value, json};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// A recording and its file.
pub struct Summary<'a> {
    pub recording: &'a Recording,
    pub path: &'a Path,
    /// The profile was saved; otherwise the earlier one stays.
    pub kept: bool,
}

impl Summary<'_> {
    /// The summary as JSON.
    pub fn json(&self) -> Value {
        let recording = self.recording;
        let profile = &recording.profile;
        let mut value = json!({
            "profile": self.path.to_string_lossy(),
            "files": profile.files.len(),
            "bytes": profile.data_bytes(),
            "metadata_bytes": profile.metadata_bytes(),
            "metadata_seen": profile.recording.metadata_seen,
            "source": profile.recording.source,
            "precise": profile.recording.precision == Precision::Precise,
            "runs": recording.runs,
            "runs_asked": recording.runs_asked,
            "duration_s": recording.duration.as_secs_f64(),
            "setup_s": recording.setup.as_secs_f64(),
            "evaluation_s": recording.evaluation.as_secs_f64(),
            "ready": recording.ready,
            "interrupted": recording.interrupted.is_some(),
            "failed_status": recording.failed_status,
            "kept": self.kept,
            "first_start": null,
        });
        if let Some(start) = &recording.first_start {
            value["first_start"] = json!({
                "written_files": start.written.len(),
                "written": start.examples(),
                "runs": start.runs,
                "kept_run": start.kept_run,
                "failure": start.failure,
            });
        }
        for (count, key, _) in self.recording.missing() {
            value[key] = json!(count);
        }
        value
    }

    /// Prints a line for the recording, and a second one for missing items, if any.
    pub fn print(&self) {
        let (recording, file) = (self.recording, printable(self.path.as_os_str().as_bytes()));
        let profile = &recording.profile;
        if let Some(how) = recording.interrupted.as_ref().filter(|_| !self.kept) {
            eprintln!("ahead: interrupted {how}: the recording is not kept, and {file} stays as it was");
            return;
        }
        if recording.interrupted.is_none() && recording.ready == Some(false) {
            eprintln!("ahead: the program ended before the --until-... condition was met");
        }
        if let Some(status) = recording.failed_status.filter(|_| !self.kept) {
            eprintln!(
                "ahead: the program failed with status {status}: its profile is not kept, and {file} stays as it was \
                 (record --even-if-failed replaces it)"
            );
            return;
        }
        let data = number::size(profile.data_bytes());
        let precision = match profile.recording.precision {
            Precision::Precise => "precise",
            Precision::UpperBound => "upper bound",
        };
        let (files, metadata, took) = (profile.files.len(), self.metadata(), self.took());
        eprintln!("ahead: {files} files, {data}, {metadata}, {precision}, {took}: {file}");
        if let Some(how) = &recording.interrupted {
            eprintln!("ahead: interrupted {how}: this profile ends there, and is marked as interrupted");
        } else if let Some(status) = recording.failed_status {
            eprintln!("ahead: the program failed with status {status}: this profile is of that run");
        }
        let missing = self.recording.missing();
        let notes = missing.iter().filter(|(count, ..)| *count > 0).map(|(count, _, what)| format!("{count} {what}"));
        let notes: Vec<String> = notes.collect();
        if let Some(start) = &recording.first_start {
            eprintln!("ahead: {}", start.outcome());
        }
        if !notes.is_empty() {
            eprintln!("ahead: left out: {}", notes.join(", "));
        }
        if profile.recording.source.contains("add_to_page_cache") && !profile.recording.cold {
            eprintln!("ahead: {} shows only what was not cached; record --cold to see all", machine::kernel_release());
        }
    }

    fn metadata(&self) -> String {
        let profile = &self.recording.profile;
        match (profile.recording.metadata_seen, profile.metadata_bytes()) {
            (true, bytes) => format!("{} of metadata", number::size(bytes)),
            (false, 0) => "no metadata (record --cold to see it)".into(),
            (false, bytes) => format!("{} of metadata (record --cold to see all)", number::size(bytes)),
        }
    }

    /// `2 runs, the last in 0.43 s (set-up 0.12 s, evaluation 0.05 s)`.
    fn took(&self) -> String {
        let Recording { duration, setup, evaluation, runs, .. } = self.recording;
        let [took_s, setup_s, evaluation_s] = [duration, setup, evaluation].map(|time| time.as_secs_f64());
        let runs = if *runs == 1 { String::new() } else { format!("{runs} runs, the last ") };
        format!("{runs}in {took_s:.3} s (set-up {setup_s:.3} s, evaluation {evaluation_s:.3} s)")
    }
}
