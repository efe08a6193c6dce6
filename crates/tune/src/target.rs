//! Finds the backing device whose window governs a path.
//!
//! ```text
//!     file, directory ──▶ its mount ────────────────┬─ overlayfs ──▶ its layers, each a path again
//!                                                   ├─ no backing device (tmpfs, proc) ──▶ refused
//!     block device ──▶ what is mounted from it ─────┤
//!                                                   └─ the superblock's number ──▶ /sys/class/bdi/MAJOR:MINOR
//!                                                        a partition has none: its disk's; btrfs': by its UUID
//! ```
//!
//! The number is always the superblock's, from the mount table. On btrfs stat(2) reports another number for each subvolume, and
//! the window of the disk below has no effect. For stacked devices (LVM, RAID, encryption) the top one counts, because the page
//! cache, whose window this is, lies above all of them.

use crate::device::of_device;
use crate::identity::{self, Identity};
use crate::{Error, Result, System};
use ahead_model::DeviceNumber;
use ahead_sys::block;
use ahead_sys::mounts::{self, Mount};
use ahead_sys::within::{ONE_OF_MANY, check_answers, within};
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

/// Maximum number of nested overlays that are followed; the kernel allows two (`FILESYSTEM_MAX_STACK_DEPTH`).
const DEEPEST: u32 = 4;

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
    /// Its number.
    pub number: DeviceNumber,
    /// Its `read_ahead_kb`.
    pub setting: PathBuf,
    /// Its kind.
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

/// The targets of a path: one, or one for each layer of an overlay.
///
/// Errors: the path does not exist; it has no window (exit status 77).
pub fn find(system: &System, path: &Path) -> Result<Vec<Target>> {
    check_answers(path)?;
    let path = fs::canonicalize(path).map_err(|e| Error::io(path.display().to_string(), e))?;
    let metadata = fs::metadata(&path).map_err(|e| Error::io(format!("stat {}", path.display()), e))?;
    let mounts = system.mounts()?;
    if metadata.file_type().is_block_device() {
        return Ok(vec![of_device(system, &mounts, &path, block::device_number(&path)?)?]);
    }
    if !metadata.is_dir() && !metadata.is_file() {
        let why = "it is not a file, directory or block device";
        return Err(Error::unsupported(format!("a read-ahead window of {}", path.display()), why));
    }
    of_path(system, &mounts, &path, 0)
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

pub(crate) fn point_of(mount: &Mount) -> PathBuf {
    PathBuf::from(OsStr::from_bytes(&mount.mount_point))
}

/// The mount to create test files on: the first writable one, or the first one.
pub(crate) fn best_place<'a>(mounts: &[Mount], candidates: impl Iterator<Item = &'a Mount>) -> Option<&'a Mount> {
    let is_read_only = |mount: &&Mount| {
        let options = [&mount.options, &mount.super_options];
        options.into_iter().any(|options| options.split(|byte| *byte == b',').any(|option| option == b"ro"))
    };
    candidates.filter(|mount| is_place(mounts, mount)).min_by_key(is_read_only)
}

/// Whether test files can be created at a mount point: it is not covered, and is a directory.
pub(crate) fn is_place(mounts: &[Mount], mount: &Mount) -> bool {
    let point = point_of(mount);
    // A server that does not answer must not block the search.
    is_seen(mounts, mount) && within(ONE_OF_MANY, move || point.is_dir()) == Some(true)
}

/// Whether the mount point leads to this mount, not to one that covers it.
pub(crate) fn is_seen(mounts: &[Mount], mount: &Mount) -> bool {
    holding(mounts, &point_of(mount)).is_some_and(|seen| seen.id == mount.id)
}

/// The backing device that governs a mount.
pub fn backing(system: &System, mount: &Mount) -> Option<DeviceNumber> {
    system.governing_mount(mount).map(|(number, _)| number)
}

/// The mount of a path.
fn holding<'a>(mounts: &'a [Mount], path: &Path) -> Option<&'a Mount> {
    mounts::covering(mounts, path.as_os_str().as_bytes()).map(|index| &mounts[index])
}

fn of_path(system: &System, mounts: &[Mount], path: &Path, depth: u32) -> Result<Vec<Target>> {
    let nothing =
        || Error::unsupported(format!("a read-ahead window of {}", path.display()), "nothing is mounted there");
    let mount = holding(mounts, path).ok_or_else(nothing)?;
    if mount.fs_type == "overlay" && depth < DEEPEST {
        return of_layers(system, mounts, mount, path, depth);
    }
    let directory = if path.is_dir() { path } else { path.parent().unwrap_or(path) };
    Ok(vec![of_mount(system, mounts, mount, directory)?])
}

