//! The identity of a target, which stays the same after a restart. Never a name like `sda`, which another disk may get.
//!
//! For a block device: the first of these that it has and no other device has.
//!
//! ```text
//!     dm/uuid          device mapper: LVM group and volume, UUID of an encrypted volume                  sysfs
//!     MD_UUID          software RAID                                                                    udev
//!     ID_SERIAL, ID_WWN   model and serial number; World Wide Name                                        udev
//!     wwid, serial, …  the same from the kernel, where udev does not run or does not store it              sysfs
//!     ID_FS_UUID       the file system on it                                                            udev
//! ```
//!
//! btrfs is identified by its UUID, other file systems (NFS, FUSE) by their mount: mount point, source and type.

use crate::tune::System;
use crate::tune::places::is_seen;
use crate::tune::value::RuleValue;
use ahead_model::DeviceNumber;
use ahead_model::file_system_kind::Uuid;
use ahead_sys::fsuuid;
use ahead_sys::mounts::Mount;
use serde::{Deserialize, Serialize};
use std::ffi::OsStr;
use std::fmt;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// udev properties of whole disks, by priority.
const PROPERTIES: [&str; 3] = ["MD_UUID", "ID_SERIAL", "ID_WWN"];
/// sysfs attributes, by priority: NVMe, SCSI, virtio, SD card or eMMC.
const ATTRIBUTES: [&str; 4] = ["wwid", "device/wwid", "serial", "device/cid"];
/// sysfs attribute of a device-mapper device.
const MAPPER_UUID: &str = "dm/uuid";
/// udev property of a file system.
const FS_UUID: &str = "ID_FS_UUID";

/// The identity of a target.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "by", rename_all = "snake_case")]
pub enum Identity {
    /// A udev property of a whole disk.
    Property {
        /// `ID_SERIAL`.
        name: String,
        value: String,
    },
    /// An attribute in the device's sysfs directory.
    Attribute {
        /// `dm/uuid`.
        name: String,
        value: String,
    },
    /// The file system on a disk, or on a partition of it.
    FileSystem {
        uuid: String,
        /// Whether it lies on a partition. The window is the disk's.
        on_partition: bool,
    },
    /// A btrfs, which has one window for all its devices.
    Btrfs {
        uuid: String,
        /// One of its mount points.
        point: String,
    },
    Mount {
        /// Mount point.
        point: String,
        source: String,
        /// File system type.
        fs_type: String,
    },
}

impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Identity::Property { name, value } | Identity::Attribute { name, value } => write!(f, "{name} {value}"),
            Identity::FileSystem { uuid, .. } => write!(f, "the file system {uuid}"),
            Identity::Btrfs { uuid, .. } => write!(f, "btrfs {uuid}"),
            Identity::Mount { point, source, fs_type } => write!(f, "{fs_type} {source} on {point}"),
        }
    }
}

impl Identity {
    /// The identity of a mount without a block device, or why it has none. [`crate::tune::rule::check_identity`] says whether it can be named.
    pub(crate) fn of_mount(mount: &Mount) -> Result<Identity, String> {
        let (point, source) = (text(&mount.mount_point)?, text(&mount.source)?);
        Ok(Identity::Mount { point, source, fs_type: mount.fs_type.clone() })
    }

    /// The identity of a mounted btrfs.
    pub(crate) fn of_btrfs(system: &System, mount: &Mount) -> Result<Identity, String> {
        let directory = system.btrfs(mount);
        let uuid = directory.as_deref().and_then(Path::file_name).ok_or("its UUID is unknown")?;
        Ok(Identity::Btrfs { uuid: uuid.to_string_lossy().into_owned(), point: text(&mount.mount_point)? })
    }

    /// The settings of all devices that have this identity now.
    pub(crate) fn settings(&self, system: &System) -> Vec<PathBuf> {
        let mounts = system.mounts().unwrap_or_default();
        let of_mounts = |is_it: &dyn Fn(&Mount) -> bool| -> Vec<PathBuf> {
            let windows = mounts.iter().filter(|mount| is_it(mount)).filter_map(|mount| system.governing_mount(mount));
            windows.map(|(_, setting)| setting).collect()
        };
        let of_devices = |is_it: &dyn Fn(DeviceNumber) -> bool| -> Vec<PathBuf> {
            let devices = system.block_devices().into_iter().filter(|device| is_it(*device));
            devices.filter_map(|device| system.governing(device)).map(|(_, setting)| setting).collect()
        };
        match self {
            Identity::Property { name, value } => {
                let disks: Vec<DeviceNumber> = disks(system).collect();
                of_devices(&|it| disks.contains(&it) && property(system, it, name).as_ref() == Some(value))
            }
            Identity::Attribute { name, value } => {
                of_devices(&|device| System::text(&system.block(device).join(name)).as_ref() == Some(value))
            }
            Identity::FileSystem { uuid, .. } => {
                let mut found = of_mounts(&|mount| uuid_of(&mounts, mount).as_ref() == Some(uuid));
                found.extend(of_devices(&|device| property(system, device, FS_UUID).as_ref() == Some(uuid)));
                found
            }
            Identity::Btrfs { uuid, .. } => {
                let own = system.sys("fs/btrfs").join(uuid).join("bdi/read_ahead_kb");
                Some(own).filter(|own| own.exists()).into_iter().collect()
            }
            Identity::Mount { point, source, fs_type } => of_mounts(&|mount| {
                let is_there = mount.mount_point == point.as_bytes() && is_seen(&mounts, mount);
                is_there && mount.source == source.as_bytes() && mount.fs_type == *fs_type
            }),
        }
    }

