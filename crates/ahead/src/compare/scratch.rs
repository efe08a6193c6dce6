//! The files that the runs of a comparison write: a directory that is removed with it.
//!
//! ```text
//!     /tmp/ahead-compare-…/                 ours: other users may only pass through
//!     └── runs/                             of the user behind sudo: the runs write here
//! ```
//!
//! The owner of a directory may put a link in its place at any moment. So root writes nothing into the user's directory, reads only regular
//! files there, and reaches it by a descriptor.

use crate::Result;
use crate::error::IoContext;
use ahead_process::undo::{Guard, ProcessId};
use ahead_sys::machine;
use ahead_sys::user::User;
use rustix::fs::{FileType, Mode, OFlags, fchmod, fstat, fstatvfs, mkdirat, open, openat};
use rustix::io::Errno;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::fchown;
use std::path::{Path, PathBuf};

/// The directory. For root it is noted, so that `ahead restore` removes it after a SIGKILL. Without root there are no notes: what a killed
/// comparison leaves stays until the temporary directory is cleaned up.
#[derive(Debug)]
pub struct Scratch {
    path: PathBuf,
    runs: OwnedFd,
    _removed: Removed,
}

/// What removes it.
#[derive(Debug)]
enum Removed {
    Noted { _guard: Guard },
    Plain { _directory: tempfile::TempDir },
}

const RUNS: &str = "runs";

/// Room that the scratch directory needs: an account of some thousand ranges at 60 bytes each, for each of three runs. Unit: bytes.
const MIN_ROOM_BYTES: u64 = 1 << 20;

/// The most bytes of a run's messages that are read.
const MAX_MESSAGES_BYTES: u64 = 1 << 16;

/// Without room the accounts of the runs would be missing at the end.
fn check_room(directory: &OwnedFd, path: &Path) -> io::Result<()> {
    let stat = fstatvfs(directory)?;
    let free_bytes = stat.f_bavail.saturating_mul(stat.f_frsize);
    if free_bytes >= MIN_ROOM_BYTES {
        return Ok(());
    }
    let (full, path) = (io::Error::from(Errno::NOSPC), path.display());
    Err(io::Error::other(format!(
        "{full}: {free_bytes} bytes are free in {path}, the runs need {MIN_ROOM_BYTES}; free some, or set TMPDIR"
    )))
}

impl Scratch {
    /// Creates it; the part for the runs belongs to this user, if the program runs as another one.
    ///
    /// # Errors
    /// It cannot be created; there is too little room.
    pub fn new(user: Option<&User>) -> Result<Scratch> {
        let (path, removed) = if machine::is_root() { noted()? } else { plain()? };
        Scratch::divide(path, removed, user).what("make a scratch directory")
    }

    fn divide(path: PathBuf, removed: Removed, user: Option<&User>) -> io::Result<Scratch> {
        let directory = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let top = open(&path, directory, Mode::empty())?;
        // Where the temporary directory is not sticky, its owner can put another one there.
        if fstat(&top)?.st_uid != rustix::process::geteuid().as_raw() {
            return Err(io::Error::other(format!("another user replaced {}", path.display())));
        }
        check_room(&top, &path)?;
        mkdirat(&top, RUNS, Mode::RWXU)?;
        let runs = openat(&top, RUNS, directory, Mode::empty())?;
        if let Some(user) = user {
            fchown(&runs, Some(user.uid), Some(user.gid))?;
            fchmod(&top, Mode::RWXU | Mode::XGRP | Mode::XOTH)?;
        }
        Ok(Scratch { path, runs, _removed: removed })
    }

    /// The path of this name, for a run to write.
    pub fn file(&self, name: &str) -> PathBuf {
        self.path.join(RUNS).join(name)
    }

    /// Reads what a run wrote, at most `limit_bytes` of it. Only a regular file is opened.
    ///
    /// # Errors
    /// There is no such file, or it is not a regular one.
    pub fn read(&self, name: &str, limit_bytes: u64) -> io::Result<Vec<u8>> {
        let found = openat(&self.runs, name, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())?;
        if !FileType::from_raw_mode(fstat(&found)?.st_mode).is_file() {
            return Err(io::Error::other(format!("{name} is no regular file")));
        }
        // The very file that was checked.
        let file = File::open(format!("/proc/self/fd/{}", found.as_raw_fd()))?;
        let mut text = Vec::new();
        file.take(limit_bytes).read_to_end(&mut text)?;
        Ok(text)
    }

    /// The lines of messages that a run wrote; none if it wrote no file.
    pub fn lines(&self, name: &str) -> Vec<String> {
        let text = self.read(name, MAX_MESSAGES_BYTES).unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        text.lines().filter(|line| !line.trim().is_empty()).map(str::to_owned).collect()
    }
}

fn noted() -> Result<(PathBuf, Removed)> {
    let own = ProcessId::own()?;
    let path = std::env::temp_dir().join(format!("ahead-compare-{}-{}", own.pid, own.start_ticks));
    let guard = ahead_process::undo::create_tree(own, &path)?;
    Ok((path, Removed::Noted { _guard: guard }))
}

fn plain() -> Result<(PathBuf, Removed)> {
    let directory = tempfile::Builder::new().prefix("ahead-compare-").tempdir().what("make a scratch directory")?;
    Ok((directory.path().into(), Removed::Plain { _directory: directory }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn only_regular_files_of_the_runs_are_read() {
        let scratch = Scratch::new(None).unwrap();
        std::fs::write(scratch.file("said"), "ahead: one\n\nahead: two\n").unwrap();
        symlink("said", scratch.file("link")).unwrap();
        std::fs::create_dir(scratch.file("directory")).unwrap();
        assert_eq!(scratch.lines("said"), ["ahead: one", "ahead: two"]);
        assert_eq!(scratch.read("said", 5).unwrap(), b"ahead");
        for bad in ["link", "directory", "missing"] {
            assert!(scratch.read(bad, 5).is_err(), "{bad}");
        }
    }
}
