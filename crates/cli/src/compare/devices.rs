//! Which disks a profile's files lie on, and making them cold.

use ahead_kernel::bdi::DeviceNumber;
use ahead_kernel::mounts::{self, Mount};
use ahead_kernel::{block, cache, evict, machine, openat};
use ahead_profile::{File, Profile};
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Block devices and their nodes.
pub type Devices = BTreeMap<DeviceNumber, PathBuf>;

/// The block devices below a profile's files and metadata.
pub fn of_profile(profile: &Profile) -> anyhow::Result<Devices> {
    let mounts = mounts::own()?;
    let paths = profile.files.iter().map(|file| &file.path).chain(profile.metadata.iter().map(|m| &m.mount_point));
    let found: BTreeSet<usize> = paths.filter_map(|path| mount_of(&mounts, path)).collect();
    Ok(found.into_iter().filter_map(|index| block_device_of(&mounts[index])).collect())
}

/// The mount that a path lies on: the longest mount point that is a prefix of it, the latest of several on one point.
fn mount_of(mounts: &[Mount], path: &[u8]) -> Option<usize> {
    let covers = |mount: &Mount| {
        let point = mount.mount_point.strip_suffix(b"/").unwrap_or(&mount.mount_point);
        path.strip_prefix(point).is_some_and(|rest| rest.is_empty() || rest[0] == b'/')
    };
    let fitting = mounts.iter().enumerate().filter(|(_, mount)| covers(mount));
    fitting.max_by_key(|(index, mount)| (mount.mount_point.len(), *index)).map(|(index, _)| index)
}

/// The device that a mount names as its source: what FUSE, NFS and tmpfs name is none.
fn block_device_of(mount: &Mount) -> Option<(DeviceNumber, PathBuf)> {
    let node = PathBuf::from(OsStr::from_bytes(&mount.source));
    Some((block::device_number(&node).ok()?, node))
}

/// Makes a profile's files cold, as far as we are permitted, and gives the bytes of it that are still cached.
pub fn make_cold(profile: &Profile, devices: &Devices) -> anyhow::Result<u64> {
    if machine::is_root() {
        evict_everything(devices)?;
    }
    let files = profile.files.iter().filter(|file| !file.deleted);
    let kept_bytes = files.map(|file| make_file_cold(file).unwrap_or(0)).sum();
    if machine::is_root() {
        // To look at the files brought their names, inodes and blocks back.
        evict_everything(devices)?;
    }
    Ok(kept_bytes)
}

fn evict_everything(devices: &Devices) -> anyhow::Result<()> {
    evict::everything()?;
    for node in devices.values() {
        // Its cache was dropped with all others; this only gets at blocks that were just used.
        if let Err(error) = evict::block_device(node) {
            tracing::debug!("{error}");
        }
    }
    Ok(())
}

/// Evicts one file and counts what of its extents stays. `None`: it is gone, or not ours to ask about.
fn make_file_cold(file: &File) -> Option<u64> {
    let handle = openat::handle(Path::new(OsStr::from_bytes(&file.path))).ok()?;
    if !handle.is_regular_file() {
        return None;
    }
    let fd = handle.reopen().ok()?;
    if !machine::is_root() {
        evict::file(&fd).ok()?;
    }
    let page = machine::page_size();
    let mut kept_bytes = 0;
    for extent in &file.extents {
        kept_bytes += cache::cachestat(&fd, extent.offset_bytes, extent.length_bytes).ok()?.cached_pages * page;
    }
    Some(kept_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_and_latest_mount_point_wins() {
        let text = b"1 0 8:1 / / rw - ext4 /dev/sda1 rw\n2 1 8:2 / /srv rw - ext4 /dev/sda2 rw\n3 1 8:3 / /srv rw - ext4 /dev/sda3 rw\n";
        let mounts = mounts::parse(text).unwrap();
        assert_eq!(mount_of(&mounts, b"/srv/x"), Some(2));
        assert_eq!(mount_of(&mounts, b"/srvx"), Some(0));
    }
}
