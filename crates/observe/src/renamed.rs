//! Files that have another name now, in the directory that they were seen in.
//!
//! A program that deletes thousands of files in one directory must not have that directory read thousands of times: each is
//! read once, and of its entries those are kept whose inodes were seen. Directories may be large, and there may be many:
//! all together so many entries are looked at ([`ENTRIES_MOST`]).

use ahead_sys::openat;
use rustix::fs::RawDir;
use std::cell::{Cell, RefCell};
use std::collections::{HashMap, HashSet};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;

/// Entries that are looked at in one recording: some seconds' work on a warm directory. A mail spool or a cache of packages
/// has some hundred thousand.
const ENTRIES_MOST: usize = 1 << 22;

/// The names of some inodes, each the first that was found.
type Names = Rc<HashMap<u64, PathBuf>>;

/// What is known of directories so far.
#[derive(Debug)]
pub(crate) struct Directories {
    /// The inodes that are looked for.
    wanted: HashSet<u64>,
    read: RefCell<HashMap<PathBuf, Names>>,
    left: Cell<usize>,
    /// Files that were not found, and not looked for to the end.
    given_up: Cell<u64>,
}

impl Directories {
    pub(crate) fn new(wanted: HashSet<u64>) -> Directories {
        Directories::within(wanted, ENTRIES_MOST)
    }

    fn within(wanted: HashSet<u64>, entries: usize) -> Directories {
        Directories { wanted, read: RefCell::default(), left: Cell::new(entries), given_up: Cell::new(0) }
    }

    /// The path of this inode in a directory.
    pub(crate) fn find(&self, directory: &Path, inode: u64) -> Option<PathBuf> {
        let known = self.read.borrow().get(directory).cloned();
        let names = known.unwrap_or_else(|| {
            let names = Rc::new(self.names_in(directory));
            self.read.borrow_mut().insert(directory.into(), names.clone());
            names
        });
        let found = names.get(&inode).cloned();
        if found.is_none() && self.left.get() == 0 {
            self.given_up.set(self.given_up.get() + 1);
        }
        found
    }

    /// How many files may have another name that was not looked for.
    pub(crate) fn given_up(&self) -> u64 {
        self.given_up.get()
    }

    /// What cannot be read has no entries. Nothing but a directory on a disk is opened, and by no symbolic link: whoever may
    /// write above it could have put another one there.
    fn names_in(&self, path: &Path) -> HashMap<u64, PathBuf> {
        let mut names = HashMap::new();
        let Ok(directory) = openat::handle(path).and_then(|handle| handle.reopen_directory()) else { return names };
        let mut buffer = Vec::with_capacity(64 << 10);
        let mut entries = RawDir::new(&directory, buffer.spare_capacity_mut());
        while self.left.get() > 0 {
            let Some(Ok(entry)) = entries.next() else { break };
            self.left.set(self.left.get() - 1);
            let name = entry.file_name().to_bytes();
            if self.wanted.contains(&entry.ino()) && name != b"." && name != b".." {
                names.entry(entry.ino()).or_insert_with(|| path.join(OsStr::from_bytes(name)));
            }
        }
        names
    }

    #[cfg(test)]
    fn looked_at(&self, of: usize) -> usize {
        of - self.left.get()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::MetadataExt;

    /// Regression: for each deleted file its directory was read once more.
    #[test]
    fn a_directory_is_read_once_however_many_files_are_looked_for() {
        let home = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        let directory = fs::canonicalize(home.path()).unwrap();
        let inode = |name: &str| fs::metadata(directory.join(name)).unwrap().ino();
        let names: Vec<String> = (0..100).map(|number| format!("file{number}")).collect();
        names.iter().for_each(|name| fs::write(directory.join(name), "").unwrap());
        let inodes: Vec<u64> = names.iter().map(|name| inode(name)).collect();
        // Some were deleted, and one has another name now.
        names[10..].iter().for_each(|name| fs::remove_file(directory.join(name)).unwrap());
        fs::rename(directory.join("file0"), directory.join("other")).unwrap();
        let directories = Directories::within(inodes.iter().copied().collect(), 1000);
        let found = inodes.iter().filter_map(|inode| directories.find(&directory, *inode)).count();
        assert_eq!((found, directories.find(&directory, inodes[0])), (10, Some(directory.join("other"))));
        // With `.` and `..`.
        assert_eq!((directories.looked_at(1000), directories.given_up()), (12, 0));
    }

    #[test]
    fn what_is_not_looked_for_to_the_end_is_counted() {
        let home = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        let directory = fs::canonicalize(home.path()).unwrap();
        (0..10).for_each(|number| fs::write(directory.join(number.to_string()), "").unwrap());
        let directories = Directories::within(HashSet::from([1]), 5);
        assert_eq!((directories.find(&directory, 1), directories.find(&directory.join("none"), 1)), (None, None));
        assert_eq!(directories.given_up(), 2);
        std::os::unix::fs::symlink(&directory, directory.join("link")).unwrap();
        let directories = Directories::within(HashSet::from([1]), 5);
        assert_eq!((directories.find(&directory.join("link"), 1), directories.looked_at(5)), (None, 0));
    }
}
