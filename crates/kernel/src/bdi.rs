//! `read_ahead_kb` of the backing devices.
//!
//! The setting lives in the backing device info, not in the disk's queue: a partition shares its disk's, NFS, FUSE and
//! btrfs have one of their own. `/sys/class/bdi/MAJOR:MINOR` is right for all of them where the number is the
//! superblock's; a partition's number has no entry there and leads to its disk's.

use crate::{Error, Result};
use std::fs;
use std::path::{Path, PathBuf};

/// A device number as `(major, minor)`.
pub type DeviceNumber = (u32, u32);

/// The `read_ahead_kb` file that governs the file system with this device number, if it has one (a tmpfs has none).
pub fn read_ahead_file(device: DeviceNumber) -> Option<PathBuf> {
    governing(Path::new("/sys"), device).map(|(_, file)| file)
}

/// The same, with the number of the backing device (of a partition its disk's), in a sysfs that may lie elsewhere.
pub fn governing(sys: &Path, device: DeviceNumber) -> Option<(DeviceNumber, PathBuf)> {
    let (major, minor) = device;
    let own = sys.join(format!("class/bdi/{major}:{minor}/read_ahead_kb"));
    if own.exists() {
        return Some((device, own));
    }
    // A partition: its directory in sysfs lies inside its disk's, which has the queue.
    let partition = fs::canonicalize(sys.join(format!("dev/block/{major}:{minor}"))).ok()?;
    let disk = partition.parent()?;
    let file = disk.join("bdi/read_ahead_kb");
    let number = parse_number(&fs::read_to_string(disk.join("dev")).ok()?)?;
    file.exists().then_some((number, file))
}

/// `254:1` as sysfs writes it.
pub fn parse_number(text: &str) -> Option<DeviceNumber> {
    let (major, minor) = text.trim().split_once(':')?;
    Some((major.parse().ok()?, minor.parse().ok()?))
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
