//! Mounts under a guard.
//!
//! A mount point may lie in another user's directory. The directory is therefore kept open ([`Directory`]) for mounting, and
//! unmounted relative to its parent ([`DirectoryEntry`]): a symbolic link that replaces it has no effect.

use crate::undo::{Action, Guard, ProcessId, note_for};
use ahead_sys::Result;
use ahead_sys::directory::{Directory, DirectoryEntry};
use ahead_sys::mounting;
use ahead_sys::mounts::Mount;
use std::path::Path;

/// Mounts the block device `source` on the directory `target` under a guard that unmounts it. The note is owned by `owner`, and
/// gets the identity of the mount afterwards. Arguments as [`mounting::mount`].
pub fn mount_noted(
    owner: ProcessId,
    source: &Path,
    target: &Path,
    filesystem: &str,
    read_only: bool,
    options: &str,
) -> Result<Guard> {
    mount_noted_on(owner, source, &Directory::open(target)?, filesystem, read_only, options)
}

/// As [`mount_noted`], on an open directory.
pub fn mount_noted_on(
    owner: ProcessId,
    source: &Path,
    point: &Directory,
    filesystem: &str,
    read_only: bool,
    options: &str,
) -> Result<Guard> {
    mount_with(owner, source, point, filesystem, |target| {
        mounting::mount(source, target, filesystem, read_only, options)
    })
}

/// Mounts a block device again where and as it was mounted before, under a guard. `entry` is the mount point, opened while the
/// earlier mount existed.
pub fn mount_again(owner: ProcessId, source: &Path, before: &Mount, entry: &DirectoryEntry) -> Result<Guard> {
    let point = entry.directory().directory(entry.name())?;
    mount_with(owner, source, &point, &before.fs_type, |target| mounting::mount_like(source, target, before))
}

/// Writes a note, mounts, and records the identity of the mount.
fn mount_with(
    owner: ProcessId,
    source: &Path,
    point: &Directory,
    filesystem: &str,
    mount: impl FnOnce(&Path) -> Result<()>,
) -> Result<Guard> {
    let target = point.current_path()?;
    let mut guard = note_for(owner, Action::unmount(&target, filesystem, &source.to_string_lossy()))?;
    if let Err(error) = mount(&point.descriptor_path()) {
        // Nothing was mounted, so nothing is to be undone.
        guard.keep()?;
        return Err(error);
    }
    // The directory may have been renamed: the current path is recorded.
    guard.mounted_on(point.current_path()?)?;
    Ok(guard)
}
