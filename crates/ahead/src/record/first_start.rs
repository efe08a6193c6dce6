//! The first start of a program: it reads what its later starts do not, and creates what they read instead.
//!
//! ```text
//!     one run ──▶ created files that stay?  ──no──▶ its profile
//!                     └─yes─▶ second run, cold again ──▶ it succeeded?  ──yes──▶ the profile of the second
//!                                                             └─no──▶ the profile of the first
//! ```
//!
//! The runs are not merged: pages that only the first one read are those that were wasted at every later start (7 to 16 % of what was
//! prefetched for Chromium with a new user directory, and for Matplotlib without its font cache).

use ahead_profile::PathBytes;
use std::os::unix::fs::FileTypeExt;

/// The signs of a first start, and what was done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FirstStart {
    /// The files that the first run created and that a later start may read, in order of their first lookup.
    pub created: Vec<PathBytes>,
    /// Recorded runs.
    pub runs: usize,
    /// The run whose profile it is, from 1; 0: all runs, merged.
    pub kept_run: usize,
    /// Why the second run was not kept; `None`: it was, or there was none.
    pub failure: Option<String>,
}

/// Number of created files that are listed: enough to see what they are.
const EXAMPLES: usize = 10;

impl FirstStart {
    /// `None` without created files.
    pub(super) fn of(created: Vec<PathBytes>, runs: usize) -> Option<FirstStart> {
        let kept_run = usize::from(runs == 1);
        (!created.is_empty()).then_some(FirstStart { created, runs, kept_run, failure: None })
    }

    /// The signs, for the user: `it created 2 files that a later start may read (/home/u/.cache/a, …)`.
    pub fn signs(&self) -> String {
        let first = String::from_utf8_lossy(&self.created[0]).replace(char::is_control, "?");
        match self.created.len() {
            1 => format!("it created a file that a later start may read ({first})"),
            count => format!("it created {count} files that a later start may read ({first}, ...)"),
        }
    }

    /// The first of the created files, as text.
    pub fn examples(&self) -> Vec<String> {
        self.created.iter().take(EXAMPLES).map(|path| String::from_utf8_lossy(path).into_owned()).collect()
    }

    pub(super) fn notice(&self) -> String {
        let signs = self.signs();
        format!(
            "this was a first start: {signs}; recording a second run, which later starts resemble (--runs 1: only one)"
        )
    }

    /// What was done, for the user.
    pub fn outcome(&self) -> String {
        match (&self.failure, self.runs, self.kept_run) {
            (Some(why), ..) => format!("the second run after a first start {why}: this profile is of the first"),
            (None, _, 2) => "this profile is of the second run: the first was a first start".into(),
            (None, 1, _) => format!("this was a first start: {}; record it again", self.signs()),
            _ => format!("the first of these runs was a first start: {}", self.signs()),
        }
    }
}

/// Whether a second run of a command has the same standard input: a terminal, or nothing. A pipe or a file was read by the first.
pub fn is_input_repeatable() -> bool {
    std::fs::metadata("/proc/self/fd/0").map_or(true, |input| input.file_type().is_char_device())
}
