//! `read_ahead_kb` of the backing devices, read and set under a guard.
//!
//! The setting lives in the backing device info, not in the disk's queue: a partition shares its disk's, NFS, FUSE and
//! btrfs have one of their own. `/sys/class/bdi/MAJOR:MINOR` is right for all of them where the number is the
//! superblock's; a partition's number has no entry there and leads to its disk's.

use crate::undo::{self, Guard};
use crate::{Error, Result};
use std::fs;
use std::path::{Path, PathBuf};

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

/// Sets the read-ahead window of these devices (KiB) until the guards are dropped. Devices without one are passed over,
/// and each setting is changed once, however many devices share it.
pub fn set_read_ahead_kb(devices: impl IntoIterator<Item = DeviceNumber>, kib: u64) -> Result<Vec<Guard>> {
    let mut files: Vec<PathBuf> = devices.into_iter().filter_map(read_ahead_file).map(canonical).collect();
    files.sort();
    files.dedup();
    files.iter().map(|file| undo::set_file(file, &kib.to_string())).collect()
}

fn canonical(path: PathBuf) -> PathBuf {
    fs::canonicalize(&path).unwrap_or(path)
}

/// The device number of the file system that holds `path`, as stat reports it.
pub fn device_of(path: &Path) -> Result<DeviceNumber> {
    let stat = rustix::fs::stat(path).map_err(|e| Error::io(format!("stat {}", path.display()), e))?;
    Ok((rustix::fs::major(stat.st_dev), rustix::fs::minor(stat.st_dev)))
}
