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
use ahead_sys::openat;
use std::collections::{HashMap, HashSet};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, FileTypeExt};
use std::path::Path;

/// The signs of a first start, and what was done.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
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
            "this was a first start: {signs}; recording a second run, which later starts resemble (unless one run is asked for)"
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
/// that have it mapped, and it may be none. Both used it if both looked it up, or neither did: the kernel itself opens the dynamic loader.
pub(super) fn is_alike(earlier: &Profile, now: &Profile, is_program: impl Fn(&[u8]) -> bool) -> bool {
    let (mut before, mut after) = (used_ranges(earlier), used_ranges(now));
    let (looked_up, looked_up_now) = (looked_up(earlier), looked_up(now));
    for file in earlier.files.iter().chain(&now.files) {
        let inode = (file.device, file.inode);
        let seen = [&before, &after].map(|used| used.contains_key(&file.path));
        let is_used_by_both = seen == [true; 2] || looked_up.contains(&inode) == looked_up_now.contains(&inode);
        if seen != [false; 2] && is_used_by_both && is_program(&file.path) {
            before.remove(&file.path);
            after.remove(&file.path);
        }
    }
    let common: u64 = before.iter().filter_map(|(path, used)| Some(used.count_common(after.get(path)?))).sum();
    let count = |used: &HashMap<&PathBytes, RangeSet>| used.values().map(RangeSet::count).sum::<u64>();
    common as f64 >= ALIKE * (count(&before) + count(&after) - common) as f64
}

/// The inodes that a run looked up.
fn looked_up(profile: &Profile) -> HashSet<(u64, u64)> {
    profile.lookups.iter().map(|lookup| (lookup.device, lookup.inode)).collect()
}

/// The list of libraries. The dynamic loader maps it at each start, so that its pages are seen as those of a library: while no other process has it
/// mapped.
const LOADER_CACHE: &[u8] = b"/etc/ld.so.cache";

/// Whether other processes may have mapped the file: a program, a library, or the list of these.
pub(super) fn is_of_programs(path: &[u8]) -> bool {
    path == LOADER_CACHE || is_elf(path)
}

/// Whether a file is an ELF file. One that is not on a disk is none: reading it may wait for a server.
fn is_elf(path: &[u8]) -> bool {
    let handle = openat::handle(Path::new(OsStr::from_bytes(path))).ok();
    let on_disk = handle.filter(|handle| handle.file_system().is_ok_and(|kind| kind.is_on_disk()));
    let file = on_disk.and_then(|handle| handle.reopen().ok()).map(std::fs::File::from);
    let mut begin = [0; 4];
    file.is_some_and(|file| file.read_exact_at(&mut begin, 0).is_ok()) && begin == *b"\x7fELF"
}

fn used_ranges(profile: &Profile) -> HashMap<&PathBytes, RangeSet> {
    let mut used: HashMap<&PathBytes, RangeSet> = HashMap::new();
    for file in &profile.files {
        let ranges = used.entry(&file.path).or_default();
        file.extents.iter().for_each(|extent| ranges.insert(extent.range()));
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
    use ahead_profile::{Extent, File, Lookup};

    const SHELL: u64 = 1;
    const LIBRARY: u64 = 2;
    const DATA: u64 = 3;
    const COMPILER: u64 = 4;
    const OTHER_DATA: u64 = 5;

    /// A profile of files, inode and bytes used from the start, and of lookups of inodes.
    fn profile(files: &[(u64, u64)], lookups: &[u64]) -> Profile {
        let file = |&(inode, length_bytes): &(u64, u64)| File {
            path: inode.to_string().into_bytes(),
            inode,
            extents: vec![Extent { length_bytes, ..Extent::default() }],
            ..File::default()
        };
        let lookup = |&inode: &u64| Lookup { path: inode.to_string().into(), inode, ..Lookup::default() };
        let (files, lookups) = (files.iter().map(file).collect(), lookups.iter().map(lookup).collect());
        Profile { files, lookups, ..Profile::default() }
    }

    fn are_alike(earlier: &Profile, now: &Profile) -> bool {
        let is_program =
            |path: &[u8]| [SHELL, LIBRARY, COMPILER].iter().any(|inode| path == inode.to_string().as_bytes());
        let alike = is_alike(earlier, now, is_program);
        assert_eq!(is_alike(now, earlier, is_program), alike);
        alike
    }

    /// Regression: another process had the shell mapped in one of two recordings, and the second counted as a first start. It did again where the
    /// shell was known as a program only if its first page was still cached when the earlier recording checked its content.
    #[test]
    fn pages_of_a_program_that_others_have_mapped_make_no_first_start() {
        let earlier = profile(&[(SHELL, 110_000), (DATA, 300_000)], &[SHELL, DATA]);
        assert!(are_alike(&earlier, &profile(&[(SHELL, 10_000), (DATA, 300_000)], &[SHELL, DATA])));
        assert!(!are_alike(&earlier, &profile(&[(SHELL, 110_000), (DATA, 200_000)], &[SHELL, DATA])));
    }

    /// Other processes may have all of its pages mapped in one of two recordings.
    #[test]
    fn library_of_which_no_page_is_seen_makes_no_first_start() {
        for lookups in [&[LIBRARY, DATA][..], &[DATA]] {
            let without = profile(&[(DATA, 300_000)], lookups);
            assert!(are_alike(&without, &profile(&[(LIBRARY, 200_000), (DATA, 300_000)], lookups)));
            assert!(!are_alike(&without, &profile(&[(OTHER_DATA, 200_000), (DATA, 300_000)], lookups)));
        }
    }

    #[test]
    fn first_start_uses_other_files_or_programs() {
        let earlier = profile(&[(SHELL, 100_000), (DATA, 100_000)], &[SHELL, DATA]);
        for other in [OTHER_DATA, COMPILER] {
            let files = [(SHELL, 100_000), (DATA, 100_000), (other, 100_000)];
            assert!(!are_alike(&earlier, &profile(&files, &[SHELL, DATA, other])));
        }
    }

    #[test]
    fn programs_are_elf_files() {
        let home = tempfile::tempdir().unwrap();
        let script = home.path().join("script");
        std::fs::write(&script, "#!/bin/sh\n").unwrap();
        let own = std::env::current_exe().unwrap();
        assert!(is_elf(own.as_os_str().as_bytes()) && !is_elf(script.as_os_str().as_bytes()));
        assert!(!is_elf(home.path().as_os_str().as_bytes()) && !is_elf(b"/missing") && !is_elf(b"/dev/zero"));
    }
}