/// An overlay has no window: its files are read through the windows of its layers.
fn of_layers(system: &System, mounts: &[Mount], overlay: &Mount, path: &Path, depth: u32) -> Result<Vec<Target>> {
    let point = OsStr::from_bytes(&overlay.mount_point).to_string_lossy().into_owned();
    let mut targets: Vec<Target> = Vec::new();
    let mut unseen = Vec::new();
    for (index, layer) in overlay.overlay_layers().into_iter().enumerate() {
        let layer = PathBuf::from(OsStr::from_bytes(&layer));
        let Ok(found) =
            fs::canonicalize(&layer).map_err(Error::from_io).and_then(|l| of_path(system, mounts, &l, depth + 1))
        else {
            unseen.push(layer.display().to_string());
            continue;
        };
        for mut target in found {
            if targets.iter().any(|known| known.number == target.number) {
                continue;
            }
            target.notes.push(format!(
                "{point} is an overlay; {} is one of its layers, on {}",
                layer.display(),
                target.name
            ));
            // Layers must not be written directly; a file created in the overlay lies in its upper layer.
            let is_upper =
                index == 0 && overlay.super_options.split(|byte| *byte == b',').any(|o| o.starts_with(b"upperdir="));
            target.directory = is_upper.then(|| if path.is_dir() { path.into() } else { PathBuf::from(&point) });
            if let (None, Some(device)) = (&target.directory, &target.device) {
                target.notes.push(format!("the layer must not be written; {} itself is read", device.display()));
            }
            targets.push(target);
        }
    }
    match (targets.first_mut(), unseen.is_empty()) {
        (None, _) => {
            let why = format!("it is an overlay, and none of its layers can be reached ({})", unseen.join(", "));
            Err(Error::unsupported(format!("a read-ahead window of {point}"), why))
        }
        (Some(first), false) => {
            first.notes.push(format!("layers that cannot be reached are left out: {}", unseen.join(", ")));
            Ok(targets)
        }
        _ => Ok(targets),
    }
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
        target.identity = Identity::of_btrfs(system, first);
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
        mounted.map(Identity::of_mount).unwrap_or_else(|| Err("nothing is mounted from it".into()))
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
    match mount.map_or("", |mount| mount.fs_type.as_str()) {
        "btrfs" => Kind::Btrfs,
        "nfs" | "nfs4" | "cifs" | "smb3" | "9p" | "ceph" | "afs" | "lustre" => Kind::Network,
        fuse if fuse == "fuse" || fuse == "fuseblk" || fuse.starts_with("fuse.") || fuse == "virtiofs" => Kind::Fuse,
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::system::testing::{Disk, machine};
    use ahead_sys::mounts;

    const DISKS: [Disk; 3] = [
        ("sda", (8, 0), &[("device/wwid", "naa.5000")], ""),
        ("sda/sda1", (8, 1), &[("partition", "1")], ""),
        ("dm-0", (253, 0), &[("dm/name", "vg-data"), ("dm/uuid", "LVM-x")], ""),
    ];

    /// The targets of a path with this mount table; `anonymous`: numbers with their own window.
    fn targets(table: &str, path: &str, anonymous: &[&str]) -> Result<Vec<Target>> {
        let (home, system) = machine(&DISKS);
        for number in anonymous {
            let directory = home.path().join("sys/class/bdi").join(number);
            fs::create_dir_all(&directory).unwrap();
            fs::write(directory.join("read_ahead_kb"), "128\n").unwrap();
        }
        of_path(&system, &mounts::parse(table.as_bytes()).unwrap(), Path::new(path), 0)
    }

    fn one(table: &str, path: &str, anonymous: &[&str]) -> Target {
        let found = targets(table, path, anonymous).unwrap();
        assert_eq!(found.len(), 1, "{found:?}");
        found.into_iter().next().unwrap()
    }

    #[test]
    fn partition_leads_to_its_disk() {
        let target = one("1 0 8:1 / / rw - ext4 /dev/sda1 rw\n", "/", &[]);
        assert_eq!((target.number, target.kind, target.name.as_str()), (DeviceNumber::new(8, 0), Kind::Disk, "sda"));
        assert!(target.notes[0].contains("sda1 is a partition"), "{:?}", target.notes);
        let expected = Identity::Attribute { name: "device/wwid".into(), value: "naa.5000".into() };
        assert_eq!(target.identity, Ok(expected));
    }

    #[test]
    fn mapped_device_has_its_own_window() {
        let target = one("1 0 253:0 / / rw - xfs /dev/mapper/vg-data rw\n", "/", &[]);
        assert_eq!(
            (target.number, target.kind, target.name.as_str()),
            (DeviceNumber::new(253, 0), Kind::Mapper, "dm-0 (vg-data)")
        );
    }

    #[test]
    fn network_and_fuse_file_systems_have_their_own_window() {
        for (fs_type, source, kind) in [
            ("nfs4", "server:/export", Kind::Network),
            ("fuse.sshfs", "me@host:", Kind::Fuse),
            ("zfs", "pool/data", Kind::Other),
        ] {
            let target = one(&format!("1 0 0:43 / / rw - {fs_type} {source} rw\n"), "/", &["0:43"]);
            assert_eq!((target.number, target.kind, target.name.as_str()), (DeviceNumber::new(0, 43), kind, source));
            let mount = Identity::Mount { point: "/".into(), source: source.into(), fs_type: fs_type.into() };
            assert_eq!(target.identity, Ok(mount));
        }
    }

    /// Its backing device has no number in sysfs, and stat(2) reports a number without a device.
    #[test]
    fn btrfs_is_found_by_its_uuid() {
        let (home, system) = machine(&DISKS);
        let directory = home.path().join("sys/fs/btrfs/12-34");
        for name in ["devices/sda1", "bdi"] {
            fs::create_dir_all(directory.join(name)).unwrap();
        }
        fs::write(directory.join("bdi/read_ahead_kb"), "4096\n").unwrap();
        let table = "1 0 0:43 /@ / rw - btrfs /dev/sda1 rw\n2 1 0:43 /@home /home rw - btrfs /dev/sda1 rw\n";
        for path in ["/", "/home"] {
            let found = of_path(&system, &mounts::parse(table.as_bytes()).unwrap(), Path::new(path), 0).unwrap();
            assert_eq!((found[0].number, found[0].kind), (DeviceNumber::new(0, 43), Kind::Btrfs));
            assert_eq!(found[0].current_kb().unwrap(), 4096);
            assert_eq!(found[0].identity, Ok(Identity::Btrfs { uuid: "12-34".into(), point: "/".into() }));
        }
        assert!(targets("1 0 0:43 / / rw - btrfs /dev/sdz rw\n", "/", &[]).is_err());
    }

    #[test]
    fn file_system_in_memory_is_refused() {
        let error = targets("1 0 0:40 / / rw - tmpfs tmp rw\n", "/", &[]).unwrap_err();
        assert!(matches!(&error, Error::Kernel(own) if own.is_unavailable()), "{error}");
        assert!(targets("", "/", &[]).is_err());
    }

    /// The last of the covering mounts, and the deepest, for any order of the table. `/mn` does not contain `/mnt`.
    #[test]
    fn visible_mount_counts() {
        let table = "1 0 8:1 / / rw - ext4 /dev/sda1 rw\n2 1 0:50 / /mn rw - tmpfs x rw\n\
                     3 1 0:51 / /mnt rw - tmpfs x rw\n4 3 253:0 / /mnt rw - xfs /dev/mapper/x rw\n";
        assert_eq!(one(table, "/mnt", &[]).number, DeviceNumber::new(253, 0));
        assert_eq!(one(table, "/", &[]).number, DeviceNumber::new(8, 0));
    }

    #[test]
    fn overlay_leads_to_its_layers() {
        let home = tempfile::tempdir().unwrap();
        let at = |name: &str| home.path().canonicalize().unwrap().join(name).display().to_string();
        for name in ["upper", "lower", "other"] {
            fs::create_dir(at(name)).unwrap();
        }
        let (upper, lower, other) = (at("upper"), at("lower"), at("other"));
        let table = format!(
            "1 0 8:1 / / rw - ext4 /dev/sda1 rw\n2 1 253:0 / {other} rw - xfs /dev/mapper/x rw\n\
             3 1 0:50 / /merged rw - overlay overlay rw,lowerdir={lower}:{other}:/no/such,upperdir={upper},workdir=/w\n"
        );
        let found = targets(&table, "/merged", &[]).unwrap();
        assert_eq!(
            found.iter().map(|target| target.number).collect::<Vec<_>>(),
            [DeviceNumber::new(8, 0), DeviceNumber::new(253, 0)]
        );
        assert!(found[0].directory.is_some() && found[1].directory.is_none(), "a lower layer is not written to");
        assert!(found[0].notes.iter().any(|note| note.contains("is an overlay")));
        assert!(found[0].notes.iter().any(|note| note.contains("left out: /no/such")), "{:?}", found[0].notes);
        let unseen = "3 1 0:50 / / rw - overlay overlay rw,lowerdir=/no/such\n";
        assert!(targets(unseen, "/", &[]).unwrap_err().to_string().contains("none of its layers"));
    }
}
