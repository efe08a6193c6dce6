//! One process of a machine prefetches a profile of a shared file system for all that start together: the ranks of a parallel program have one page
//! cache.
//!
//! ```text
//!     rank 0 ─ lock ─▶ prefetches ─▶ its end, however it ends: the lock is free
//!     rank 1 ─ held ─▶ starts at once, while the pages arrive
//! ```
//!
//! The lock is one of an open file (flock(2)), so none is left behind. It lies on the machine itself, never on the shared file system. Without one, each
//! process prefetches: it finds the pages of the others in memory.

use ahead_model::file_system_kind::{FileSystemKind, Place};
use ahead_profile::{File, Profile};
use rustix::fs::{CWD, FileType, FlockOperation, Mode, OFlags, flock, fstat, openat};
use rustix::io::Errno;
use rustix::process::geteuid;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

/// Who prefetches.
#[derive(Debug)]
pub(super) enum RankTurn {
    /// This process, which holds the lock, if there is one.
    Ours { _lock: Option<OwnedFd> },
    /// Another process of this user, now.
    Others,
}

/// Takes the lock of a profile, if half of its bytes or more are on shared file systems.
pub(super) fn take_turn(profile: &Profile) -> RankTurn {
    let shared: u64 = profile.files.iter().filter(|file| is_shared(file)).map(File::used_bytes).sum();
    if shared == 0 || shared < profile.data_bytes() / 2 {
        return RankTurn::Ours { _lock: None };
    }
    take(&directory().join(name(profile)))
}

/// A type that is not known is most likely that of a cluster. Profiles of lists have none.
fn is_shared(file: &File) -> bool {
    let is_remote =
        || matches!(FileSystemKind::named(&file.fs_type).place, Place::Server | Place::Process | Place::Unknown);
    !file.fs_type.is_empty() && is_remote()
}

/// A directory of the user, on this machine, or the one for temporary files.
fn directory() -> PathBuf {
    let own = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from).filter(|path| path.is_absolute());
    own.unwrap_or_else(|| "/tmp".into())
}

fn name(profile: &Profile) -> String {
    let recording = &profile.recording;
    let identity = (&recording.command, &recording.directory, recording.created_unix_s, recording.duration_us);
    let identity = format!("{identity:?} {} {}", profile.files.len(), profile.data_bytes());
    format!("ahead-{}-{:08x}.lock", geteuid().as_raw(), crc32fast::hash(identity.as_bytes()))
}

fn take(path: &Path) -> RankTurn {
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let Ok(file) = openat(CWD, path, flags, Mode::RUSR | Mode::WUSR) else { return RankTurn::Ours { _lock: None } };
    // Another user may have put something else there.
    let is_ours =
        |stat: rustix::fs::Stat| FileType::from_raw_mode(stat.st_mode).is_file() && stat.st_uid == geteuid().as_raw();
    if !fstat(&file).is_ok_and(is_ours) {
        return RankTurn::Ours { _lock: None };
    }
    match flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Err(Errno::WOULDBLOCK) => RankTurn::Others,
        locked => RankTurn::Ours { _lock: locked.is_ok().then_some(file) },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ahead_profile::Extent;

    fn profile(fs_types: &[&str]) -> Profile {
        let extent = Extent { length_bytes: 4096, ..Extent::default() };
        let file = |fs_type: &&str| File { fs_type: (*fs_type).into(), extents: vec![extent], ..File::default() };
        Profile { files: fs_types.iter().map(file).collect(), ..Profile::default() }
    }

    #[test]
    fn one_process_has_the_turn_until_its_end() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("lock");
        let first = take(&path);
        assert!(matches!(first, RankTurn::Ours { _lock: Some(_) }) && matches!(take(&path), RankTurn::Others));
        drop(first);
        assert!(matches!(take(&path), RankTurn::Ours { _lock: Some(_) }));
    }

    #[test]
    fn without_a_usable_lock_each_process_prefetches() {
        let home = tempfile::tempdir().unwrap();
        let (link, fifo) = (home.path().join("link"), home.path().join("fifo"));
        std::os::unix::fs::symlink("/etc/passwd", &link).unwrap();
        rustix::fs::mknodat(CWD, &fifo, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
        for path in [link, fifo, home.path().join("missing/lock")] {
            assert!(matches!(take(&path), RankTurn::Ours { _lock: None }), "{}", path.display());
        }
    }

    #[test]
    fn local_profiles_have_no_lock() {
        for local in [&["ext4", "xfs"][..], &["ext4", "ext4", "nfs"], &["", ""], &[]] {
            assert!(matches!(take_turn(&profile(local)), RankTurn::Ours { _lock: None }), "{local:?}");
        }
        let shared = ["nfs4", "fuse.sshfs", "lustre"];
        assert!(profile(&shared).files.iter().all(is_shared));
    }
}