    /// A file name: a readable part, and a checksum of the whole identity.
    pub(crate) fn file_name(&self) -> String {
        let text = self.to_string();
        let last = match self {
            Identity::Mount { point, .. } => point,
            _ => &text,
        };
        let plain: String = last.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).collect();
        let plain: Vec<&str> = plain.split('-').filter(|part| !part.is_empty()).collect();
        let mut plain = plain.join("-");
        plain.truncate(NAME_LENGTH);
        let separator = if plain.is_empty() { "" } else { "-" };
        format!("{plain}{separator}{:08x}", crc32fast::hash(text.as_bytes()))
    }
}

/// A name or path as text.
fn text(bytes: &[u8]) -> Result<String, String> {
    let text = std::str::from_utf8(bytes);
    text.map(str::to_owned).map_err(|_| format!("{:?} is not UTF-8", String::from_utf8_lossy(bytes)))
}

/// Whether this is a property or an attribute that we use.
pub(crate) fn is_name(name: &str) -> bool {
    name == MAPPER_UUID || PROPERTIES.contains(&name) || ATTRIBUTES.contains(&name)
}

/// Length of the readable part of a file name.
const NAME_LENGTH: usize = 40;

/// The identity of a block device. `mount`: a file system on it or on a partition of it, and a directory in that.
pub(crate) fn of_block(
    system: &System,
    number: DeviceNumber,
    mount: Option<(&Mount, &Path)>,
    mounts: &[Mount],
) -> Result<Identity, String> {
    let directory = system.block(number);
    let mut why = Vec::new();
    let attribute = |name: &str, value| Identity::Attribute { name: name.into(), value };
    let mapped = System::text(&directory.join(MAPPER_UUID)).filter(|value| RuleValue::new(value).is_ok());
    if let Some(value) = mapped {
        return Ok(attribute(MAPPER_UUID, value));
    }
    for name in PROPERTIES {
        if let Some(value) = property(system, number, name) {
            match check(&value, || {
                others(system, number).any(|other| property(system, other, name).as_ref() == Some(&value))
            }) {
                Ok(()) => return Ok(Identity::Property { name: name.into(), value }),
                Err(wrong) => why.push(format!("its {name} {value:?} {wrong}")),
            }
        }
    }
    for name in ATTRIBUTES {
        let of = |device| System::text(&system.block(device).join(name));
        if let Some(value) = of(number) {
            match check(&value, || others(system, number).any(|other| of(other).as_ref() == Some(&value))) {
                Ok(()) => return Ok(attribute(name, value)),
                Err(wrong) => why.push(format!("its {name} {value:?} {wrong}")),
            }
        }
    }
    match mount.filter(|(mount, _)| mount.kind().uuid == Uuid::KernelAsUdev) {
        Some((mount, path)) => match fsuuid::of(path) {
            Ok(Some(uuid)) if has_copy(system, mounts, mount, &uuid) => {
                why.push(format!("its file system's UUID {uuid} also identifies another device"));
            }
            Ok(Some(uuid)) => return Ok(Identity::FileSystem { uuid, on_partition: mount.device != number }),
            Ok(None) => why.push("the kernel does not report its file system's UUID (needs Linux 6.9)".into()),
            Err(error) => why.push(error.to_string()),
        },
        None => why.push("no file system with a UUID is mounted from it".into()),
    }
    why.insert(0, "it has no unique serial number or name".into());
    Err(why.join("; "))
}

/// Whether the file system on another device has the same UUID: a copy of an image, or a snapshot.
fn has_copy(system: &System, mounts: &[Mount], mount: &Mount, uuid: &str) -> bool {
    let is_copy = |other: &Mount| other.device != mount.device && uuid_of(mounts, other).as_deref() == Some(uuid);
    let others = || system.block_devices().into_iter().filter(|other| *other != mount.device);
    mounts.iter().any(is_copy) || others().any(|other| property(system, other, FS_UUID).as_deref() == Some(uuid))
}

/// The UUID of a mounted file system, if a rule can name it.
fn uuid_of(mounts: &[Mount], mount: &Mount) -> Option<String> {
    let point = Path::new(OsStr::from_bytes(&mount.mount_point));
    // The mount point of a covered mount leads to another file system.
    let has_one = mount.kind().uuid == Uuid::KernelAsUdev && is_seen(mounts, mount);
    has_one.then(|| fsuuid::of(point).ok()).flatten().flatten()
}

