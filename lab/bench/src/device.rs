//! What lies below the files: who counts its requests, and whether it has a buffer of its own to be emptied.

use crate::Result;
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
    /// An emulated disk, which counts exactly what it serves.
    Emulated(Box<DiskInfo>),
    /// Block devices, several of a btrfs; the kernel counts.
    Block(Vec<DeviceNumber>),
    /// Nobody counts: a network file system, FUSE, a file system in memory.
    Unknown,
}

impl Device {
    /// Finds it. `mount`: by which the directory was reached.
    ///
    /// Errors: the directory cannot be looked at.
    pub fn under(directory: &Directory, mount: Option<&Mount>) -> Result<Device> {
        let metadata = directory.metadata()?;
        let own = DeviceNumber::from_stat(metadata.dev());
        let devices = if is_counted(&own) { vec![own] } else { mount.map(of_mount).unwrap_or_default() };
        if devices.is_empty() || !devices.iter().all(is_counted) {
            return Ok(Device::Unknown);
        }
        // Its daemon answers root alone; the kernel's counts are for everybody.
        let emulated = if machine::is_root() { ahead_disk::list().unwrap_or_default() } else { Vec::new() };
        let disk = emulated.into_iter().find(|disk| devices == [disk.device_number] && disk.is_alive());
        Ok(disk.map_or(Device::Block(devices), |disk| Device::Emulated(Box::new(disk))))
    }

    /// Its reads so far; `None` where nobody counts them.
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

    /// Empties the buffer of an emulated drive.
    ///
    /// Errors: it does not answer.
    pub fn restart(&self) -> Result<()> {
        match self {
            Device::Emulated(disk) => Ok(Client::new(disk).restart()?),
            _ => Ok(()),
        }
    }

    /// What it is, in a word or two.
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

    /// Why its times are not to be trusted, if they are not.
    pub fn warning(&self) -> Option<&str> {
        match self {
            Device::Emulated(disk) if disk.beyond_rig => disk.beyond_rig_why.as_deref(),
            _ => None,
        }
    }
}

fn is_counted(device: &DeviceNumber) -> bool {
    diskstats::reads(*device).is_ok()
}

/// The block devices of a mount: btrfs has files of a number that is no device, and may lie on several.
fn of_mount(mount: &Mount) -> Vec<DeviceNumber> {
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
    fn what_is_in_memory_has_no_device() {
        if Path::new("/dev/shm").exists() {
            assert!(matches!(device("/dev/shm"), Device::Unknown));
        }
    }

    #[test]
    fn counts_of_a_device_only_grow() {
        let device = device(env!("CARGO_MANIFEST_DIR"));
        let (first, second) = (device.reads().unwrap(), device.reads().unwrap());
        assert!(first.zip(second).is_none_or(|(first, second)| first.requests <= second.requests));
        device.restart().unwrap();
        assert!(!device.describe().is_empty());
    }
}
