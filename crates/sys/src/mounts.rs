//! The mount tables of processes (`/proc/PID/mountinfo`), and mount namespaces. The format is in [`ahead_model::mounts`].

use crate::directory::mount_id;
use crate::{Error, Result};
pub use ahead_model::mounts::{Mount, covering, unescape};
use std::fs;
use std::io::{Read, Seek};
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// The mount table of the calling process, in order of mounting.
pub fn own() -> Result<Vec<Mount>> {
    read("/proc/self/mountinfo".into())
}

fn read(path: PathBuf) -> Result<Vec<Mount>> {
    let text = fs::read(&path).map_err(|e| Error::io(format!("read {}", path.display()), e))?;
    parse(&text)
}

/// The mount of a file or directory.
///
/// Errors: the path does not exist; the table cannot be read.
pub fn holding(path: &Path) -> Result<Option<Mount>> {
    let path = path.canonicalize().map_err(|e| Error::io(format!("resolve {}", path.display()), e))?;
    let mut mounts = own()?;
    Ok(covering(&mounts, path.as_os_str().as_bytes()).map(|index| mounts.swap_remove(index)))
}

/// The mount through which an open file or directory was reached. `None`: it was unmounted since.
///
/// Errors: the table cannot be read.
pub fn of_open(fd: impl AsFd) -> Result<Option<Mount>> {
    match mount_id(&fd) {
        Some(id) => Ok(own()?.into_iter().find(|mount| u64::from(mount.id) == id)),
        None => holding(Path::new(&format!("/proc/self/fd/{}", fd.as_fd().as_raw_fd()))),
    }
}

/// The mount table of another process. It stays readable after that process has ended, and keeps the namespace alive.
#[derive(Debug)]
pub struct Table(fs::File);

impl Table {
    /// Opens the table of a process.
    pub fn of_process(pid: u32) -> Result<Table> {
        let path = format!("/proc/{pid}/mountinfo");
        fs::File::open(&path).map(Table).map_err(|e| Error::io(format!("open {path}"), e))
    }

    /// The current mounts.
    pub fn read(&mut self) -> Result<Vec<Mount>> {
        let mut text = Vec::new();
        let read = self.0.rewind().and_then(|()| self.0.read_to_end(&mut text));
        read.map_err(|e| Error::io("read a mount table", e))?;
        parse(&text)
    }
}

/// Parses a mountinfo file.
///
/// Errors: a line that is not understood.
pub fn parse(text: &[u8]) -> Result<Vec<Mount>> {
    let failed = |error: ahead_model::mounts::ParseMountError| Error::Parse {
        path: "/proc/self/mountinfo".into(),
        text: error.line,
    };
    ahead_model::mounts::parse(text).map_err(failed)
}

/// The number of a process's mount namespace (`/proc/PID/ns/mnt`); `None` means the calling process.
pub fn namespace(pid: Option<u32>) -> Result<u32> {
    let path = PathBuf::from(pid.map_or("/proc/self/ns/mnt".into(), |pid| format!("/proc/{pid}/ns/mnt")));
    let target = fs::read_link(&path).map_err(|e| Error::io(format!("read {}", path.display()), e))?;
    let text = target.to_string_lossy().into_owned();
    let digits = text.strip_prefix("mnt:[").and_then(|rest| rest.strip_suffix(']'));
    digits.and_then(|digits| digits.parse().ok()).ok_or(Error::Parse { path, text })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_mount_table_has_a_root() {
        assert!(own().unwrap().iter().any(|mount| mount.mount_point == b"/"));
        let mut table = Table::of_process(std::process::id()).unwrap();
        assert_eq!(table.read().unwrap(), table.read().unwrap());
        assert_eq!(namespace(None).unwrap(), namespace(Some(std::process::id())).unwrap());
    }
}
