//! The store of device descriptions: the results of `ahead probe --save`, by device.
//!
//! ```text
//!     /var/lib/ahead/devices/NAME-HASH.toml          saved by root, for all users
//!     $XDG_STATE_HOME/ahead/devices/NAME-HASH.toml   saved by a user; used first
//! ```
//!
//! NAME and HASH are made from the device's identity: the serial number of the disk as the kernel reports it, or else the UUID of its file
//! system. The device number and the node are not used, because another disk may get them. The file contains the identity, too: a file
//! that was copied to another name is ignored.
//!
//! A file is untrusted: it must be a regular file of limited size, with all values in their ranges.

use crate::output;
use crate::store::state_directories;
use ahead_device::Model;
use ahead_model::checked_toml::MAX_TEXT_BYTES;
use ahead_model::file_system_kind::Uuid;
use ahead_model::{DescribedDevice, DeviceDescription, DeviceNumber, Mount};
use ahead_plan::current_devices::current_device_numbers;
use ahead_profile::Profile;
use ahead_sys::root::Root;
use ahead_sys::{directory, fsuuid, mounts};
use rustix::process::geteuid;
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

/// Where root keeps descriptions for all users.
const SYSTEM: &str = "/var/lib/ahead/devices";

/// The kernel's identifiers of a disk, by priority: the UUID of a device-mapper device; the World Wide Name or serial number of NVMe, SCSI and
/// virtio disks; the register that identifies an SD card or eMMC.
const ATTRIBUTES: [&str; 5] = ["dm/uuid", "wwid", "device/wwid", "serial", "device/cid"];

/// A description and its source.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct KnownDevice {
    /// The description.
    pub description: DeviceDescription,
    /// Its file.
    pub path: PathBuf,
    /// Whether the user named the file, so that it is used for every device.
    pub is_given: bool,
}

/// The descriptions of the devices of a profile.
#[derive(Clone, Debug, Default)]
pub struct Descriptions {
    given: Option<KnownDevice>,
    saved: BTreeMap<DeviceNumber, KnownDevice>,
}

impl Descriptions {
    /// One description for every device: `--device FILE`. The file has a description or a disk model.
    ///
    /// Errors: a sentence for the user, with the path, and the line if there is one.
    pub fn given(path: &Path) -> Result<Descriptions, String> {
        let failed = |error: &dyn std::fmt::Display| format!("{}: {error}", path.display());
        let text = read_text(path).map_err(|error| failed(&error))?;
        let is_model = text.parse::<toml::Table>().is_ok_and(|table| table.contains_key("kind"));
        let description = match is_model {
            true => Model::from_toml(&text).map(|model| model.device_description()),
            false => DeviceDescription::from_toml(&text),
        };
        let description = description.map_err(|error| failed(&error))?;
        Ok(Descriptions::of_all(description, path))
    }

    /// Uses this description for every device.
    pub fn of_all(description: DeviceDescription, path: &Path) -> Descriptions {
        let given = KnownDevice { description, path: path.into(), is_given: true };
        Descriptions { given: Some(given), saved: BTreeMap::new() }
    }

    /// The saved descriptions of the devices that have the files of this profile, below this root directory, now. An unusable description is left out, and the reason
    /// is logged.
    ///
    /// Reads small files in /sys, /run and the store. The store's file system may not answer: call this in a thread that may wait.
    pub fn saved(profile: &Profile, root: &Root) -> Descriptions {
        let directories: Vec<PathBuf> = directories().into_iter().filter(|directory| directory.is_dir()).collect();
        // Usually there is no such directory: then nothing else is read.
        if directories.is_empty() {
            return Descriptions::default();
        }
        let Ok(mounts) = mounts::own() else { return Descriptions::default() };
        let mut saved = BTreeMap::new();
        for device in current_device_numbers(profile, &root.outer(b""), &mounts).into_values() {
            if saved.contains_key(&device) {
                continue;
            }
            let known = identity(device, &mounts).and_then(|identity| find(&directories, &identity));
            saved.extend(known.map(|known| (device, known)));
        }
        Descriptions { given: None, saved }
    }

    /// The description of a device. `None` for the number: it is unknown.
    pub fn of(&self, device: Option<DeviceNumber>) -> Option<&KnownDevice> {
        self.given.as_ref().or_else(|| self.saved.get(&device?))
    }
}

