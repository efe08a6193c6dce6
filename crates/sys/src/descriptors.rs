//! The table of a process's descriptors, and directories of the kernel that are kept open.

use crate::{Error, Result};
use rustix::fs::{CWD, Mode, OFlags, openat};
use rustix::process::{Pid, getpid};
use std::fs::File;
use std::io::Read;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::OnceLock;

const OWN: &str = "/proc/self/fd";
/// What a prefetch needs of the file systems that an initramfs moves: files by descriptor, numbers of devices, device nodes.
const MOVED: [&str; 3] = [OWN, "/sys/dev/block", "/dev"];

/// Open directories, and the process to which they belong: a child of fork has other descriptors.
static KEPT: OnceLock<(Pid, Vec<(&str, OwnedFd)>)> = OnceLock::new();

/// Keeps directories of /proc, /sys and /dev open. An initramfs moves these file systems into the root file system, out of sight of a process
/// that it has started. /sys and /dev may be missing.
///
/// Errors: /proc is not mounted.
pub fn keep_directories() -> Result<()> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let mut kept = Vec::new();
    for path in MOVED {
        match openat(CWD, path, flags, Mode::empty()) {
            Ok(directory) => kept.push((path, directory)),
            Err(error) if path == OWN => return Err(Error::io(format!("open {path}; mount /proc first"), error)),
            Err(_) => {}
        }
    }
    // A second call changes nothing.
    let _ = KEPT.set((getpid(), kept));
    Ok(())
}

/// Where to open an absolute path: below a kept directory, or by the path itself.
pub(crate) fn start_of(path: &Path) -> (BorrowedFd<'static>, &Path) {
    let kept = KEPT.get().filter(|(process, _)| *process == getpid()).map_or(&[][..], |(_, kept)| kept);
    let below = |(start, directory): &'static (&str, OwnedFd)| {
        let rest = path.strip_prefix(start).ok().filter(|rest| !rest.as_os_str().is_empty());
        rest.map(|rest| (directory.as_fd(), rest))
    };
    kept.iter().find_map(below).unwrap_or((CWD, path))
}

/// Opens the file behind a descriptor again.
pub(crate) fn reopen(fd: BorrowedFd<'_>, flags: OFlags) -> rustix::io::Result<OwnedFd> {
    let path = format!("{OWN}/{}", fd.as_raw_fd());
    let (start, path) = start_of(Path::new(&path));
    openat(start, path, flags, Mode::empty())
}

/// The text of a file of the kernel, also if its file system was moved.
pub(crate) fn read_text(path: &Path) -> std::io::Result<String> {
    let (start, path) = start_of(path);
    let mut text = String::new();
    File::from(openat(start, path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?).read_to_string(&mut text)?;
    Ok(text)
}

/// Makes room for descriptors below `count` now. The kernel doubles the table when it is full (at 64, 128, 256 …). If threads share it, every
/// open(2) then waits for an RCU grace period, 7 to 10 ms (`expand_fdtable`, fs/file.c). With one thread there is no wait: call this before the
/// first thread starts. Where the limit (`ulimit -n`) is lower, nothing changes.
pub fn reserve(count: u32) {
    let highest = i32::try_from(count).unwrap_or(i32::MAX).saturating_sub(1);
    // A duplicate with the highest number; closing it does not shrink the table.
    let duplicate = rustix::io::fcntl_dupfd_cloexec(std::io::stdin(), highest);
    if let Err(error) = duplicate {
        tracing::debug!("no room for {count} descriptors: {error}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_reopened_with_and_without_kept_directories() {
        let file = tempfile::tempfile().unwrap();
        let number = |fd: BorrowedFd<'_>| rustix::fs::fstat(fd).unwrap().st_ino;
        let reopened = || reopen(file.as_fd(), OFlags::RDONLY | OFlags::CLOEXEC).unwrap();
        assert_eq!(number(reopened().as_fd()), number(file.as_fd()));
        keep_directories().unwrap();
        keep_directories().unwrap();
        assert_eq!(number(reopened().as_fd()), number(file.as_fd()));
        assert_eq!(start_of(Path::new("/proc/self/fd/7")).1, Path::new("7"));
        for elsewhere in ["/proc/self/fd", "/proc/self/fdinfo/7", "/usr/lib"] {
            assert_eq!(start_of(Path::new(elsewhere)).1, Path::new(elsewhere));
        }
    }

    /// Regression: `replay` waited for 8 ms each time the table grew, 36 ms of 250 for gcc and 70 ms of 390 for Python.
    #[test]
    fn reserve_enlarges_the_table() {
        let slots = || -> u32 {
            let status = std::fs::read_to_string("/proc/self/status").unwrap();
            status.lines().find_map(|line| line.strip_prefix("FDSize:")).unwrap().trim().parse().unwrap()
        };
        let wanted = 2 * slots();
        super::reserve(wanted);
        assert!(slots() >= wanted);
        // Beyond the limit it has no effect.
        super::reserve(u32::MAX);
    }
}
