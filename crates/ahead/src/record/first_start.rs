//! The first start of a program: it reads what its later starts do not, and writes what they read instead.
//!
//! ```text
//!     one run ──▶ files written that a later start reads?  ──no──▶ its profile
//!                     └─yes─▶ second run, cold again ──▶ it succeeded?  ──no──▶ the profile of the first
//!                                                             └─yes─▶ the profile of the second; of a third, if the first ended within a second
//!                                                                     and the second wrote such files, too: their times may have been equal
//! ```
//!
//! The runs are not merged: pages that only the first one read are those that were wasted at every later start (7 to 16 % of what was
//! prefetched for Chromium with a new user directory, and for Matplotlib without its font cache).

use ahead_model::RangeSet;
use ahead_profile::{PathBytes, Profile};
use std::collections::{HashMap, HashSet};
use std::os::unix::fs::FileTypeExt;

/// The signs of a first start, and what was done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FirstStart {
    /// The files that the first run wrote and that a later start reads, in the order in which it asked for them.
    pub written: Vec<PathBytes>,
    /// Recorded runs.
    pub runs: usize,
    /// The run whose profile it is, from 1; 0: all runs, merged.
    pub kept_run: usize,
    /// Why the last run was not kept; `None`: it was, or there was none after the first.
    pub failure: Option<String>,
}

/// Number of files that are listed: enough to see what they are.
const EXAMPLES: usize = 10;

impl FirstStart {
    /// `None` without such files.
    pub(super) fn of(written: Vec<PathBytes>, runs: usize) -> Option<FirstStart> {
        let kept_run = usize::from(runs == 1);
        (!written.is_empty()).then_some(FirstStart { written, runs, kept_run, failure: None })
    }

    /// The signs, for the user: `it wrote 2 files that a later start reads (/home/u/.cache/a, …)`.
    pub fn signs(&self) -> String {
        let first = String::from_utf8_lossy(&self.written[0]).replace(char::is_control, "?");
        match self.written.len() {
            1 => format!("it wrote a file that a later start reads ({first})"),
            count => format!("it wrote {count} files that a later start reads ({first}, ...)"),
        }
    }

    /// The first of these files, as text.
    pub fn examples(&self) -> Vec<String> {
        self.written.iter().take(EXAMPLES).map(|path| String::from_utf8_lossy(path).into_owned()).collect()
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
            (Some(why), _, 2) => format!("the third run {why}: this profile is of the second"),
            (Some(why), ..) => format!("the second run after a first start {why}: this profile is of the first"),
            (None, _, 2) => "this profile is of the second run: the first was a first start".into(),
            (None, _, 3) => {
                "this profile is of the third run: the two before it wrote files that a later start reads".into()
            }
            (None, 1, _) => format!("this was a first start: {}; record it again", self.signs()),
            _ => format!("the first of these runs was a first start: {}", self.signs()),
        }
    }
}

/// Two later starts of a program have at least this share of their bytes in common. A first start that reads as little more is as good.
const ALIKE: f64 = 0.9;

/// Whether a run used the same bytes of files as the earlier profile. Metadata blocks are left out: which of them are read depends on what was
/// written since the last run. So are the pages of a program or library that both used: which of them are seen depends on the other processes
/// that have it mapped.
pub(super) fn is_alike(earlier: &Profile, now: &Profile) -> bool {
    let programs = earlier.files.iter().filter(|file| file.content.as_ref().is_some_and(|content| content.layout != 0));
    let programs: HashSet<&PathBytes> = programs.map(|file| &file.path).collect();
    let (mut before, mut now) = (used_ranges(earlier), used_ranges(now));
    before.retain(|path, _| !(programs.contains(*path) && now.remove(*path).is_some()));
    let common: u64 = before.iter().filter_map(|(path, used)| Some(used.count_common(now.get(path)?))).sum();
    let count = |used: &HashMap<&PathBytes, RangeSet>| used.values().map(RangeSet::count).sum::<u64>();
    common as f64 >= ALIKE * (count(&before) + count(&now) - common) as f64
}

fn used_ranges(profile: &Profile) -> HashMap<&PathBytes, RangeSet> {
    let mut used: HashMap<&PathBytes, RangeSet> = HashMap::new();
    for file in &profile.files {
        let ranges = used.entry(&file.path).or_default();
        let end = |offset: u64, length: u64| offset.saturating_add(length);
        file.extents.iter().for_each(|e| ranges.insert(e.offset_bytes..end(e.offset_bytes, e.length_bytes)));
    }
    used
}

/// Whether a second run of a command has the same standard input: a terminal, or nothing. A pipe or a file was read by the first.
pub fn is_input_repeatable() -> bool {
    std::fs::metadata("/proc/self/fd/0").map_or(true, |input| input.file_type().is_char_device())
}

#[cfg(test)]
mod tests {
    use super::*;
    use ahead_profile::{ContentCheck, Extent, File};

    /// A profile of files: path, bytes used from the start, whether it is a program or library.
    fn profile(files: &[(&str, u64, bool)]) -> Profile {
        let file = |&(path, length_bytes, is_program): &(&str, u64, bool)| File {
            path: path.into(),
            extents: vec![Extent { length_bytes, ..Extent::default() }],
            content: is_program.then(|| Box::new(ContentCheck { layout: 7, pieces: vec![1] })),
            ..File::default()
        };
        Profile { files: files.iter().map(file).collect(), ..Profile::default() }
    }

    /// Regression: another process had the shell mapped in one of two recordings, and the second counted as a first start.
    #[test]
    fn pages_of_a_program_that_others_have_mapped_make_no_first_start() {
        let earlier = profile(&[("/bin/sh", 110_000, true), ("/data", 300_000, false)]);
        assert!(is_alike(&earlier, &profile(&[("/bin/sh", 10_000, false), ("/data", 300_000, false)])));
        assert!(!is_alike(&earlier, &profile(&[("/bin/sh", 110_000, false), ("/data", 200_000, false)])));
    }

    #[test]
    fn first_start_uses_other_files_or_programs() {
        let earlier = profile(&[("/bin/p", 100_000, true), ("/cache", 100_000, false)]);
        let others = [("/source", 100_000, false), ("/bin/compiler", 100_000, false)];
        for other in others {
            assert!(!is_alike(&earlier, &profile(&[("/bin/p", 100_000, false), ("/cache", 100_000, false), other])));
        }
    }
}
