//! Directory trees under a guard.

use super::{Action, Guard, ProcessId, note_for};
use ahead_sys::directory::Directory;
use ahead_sys::file_identity::FileIdentity;
use ahead_sys::{Error, Result};
use std::ffi::OsStr;
use std::path::Path;

/// Creates a directory of the owner alone under a guard that removes it with its content. The path must not exist.
pub fn create_tree(owner: ProcessId, path: &Path) -> Result<Guard> {
    let no_name = || Error::io(format!("create {}", path.display()), std::io::Error::from_raw_os_error(libc::EINVAL));
    let (parent, name) = path.parent().zip(path.file_name()).ok_or_else(no_name)?;
    create_tree_in(owner, &Directory::open(parent)?, name).map(|(_, guard)| guard)
}

/// As [`create_tree`], in an open directory, whose owner may rename files in it at any time. Returns the open tree. The note has
/// the path by which the parent was opened.
pub fn create_tree_in(owner: ProcessId, parent: &Directory, name: &OsStr) -> Result<(Directory, Guard)> {
    let path = parent.path().join(name);
    // Other processes, with other working directories, read the note.
    let failed = |e| Error::io(format!("create {}", path.display()), e);
    let path = std::path::absolute(&path).map_err(failed)?;
    // Checked first: a kill between note and creation must not leave a note about a directory of another process.
    if parent.has(name) {
        return Err(failed(std::io::Error::from_raw_os_error(libc::EEXIST)));
    }
    let action = |directory| Action::RemoveTree { path: path.clone(), directory };
    let mut guard = note_for(owner, action(None))?;
    match parent.create_directory(name) {
        Ok(tree) => {
            guard.identify(action(Some(FileIdentity::of(&tree.metadata()?))))?;
            Ok((tree, guard))
        }
        Err(error) => {
            // Another process has created or replaced it: it must not be removed.
            guard.keep()?;
            Err(error)
        }
    }
}
