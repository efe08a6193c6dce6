//! Compares a profile with the files that are there now: which entries are missing, changed, no regular files, or there twice.
//!
//! Only handles without access are opened: nothing is read, and no device or FIFO is touched. Lookups and metadata are not compared. A
//! lookup may be recorded for its negative answer, and a device is found by its mount point when it is used.

use super::Joined;
use ahead_profile::{File, Profile};
use ahead_sys::openat::Identity;
use ahead_sys::root::Root;
use std::collections::HashMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// What is wrong with an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Problem {
    /// No file is at the path, or only behind a symbolic link.
    Missing,
    /// Another kind of file is at the path.
    NotRegular,
    /// This process may not look at the path.
    Unknown,
    /// The size or the modification time differs from the recorded one.
    Changed,
    /// An earlier entry has the same path.
    SamePath {
        /// The index of the first such entry.
        of: usize,
        /// Bytes that earlier entries list, too.
        overlapping_bytes: u64,
    },
    /// An earlier entry has another path of the same file (a hard link, a bind mount).
    SameFile {
        /// The index of the first such entry.
        of: usize,
        /// Bytes that earlier entries list, too.
        overlapping_bytes: u64,
    },
}

impl Problem {
    /// The name for people and for JSON.
    pub fn name(self) -> &'static str {
        match self {
            Problem::Missing => "missing",
            Problem::NotRegular => "not_regular",
            Problem::Unknown => "unknown",
            Problem::Changed => "changed",
            Problem::SamePath { .. } => "same_path",
            Problem::SameFile { .. } => "same_file",
        }
    }

    /// The entry of which this one is a duplicate, and the bytes that earlier entries list, too.
    pub fn duplicate(self) -> Option<(usize, u64)> {
        match self {
            Problem::SamePath { of, overlapping_bytes } | Problem::SameFile { of, overlapping_bytes } => {
                Some((of, overlapping_bytes))
            }
            _ => None,
        }
    }
}

/// A problem of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The index of the file in the profile.
    pub file: usize,
    /// The problem.
    pub problem: Problem,
}

/// The result of a check.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Checked {
    /// All problems, by file. A changed file may be a duplicate, too.
    pub findings: Vec<Finding>,
    /// For each file of the profile what is at its path now; `None`: no regular file.
    pub now: Vec<Option<Identity>>,
    /// Files without a name at the end of the recording: never prefetched, so never wrong.
    pub deleted: usize,
}

impl Checked {
    /// The number of findings with this name.
    pub fn count(&self, name: &str) -> usize {
        self.findings.iter().filter(|finding| finding.problem.name() == name).count()
    }
}

/// Checks every file of a profile below a root directory. `progress`: is called with the number of files checked so far.
pub fn check(profile: &Profile, root: &Root, mut progress: impl FnMut(usize)) -> Checked {
    let mut checked = Checked::default();
    let mut by_path: HashMap<&[u8], usize> = HashMap::new();
    let mut by_number: HashMap<(u64, u64), usize> = HashMap::new();
    // Of files that are there twice: each range is looked at once, however many entries a hostile profile has of one file.
    let mut joined: HashMap<usize, Joined> = HashMap::new();
    for (index, file) in profile.files.iter().enumerate() {
        progress(index);
        let mut find = |problem| checked.findings.push(Finding { file: index, problem });
        if file.deleted {
            checked.deleted += 1;
            checked.now.push(None);
            continue;
        }
        let (now, problem) = compare(file, root);
        problem.into_iter().for_each(&mut find);
        let same_path = *by_path.entry(&file.path).or_insert(index);
        let same_file = now.map_or(index, |now| *by_number.entry((now.device, now.inode)).or_insert(index));
        let mut overlapping = |of: usize| {
            let joined = joined.entry(of).or_insert_with(|| Joined::new(&profile.files[of].extents));
            file.used_bytes() - joined.add(&file.extents)
        };
        if same_path != index {
            find(Problem::SamePath { of: same_path, overlapping_bytes: overlapping(same_path) });
        } else if same_file != index {
            find(Problem::SameFile { of: same_file, overlapping_bytes: overlapping(same_file) });
        }
        checked.now.push(now);
    }
    checked
}

fn compare(file: &File, root: &Root) -> (Option<Identity>, Option<Problem>) {
    let handle = match root.handle(Path::new(OsStr::from_bytes(&file.path))) {
        Ok(handle) => handle,
        // EPERM, EACCES. Every other error means that no file is there, or only behind a link.
        Err(error) if matches!(error.raw_os_error(), Some(1 | 13)) => return (None, Some(Problem::Unknown)),
        Err(_) => return (None, Some(Problem::Missing)),
    };
    if !handle.is_regular_file() {
        return (None, Some(Problem::NotRegular));
    }
    let now = handle.identity();
    let is_same = file.is_recorded(now.size_bytes, now.mtime_ns, now.inode);
    (Some(now), (!is_same).then_some(Problem::Changed))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lists::fix::tests::{Tree, entry, extent};

    fn problems(checked: &Checked) -> Vec<(usize, &'static str)> {
        checked.findings.iter().map(|finding| (finding.file, finding.problem.name())).collect()
    }

    #[test]
    fn each_problem_is_found_once() {
        let tree = Tree::new();
        let same = |name: &str| entry(&tree, name, vec![extent(0, 4096)]);
        let files = vec![
            same("a"),
            same("b"),
            File { mtime_ns: 1, ..same("changed") },
            File { path: tree.path("none"), ..same("a") },
            File { path: tree.path("directory"), ..same("a") },
            File { extents: vec![extent(0, 2048), extent(8192, 4096)], ..same("b") },
            File { path: tree.path("hard"), ..same("a") },
            File { path: tree.path("gone"), deleted: true, ..same("a") },
            File { path: tree.path("link/a"), ..same("a") },
        ];
        let profile = Profile { files, ..Profile::default() };
        let mut steps = 0;
        let checked = check(&profile, &Root::default(), |_| steps += 1);
        let expected =
            [(2, "changed"), (3, "missing"), (4, "not_regular"), (5, "same_path"), (6, "same_file"), (8, "missing")];
        assert_eq!((problems(&checked), checked.deleted, steps), (expected.to_vec(), 1, 9));
        assert_eq!(checked.findings[3].problem, Problem::SamePath { of: 1, overlapping_bytes: 2048 });
        assert_eq!(checked.findings[4].problem.duplicate(), Some((0, 4096)));
        assert_eq!((checked.count("missing"), checked.count("unknown")), (2, 0));
        assert!(checked.now[2].is_some() && checked.now[4].is_none());
    }

    #[test]
    fn paths_are_compared_below_the_root() {
        let tree = Tree::new();
        let relative =
            |name: &str| File { path: format!("/{name}").into(), ..entry(&tree, "a", vec![extent(0, 4096)]) };
        let profile = Profile { files: vec![relative("a"), relative("link/a"), relative("out")], ..Profile::default() };
        let root = Root::at(tree.home()).unwrap();
        assert_eq!(problems(&check(&profile, &root, |_| ())), [(1, "same_file"), (2, "missing")]);
        assert_eq!(check(&profile, &Root::default(), |_| ()).count("missing"), 3);
    }
}
