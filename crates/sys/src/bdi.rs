//! `read_ahead_kb` of the backing devices.
//!
//! The setting belongs to the backing device info (BDI), not to the queue of the disk. A partition shares the BDI of its disk;
//! NFS, FUSE and btrfs have their own. `/sys/class/bdi/MAJOR:MINOR` exists for the device number of a superblock; for the
//! number of a partition it does not, and the BDI of its disk is used.

mod open_setting;

use crate::mounts::{self, Mount};
use crate::{Error, Result};
pub use ahead_model::DeviceNumber;
pub use open_setting::OpenSetting;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// The `read_ahead_kb` file of the file system with this device number. `None`: it has none (tmpfs).
pub fn read_ahead_file(device: DeviceNumber) -> Option<PathBuf> {
    governing(Path::new("/sys"), device).map(|(_, file)| file)
}

/// As [`read_ahead_file`], in the given sysfs, with the number of the backing device (for a partition: of its disk).
pub fn governing(sys: &Path, device: DeviceNumber) -> Option<(DeviceNumber, PathBuf)> {
    let own = sys.join(format!("class/bdi/{device}/read_ahead_kb"));
    if own.exists() {
        return Some((device, own));
    }
    // In sysfs the directory of a partition lies in the directory of its disk.
    let partition = fs::canonicalize(sys.join(format!("dev/block/{device}"))).ok()?;
    let disk = partition.parent()?;
    let file = disk.join("bdi/read_ahead_kb");
    let number = fs::read_to_string(disk.join("dev")).ok()?.parse().ok()?;
    file.exists().then_some((number, file))
}

/// As [`governing`], for a mount. The BDI of btrfs has no device number (`btrfs-1`): it is found by the UUID of the file
/// system. For FUSE on a block device the name has a suffix.
pub fn governing_mount(sys: &Path, mount: &Mount) -> Option<(DeviceNumber, PathBuf)> {
    let own = match mount.fs_type.as_str() {
        "btrfs" => btrfs(sys, mount)?.join("bdi"),
        "fuseblk" => sys.join(format!("class/bdi/{}-fuseblk", mount.device)),
        _ => return governing(sys, mount.device),
    };
    let file = own.join("read_ahead_kb");
    if file.exists() { Some((mount.device, file)) } else { governing(sys, mount.device) }
}

/// The sysfs directory of a btrfs, found by the device that was mounted. Its name is the UUID.
pub fn btrfs(sys: &Path, mount: &Mount) -> Option<PathBuf> {
    let source = PathBuf::from(OsStr::from_bytes(&mount.source));
    // /dev/mapper/NAME is a symbolic link to /dev/dm-N.
    let device = fs::canonicalize(&source).unwrap_or(source);
    btrfs_on(sys, device.file_name()?)
}

/// As [`btrfs`], found by the kernel name of any member device.
pub fn btrfs_on(sys: &Path, device: &OsStr) -> Option<PathBuf> {
    let all = fs::read_dir(sys.join("fs/btrfs")).into_iter().flatten().flatten();
    all.map(|entry| entry.path()).find(|directory| directory.join("devices").join(device).exists())
}

/// The block devices of a btrfs, at least one. Empty for other file systems.
pub fn btrfs_members(sys: &Path, mount: &Mount) -> Vec<DeviceNumber> {
    let directory = (mount.fs_type == "btrfs").then(|| btrfs(sys, mount)).flatten();
    let members =
        directory.map(|directory| fs::read_dir(directory.join("devices"))).into_iter().flatten().flatten().flatten();
    let number = |member: fs::DirEntry| fs::read_to_string(member.path().join("dev")).ok()?.parse().ok();
    members.filter_map(number).collect()
}

/// The `read_ahead_kb` file for the file system that a directory lies on. `None`: it has none.
pub fn read_ahead_file_below(directory: &Path) -> Option<PathBuf> {
    let mount = mounts::holding(directory).ok()??;
    governing_mount(Path::new("/sys"), &mount).map(|(_, file)| file)
}

/// The read-ahead window of a device. Unit: KiB.
pub fn read_ahead_kb(device: DeviceNumber) -> Result<u64> {
    let path = read_ahead_file(device).ok_or_else(|| Error::Unsupported {
        what: format!("read-ahead of device {device}"),
        why: "the device has no backing device info".into(),
    })?;
    read_kb(path)
}

/// The value of a `read_ahead_kb` file. Unit: KiB.
pub fn read_kb(path: PathBuf) -> Result<u64> {
    let text = fs::read_to_string(&path).map_err(|e| Error::io(format!("read {}", path.display()), e))?;
    text.trim().parse().map_err(|_| Error::Parse { path, text })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Regression: for a btrfs on two devices, only the reads of the mounted device were counted.
    #[test]
    fn btrfs_members_are_all_its_devices() {
        let sys = tempfile::tempdir().unwrap();
        for (name, number) in [("loop7", "7:7\n"), ("loop8", "7:8\n")] {
            let member = sys.path().join("fs/btrfs/0f3c/devices").join(name);
            fs::create_dir_all(&member).unwrap();
            fs::write(member.join("dev"), number).unwrap();
        }
        let members = |line: &str| {
            let mounts = mounts::parse(line.as_bytes()).unwrap();
            let mut members = btrfs_members(sys.path(), &mounts[0]);
            members.sort();
            members
        };
        assert_eq!(members("40 1 0:43 / /home rw - btrfs /dev/loop7 rw"), [(7, 7), (7, 8)].map(DeviceNumber::from));
        assert!(members("40 1 7:7 / /home rw - ext4 /dev/loop7 rw").is_empty());
        assert!(members("40 1 0:43 / /home rw - btrfs /dev/loop9 rw").is_empty());
    }
}
