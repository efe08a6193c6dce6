//! Files in the page cache: how much of them is there ([`survey()`]), and their eviction. Evicts the files of a profile, and finds the disks
//! on which they are.

mod file;
mod survey;

pub use file::{CachedFile, CachedPages, MAX_RANGES, Task};
pub use survey::{Finding, Item, Passed, bytes_of, survey};

use crate::error::IoContext;
use crate::stopping::unless_stopped;
use crate::{Result, drives};
use ahead_model::{DeviceNumber, sorting};
use ahead_process::Signals;
use ahead_profile::{Extent, File, Profile};
use ahead_sys::mounts::{self, Mount};
use ahead_sys::openat::Handle;
use ahead_sys::{block, evict, machine, openat};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Block devices and their nodes.
pub(crate) type Devices = BTreeMap<DeviceNumber, PathBuf>;

/// The block devices below a profile's files and metadata.
///
/// # Errors
/// The mount table cannot be read.
pub(crate) fn of_profile(profile: &Profile) -> Result<Devices> {
    Ok(mounts_of(profile)?.iter().filter_map(block_device_of).collect())
}

/// The device numbers of a profile's pages in the page cache: the superblocks (btrfs has its own numbers), and the block devices, whose
/// pages are metadata.
///
/// # Errors
/// The mount table cannot be read.
pub(crate) fn cached_under(profile: &Profile) -> Result<BTreeSet<DeviceNumber>> {
    let numbers = |mount: &Mount| [Some(mount.device), block_device_of(mount).map(|(device, _)| device)];
    Ok(sorting::set_of(mounts_of(profile)?.iter().flat_map(numbers).flatten()))
}

/// The block device below each superblock of a profile's files and metadata, by the number of the superblock. Empty if the mount table cannot
/// be read.
pub(crate) fn nodes_of(profile: &Profile) -> BTreeMap<DeviceNumber, PathBuf> {
    let node = |mount: &Mount| Some((mount.device, block_device_of(mount)?.1));
    mounts_of(profile).unwrap_or_default().iter().filter_map(node).collect()
}

/// The mounts of a profile's files and metadata.
fn mounts_of(profile: &Profile) -> Result<Vec<Mount>> {
    let mounts = mounts::own()?;
    let paths = profile.files.iter().map(|file| &file.path).chain(profile.metadata.iter().map(|m| &m.mount_point));
    let found = sorting::set_of(paths.filter_map(|path| mounts::covering(&mounts, path)));
    Ok(mounts.into_iter().enumerate().filter(|(index, _)| found.contains(index)).map(|(_, mount)| mount).collect())
}

/// The block device of a mount, by its number. Only for btrfs, whose number is not that of a block device, the source is used, because
/// only root can set it. The source of a FUSE mount is a text that its user chose, and root would open that path.
fn block_device_of(mount: &Mount) -> Option<(DeviceNumber, PathBuf)> {
    if let Ok(node) = openat::block_device_node(mount.device.key()) {
        return Some((mount.device, node));
    }
    let node = Some(PathBuf::from(OsStr::from_bytes(&mount.source))).filter(|_| mount.fs_type == "btrfs")?;
    Some((block::device_number(&node).ok()?, node))
}

/// Evicts the cached pages of a file, as far as the caller may; dirty pages are written first. Pages that a process has mapped stay.
///
/// # Errors
/// The file cannot be opened or written to its disk.
pub fn evict_file(path: &Path) -> Result<()> {
    let file = std::fs::File::open(path).what(&format!("open {}", path.display()))?;
    Ok(evict::file(&file)?)
}

/// Maximum number of files of which the processes that have them mapped are searched.
const MAX_KEPT_FILES: usize = 4096;

/// The files of a profile of which used pages cannot be evicted, the largest part first, with the processes that have them mapped. Evicts all.
///
/// # Errors
/// Stopped.
pub(crate) fn kept_files(profile: &Arc<Profile>, signals: &Signals) -> Result<Vec<CachedFile>> {
    let profile = profile.clone();
    unless_stopped(signals, move || {
        let evicted =
            profile.files.iter().filter(|file| !file.deleted).filter_map(|file| Some(evict_recorded(file)?.0));
        let left = |file: &CachedFile| file.after.map_or(0, |after| after.cached());
        let mut kept: Vec<CachedFile> =
            evicted.filter(|file| left(file) > 0 && !file.is_in_memory).take(MAX_KEPT_FILES).collect();
        file::find_mappings(&mut kept);
        sorting::sort_by_key(&mut kept, |file| Reverse(left(file)));
        kept
    })
}

