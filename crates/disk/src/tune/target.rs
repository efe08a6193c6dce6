//! A backing device, whose window governs all file systems that are mounted from it.
//!
//! The number is always the superblock's, from the mount table. On btrfs stat(2) reports another number for each subvolume, and
//! the window of the disk below has no effect. For stacked devices (LVM, RAID, encryption) the top one counts, because the page
//! cache, whose window this is, lies above all of them.

use crate::tune::identity::{self, Identity};
use crate::tune::places::{best_place, holding, is_place, point_of};
use crate::tune::rule::check_identity;
use crate::tune::{Error, Result, System};
use ahead_model::DeviceNumber;
use ahead_model::file_system_kind::Place;
use ahead_sys::mounts::Mount;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// The kind of a backing device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A whole disk, or one of its partitions.
    Disk,
    /// Device mapper: LVM, encryption, multipath.
    Mapper,
    /// Software RAID.
    Md,
    /// A loop device.
    Loop,
    /// btrfs, which has its own backing device.
    Btrfs,
    /// A network file system.
    Network,
    /// A FUSE file system.
    Fuse,
    /// Another file system with its own backing device.
    Other,
}

impl Kind {
    /// In words.
    pub fn describe(self) -> &'static str {
        match self {
            Kind::Disk => "disk",
            Kind::Mapper => "device-mapper device",
            Kind::Md => "RAID",
            Kind::Loop => "loop device",
            Kind::Btrfs => "btrfs, with its own window",
            Kind::Network => "network file system",
            Kind::Fuse => "FUSE file system",
            Kind::Other => "file system with its own window",
        }
    }

    /// Whether it is a block device, for which udev has events.
    pub fn is_block(self) -> bool {
        matches!(self, Kind::Disk | Kind::Mapper | Kind::Md | Kind::Loop)
    }
}

/// A backing device, and how it was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    pub number: DeviceNumber,
    /// Its `read_ahead_kb`.
    pub setting: PathBuf,
    pub kind: Kind,
    /// `vda`, `dm-0 (vg-root)`, `server:/export`.
    pub name: String,
    /// A directory on it for test files.
    pub directory: Option<PathBuf>,
    /// The block device that is read itself if there is no such directory.
    pub device: Option<PathBuf>,
    /// Its identity, or why it has none.
    pub identity: std::result::Result<Identity, String>,
    /// Remarks on how it was found.
    pub notes: Vec<String>,
}

impl Target {
    /// The current window, KiB.
    ///
    /// Errors: the target has vanished.
    pub fn current_kb(&self) -> Result<u64> {
        let text = fs::read_to_string(&self.setting);
        let text =
            text.map_err(|e| Error::io(format!("read the window of {} ({})", self.name, self.setting.display()), e))?;
        let path = self.setting.clone();
        Ok(text.trim().parse().map_err(|_| ahead_sys::Error::Parse { path, text })?)
    }
}

impl Target {
    /// Whether it still exists where it was found.
    pub fn is_there(&self, system: &System) -> bool {
        let Ok(mounts) = system.mounts() else { return true };
        let is_its_own = |directory: &PathBuf| number_under(system, &mounts, directory) == Some(self.number);
        self.setting.exists()
            && self.directory.as_ref().is_none_or(is_its_own)
            && self.device.as_ref().is_none_or(|device| device.exists())
    }
}

/// Every backing device with a mount, once.
pub fn all(system: &System) -> Result<Vec<Target>> {
    let mounts = system.mounts()?;
    let own = mounts.iter().filter(|mount| mount.fs_type != "overlay");
    let governed: Vec<(DeviceNumber, &Mount)> =
        own.filter_map(|mount| Some((backing(system, mount)?, mount))).collect();
    let mut numbers: Vec<DeviceNumber> = Vec::new();
    for (number, _) in &governed {
        if !numbers.contains(number) {
            numbers.push(*number);
        }
    }
    let target = |number: DeviceNumber| {
        let places = governed.iter().filter(|(other, _)| *other == number).map(|(_, mount)| *mount);
        let mount = best_place(&mounts, places)?;
        of_mount(system, &mounts, mount, &point_of(mount)).ok()
    };
    Ok(numbers.into_iter().filter_map(target).collect())
}

