//! Identities: which file, mount or attachment a note is about. A path is not enough: a file or mount of the user may have it
//! later.
//!
//! Numbers are reused, too: ext4 gives a new file the inode that was freed last, and the kernel gives a new mount the lowest
//! free number. Therefore a file is identified also by its time of birth. A mount is identified by the number that Linux 6.8
//! never reuses, and a loop device by its disk sequence number.

use ahead_sys::directory::DirectoryEntry;
use ahead_sys::{Error, Result, mounts};
use rustix::fs::{AtFlags, CWD, StatxFlags};
use serde::{Deserialize, Serialize};
use std::ffi::OsStr;
use std::fs::{self, Metadata};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MountIdentity {
    /// File system type.
    pub filesystem: String,
    /// The source, as in the mount table.
    pub source: String,
    /// Its mount namespace, as from [`mounts::namespace`]; `None` without /proc.
    pub namespace: Option<u32>,
    /// Its numbers; `None` until it is mounted.
    pub numbers: Option<MountNumbers>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MountNumbers {
    /// The mount id of the mount table. Reused after the mount is gone.
    pub id: u32,
    /// Never reused (Linux 6.8 and later).
    pub unique: Option<u64>,
}

/// The mount namespace of a mount.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Namespace {
    /// This process's namespace, or unknown.
    Own,
    OfProcess(u32),
    /// The namespace has ended, and the mount with it.
    Ended,
}

/// The state of a mount point.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MountState {
    /// Nothing is mounted.
    Unmounted,
    /// The given mount is on top.
    OnTop(MountNumbers),
    /// The given mount is below another one.
    Covered,
    /// Only other mounts.
    Other,
}

impl MountIdentity {
    /// A mount that this process is about to make.
    pub(super) fn new(filesystem: &str, source: &str) -> MountIdentity {
        // Without /proc the namespace is unknown.
        let namespace = mounts::namespace(None).ok();
        MountIdentity { filesystem: filesystem.into(), source: source.into(), namespace, numbers: None }
    }

    /// The namespace of the mount. A namespace that only a bind mount keeps (`unshare --mount=FILE`) is not found.
    pub(super) fn find_namespace(&self) -> Result<Namespace> {
        let Some(namespace) = self.namespace else { return Ok(Namespace::Own) };
        if mounts::namespace(None)? == namespace {
            return Ok(Namespace::Own);
        }
        let entries = fs::read_dir("/proc").map_err(|e| Error::io("list /proc", e))?;
        let mut processes = entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        let member = processes.find(|pid| mounts::namespace(Some(*pid)).is_ok_and(|other| other == namespace));
        Ok(member.map_or(Namespace::Ended, Namespace::OfProcess))
    }

    /// The state of the mount point `target`.
    pub(super) fn state_at(&self, target: &Path) -> Result<MountState> {
        match DirectoryEntry::of(target)? {
            Some(entry) => self.state_of(&entry),
            None => Ok(MountState::Unmounted),
        }
    }

    /// The state of the mount point at an open directory entry.
    pub(super) fn state_of(&self, entry: &DirectoryEntry) -> Result<MountState> {
        let path = entry.current_path()?.into_os_string().into_vec();
        let found: Vec<_> = mounts::own()?.into_iter().filter(|mount| mount.mount_point == path).collect();
        let unique = unique_number(&entry.path());
        let is_this = |index: usize| {
            let mount = &found[index];
            let on_top = index + 1 == found.len();
            mount.fs_type == self.filesystem
                && mount.source == self.source.as_bytes()
                && self.numbers.is_none_or(|numbers| {
                    // A dead file system may not answer, and a covered one cannot be asked.
                    let known = numbers.unique.filter(|_| on_top).zip(unique);
                    numbers.id == mount.id && known.is_none_or(|(then, now)| then == now)
                })
        };
        Ok(match (0..found.len()).rev().find(|index| is_this(*index)) {
            Some(index) if index + 1 == found.len() => MountState::OnTop(MountNumbers { id: found[index].id, unique }),
            Some(_) => MountState::Covered,
            None if found.is_empty() => MountState::Unmounted,
            None => MountState::Other,
        })
    }

    /// Where this mount is now, if a directory above it was renamed. Found only by the number that is never reused; another
    /// mount may have the other one.
    pub(super) fn find_moved(&self) -> Result<Option<DirectoryEntry>> {
        let Some(MountNumbers { id, unique: Some(unique) }) = self.numbers else { return Ok(None) };
        let Some(mount) = mounts::own()?.into_iter().find(|mount| mount.id == id) else { return Ok(None) };
        let entry = DirectoryEntry::of(Path::new(OsStr::from_bytes(&mount.mount_point)))?;
        Ok(entry.filter(|entry| unique_number(&entry.path()) == Some(unique)))
    }
}

/// `STATX_MNT_ID_UNIQUE` of linux/stat.h (Linux 6.8).
const MNT_ID_UNIQUE: StatxFlags = StatxFlags::from_bits_retain(0x4000);

/// The number of the mount at a path that is never reused. `None`: older kernel, or the file system does not answer (XFS after
/// an error).
pub(super) fn unique_number(path: &Path) -> Option<u64> {
    let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::STATX_DONT_SYNC;
    let stat = rustix::fs::statx(CWD, path, flags, MNT_ID_UNIQUE).ok()?;
    (stat.stx_mask & MNT_ID_UNIQUE.bits() != 0).then_some(stat.stx_mnt_id)
}

/// The metadata of a path; symbolic links are not followed. `None`: the path does not exist.
pub(super) fn metadata_at(path: &Path) -> Result<Option<Metadata>> {
    match fs::symlink_metadata(path) {
        Ok(metadata) => Ok(Some(metadata)),
        Err(e) if matches!(e.kind(), std::io::ErrorKind::NotFound | std::io::ErrorKind::NotADirectory) => Ok(None),
        Err(e) => Err(Error::io(format!("stat {}", path.display()), e)),
    }
}
