//! Where a comparison keeps what its runs write: a directory that goes with it, and small files without a name.
//!
//! ```text
//!     /tmp/ahead-compare-…/                 ours: others may only pass through
//!     ├── reference.ahead                   what root records
//!     └── runs/                             the user's behind sudo: what the runs write
//! ```
//!
//! Who owns a directory may put a link in its place at any moment. So root writes nothing into the user's, reads nothing
//! there but regular files, and reaches both by descriptors.

use ahead_sys::machine;
use ahead_sys::user::User;
use ahead_undo::{Guard, ProcessId};
use anyhow::{Context, ensure};
use rustix::fs::{FileType, MemfdFlags, Mode, OFlags, fchmod, fstat, fstatvfs, mkdirat, open, openat};
use rustix::io::Errno;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::{FileExt, fchown};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The directory. For root it is noted, so that `ahead restore` removes it after a SIGKILL; without root there are no
/// notes, and what a killed comparison leaves is up to whoever cleans up the temporary directory.
#[derive(Debug)]
pub struct Scratch {
    path: PathBuf,
    top: OwnedFd,
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

/// Room that the scratch directory needs: an account of some thousand ranges at 60 bytes each, for each of three runs, and a
/// profile. Unit: bytes.
const LEAST_ROOM_BYTES: u64 = 1 << 20;

/// Without room the accounts of the runs would be missing at the end.
fn check_room(directory: &OwnedFd, path: &Path) -> anyhow::Result<()> {
    let stat = fstatvfs(directory)?;
    let free_bytes = stat.f_bavail.saturating_mul(stat.f_frsize);
    ensure!(
        free_bytes >= LEAST_ROOM_BYTES,
        "{}: {free_bytes} bytes are free in {}, the runs need {LEAST_ROOM_BYTES}; free some, or set TMPDIR",
        io::Error::from(Errno::NOSPC),
        path.display()
    );
    Ok(())
}

impl Scratch {
    /// A new one; the part for the runs is this user's, if not our own.
    pub fn new(user: Option<&User>) -> anyhow::Result<Scratch> {
        let (path, removed) = if machine::is_root() { noted()? } else { plain()? };
        Scratch::divide(path, removed, user).context("make a scratch directory")
    }

    fn divide(path: PathBuf, removed: Removed, user: Option<&User>) -> anyhow::Result<Scratch> {
        let directory = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let top = open(&path, directory, Mode::empty())?;
        // Where the temporary directory is not sticky, its owner can put another one there.
        let is_ours = fstat(&top)?.st_uid == rustix::process::geteuid().as_raw();
        ensure!(is_ours, "somebody has put another directory in the place of {}", path.display());
        check_room(&top, &path)?;
        mkdirat(&top, RUNS, Mode::RWXU)?;
        let runs = openat(&top, RUNS, directory, Mode::empty())?;
        if let Some(user) = user {
            fchown(&runs, Some(user.uid), Some(user.gid))?;
            fchmod(&top, Mode::RWXU | Mode::XGRP | Mode::XOTH)?;
        }
        Ok(Scratch { path, top, runs, _removed: removed })
    }

    /// The file of this name for a run to write.
    pub fn note(&self, name: &str) -> PathBuf {
        self.path.join(RUNS).join(name)
    }

    /// Reads what a run wrote, at most so much of it. Nothing but a regular file is opened.
    pub fn read(&self, name: &str, most_bytes: u64) -> anyhow::Result<Vec<u8>> {
        let found = openat(&self.runs, name, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())?;
        ensure!(FileType::from_raw_mode(fstat(&found)?.st_mode).is_file(), "{name} is no regular file");
        // The very file that was looked at.
        let file = File::open(format!("/proc/self/fd/{}", found.as_raw_fd()))?;
        let mut text = Vec::new();
        file.take(most_bytes).read_to_end(&mut text)?;
        Ok(text)
    }

    /// What a run wrote that has something to say, in lines; none if it wrote nothing.
    pub fn lines(&self, name: &str) -> Vec<String> {
        lines(&self.read(name, MOST_BYTES as u64).unwrap_or_default())
    }

    /// The file for the reference recording, by way of our descriptor, for processes that may look at ours.
    pub fn reference(&self) -> PathBuf {
        format!("/proc/{}/fd/{}/reference.ahead", std::process::id(), self.top.as_raw_fd()).into()
    }
}

fn noted() -> anyhow::Result<(PathBuf, Removed)> {
    let own = ProcessId::own()?;
    let path = std::env::temp_dir().join(format!("ahead-compare-{}-{}", own.pid, own.start_ticks));
    let guard = ahead_undo::create_tree(own, &path)?;
    Ok((path, Removed::Noted { _guard: guard }))
}

fn plain() -> anyhow::Result<(PathBuf, Removed)> {
    let directory = tempfile::Builder::new().prefix("ahead-compare-").tempdir().context("make a scratch directory")?;
    Ok((directory.path().into(), Removed::Plain { _directory: directory }))
}

/// What an `ahead record` that we start has to say, in memory.
#[derive(Debug)]
pub struct Messages(pub Arc<File>);

/// Most of what an `ahead` says that is looked at, bytes.
const MOST_BYTES: usize = 1 << 16;

impl Messages {
    pub fn new() -> anyhow::Result<Messages> {
        let file = rustix::fs::memfd_create("ahead-messages", MemfdFlags::CLOEXEC).context("make room for messages")?;
        Ok(Messages(Arc::new(file.into())))
    }

    /// Its lines so far.
    pub fn lines(&self) -> Vec<String> {
        let mut text = vec![0; MOST_BYTES];
        let length = self.0.read_at(&mut text, 0).unwrap_or(0);
        lines(&text[..length])
    }
}

fn lines(text: &[u8]) -> Vec<String> {
    let text = String::from_utf8_lossy(text);
    text.lines().filter(|line| !line.trim().is_empty()).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn only_regular_files_are_read_of_what_the_runs_wrote() {
        let scratch = Scratch::new(None).unwrap();
        std::fs::write(scratch.note("said"), "ahead: one\n\nahead: two\n").unwrap();
        symlink("said", scratch.note("link")).unwrap();
        std::fs::create_dir(scratch.note("directory")).unwrap();
        assert_eq!(scratch.lines("said"), ["ahead: one", "ahead: two"]);
        assert_eq!(scratch.read("said", 5).unwrap(), b"ahead");
        for bad in ["link", "directory", "missing"] {
            assert!(scratch.read(bad, 5).is_err(), "{bad}");
        }
    }
}
