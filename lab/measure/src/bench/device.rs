//! The device below the files: counts its requests, and empties its buffer.

use crate::bench::Result;
use ahead_disk::{Client, DiskInfo};
use ahead_model::DeviceNumber;
use ahead_sys::bdi;
use ahead_sys::directory::Directory;
use ahead_sys::diskstats::{self, Reads};
use ahead_sys::mounts::Mount;
use ahead_sys::{block, machine};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// The device under a directory.
#[derive(Debug)]
pub enum Device {
    /// An emulated disk: its server counts requests.
    Emulated(Box<DiskInfo>),
    /// Block devices (btrfs may have several): the kernel counts requests.
    Block(Vec<DeviceNumber>),
    /// No counts: a network file system, FUSE, a file system in memory.
    Unknown,
}

impl Device {
    /// Finds the device. `mount`: the mount of the directory.
    ///
    /// Errors: fstat of the directory failed.
    pub fn under(directory: &Directory, mount: Option<&Mount>) -> Result<Device> {
        let metadata = directory.metadata()?;
        let own = DeviceNumber::from_stat(metadata.dev());
        let devices = if has_counts(&own) { vec![own] } else { mount.map(devices_of_mount).unwrap_or_default() };
        if devices.is_empty() || !devices.iter().all(has_counts) {
            return Ok(Device::Unknown);
        }
        // The server of an emulated disk answers root only; every user may read the kernel's counts.
        let emulated = if machine::is_root() { ahead_disk::list().unwrap_or_default() } else { Vec::new() };
        let disk = emulated.into_iter().find(|disk| devices == [disk.device_number] && disk.is_alive());
        Ok(disk.map_or(Device::Block(devices), |disk| Device::Emulated(Box::new(disk))))
    }

    /// The reads of the device so far; `None` without counts.
    ///
    /// Errors: the emulated disk does not answer.
    pub fn reads(&self) -> Result<Option<Reads>> {
        Ok(match self {
            Device::Emulated(disk) => {
                let stat = Client::new(disk).stat()?;
                Some(Reads { requests: stat.requests, bytes: stat.bytes })
            }
            Device::Block(devices) => {
                let each: ahead_sys::Result<Vec<Reads>> =
                    devices.iter().map(|device| diskstats::reads(*device)).collect();
                each.ok().map(|each| Reads {
                    requests: each.iter().map(|reads| reads.requests).sum(),
                    bytes: each.iter().map(|reads| reads.bytes).sum(),
                })
            }
            Device::Unknown => None,
        })
    }

    /// Empties the buffer of an emulated disk.
    ///
    /// Errors: the disk does not answer.
    pub fn restart(&self) -> Result<()> {
        match self {
            Device::Emulated(disk) => Ok(Client::new(disk).restart()?),
            _ => Ok(()),
        }
    }

    /// The kind and name of the device, for people.
    pub fn describe(&self) -> String {
        match self {
            Device::Emulated(disk) => format!("emulated {} ({})", disk.model.name, disk.name),
            Device::Block(devices) => {
                let numbers: Vec<String> = devices.iter().map(DeviceNumber::to_string).collect();
                format!("block device{} {}", if devices.len() > 1 { "s" } else { "" }, numbers.join(", "))
            }
            Device::Unknown => "no block device".into(),
        }
    }

    /// Why the times of the device are not reliable; `None`: they are reliable.
    pub fn warning(&self) -> Option<&str> {
        match self {
            Device::Emulated(disk) if disk.beyond_rig => disk.beyond_rig_why.as_deref(),
            _ => None,
        }
    }
}

fn has_counts(device: &DeviceNumber) -> bool {
    diskstats::reads(*device).is_ok()
}

/// The block devices of a mount. Files of btrfs have a device number that belongs to no device, and may lie on several devices.
fn devices_of_mount(mount: &Mount) -> Vec<DeviceNumber> {
    let members = bdi::btrfs_members(Path::new("/sys"), mount);
    if !members.is_empty() {
        return members;
    }
    block::device_number(Path::new(OsStr::from_bytes(&mount.source))).into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn device(path: &str) -> Device {
        let directory = Directory::open(Path::new(path)).unwrap();
        Device::under(&directory, ahead_sys::mounts::of_open(&directory).unwrap().as_ref()).unwrap()
    }

    #[test]
    fn file_system_in_memory_has_no_device() {
        if Path::new("/dev/shm").exists() {
            assert!(matches!(device("/dev/shm"), Device::Unknown));
        }
    }

    #[test]
    fn counts_of_a_device_never_decrease() {
        let device = device(env!("CARGO_MANIFEST_DIR"));
        let (first, second) = (device.reads().unwrap(), device.reads().unwrap());
        assert!(first.zip(second).is_none_or(|(first, second)| first.requests <= second.requests));
        device.restart().unwrap();
        assert!(!device.describe().is_empty());
    }
}
