//! Finds the backing device whose window governs a path.
//!
//! ```text
//!     file, directory ──▶ its mount ────────────────┬─ overlayfs ──▶ its layers, each a path again
//!                                                   ├─ no backing device (tmpfs, proc) ──▶ refused
//!     block device ──▶ what is mounted from it ─────┤
//!                                                   └─ the superblock's number ──▶ /sys/class/bdi/MAJOR:MINOR
//!                                                        a partition has none: its disk's; btrfs': by its UUID
//! ```

use crate::tune::device::of_device;
use crate::tune::places::holding;
use crate::tune::target::of_mount;
use crate::tune::{Error, Result, System, Target};
use ahead_sys::block;
use ahead_sys::mounts::Mount;
use ahead_sys::within::check_answers;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

/// Maximum number of nested overlays that are followed; the kernel allows two (`FILESYSTEM_MAX_STACK_DEPTH`).
const DEEPEST: u32 = 4;

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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tune::system::testing::{Disk, machine};
    use crate::tune::{Identity, Kind};
    use ahead_model::DeviceNumber;
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
    fn mapped_device_has_a_separate_window() {
        let target = one("1 0 253:0 / / rw - xfs /dev/mapper/vg-data rw\n", "/", &[]);
        assert_eq!(
            (target.number, target.kind, target.name.as_str()),
            (DeviceNumber::new(253, 0), Kind::Mapper, "dm-0 (vg-data)")
        );
    }

    #[test]
    fn network_and_fuse_file_systems_have_separate_windows() {
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
