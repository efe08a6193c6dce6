//! Paths of kernel and system files: below `/`, or below another directory in tests.

use crate::tune::{Error, Result};
use ahead_model::DeviceNumber;
use ahead_sys::bdi;
use ahead_sys::mounts::{self, Mount};
use std::fs;
use std::path::{Path, PathBuf};

/// The roots of the files that are read and written.
#[derive(Clone, Debug)]
pub struct System {
    /// Root of `/sys`, `/proc`, `/run/udev` and udev's own rules.
    pub root: PathBuf,
    /// Root of `/etc` and `/var`, where rules and states are kept.
    pub kept: PathBuf,
}

impl Default for System {
    fn default() -> Self {
        System { root: "/".into(), kept: "/".into() }
    }
}

impl System {
    /// This machine, with rules and states below another directory.
    pub fn keeping_in(kept: &Path) -> System {
        System { kept: kept.into(), ..System::default() }
    }

    /// A path in sysfs.
    pub fn sys(&self, path: impl AsRef<Path>) -> PathBuf {
        self.root.join("sys").join(path)
    }

    /// A block device's directory in sysfs.
    pub fn block(&self, device: DeviceNumber) -> PathBuf {
        self.sys(format!("dev/block/{device}"))
    }

    /// The device node of a block device.
    pub fn node(&self, device: DeviceNumber) -> Option<PathBuf> {
        let text = Self::text(&self.block(device).join("uevent"))?;
        let name = text.lines().find_map(|line| line.strip_prefix("DEVNAME="))?;
        Some(self.root.join("dev").join(name)).filter(|node| node.exists())
    }

    /// A kernel file's content, trimmed; `None` if it is missing or empty.
    pub fn text(path: &Path) -> Option<String> {
        let text = fs::read_to_string(path).ok()?;
        Some(text.trim().to_owned()).filter(|text| !text.is_empty())
    }

    /// The backing device that governs a device, and its setting.
    pub fn governing(&self, device: DeviceNumber) -> Option<(DeviceNumber, PathBuf)> {
        bdi::governing(&self.root.join("sys"), device)
    }

    /// The same for a mount.
    pub fn governing_mount(&self, mount: &Mount) -> Option<(DeviceNumber, PathBuf)> {
        bdi::governing_mount(&self.root.join("sys"), mount)
    }

    /// The directory of a btrfs.
    pub(crate) fn btrfs(&self, mount: &Mount) -> Option<PathBuf> {
        bdi::btrfs(&self.root.join("sys"), mount)
    }

    /// The mount table.
    pub fn mounts(&self) -> Result<Vec<Mount>> {
        let path = self.root.join("proc/self/mountinfo");
        let text = fs::read(&path).map_err(|e| Error::io(format!("read {}", path.display()), e))?;
        Ok(mounts::parse(&text)?)
    }

    /// The boot id: device numbers are valid for one boot.
    pub(crate) fn boot(&self) -> Option<String> {
        Self::text(&self.root.join("proc/sys/kernel/random/boot_id"))
    }

    /// The disk sequence number, which distinguishes disks that have the same number one after another (Linux 5.15).
    pub fn diskseq(&self, device: DeviceNumber) -> Option<u64> {
        Self::text(&self.block(device).join("diskseq"))?.parse().ok()
    }

    /// Every block device, partitions included.
    pub(crate) fn block_devices(&self) -> Vec<DeviceNumber> {
        let entries = fs::read_dir(self.sys("dev/block")).into_iter().flatten().flatten();
        entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
    }
}

#[cfg(test)]
pub(crate) mod testing {
    use super::*;

    /// A disk: name (for a partition, below its disk's), number, files in its sysfs directory, udev's record.
    pub(crate) type Disk<'a> = (&'a str, (u32, u32), &'a [(&'a str, &'a str)], &'a str);

    /// A machine with these disks, below a directory.
    pub(crate) fn machine(disks: &[Disk]) -> (tempfile::TempDir, System) {
        let home = tempfile::tempdir().unwrap();
        let write = |path: PathBuf, text: &str| {
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        for (name, (major, minor), attributes, record) in disks {
            let directory = home.path().join("sys/block").join(name);
            write(directory.join("dev"), &format!("{major}:{minor}\n"));
            for (attribute, value) in *attributes {
                write(directory.join(attribute), &format!("{value}\n"));
            }
            let link = home.path().join(format!("sys/dev/block/{major}:{minor}"));
            fs::create_dir_all(link.parent().unwrap()).unwrap();
            std::os::unix::fs::symlink(&directory, link).unwrap();
            write(home.path().join(format!("run/udev/data/b{major}:{minor}")), record);
            if !name.contains('/') {
                let window = home.path().join(format!("sys/class/bdi/{major}:{minor}"));
                write(window.join("read_ahead_kb"), "128\n");
                std::os::unix::fs::symlink(&window, directory.join("bdi")).unwrap();
            }
        }
        write(home.path().join("proc/sys/kernel/random/boot_id"), "this-start\n");
        write(home.path().join("proc/self/mountinfo"), "");
        let root = home.path().to_path_buf();
        (home, System { kept: root.clone(), root })
    }
}