/// Checks whether a value identifies a device. Errors: the reason.
fn check(value: &str, is_shared: impl FnOnce() -> bool) -> Result<(), &'static str> {
    match () {
        () if RuleValue::new(value).is_err() => Err("cannot be written to a rule"),
        () if is_shared() => Err("also identifies another device"),
        () => Ok(()),
    }
}

/// A property from udev's database.
fn property(system: &System, device: DeviceNumber, name: &str) -> Option<String> {
    let record = fs::read_to_string(system.root.join(format!("run/udev/data/b{device}"))).ok()?;
    let value = record.lines().find_map(|line| line.strip_prefix("E:")?.strip_prefix(name)?.strip_prefix('='))?;
    Some(value.trim().to_owned()).filter(|value| !value.is_empty())
}

/// All whole disks except this one.
fn others(system: &System, number: DeviceNumber) -> impl Iterator<Item = DeviceNumber> {
    disks(system).filter(move |other| *other != number)
}

/// All whole disks.
fn disks(system: &System) -> impl Iterator<Item = DeviceNumber> {
    let entries = fs::read_dir(system.sys("block")).into_iter().flatten().flatten();
    let of = |entry: fs::DirEntry| fs::read_to_string(entry.path().join("dev")).ok()?.parse().ok();
    entries.filter_map(of)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tune::rule::check_identity;
    use crate::tune::system::testing::{Disk, machine};

    fn identity(disks: &[Disk]) -> Result<Identity, String> {
        let (_home, system) = machine(disks);
        of_block(&system, disks[0].1.into(), None, &[])
    }

    #[test]
    fn first_unique_property_is_the_identity() {
        let mapped: &[(&str, &str)] = &[("dm/uuid", "LVM-abc"), ("serial", "x")];
        let named = |name: &str, value: &str| Identity::Attribute { name: name.into(), value: value.into() };
        assert_eq!(identity(&[("dm-0", (253, 0), mapped, "E:ID_SERIAL=y\n")]), Ok(named("dm/uuid", "LVM-abc")));
        let property = |name: &str, value: &str| Identity::Property { name: name.into(), value: value.into() };
        let record = "S:disk/by-id/x\nE:ID_SERIAL_SHORT=9\nE:ID_SERIAL=Model_9\nE:ID_WWN=0x5000\n";
        assert_eq!(identity(&[("sda", (8, 0), &[], record)]), Ok(property("ID_SERIAL", "Model_9")));
        assert_eq!(identity(&[("vda", (254, 0), &[("serial", "s9 ")], "")]), Ok(named("serial", "s9")));
    }

    /// USB bridges of one make all have the same serial number.
    #[test]
    fn value_shared_by_two_disks_identifies_neither() {
        let record = "E:ID_SERIAL=Bridge_0123\nE:ID_WWN=0x5000\n";
        let twins = [("sda", (8, 0), &[][..], record), ("sdb", (8, 16), &[][..], "E:ID_SERIAL=Bridge_0123\n")];
        assert_eq!(identity(&twins), Ok(Identity::Property { name: "ID_WWN".into(), value: "0x5000".into() }));
        let twins = [("sda", (8, 0), &[("serial", "1")][..], ""), ("sdb", (8, 16), &[("serial", "1")][..], "")];
        let why = identity(&twins).unwrap_err();
        assert!(why.contains("also identifies another device") && why.contains("no file system"), "{why}");
    }

    #[test]
    fn value_that_a_rule_cannot_contain_is_skipped() {
        for value in ["a|b", "a\"b", "a\\b"] {
            assert!(identity(&[("sda", (8, 0), &[("wwid", value)], "")]).is_err(), "{value}");
        }
    }

    /// Regression: line feeds were refused in a mount's source and mount point, but not in its type.
    #[test]
    fn mount_with_a_line_feed_in_its_type_has_no_identity() {
        let table = |fs_type: &str| format!("1 0 0:50 / /mnt/x rw - {fs_type} s:/x rw\n");
        let of = |fs_type: &str| {
            let mounts = ahead_sys::mounts::parse(table(fs_type).as_bytes()).unwrap();
            Identity::of_mount(&mounts[0]).and_then(check_identity)
        };
        assert!(of("fuse.sshfs").is_ok());
        let why = of("fuse.x\\012ExecStartPre=/bin/id").unwrap_err();
        assert!(why.contains("cannot be written to a unit") && !why.contains('\n'), "{why}");
    }

    #[test]
    fn file_names_are_plain_and_distinct() {
        let of = |value: &str| Identity::Property { name: "ID_SERIAL".into(), value: value.into() }.file_name();
        assert!(of("../../etc/passwd").starts_with("ID-SERIAL-etc-passwd-"));
        assert_ne!(of("a b"), of("a-b"));
        let long = of(&"x".repeat(500));
        assert!(long.len() < 60 && long.chars().all(|c| c.is_ascii_alphanumeric() || c == '-'), "{long}");
        let root = Identity::Mount { point: "/".into(), source: "x".into(), fs_type: "btrfs".into() };
        assert_eq!(root.file_name().len(), 8);
    }
}
