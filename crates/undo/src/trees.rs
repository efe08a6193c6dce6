//! Directories with all that is in them, made under a guard.

use super::{Action, Guard, ProcessId, note_for};
use ahead_sys::directory::Directory;
use ahead_sys::file_identity::FileIdentity;
use ahead_sys::{Error, Result};
use std::ffi::OsStr;
use std::path::Path;

/// Makes a directory of the owner's alone, which is not there yet, under a guard that removes it with all that is in it then.
pub fn create_tree(owner: ProcessId, path: &Path) -> Result<Guard> {
    let no_name = || Error::io(format!("create {}", path.display()), std::io::Error::from_raw_os_error(libc::EINVAL));
    let (parent, name) = path.parent().zip(path.file_name()).ok_or_else(no_name)?;
    create_tree_in(owner, &Directory::open(parent)?, name).map(|(_, guard)| guard)
}

/// The same in a directory that is open already, whose owner may rename what is in it at any time: gives the tree itself, which
/// stays the same one. The note has the path that the directory was opened by.
pub fn create_tree_in(owner: ProcessId, parent: &Directory, name: &OsStr) -> Result<(Directory, Guard)> {
    let path = parent.path().join(name);
    // Notes are read by others, from other directories.
    let failed = |e| Error::io(format!("create {}", path.display()), e);
    let path = std::path::absolute(&path).map_err(failed)?;
    // Looked for first: a kill between the note and the making must not leave a note of what was there before.
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
            // Not made by us, or replaced since: not ours to remove.
            guard.keep()?;
            Err(error)
        }
    }
}