/// The part of a profile's files that stayed cached after the eviction, bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Kept {
    /// Bytes that are still cached, because other processes use them.
    pub cached: u64,
    /// Bytes of files that cannot be opened, or whose residency the kernel does not report to this user.
    pub unknown: u64,
}

impl Kept {
    /// The maximum of two runs, for each count.
    pub(crate) fn max(self, other: Kept) -> Kept {
        Kept { cached: self.cached.max(other.cached), unknown: self.unknown.max(other.unknown) }
    }

    fn add(self, other: Kept) -> Kept {
        Kept { cached: self.cached + other.cached, unknown: self.unknown + other.unknown }
    }
}

/// Evicts a profile's files, as far as the caller is permitted, and returns what stayed. Resets emulated disks to their state after
/// power-on: otherwise, the drive's own buffer would serve much of the next run.
///
/// Evicts file by file first, and everything afterwards: a lookup of the files after dropping all caches would read their names, inodes
/// and blocks again. A page that only the second eviction removes, because a process had just released it, counts as kept.
///
/// Waits for a file system that does not answer until a signal arrives.
///
/// # Errors
/// Stopped; the caches could not be dropped.
pub(crate) fn make_cold(profile: &Arc<Profile>, devices: &Arc<Devices>, signals: &Signals) -> Result<Kept> {
    let (profile, devices) = (profile.clone(), devices.clone());
    unless_stopped(signals, move || {
        let files = profile.files.iter().filter(|file| !file.deleted);
        let kept = files.map(make_file_cold).fold(Kept::default(), Kept::add);
        if machine::is_root() {
            evict_everything(&devices)?;
            drives::restart(|disk| devices.contains_key(&disk.device_number))?;
        }
        Ok(kept)
    })?
}

fn evict_everything(devices: &Devices) -> Result<()> {
    evict::everything()?;
    for node in devices.values() {
        // Its cache was dropped with all others; this evicts the blocks that were just used.
        if let Err(error) = evict::block_device(node) {
            tracing::debug!("{error}");
        }
    }
    Ok(())
}

/// Evicts a file and counts the part of its extents that stays. A profile is untrusted: only regular files on file systems with a page
/// cache are opened, because opening others as root may have effects (`/proc/kmsg`, tracefs).
fn make_file_cold(file: &File) -> Kept {
    // If the path is not a file any more, the program cannot read cached pages of it.
    let Some((evicted, handle)) = evict_recorded(file) else { return Kept::default() };
    match evicted.after {
        Some(after) if !evicted.is_in_memory => Kept { cached: bytes_of(after.cached()), unknown: 0 },
        None if handle.file_system().is_ok_and(|kind| kind.has_page_cache()) => {
            Kept { cached: 0, unknown: file.extents.iter().map(|extent| extent.length_bytes).sum() }
        }
        _ => Kept::default(),
    }
}

/// Evicts a file, and counts the used pages that stay. `None`: it is not a regular file any more.
fn evict_recorded(file: &File) -> Option<(CachedFile, Handle)> {
    let part: Vec<Range<u64>> = file.extents.iter().map(Extent::range).collect();
    let handle = openat::handle(Path::new(OsStr::from_bytes(&file.path))).ok().filter(Handle::is_regular_file)?;
    let evicted = CachedFile::examine(&handle, Some(&part), Task::Evict, &mut |_| {});
    Some((CachedFile { path: file.path.clone(), ..evicted }, handle))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Regression: a profile made root open files of procfs, and the source that a FUSE mount names.
    #[test]
    fn files_of_procfs_and_sources_of_fuse_are_not_opened() {
        let made_up = File { path: b"/proc/self/stat".to_vec(), extents: vec![extent()], ..File::default() };
        assert_eq!(make_file_cold(&made_up), Kept::default());
        let named = |fs_type: &str| {
            let (fs_type, source) = (fs_type.to_owned(), b"/dev/null".to_vec());
            block_device_of(&Mount { device: DeviceNumber::new(0, 4_000_000), fs_type, source, ..Mount::default() })
        };
        assert_eq!((named("fuse"), named("btrfs")), (None, None));
        let Some((device, node)) = mounts::own().unwrap().iter().find_map(block_device_of) else {
            return eprintln!("skipped: nothing is mounted from a block device here");
        };
        let fuse = Mount {
            device: DeviceNumber::new(0, 4_000_000),
            fs_type: "fuse.x".into(),
            source: node.as_os_str().as_bytes().to_vec(),
            ..Mount::default()
        };
        assert_eq!(block_device_of(&fuse), None, "{device:?}");
    }

    fn extent() -> Extent {
        Extent { length_bytes: 4096, ..Extent::default() }
    }
}