/// The identity of the device of a path, or of the block device that the path names: the key of its description.
///
/// Errors: a sentence for the user.
pub fn identity_of_path(path: &Path) -> Result<String, String> {
    let failed = |error: &dyn std::fmt::Display| format!("{}: {error}", path.display());
    let mounts = mounts::own().map_err(|error| failed(&error))?;
    let device = match ahead_sys::block::device_number(path) {
        Ok(device) => device,
        Err(_) => mounts::holding(path).map_err(|error| failed(&error))?.ok_or_else(|| failed(&"no mount"))?.device,
    };
    identity(device, &mounts).ok_or_else(|| {
        failed(&"its device has neither a serial number nor a file system with a UUID, under which a description could be kept")
    })
}

/// Saves a description: as root for all users, else for this user. Returns its path.
///
/// Errors: the directory cannot be created, or the file cannot be written. Then the earlier description stays.
pub fn save(identity: &str, origin: &str, description: DeviceDescription) -> io::Result<PathBuf> {
    let directory = directories().swap_remove(0);
    save_in(&directory, identity, origin, description)
}

fn save_in(directory: &Path, identity: &str, origin: &str, description: DeviceDescription) -> io::Result<PathBuf> {
    let device = DescribedDevice { identity: Some(identity.into()), origin: Some(origin.into()), description };
    let path = directory.join(file_name(identity));
    let text = device.to_toml();
    let saved = if geteuid().is_root() {
        output::system::replace(&path, text.as_bytes())
    } else {
        // A user's own: as private as the profiles beside it, or as the user's umask has it.
        fs::DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
        output::replace(&path, text.as_bytes())
    };
    saved.map_err(io::Error::other)?;
    Ok(path)
}

/// The directories of the store. New descriptions go to the first. Root does not read files that a user has saved.
fn directories() -> Vec<PathBuf> {
    let system = PathBuf::from(SYSTEM);
    if geteuid().is_root() {
        return vec![system];
    }
    let own = state_directories(None).map(|state| state.join("ahead/devices"));
    own.chain([system]).collect()
}

fn find(directories: &[PathBuf], identity: &str) -> Option<KnownDevice> {
    directories.iter().find_map(|directory| {
        let path = directory.join(file_name(identity));
        match load(&path, identity) {
            Ok(description) => Some(KnownDevice { description, path, is_given: false }),
            Err(why) => {
                if path.exists() {
                    tracing::warn!("{}: {why}; not used", path.display());
                }
                None
            }
        }
    })
}

fn load(path: &Path, identity: &str) -> Result<DeviceDescription, String> {
    let text = read_text(path).map_err(|error| error.to_string())?;
    let device = DescribedDevice::from_toml(&text).map_err(|error| error.to_string())?;
    match device.identity.as_deref() == Some(identity) {
        true => Ok(device.description),
        false => Err(format!("it does not describe {identity}")),
    }
}

/// Reads a text of limited size from a regular file.
fn read_text(path: &Path) -> io::Result<String> {
    let mut text = String::new();
    // One byte more than the limit: the parser refuses that.
    directory::open_regular_file(path, false)?.take(MAX_TEXT_BYTES as u64 + 1).read_to_string(&mut text)?;
    Ok(text)
}

fn identity(device: DeviceNumber, mounts: &[Mount]) -> Option<String> {
    disk_identity(Path::new("/"), device).or_else(|| file_system_uuid(Path::new("/"), device, mounts))
}

/// The kernel's identifier of this disk, or of the disk of this partition.
fn disk_identity(root: &Path, device: DeviceNumber) -> Option<String> {
    let own = fs::canonicalize(root.join(format!("sys/dev/block/{device}"))).ok()?;
    // The directory of a partition is in that of its disk.
    let disks = [Some(own.as_path()), own.parent()];
    let named = ATTRIBUTES.iter().flat_map(|name| disks.iter().flatten().map(move |disk| (name, disk.join(name))));
    named.into_iter().find_map(|(name, path)| {
        let value = fs::read_to_string(path).ok()?;
        Some(format!("{name} {}", value.trim())).filter(|_| !value.trim().is_empty())
    })
}

/// The UUID of the file system: from udev's database, or from the file system itself.
fn file_system_uuid(root: &Path, device: DeviceNumber, mounts: &[Mount]) -> Option<String> {
    let record = fs::read_to_string(root.join(format!("run/udev/data/b{device}"))).unwrap_or_default();
    let noted = record.lines().find_map(|line| line.strip_prefix("E:ID_FS_UUID=")).map(str::to_owned);
    let reported = || {
        let of_device = mounts.iter().filter(|mount| mount.device == device);
        let mount = of_device.rev().find(|mount| mount.kind().uuid != Uuid::Unreported)?;
        fsuuid::of(Path::new(OsStr::from_bytes(&mount.mount_point))).ok()?
    };
    noted.or_else(reported).map(|uuid| format!("file system {uuid}"))
}

