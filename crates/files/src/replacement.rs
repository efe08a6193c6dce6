//! Replacing a file in one step: readers see the old content or the new one, and a full disk leaves the old one.
//!
//! ```text
//!     a file without a name (O_TMPFILE) ─write─▶ given a temporary name ─rename─▶ NAME
//! ```
//!
//! A process that is killed leaves nothing behind, but for the moment between link and rename, and on file systems without O_TMPFILE.

use rustix::fs::{AtFlags, CWD, Mode, OFlags};
use rustix::fs::{linkat, openat, renameat, unlinkat};
use rustix::io::Errno;
use std::ffi::OsStr;
use std::fs::{File, Permissions};
use std::io::{self, Write};
use std::os::fd::{AsRawFd, BorrowedFd};
use std::os::unix::fs::{PermissionsExt, fchown};

/// How many temporary names are tried before giving up.
const NAMES: u32 = 100;

/// A file that vanishes unless it is renamed into place.
#[derive(Debug)]
pub struct Replacement<'a> {
    directory: BorrowedFd<'a>,
    file: File,
    /// `None`: it has no name yet, and ends with its descriptor.
    name: Option<String>,
}

/// Replaces a small file in one step. `mode`: its permissions, whatever the process's mask is; `owner`: user and group, if not those of the
/// process.
///
/// # Errors
/// The file cannot be written. It still has the old content.
pub fn replace_in(
    directory: BorrowedFd<'_>,
    name: &OsStr,
    content: &[u8],
    mode: u32,
    owner: Option<(u32, u32)>,
) -> io::Result<()> {
    let mut replacement = Replacement::create(directory, Mode::from_raw_mode(mode))?;
    let file = replacement.file();
    if let Some((user, group)) = owner {
        fchown(&*file, Some(user), Some(group))?;
    }
    // The mask may have removed permissions.
    file.set_permissions(Permissions::from_mode(mode))?;
    file.write_all(content)?;
    replacement.rename_to(name)
}

impl Replacement<'_> {
    /// Creates an empty file in a directory, with this mode (the process's mask applies).
    ///
    /// # Errors
    /// The directory cannot be written.
    pub fn create(directory: BorrowedFd<'_>, mode: Mode) -> io::Result<Replacement<'_>> {
        match openat(directory, ".", OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC, mode) {
            Ok(fd) => return Ok(Replacement { directory, file: fd.into(), name: None }),
            // No O_TMPFILE on this file system (NFS, FUSE, older overlayfs): then with a name from the beginning.
            Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::INVAL) => (),
            Err(error) => return Err(error.into()),
        }
        let flags = OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::RDWR | OFlags::CLOEXEC;
        let (fd, name) = with_free_name(|name| openat(directory, name, flags, mode))?;
        Ok(Replacement { directory, file: fd.into(), name: Some(name) })
    }

    /// The file, to be written.
    pub fn file(&mut self) -> &mut File {
        &mut self.file
    }

    /// Gives it its name, in place of the file that has it now.
    ///
    /// # Errors
    /// The directory cannot be written; then nothing has changed.
    pub fn rename_to(mut self, final_name: &OsStr) -> io::Result<()> {
        if self.name.is_none() {
            // linkat with AT_EMPTY_PATH would need a capability; the link in /proc does not.
            let own = format!("/proc/self/fd/{}", self.file.as_raw_fd());
            let link = |name: &str| linkat(CWD, &own, self.directory, name, AtFlags::SYMLINK_FOLLOW);
            self.name = Some(with_free_name(link)?.1);
        }
        let name = self.name.as_ref().expect("it has a name by now");
        renameat(self.directory, name, self.directory, final_name)?;
        self.name = None;
        Ok(())
    }
}

impl Drop for Replacement<'_> {
    fn drop(&mut self) {
        if let Some(name) = &self.name {
            // An earlier error is the one to report.
            let _ = unlinkat(self.directory, name, AtFlags::empty());
        }
    }
}

/// Tries hidden names until one is free.
fn with_free_name<T>(mut create: impl FnMut(&str) -> rustix::io::Result<T>) -> io::Result<(T, String)> {
    for number in 0..NAMES {
        let name = format!(".ahead-{}-{number}.tmp", std::process::id());
        match create(&name) {
            Err(Errno::EXIST) => continue,
            other => return Ok((other?, name)),
        }
    }
    Err(Errno::EXIST.into())
}
