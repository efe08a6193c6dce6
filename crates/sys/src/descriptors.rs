//! The table of a process's descriptors, and the kernel's directory of them.

use crate::{Error, Result};
use rustix::fs::{CWD, Mode, OFlags, openat};
use rustix::process::{Pid, getpid};
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::sync::OnceLock;

const DIRECTORY: &str = "/proc/self/fd";

/// [`DIRECTORY`], kept open, and the process to which it belongs: a child of fork has other descriptors.
static KEPT: OnceLock<(Pid, OwnedFd)> = OnceLock::new();

/// Keeps the directory of this process's descriptors open, so that files are reopened by descriptor also when /proc is moved. An initramfs
/// moves it into the root file system, out of sight of a process that the initramfs has started.
///
/// Errors: /proc is not mounted.
pub fn keep_directory() -> Result<()> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let opened = openat(CWD, DIRECTORY, flags, Mode::empty());
    let directory = opened.map_err(|e| Error::io(format!("open {DIRECTORY}; mount /proc first"), e))?;
    // A second call changes nothing.
    let _ = KEPT.set((getpid(), directory));
    Ok(())
}

/// Opens the file behind a descriptor again.
pub(crate) fn reopen(fd: BorrowedFd<'_>, flags: OFlags) -> rustix::io::Result<OwnedFd> {
    let number = fd.as_raw_fd();
    match KEPT.get() {
        Some((process, directory)) if *process == getpid() => {
            openat(directory, number.to_string(), flags, Mode::empty())
        }
        _ => openat(CWD, format!("{DIRECTORY}/{number}"), flags, Mode::empty()),
    }
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
    use std::os::fd::AsFd;

    #[test]
    fn files_are_reopened_with_and_without_the_kept_directory() {
        let file = tempfile::tempfile().unwrap();
        let number = |fd: BorrowedFd<'_>| rustix::fs::fstat(fd).unwrap().st_ino;
        let reopened = || reopen(file.as_fd(), OFlags::RDONLY | OFlags::CLOEXEC).unwrap();
        assert_eq!(number(reopened().as_fd()), number(file.as_fd()));
        keep_directory().unwrap();
        keep_directory().unwrap();
        assert_eq!(number(reopened().as_fd()), number(file.as_fd()));
        assert!(KEPT.get().is_some_and(|(process, _)| *process == getpid()));
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
