//! `read_ahead_kb` of the backing devices.
//!
//! The setting lives in the backing device info, not in the disk's queue: a partition shares its disk's, NFS, FUSE and
//! btrfs have one of their own. `/sys/class/bdi/MAJOR:MINOR` is right for all of them where the number is the
//! superblock's; a partition's number has no entry there and leads to its disk's.

use crate::mounts::{self, Mount};
use crate::{Error, Result};
pub use ahead_model::DeviceNumber;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// The `read_ahead_kb` file that governs the file system with this device number, if it has one (a tmpfs has none).
pub fn read_ahead_file(device: DeviceNumber) -> Option<PathBuf> {
    governing(Path::new("/sys"), device).map(|(_, file)| file)
}

/// The same, with the number of the backing device (of a partition its disk's), in a sysfs that may lie elsewhere.
pub fn governing(sys: &Path, device: DeviceNumber) -> Option<(DeviceNumber, PathBuf)> {
    let own = sys.join(format!("class/bdi/{device}/read_ahead_kb"));
    if own.exists() {
        return Some((device, own));
    }
    // A partition: its directory in sysfs lies inside its disk's, which has the queue.
    let partition = fs::canonicalize(sys.join(format!("dev/block/{device}"))).ok()?;
    let disk = partition.parent()?;
    let file = disk.join("bdi/read_ahead_kb");
    let number = fs::read_to_string(disk.join("dev")).ok()?.parse().ok()?;
    file.exists().then_some((number, file))
}

/// The same of a mount. The entry of btrfs has no number (`btrfs-1`), and is found by the file system's UUID; FUSE on a block
/// device adds a word to it.
pub fn governing_mount(sys: &Path, mount: &Mount) -> Option<(DeviceNumber, PathBuf)> {
    let own = match mount.fs_type.as_str() {
        "btrfs" => btrfs(sys, mount)?.join("bdi"),
        "fuseblk" => sys.join(format!("class/bdi/{}-fuseblk", mount.device)),
        _ => return governing(sys, mount.device),
    };
    let file = own.join("read_ahead_kb");
    if file.exists() { Some((mount.device, file)) } else { governing(sys, mount.device) }
}

/// The directory in sysfs of a btrfs, by the device that it was mounted from; its name is the UUID.
pub fn btrfs(sys: &Path, mount: &Mount) -> Option<PathBuf> {
    let source = PathBuf::from(OsStr::from_bytes(&mount.source));
    // /dev/mapper/NAME is a link to /dev/dm-N.
    let device = fs::canonicalize(&source).unwrap_or(source);
    btrfs_on(sys, device.file_name()?)
}

/// The same by the kernel's name of any of its devices.
pub fn btrfs_on(sys: &Path, device: &OsStr) -> Option<PathBuf> {
    let all = fs::read_dir(sys.join("fs/btrfs")).into_iter().flatten().flatten();
    all.map(|entry| entry.path()).find(|directory| directory.join("devices").join(device).exists())
}

/// The block devices that a btrfs lies on, one or several. Empty for other file systems.
pub fn btrfs_members(sys: &Path, mount: &Mount) -> Vec<DeviceNumber> {
    let directory = (mount.fs_type == "btrfs").then(|| btrfs(sys, mount)).flatten();
    let members =
        directory.map(|directory| fs::read_dir(directory.join("devices"))).into_iter().flatten().flatten().flatten();
    let number = |member: fs::DirEntry| fs::read_to_string(member.path().join("dev")).ok()?.parse().ok();
    members.filter_map(number).collect()
}

/// The `read_ahead_kb` file that governs what lies in this directory, on any file system that has one.
pub fn read_ahead_file_below(directory: &Path) -> Option<PathBuf> {
    let mount = mounts::holding(directory).ok()??;
    governing_mount(Path::new("/sys"), &mount).map(|(_, file)| file)
}

/// The read-ahead window of a device, KiB.
pub fn read_ahead_kb(device: DeviceNumber) -> Result<u64> {
    let path = read_ahead_file(device).ok_or_else(|| Error::Unsupported {
        what: format!("read-ahead of device {device}"),
        why: "it has no backing device".into(),
    })?;
    read_kb(path)
}

/// What a `read_ahead_kb` file says, KiB.
pub fn read_kb(path: PathBuf) -> Result<u64> {
    let text = fs::read_to_string(&path).map_err(|e| Error::io(format!("read {}", path.display()), e))?;
    text.trim().parse().map_err(|_| Error::Parse { path, text })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Regression: of a btrfs on two devices only the reads of the one that was mounted were counted.
    #[test]
    fn a_btrfs_lies_on_all_its_members() {
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
