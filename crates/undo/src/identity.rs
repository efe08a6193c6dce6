//! Which thing a note is about. A path says only where it was: what lies, or is mounted, there later may be the user's.
//!
//! Numbers are reused, too: ext4 gives the next new file the inode that was freed last, and the kernel gives the next
//! mount the lowest free number. So a file is known by its time of birth as well, a mount by the number that Linux
//! 6.8 never gives twice, and a loop device by the sequence number that each attaching raises.

use ahead_sys::place::Place;
use ahead_sys::{Error, Result, mounts};
use rustix::fs::{AtFlags, CWD, StatxFlags};
use serde::{Deserialize, Serialize};
use std::ffi::OsStr;
use std::fs::{self, Metadata};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;

/// A mount.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MountIdentity {
    /// File system type.
    pub filesystem: String,
    /// What was mounted, as the mount table names it.
    pub source: String,
    /// The mount namespace it is in, as [`mounts::namespace`] has it; `None` in notes of older versions.
    #[serde(default)]
    pub namespace: Option<u32>,
    /// Its numbers; `None` until it is mounted.
    pub numbers: Option<MountNumbers>,
}

/// The numbers of a mount.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MountNumbers {
    /// As the mount table has it. Given again once the mount is gone.
    pub id: u32,
    /// Never given again (Linux 6.8 and later).
    pub unique: Option<u64>,
}

/// Where a mount is, seen from this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Whereabouts {
    /// In our own mount namespace, as far as is known.
    Here,
    /// In that of this process.
    With(u32),
    /// Its namespace has ended, and it with it.
    Ended,
}

/// What is mounted at a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mounted {
    /// Nothing.
    Nothing,
    /// The mount in question, on top.
    This(MountNumbers),
    /// The mount in question, below another one.
    Below,
    /// Something else.
    Other,
}

impl MountIdentity {
    /// A mount that is about to be made by this process.
    pub(super) fn new(filesystem: &str, source: &str) -> MountIdentity {
        // Without /proc nothing here works, and the note is an older version's at worst.
        let namespace = mounts::namespace(None).ok();
        MountIdentity { filesystem: filesystem.into(), source: source.into(), namespace, numbers: None }
    }

    /// Where it is to be looked for. A namespace lives as long as there is a process in it; one that only a bind mount
    /// keeps (`unshare --mount=FILE`) is not found.
    pub(super) fn whereabouts(&self) -> Result<Whereabouts> {
        let Some(namespace) = self.namespace else { return Ok(Whereabouts::Here) };
        if mounts::namespace(None)? == namespace {
            return Ok(Whereabouts::Here);
        }
        let entries = fs::read_dir("/proc").map_err(|e| Error::io("list /proc", e))?;
        let mut processes = entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        let there = processes.find(|pid| mounts::namespace(Some(*pid)).is_ok_and(|other| other == namespace));
        Ok(there.map_or(Whereabouts::Ended, Whereabouts::With))
    }

    /// What is at `target`, seen from this mount.
    pub(super) fn look(&self, target: &Path) -> Result<Mounted> {
        match Place::of(target)? {
            Some(place) => self.look_in(&place),
            None => Ok(Mounted::Nothing),
        }
    }

    /// The same for a place that is held.
    pub(super) fn look_in(&self, place: &Place) -> Result<Mounted> {
        let path = place.current_path()?.into_os_string().into_vec();
        let there: Vec<_> = mounts::own()?.into_iter().filter(|mount| mount.mount_point == path).collect();
        let unique = unique_number(&place.path());
        let same = |index: usize| {
            let mount = &there[index];
            let on_top = index + 1 == there.len();
            mount.fs_type == self.filesystem
                && mount.source == self.source.as_bytes()
                && self.numbers.is_none_or(|numbers| {
                    // A dead file system may not answer, and one below another cannot be asked.
                    let known = numbers.unique.filter(|_| on_top).zip(unique);
                    numbers.id == mount.id && known.is_none_or(|(then, now)| then == now)
                })
        };
        Ok(match (0..there.len()).rev().find(|index| same(*index)) {
            Some(index) if index + 1 == there.len() => Mounted::This(MountNumbers { id: there[index].id, unique }),
            Some(_) => Mounted::Below,
            None if there.is_empty() => Mounted::Nothing,
            None => Mounted::Other,
        })
    }

    /// The place where this very mount is now, if it is not at `target`: somebody may have moved a directory above it.
    /// Only by the number that is never given again; any other may be another mount's.
    pub(super) fn elsewhere(&self) -> Result<Option<Place>> {
        let Some(MountNumbers { id, unique: Some(unique) }) = self.numbers else { return Ok(None) };
        let Some(mount) = mounts::own()?.into_iter().find(|mount| mount.id == id) else { return Ok(None) };
        let place = Place::of(Path::new(OsStr::from_bytes(&mount.mount_point)))?;
        Ok(place.filter(|place| unique_number(&place.path()) == Some(unique)))
    }
}

/// `STATX_MNT_ID_UNIQUE` of linux/stat.h (Linux 6.8).
const MNT_ID_UNIQUE: StatxFlags = StatxFlags::from_bits_retain(0x4000);

/// The number of the mount at a path that is never given again; `None` where the kernel is older or the file system
/// answers no more (XFS after an error).
pub(super) fn unique_number(path: &Path) -> Option<u64> {
    let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::STATX_DONT_SYNC;
    let stat = rustix::fs::statx(CWD, path, flags, MNT_ID_UNIQUE).ok()?;
    (stat.stx_mask & MNT_ID_UNIQUE.bits() != 0).then_some(stat.stx_mnt_id)
}

/// Looks at a path without following it; `None`: nothing is there.
pub(super) fn look_at(path: &Path) -> Result<Option<Metadata>> {
    match fs::symlink_metadata(path) {
        Ok(metadata) => Ok(Some(metadata)),
        Err(e) if matches!(e.kind(), std::io::ErrorKind::NotFound | std::io::ErrorKind::NotADirectory) => Ok(None),
        Err(e) => Err(Error::io(format!("look at {}", path.display()), e)),
    }
}
