//! Compares a profile with the files that are there now: which entries are missing, changed, no regular files, or there twice.
//!
//! Only handles without access are opened: nothing is read unless the content is to be compared, and no device or FIFO is touched. Lookups and metadata are not compared. A
//! lookup may be recorded for its negative answer, and a device is found by its mount point when it is used.

use super::Joined;
use crate::lists::content::{ContentReader, Examined, Replaced};
use ahead_profile::{File, Profile};
use ahead_sys::openat::Identity;
use ahead_sys::root::Root;
use std::collections::{BTreeMap, HashMap};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::Duration;

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
    /// Another file is at the path, by its inode, with the recorded size and modification time. Only on file systems that keep inode numbers.
    Replaced,
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
            Problem::Replaced => "replaced",
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
    /// Changed and replaced files that have the recorded content: [`Checked::accept_same_content`].
    pub accepted: BTreeMap<usize, Replaced>,
}

/// Maximum number of bytes and time of the content checks of one profile: a profile of a boot has 300 MiB.
const MAX_READ_BYTES: u64 = 4 << 30;
const MAX_READ_TIME: Duration = Duration::from_secs(60);

/// A reader for the content checks of one profile.
pub(super) fn content_reader(root: &Root) -> ContentReader {
    ContentReader::new(root, MAX_READ_BYTES, MAX_READ_TIME)
}

impl Checked {
    /// The number of findings with this name.
    pub fn count(&self, name: &str) -> usize {
        self.findings.iter().filter(|finding| finding.problem.name() == name).count()
    }

    /// Reads the used parts of changed and replaced files, within limits. Those that have the recorded content are no problem any more. A file
    /// whose content the profile does not know stays one.
    pub fn accept_same_content(&mut self, profile: &Profile, root: &Root) {
        let mut reader = content_reader(root);
        let accepted = &mut self.accepted;
        self.findings.retain(|finding| {
            if !matches!(finding.problem, Problem::Changed | Problem::Replaced) {
                return true;
            }
            match reader.examine_content(&profile.files[finding.file]) {
                Examined::Replaced(replaced) if replaced.is_equal => {
                    accepted.insert(finding.file, replaced);
                    false
                }
                _ => true,
            }
        });
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

/// Compares an entry with what is at its path below a root directory now: a regular file and the problem, except for duplicates.
pub fn compare(file: &File, root: &Root) -> (Option<Identity>, Option<Problem>) {
    let handle = match root.handle(Path::new(OsStr::from_bytes(&file.path))) {
        Ok(handle) => handle,
        Err(error) => return (None, Some(problem_of(&error))),
    };
    if !handle.is_regular_file() {
        return (None, Some(Problem::NotRegular));
    }
    let now = handle.identity();
    if !file.is_recorded(now.size_bytes, now.mtime_ns, now.inode) {
        return (Some(now), Some(Problem::Changed));
    }
    let is_other = file.inode != 0 && file.inode != now.inode;
    let is_replaced = is_other && handle.file_system().is_ok_and(|kind| kind.stores_inode_numbers);
    (Some(now), is_replaced.then_some(Problem::Replaced))
}

fn problem_of(error: &ahead_sys::Error) -> Problem {
    // EPERM, EACCES. Every other error means that no file is there, or only behind a link.
    match error.raw_os_error() {
        Some(1 | 13) => Problem::Unknown,
        _ => Problem::Missing,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lists::fix::tests::{Tree, entry, extent};

    #[test]
    fn file_without_permission_is_unknown_and_not_missing() {
        let with = |number| ahead_sys::Error::io("open", std::io::Error::from_raw_os_error(number));
        for (number, problem) in [(13, Problem::Unknown), (1, Problem::Unknown), (2, Problem::Missing)] {
            assert_eq!(problem_of(&with(number)), problem);
        }
    }

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
    fn symbolic_link_in_place_of_a_recorded_file_is_not_regular() {
        let tree = Tree::new();
        std::os::unix::fs::symlink("a", tree.home().join("file-link")).unwrap();
        let problem =
            |name: &str| compare(&File { path: tree.path(name), ..entry(&tree, "a", Vec::new()) }, &Root::default()).1;
        assert_eq!(problem("a"), None);
        assert_eq!(problem("file-link"), Some(Problem::NotRegular));
        assert_eq!(problem("link/a"), Some(Problem::Missing));
    }

    /// Regression: another file with the size and the time of the recorded one passed the check.
    #[test]
    fn another_file_with_the_recorded_size_and_time_is_replaced() {
        let tree = Tree::on_disk();
        let files = vec![entry(&tree, "a", vec![extent(0, 4096)]), entry(&tree, "b", vec![extent(0, 4096)])];
        let mut profile = Profile { files, ..Profile::default() };
        crate::lists::add_content_checks(&mut profile, &Root::default());
        assert!(profile.files.iter().all(|file| file.content.is_some()));
        let replace = |name: &str, byte: u8, seconds: u64| {
            let new = tree.home().join("new");
            std::fs::write(&new, vec![byte; 16384]).unwrap();
            let time = match seconds {
                0 => std::fs::metadata(tree.home().join(name)).unwrap().modified().unwrap(),
                seconds => std::time::UNIX_EPOCH + Duration::from_secs(seconds),
            };
            std::fs::File::options().write(true).open(&new).unwrap().set_modified(time).unwrap();
            std::fs::rename(new, tree.home().join(name)).unwrap();
        };
        let checked = |profile: &Profile| check(profile, &Root::default(), |_| ());
        let fixed = |checked: &Checked, by_content| {
            crate::lists::fix(profile.clone(), checked, &Root::default(), by_content).0.files.len()
        };
        // Other content, and equal content under another time.
        replace("a", 7, 0);
        replace("b", 1, 5);
        let mut found = checked(&profile);
        assert_eq!(problems(&found), [(0, "replaced"), (1, "changed")]);
        assert_eq!(fixed(&found, false), 1, "the content of a is another");
        found.accept_same_content(&profile, &Root::default());
        assert_eq!((problems(&found), found.accepted.len()), (vec![(0, "replaced")], 1));
        assert_eq!(fixed(&found, true), 1);
        // The same content in another file with the same time.
        replace("a", 1, 0);
        let mut found = checked(&profile);
        assert_eq!(found.count("replaced"), 1);
        found.accept_same_content(&profile, &Root::default());
        assert_eq!((problems(&found), found.accepted.len()), (vec![], 2));
        let accepted = crate::lists::fix(profile.clone(), &found, &Root::default(), true).0;
        assert_eq!(checked(&accepted).findings, []);
        assert!(accepted.files.iter().all(|file| file.content.is_some()));
        // A profile without inodes, or without content checks.
        let unnumbered = Profile { files: vec![File { inode: 0, ..profile.files[0].clone() }], ..Profile::default() };
        assert_eq!(checked(&unnumbered).findings, []);
        let unknown = Profile { files: vec![File { content: None, ..profile.files[0].clone() }], ..Profile::default() };
        let mut found = checked(&unknown);
        found.accept_same_content(&unknown, &Root::default());
        assert_eq!(found.count("replaced"), 1);
        let kept = crate::lists::fix(unknown.clone(), &found, &Root::default(), true);
        assert_eq!((kept.0.files, kept.1.updated), (unknown.files, 0), "what cannot be compared stays");
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
