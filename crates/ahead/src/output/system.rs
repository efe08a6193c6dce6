//! Files that root keeps for all users: their modes do not depend on the umask, and no symbolic link is followed at their name.

use crate::error::IoContext;
use crate::{Error, Result};
use ahead_sys::directory::Directory;
use ahead_sys::root::Root;
use std::ffi::OsStr;
use std::io;
use std::os::fd::AsFd;
use std::path::Path;

/// All users may read it, only its owner may write it.
const MODE: u32 = 0o644;

/// Replaces a file in one step. Its missing directories are created (0755); symbolic links among them are followed.
///
/// # Errors
/// A directory cannot be created, or the file cannot be written. It still has the old content.
pub fn replace(path: &Path, content: &[u8]) -> Result<()> {
    let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(Error::io(format!("write {}", path.display()), io::Error::other("it is a directory")));
    };
    replace_in(&Root::default().make_directory(parent)?, name, content)
}

/// As [`replace`], in an open directory.
///
/// # Errors
/// The file cannot be written. It still has the old content.
pub fn replace_in(directory: &Directory, name: &OsStr, content: &[u8]) -> Result<()> {
    let replaced = ahead_files::replace_in(directory.as_fd(), name, content, MODE, None);
    replaced.what(&format!("write {}", directory.path().join(name).display()))
}