/// The backing device that governs a mount.
pub fn backing(system: &System, mount: &Mount) -> Option<DeviceNumber> {
    system.governing_mount(mount).map(|(number, _)| number)
}

pub(crate) fn of_mount(system: &System, mounts: &[Mount], mount: &Mount, directory: &Path) -> Result<Target> {
    let Some((number, setting)) = system.governing_mount(mount) else {
        let point = OsStr::from_bytes(&mount.mount_point).to_string_lossy().into_owned();
        let why = format!("it is a {}, which reads from no device", mount.fs_type);
        return Err(Error::unsupported(format!("a read-ahead window of {point}"), why));
    };
    let mut target = of_number(system, mounts, number, setting, Some((mount, directory)));
    if target.kind == Kind::Btrfs {
        // Always the same one of its mount points.
        let first =
            mounts.iter().find(|other| other.device == mount.device && is_place(mounts, other)).unwrap_or(mount);
        target.identity = Identity::of_btrfs(system, first).and_then(check_identity);
    }
    if number != mount.device {
        let partition = name_of(system, mount.device).unwrap_or_default();
        target.notes.push(format!("{partition} is a partition; the window is that of the whole disk {}", target.name));
    }
    target.directory = Some(directory.to_owned());
    target.device = (target.kind.is_block()).then(|| system.node(mount.device)).flatten();
    Ok(target)
}

/// `mount`: a mount from it, and a directory in that mount.
pub(crate) fn of_number(
    system: &System,
    mounts: &[Mount],
    number: DeviceNumber,
    setting: PathBuf,
    mount: Option<(&Mount, &Path)>,
) -> Target {
    let mounted = mount.map(|(mount, _)| mount);
    let kind = kind_of(system, number, mounted);
    let source = mounted.map(|mount| OsStr::from_bytes(&mount.source).to_string_lossy().into_owned());
    let own_name = kind.is_block().then(|| name_of(system, number)).flatten();
    let name = own_name.or(source).unwrap_or_else(|| number.to_string());
    let identity = if kind.is_block() {
        identity::of_block(system, number, mount, mounts)
    } else {
        let of_mount = |mount| Identity::of_mount(mount).and_then(check_identity);
        mounted.map(of_mount).unwrap_or_else(|| Err("nothing is mounted from it".into()))
    };
    Target { number, setting, kind, name, directory: None, device: None, identity, notes: Vec::new() }
}

fn kind_of(system: &System, number: DeviceNumber, mount: Option<&Mount>) -> Kind {
    let directory = system.block(number);
    if directory.exists() {
        return match () {
            () if directory.join("dm").exists() => Kind::Mapper,
            () if directory.join("md").exists() => Kind::Md,
            () if directory.join("loop").exists() => Kind::Loop,
            () => Kind::Disk,
        };
    }
    match mount {
        Some(mount) if mount.fs_type == "btrfs" => Kind::Btrfs,
        Some(mount) if mount.kind().place == Place::Server => Kind::Network,
        Some(mount) if mount.kind().place == Place::Process => Kind::Fuse,
        _ => Kind::Other,
    }
}

/// `vda`, `dm-0 (vg-root)`.
fn name_of(system: &System, number: DeviceNumber) -> Option<String> {
    let directory = fs::canonicalize(system.block(number)).ok()?;
    let own = directory.file_name()?.to_string_lossy().into_owned();
    let mapped = System::text(&directory.join("dm/name"));
    Some(mapped.map_or(own.clone(), |mapped| format!("{own} ({mapped})")))
}

/// The backing device of a path, which need not exist; `None`: it has none.
pub fn number_under(system: &System, mounts: &[Mount], path: &Path) -> Option<DeviceNumber> {
    backing(system, holding(mounts, path)?)
}
