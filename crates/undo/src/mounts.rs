//! Mounts under a guard.
//!
//! A mount point may lie in another user's directory. A file system is therefore mounted on a directory that is held open
//! ([`MountPoint`]), and unmounted by its number ([`Place`]): a link that was put there meanwhile leads nowhere.

use crate::{Action, Guard, ProcessId, note_for};
use ahead_sys::mounting;
use ahead_sys::mounts::Mount;
use ahead_sys::place::{MountPoint, Place};
use ahead_sys::{Error, Result};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Mounts the block device `source` on the directory `target` under a guard that unmounts it: noted as `owner`'s first, and
/// afterwards with the mount's identity. Arguments as [`mounting::mount`].
pub fn mount_noted(
    owner: ProcessId,
    source: &Path,
    target: &Path,
    filesystem: &str,
    read_only: bool,
    options: &str,
) -> Result<Guard> {
    let point = MountPoint::open(target).map_err(|e| Error::io(format!("mount on {}", target.display()), e))?;
    mount_noted_on(owner, source, &point, filesystem, read_only, options)
}

/// The same on a directory that is held open.
pub fn mount_noted_on(
    owner: ProcessId,
    source: &Path,
    point: &MountPoint,
    filesystem: &str,
    read_only: bool,
    options: &str,
) -> Result<Guard> {
    noted(owner, source, point, filesystem, |target| mounting::mount(source, target, filesystem, read_only, options))
}

/// Mounts a block device where it was mounted before, as the mount table had it then, under such a guard. `place` is that
/// mount point, resolved while it was mounted there.
pub fn mount_again(owner: ProcessId, source: &Path, before: &Mount, place: &Place) -> Result<Guard> {
    let target = Path::new(OsStr::from_bytes(&before.mount_point));
    let point = MountPoint::open_in(place).map_err(|e| Error::io(format!("mount on {}", target.display()), e))?;
    noted(owner, source, &point, &before.fs_type, |target| mounting::mount_like(source, target, before))
}

/// Notes, mounts, and notes which mount it is.
fn noted(
    owner: ProcessId,
    source: &Path,
    point: &MountPoint,
    filesystem: &str,
    mount: impl FnOnce(&Path) -> Result<()>,
) -> Result<Guard> {
    let target = point.current_path()?;
    let mut guard = note_for(owner, Action::unmount(&target, filesystem, &source.to_string_lossy()))?;
    if let Err(error) = mount(&point.path()) {
        // Nothing was mounted by us: there is nothing to take back.
        guard.keep()?;
        return Err(error);
    }
    // It is mounted on the directory that was opened, wherever that was moved meanwhile.
    guard.mounted_on(point.current_path()?)?;
    Ok(guard)
}
