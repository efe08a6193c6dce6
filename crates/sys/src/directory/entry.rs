//! A name in an open directory: how root removes, mounts and unmounts in directories that other users may write.
//!
//! Between two calls with the same path, the owner of any directory in it can put a symbolic link there. The directory is
//! therefore resolved once and kept open:
//!
//! ```text
//!     /home/eva/d/x.img ──▶ directory (O_PATH) + "x.img"  ──▶ /proc/self/fd/N/x.img   stat it, remove it, unmount it
//! ```
//!
//! The kernel resolves the link in /proc to the open directory itself, even if the path now leads to another directory.

use super::{Directory, failed};
use crate::Result;
use std::ffi::{OsStr, OsString};
use std::io;
use std::path::{Path, PathBuf};

/// A name in a directory that is kept open.
#[derive(Debug)]
pub struct DirectoryEntry {
    directory: Directory,
    name: OsString,
}

impl DirectoryEntry {
    /// Opens the directory of `path`; the name in it may be missing. `None`: there is no such directory.
    pub fn of(path: &Path) -> Result<Option<DirectoryEntry>> {
        let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
            return Err(failed("open", path, io::Error::other("it has no parent directory")));
        };
        let parent = if parent.as_os_str().is_empty() { Path::new(".") } else { parent };
        match Directory::open(parent) {
            Ok(directory) => Ok(Some(DirectoryEntry { directory, name: name.into() })),
            Err(error) if matches!(error.raw_os_error(), Some(libc::ENOENT | libc::ENOTDIR)) => Ok(None),
            Err(error) => Err(error),
        }
    }

    pub(super) fn new(directory: Directory, name: &OsStr) -> DirectoryEntry {
        DirectoryEntry { directory, name: name.into() }
    }

    /// The open directory.
    pub fn directory(&self) -> &Directory {
        &self.directory
    }

    pub fn name(&self) -> &OsStr {
        &self.name
    }

    /// A path through the descriptor. Valid in this process while this value lives.
    pub fn path(&self) -> PathBuf {
        self.directory.descriptor_path().join(&self.name)
    }

    /// Its path now, as the mount table has it.
    pub fn current_path(&self) -> Result<PathBuf> {
        Ok(self.directory.current_path()?.join(&self.name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::symlink;

    /// Regression: a file was removed by a path in which another user had put a link in the meantime.
    #[test]
    fn entry_stays_in_its_directory_when_a_link_replaces_the_directory() {
        let home = tempfile::tempdir().unwrap();
        let (theirs, ours) = (home.path().join("theirs"), home.path().join("ours"));
        for directory in [&theirs, &ours] {
            fs::create_dir(directory).unwrap();
            fs::write(directory.join("x"), "").unwrap();
        }
        let entry = DirectoryEntry::of(&ours.join("x")).unwrap().unwrap();
        fs::rename(&ours, home.path().join("moved")).unwrap();
        symlink(&theirs, &ours).unwrap();
        assert_eq!(entry.current_path().unwrap(), home.path().canonicalize().unwrap().join("moved/x"));
        fs::remove_file(entry.path()).unwrap();
        assert!(theirs.join("x").exists() && !home.path().join("moved/x").exists());
    }

    #[test]
    fn entry_of_a_missing_directory_is_none() {
        let home = tempfile::tempdir().unwrap();
        fs::write(home.path().join("file"), "").unwrap();
        assert!(DirectoryEntry::of(&home.path().join("none/x")).unwrap().is_none());
        assert!(DirectoryEntry::of(&home.path().join("file/x")).unwrap().is_none());
        assert!(DirectoryEntry::of(Path::new("/")).is_err());
        assert!(DirectoryEntry::of(Path::new("x")).unwrap().is_some());
    }

    #[test]
    fn symbolic_link_is_not_opened_as_a_directory() {
        let home = tempfile::tempdir().unwrap();
        symlink("/", home.path().join("link")).unwrap();
        let entry = DirectoryEntry::of(&home.path().join("link")).unwrap().unwrap();
        assert!(entry.directory().directory(entry.name()).is_err());
        assert!(Directory::open(&home.path().join("link")).is_ok());
    }
}
