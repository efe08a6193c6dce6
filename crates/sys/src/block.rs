//! Block devices: their number, their size, and the settings of their queue.
//!
//! Settings are files under `/sys/block/NAME/queue`. `ahead_process::undo::set_file_for` changes them: it writes a note first and
//! restores the old value.
use crate::{Error, Result, descriptors};
use ahead_model::DeviceNumber;
use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

/// The kernel counts the size of a device in sectors of this size, for every device. Unit: bytes.
const SECTOR_BYTES: u64 = 512;

/// Bypass the page cache (open(2)). The value depends on the architecture.
pub const O_DIRECT: i32 = libc::O_DIRECT;

/// Open a block device only if no mount and no other device claims it (open(2)).
pub const O_EXCL: i32 = libc::O_EXCL;

/// The number of a block device node (`/dev/loop0` → `7:0`).
pub fn device_number(node: &Path) -> Result<DeviceNumber> {
    let what = || format!("stat {}", node.display());
    let metadata = fs::metadata(node).map_err(|e| Error::io(what(), e))?;
    if !metadata.file_type().is_block_device() {
        return Err(Error::io(node.display().to_string(), std::io::Error::other("not a block device")));
    }
    Ok(DeviceNumber::from_stat(metadata.rdev()))
}

/// The size of a block device. Unit: bytes.
pub fn size_bytes(device: DeviceNumber) -> Result<u64> {
    let path = PathBuf::from(format!("/sys/dev/block/{device}/size"));
    let text = descriptors::read_text(&path).map_err(|e| Error::io(format!("read {}", path.display()), e))?;
    let sectors: Option<u64> = text.trim().parse().ok();
    sectors.and_then(|n| n.checked_mul(SECTOR_BYTES)).ok_or(Error::Parse { path, text })
}

/// The file of a queue setting (`rotational`, `scheduler`, `nr_requests`, `max_sectors_kb`, `read_ahead_kb`).
pub fn queue_file(device: DeviceNumber, setting: &str) -> PathBuf {
    PathBuf::from(format!("/sys/dev/block/{device}/queue/{setting}"))
}

/// A queue setting of a disk, or of the disk of a partition. For a setting with alternatives (`none [mq-deadline]`): the
/// selected one. `None`: the device is neither.
pub fn disk_setting(device: DeviceNumber, setting: &str) -> Option<String> {
    // A partition has no queue. Its directory lies in the directory of its disk; the kernel resolves the link before "..".
    let own = Path::new("/sys/dev/block").join(device.to_string());
    let files = [own.join("queue").join(setting), own.join("../queue").join(setting)];
    files.iter().find_map(|file| read_setting(file).ok())
}

/// The value of a setting in sysfs, without the newline. For a setting with alternatives (`none [mq-deadline]`): the selected one.
pub fn read_setting(path: &Path) -> Result<String> {
    let text = descriptors::read_text(path).map_err(|e| Error::io(format!("read {}", path.display()), e))?;
    let chosen = text.split_once('[').and_then(|(_, rest)| rest.split_once(']')).map(|(word, _)| word);
    Ok(chosen.unwrap_or(&text).trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn regular_file_and_character_device_are_not_block_devices() {
        let file = tempfile::NamedTempFile::new().unwrap();
        assert!(device_number(file.path()).is_err());
        assert!(device_number(Path::new("/dev/null")).is_err());
    }

    #[test]
    fn missing_device_has_no_size_and_no_setting() {
        assert!(size_bytes(DeviceNumber::new(4095, 1)).is_err());
        assert!(disk_setting(DeviceNumber::new(4095, 1), "scheduler").is_none());
    }

    #[test]
    fn every_disk_of_this_machine_has_a_size_and_a_queue() {
        for entry in fs::read_dir("/sys/block").into_iter().flatten().flatten() {
            let text = fs::read_to_string(entry.path().join("dev")).unwrap();
            let number = text.parse().unwrap();
            size_bytes(number).unwrap();
            assert!(["0", "1"].contains(&disk_setting(number, "rotational").unwrap().as_str()));
        }
    }
}