/// Maximum length of the readable part of a file name.
const NAME_LENGTH: usize = 40;

fn file_name(identity: &str) -> String {
    let words: Vec<&str> =
        identity.split(|c: char| !c.is_ascii_alphanumeric()).filter(|word| !word.is_empty()).collect();
    let mut name = words.join("-");
    name.truncate(NAME_LENGTH);
    format!("{name}-{:08x}.toml", crc32fast::hash(identity.as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SERIAL: &str = "serial ../../etc/x y";

    #[test]
    fn saved_description_is_found_by_its_identity_only() {
        let home = tempfile::tempdir().unwrap();
        let directory = home.path().join("a/devices");
        let path = save_in(&directory, SERIAL, "a test", DeviceDescription::FLASH).unwrap();
        assert_eq!(path.parent(), Some(directory.as_path()));
        let directories = [home.path().join("none"), directory.clone()];
        let known = find(&directories, SERIAL).unwrap();
        assert_eq!((known.description, &known.path), (DeviceDescription::FLASH, &path));
        assert!(find(&directories, "serial other").is_none());
        // Under another name the file is ignored.
        fs::rename(&path, directory.join(file_name("serial other"))).unwrap();
        assert!(find(&directories, "serial other").is_none());
        assert_eq!(fs::read_dir(&directory).unwrap().count(), 1);
    }

    #[test]
    fn damaged_or_strange_file_is_not_used() {
        let home = tempfile::tempdir().unwrap();
        let path = save_in(home.path(), SERIAL, "", DeviceDescription::FLASH).unwrap();
        let good = fs::read(&path).unwrap();
        let mutated = [b"".to_vec(), good[..good.len() / 2].to_vec(), vec![0xff; 100], vec![b'#'; 70_000]];
        for text in mutated {
            fs::write(&path, text).unwrap();
            assert!(find(&[home.path().into()], SERIAL).is_none());
        }
        fs::remove_file(&path).unwrap();
        rustix::fs::mknodat(rustix::fs::CWD, &path, rustix::fs::FileType::Fifo, rustix::fs::Mode::RUSR, 0).unwrap();
        assert!(find(&[home.path().into()], SERIAL).is_none());
    }

    #[test]
    fn given_file_may_be_a_description_or_a_disk_model() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("x.toml");
        fs::write(&path, Model::builtin_toml("cloud").unwrap()).unwrap();
        let known = Descriptions::given(&path).unwrap();
        assert_eq!(known.of(None).unwrap().description, Model::builtin("cloud").unwrap().device_description());
        fs::write(&path, DeviceDescription::ROTATING.to_toml()).unwrap();
        let number = Some(DeviceNumber::new(8, 1));
        assert_eq!(Descriptions::given(&path).unwrap().of(number).unwrap().description, DeviceDescription::ROTATING);
        fs::write(&path, "access_us = 1\nspeed = 2\n").unwrap();
        let why = Descriptions::given(&path).unwrap_err();
        assert!(why.contains("x.toml: line 2: unknown field"), "{why}");
        assert!(Descriptions::given(&home.path().join("none")).unwrap_err().contains("none: "));
    }

    #[test]
    fn identity_is_the_serial_number_or_the_uuid() {
        let home = tempfile::tempdir().unwrap();
        let root = home.path();
        let disk = root.join("sys/devices/pci/block/vda");
        fs::create_dir_all(disk.join("vda1")).unwrap();
        fs::create_dir_all(root.join("sys/dev/block")).unwrap();
        fs::create_dir_all(root.join("run/udev/data")).unwrap();
        let partition = DeviceNumber::new(254, 1);
        std::os::unix::fs::symlink(disk.join("vda1"), root.join("sys/dev/block/254:1")).unwrap();
        assert_eq!(disk_identity(root, partition), None);
        fs::write(disk.join("serial"), "s9 \n").unwrap();
        assert_eq!(disk_identity(root, partition).as_deref(), Some("serial s9"));
        assert_eq!(file_system_uuid(root, partition, &[]), None);
        fs::write(root.join("run/udev/data/b254:1"), "S:disk/x\nE:ID_FS_UUID=12-34\n").unwrap();
        assert_eq!(file_system_uuid(root, partition, &[]).as_deref(), Some("file system 12-34"));
    }
}
