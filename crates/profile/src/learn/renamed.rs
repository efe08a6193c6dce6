//! Files that were renamed within their directory.
//!
//! If a program deletes thousands of files in one directory, that directory must not be read thousands of times. Therefore each
//! directory is read once, and only entries of observed inodes are kept. Directories may be large, and there may be many: the
//! number of entries read for one recording is limited ([`ENTRIES_MOST`]).

use crate::learn::filesystem::{FileSystem, Names};
use std::cell::{Cell, RefCell};
use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::rc::Rc;

/// Maximum number of entries read for one recording: some seconds of work on warm directories. A mail spool or a package cache
/// has some hundred thousand.
const ENTRIES_MOST: usize = 1 << 22;

/// The directories read so far.
#[derive(Debug)]
pub(crate) struct Directories {
    /// The inodes to find.
    wanted: HashSet<u64>,
    read: RefCell<HashMap<PathBuf, Rc<Names>>>,
    left: Cell<usize>,
    /// Number of files that were not found before the limit was reached.
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
    pub(crate) fn find(&self, filesystem: &dyn FileSystem, directory: &Path, inode: u64) -> Option<PathBuf> {
        let known = self.read.borrow().get(directory).cloned();
        let names = known.unwrap_or_else(|| {
            let (names, entries) = filesystem.names_in(directory, &self.wanted, self.left.get());
            self.left.set(self.left.get().saturating_sub(entries));
            let names = Rc::new(names);
            self.read.borrow_mut().insert(directory.into(), names.clone());
            names
        });
        let found = names.get(&inode).cloned();
        if found.is_none() && self.left.get() == 0 {
            self.given_up.set(self.given_up.get() + 1);
        }
        found
    }

    /// Number of files that may have another name that was not searched.
    pub(crate) fn given_up(&self) -> u64 {
        self.given_up.get()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::learn::testing::TableFileSystem;

    /// Regression: for each deleted file its directory was read again.
    #[test]
    fn directory_is_read_once_for_any_number_of_files() {
        let filesystem = TableFileSystem::of(&[("/d/other", 1, 0), ("/d/file2", 2, 0), ("/d/new", 9, 0)]);
        let directories = Directories::within((0..100).collect(), 1000);
        let find = |inode| directories.find(&filesystem, Path::new("/d"), inode);
        assert_eq!((0..100).filter_map(find).count(), 3);
        assert_eq!(find(1), Some(PathBuf::from("/d/other")));
        assert_eq!(filesystem.directories_read.borrow().len(), 1);
        assert_eq!((directories.left.get(), directories.given_up()), (997, 0));
    }

    #[test]
    fn files_not_searched_to_the_end_are_counted() {
        let files: Vec<String> = (0..10).map(|number| format!("/d/{number}")).collect();
        let files: Vec<(&str, u64, u64)> = files.iter().map(|path| (path.as_str(), 7, 0)).collect();
        let filesystem = TableFileSystem::of(&files);
        let directories = Directories::within(HashSet::from([1]), 5);
        let find = |directory| directories.find(&filesystem, Path::new(directory), 1);
        assert_eq!((find("/d"), find("/none")), (None, None));
        assert_eq!((directories.given_up(), directories.left.get()), (2, 0));
    }
}
