//! Where the kernel's and the system's files are: below `/`, or below another directory in tests.

use ahead_kernel::bdi::{self, DeviceNumber};
use ahead_kernel::mounts::{self, Mount};
use std::fs;
use std::path::{Path, PathBuf};

/// The roots of what is looked at and of what is written.
#[derive(Clone, Debug)]
pub struct System {
    /// Of `/sys`, `/run/udev` and the rules that udev brings along.
    pub root: PathBuf,
    /// Of `/etc` and `/var`, where rules and earlier values are kept.
    pub kept: PathBuf,
}

impl Default for System {
    fn default() -> Self {
        System { root: "/".into(), kept: "/".into() }
    }
}

impl System {
    /// Of this machine; what is kept goes below another directory.
    pub fn keeping_in(kept: &Path) -> System {
        System { kept: kept.into(), ..System::default() }
    }

    /// A path of the sysfs.
    pub(crate) fn sys(&self, path: impl AsRef<Path>) -> PathBuf {
        self.root.join("sys").join(path)
    }

    /// A block device's directory in the sysfs.
    pub(crate) fn block(&self, device: DeviceNumber) -> PathBuf {
        self.sys(format!("dev/block/{}:{}", device.0, device.1))
    }

    /// A kernel file's content without the newline; `None` if it is not there, or says nothing.
    pub(crate) fn text(path: &Path) -> Option<String> {
        let text = fs::read_to_string(path).ok()?;
        Some(text.trim().to_owned()).filter(|text| !text.is_empty())
    }

    /// The backing device that governs a number, and its setting.
    pub(crate) fn governing(&self, device: DeviceNumber) -> Option<(DeviceNumber, PathBuf)> {
        bdi::governing(&self.root.join("sys"), device)
    }

    /// What is mounted.
    pub(crate) fn mounts(&self) -> crate::Result<Vec<Mount>> {
        Ok(mounts::own()?)
    }
}
