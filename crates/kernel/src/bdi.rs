//! `read_ahead_kb` of the backing devices.
//!
//! The setting lives in the backing device info, not in the disk's queue: a partition shares its disk's, NFS, FUSE and
//! btrfs have one of their own. `/sys/class/bdi/MAJOR:MINOR` is right for all of them where the number is the
//! superblock's; a partition's number has no entry there and leads to its disk's.

use crate::{Error, Result};
use std::fs;
use std::path::PathBuf;

/// A device number as `(major, minor)`.
pub type DeviceNumber = (u32, u32);

/// The `read_ahead_kb` file that governs the file system with this device number, if it has one (a tmpfs has none).
pub fn read_ahead_file(device: DeviceNumber) -> Option<PathBuf> {
    let (major, minor) = device;
    let own = PathBuf::from(format!("/sys/class/bdi/{major}:{minor}/read_ahead_kb"));
    if own.exists() {
        return Some(own);
    }
    // A partition: its directory in sysfs lies inside its disk's, which has the queue.
    let partition = fs::canonicalize(format!("/sys/dev/block/{major}:{minor}")).ok()?;
    let disk = partition.parent()?.join("bdi/read_ahead_kb");
    disk.exists().then_some(disk)
}

/// The read-ahead window of a device, KiB.
pub fn read_ahead_kb(device: DeviceNumber) -> Result<u64> {
    let path = read_ahead_file(device).ok_or_else(|| Error::Unsupported {
        what: format!("read-ahead of device {}:{}", device.0, device.1),
        why: "it has no backing device".into(),
    })?;
    let text = fs::read_to_string(&path).map_err(|e| Error::io(format!("read {}", path.display()), e))?;
    text.trim().parse().map_err(|_| Error::Parse { path, text })
}
