//! Finds the window that governs reads from a block device.
//!
//! ```text
//!     a file system is mounted from it ──────────────▶ the window of the file system: the device's, or its own (btrfs)
//!     a member of a btrfs ───────────────────────────▶ the window of the btrfs
//!     other devices lie on it (LVM, RAID, encryption) ─▶ refused: their windows count, and the message names them
//!     a file system is mounted from a partition of it, or from another one of its disk ──▶ the disk's
//!     otherwise ─────────────────────────────────────▶ its own; the device itself is read

use crate::tune::places::{best_place, is_place, point_of};
use crate::tune::target::{backing, of_mount, of_number};
use crate::tune::{Error, Result, System, Target};
use ahead_model::{DeviceNumber, sorting};
use ahead_sys::bdi;
use ahead_sys::mounts::Mount;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Maximum number of stacked devices that are followed: more than any machine has.
const DEEPEST: u32 = 8;

pub(crate) fn of_device(system: &System, mounts: &[Mount], node: &Path, device: DeviceNumber) -> Result<Target> {
    let no_window = || Error::unsupported(window_of(node), "the device has none");
    let (number, setting) = system.governing(device).ok_or_else(no_window)?;
    let found = mounted_from(system, mounts, node, device, number)?;
    let Some(mount) = best_place(mounts, found.iter().copied()).or(found.first().copied()) else {
        let mut target = of_number(system, mounts, number, setting, None);
        target.device = Some(node.to_owned());
        target.notes.push(format!("nothing is mounted from {}; the device itself is read", node.display()));
        if number != device {
            let whole = &target.name;
            target
                .notes
                .push(format!("{} is a partition; the window is that of the whole disk {whole}", node.display()));
        }
        return Ok(target);
    };
    let point = point_of(mount);
    let mut target = of_mount(system, mounts, mount, &point)?;
    if !is_place(mounts, mount) {
        target.directory = None;
        target.notes.push(format!("files on {} cannot be written; the device itself is read", point.display()));
    }
    if target.number != number {
        let what = format!(
            "{} on {} has its own window, which takes the place of the device's",
            mount.fs_type,
            point.display()
        );
        target.notes.push(what);
    }
    Ok(target)
}

fn window_of(node: &Path) -> String {
    format!("a read-ahead window of {}", node.display())
}

/// The mounts from a device, or from a partition of the same disk. `number`: the backing device that governs it.
///
/// Errors: a device on it has its own window.
fn mounted_from<'a>(
    system: &System,
    mounts: &'a [Mount],
    node: &Path,
    device: DeviceNumber,
    number: DeviceNumber,
) -> Result<Vec<&'a Mount>> {
    // Only device paths are resolved, and not those of FUSE mounts. Any user may mount FUSE with any source: a device, or a
    // file on a silent server.
    let is_from = |mount: &&Mount| {
        let source = Path::new(OsStr::from_bytes(&mount.source));
        let is_of_a_device = source.starts_with("/dev") && !mount.fs_type.starts_with("fuse");
        mount.device == device || is_of_a_device && fs::canonicalize(source).is_ok_and(|source| source == *node)
    };
    let found: Vec<&Mount> = mounts.iter().filter(is_from).collect();
    if !found.is_empty() {
        return Ok(found);
    }
    if let Some(directory) = btrfs_of(system, device) {
        let is_its = |mount: &&Mount| mount.fs_type == "btrfs" && system.btrfs(mount).as_ref() == Some(&directory);
        let found: Vec<&Mount> = mounts.iter().filter(is_its).collect();
        let uuid = directory.file_name().unwrap_or_default().to_string_lossy();
        let why = || format!("it is a member of btrfs {uuid}, which is mounted in another mount namespace");
        return if found.is_empty() { Err(Error::unsupported(window_of(node), why())) } else { Ok(found) };
    }
    let directory = system.block(device);
    refuse_held(system, node, std::slice::from_ref(&directory))?;
    let found: Vec<&Mount> = mounts.iter().filter(|mount| backing(system, mount) == Some(number)).collect();
    if found.is_empty() {
        let entries = fs::read_dir(&directory).into_iter().flatten().flatten().map(|entry| entry.path());
        let partitions: Vec<PathBuf> = entries.filter(|path| path.join("partition").exists()).collect();
        refuse_held(system, node, &partitions)?;
    }
    Ok(found)
}

/// The directory of the btrfs that a device is a member of.
fn btrfs_of(system: &System, device: DeviceNumber) -> Option<PathBuf> {
    let own = fs::canonicalize(system.block(device)).ok()?;
    bdi::btrfs_on(&system.sys(""), own.file_name()?)
}

/// Errors: other devices lie on one of these; their windows govern reads from them.
fn refuse_held(system: &System, node: &Path, directories: &[PathBuf]) -> Result<()> {
    let mut above: Vec<String> = directories.iter().flat_map(|directory| uppermost(system, directory, 0)).collect();
    sorting::sort(&mut above);
    above.dedup();
    if above.is_empty() {
        return Ok(());
    }
    let commands: Vec<String> = above.iter().map(|name| format!("sudo ahead tune /dev/{name}")).collect();
    let why = format!("{} lies on it, and its window counts; run: {}", above.join(", "), commands.join("; "));
    Err(Error::unsupported(window_of(node), why))
}

/// The devices at the top of the stack on a device.
fn uppermost(system: &System, directory: &Path, depth: u32) -> Vec<String> {
    let holders = fs::read_dir(directory.join("holders")).into_iter().flatten().flatten();
    let names = holders.filter_map(|entry| entry.file_name().into_string().ok()).filter(|_| depth < DEEPEST);
    let of = |name: String| {
        let above = uppermost(system, &system.sys("block").join(&name), depth + 1);
        if above.is_empty() { vec![name] } else { above }
    };
    names.flat_map(of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tune::Kind;
    use crate::tune::system::testing::{Disk, machine};
    use ahead_sys::mounts;

    fn targets(disks: &[Disk], table: &str, device: DeviceNumber) -> Result<Target> {
        let (_home, system) = machine(disks);
        of_device(&system, &mounts::parse(table.as_bytes()).unwrap(), Path::new("/dev/x"), device)
    }

    /// Regression: the first mount in the table was used although it was a single file, covered, or read-only.
    #[test]
    fn writable_mount_is_preferred() {
        let home = tempfile::tempdir().unwrap();
        let at = |name: &str| home.path().canonicalize().unwrap().join(name).display().to_string();
        for name in ["covered", "read-only", "good", "later"] {
            std::fs::create_dir(at(name)).unwrap();
        }
        std::fs::write(at("file"), "").unwrap();
        let line = |id, name: &str, options: &str, rest: &str| {
            format!("{id} 1 8:0 / {} {options} - ext4 /dev/sda {rest}\n", at(name))
        };
        let (file, covered) = (line(2, "file", "rw", "rw"), line(3, "covered", "rw", "rw"));
        let cover = format!("4 3 0:50 / {} rw - tmpfs x rw\n", at("covered"));
        let (read_only, good) = (line(5, "read-only", "ro,relatime", "rw"), line(6, "good", "rw,relatime", "rw"));
        let disks: [Disk; 1] = [("sda", (8, 0), &[], "")];
        let directory = |table: &[&str]| targets(&disks, &table.concat(), DeviceNumber::new(8, 0)).unwrap().directory;
        let all = [file.as_str(), &covered, &cover, &read_only, &good, &line(7, "later", "rw", "rw")];
        assert_eq!(directory(&all), Some(at("good").into()));
        assert_eq!(directory(&all[..4]), Some(at("read-only").into()));
        assert_eq!(directory(&all[..3]), None, "the device itself is read");
    }

    /// Regression: the window of a disk was measured and set, although another window governs the device on it.
    #[test]
    fn device_below_other_devices_is_refused() {
        let member: &[(&str, &str)] = &[("holders/md0/x", "")];
        let array: &[(&str, &str)] = &[("md/level", "raid1"), ("holders/dm-0/x", "")];
        let mut disks: Vec<Disk> = vec![
            ("sda", (8, 0), &[], ""),
            ("sda/sda1", (8, 1), &[("partition", "1")], ""),
            ("sda/sda2", (8, 2), &[("partition", "2"), ("holders/md0/x", "")], ""),
            ("sdb", (8, 16), member, ""),
            ("md0", (9, 0), array, ""),
            ("dm-0", (253, 0), &[("dm/name", "vg-data")], ""),
        ];
        for device in
            [DeviceNumber::new(8, 0), DeviceNumber::new(8, 2), DeviceNumber::new(8, 16), DeviceNumber::new(9, 0)]
        {
            let refused = targets(&disks, "", device).unwrap_err().to_string();
            assert!(refused.contains("its window counts; run: sudo ahead tune /dev/dm-0"), "{device:?}: {refused}");
        }
        assert_eq!(targets(&disks, "", DeviceNumber::new(253, 0)).unwrap().number, DeviceNumber::new(253, 0));
        // With a file system on another partition, the window of the disk governs this one, too.
        let table = "1 0 8:1 / / rw - ext4 /dev/sda1 rw\n";
        assert_eq!(targets(&disks, table, DeviceNumber::new(8, 0)).unwrap().number, DeviceNumber::new(8, 0));
        assert!(targets(&disks, table, DeviceNumber::new(8, 2)).is_err());
        disks[2].2 = &[("partition", "2")];
        assert_eq!(targets(&disks, table, DeviceNumber::new(8, 2)).unwrap().number, DeviceNumber::new(8, 0));
    }

    /// Regression: a FUSE mount, whose source any user may choose, counted as a mount from that device.
    #[test]
    fn fuse_source_is_not_taken_for_a_device() {
        let disks: [Disk; 1] = [("sda", (8, 0), &[], "")];
        let (_home, system) = machine(&disks);
        let table = mounts::parse(b"1 0 0:50 / /home/u/mnt rw - fuse.x /dev/null rw\n").unwrap();
        let target = of_device(&system, &table, Path::new("/dev/null"), DeviceNumber::new(8, 0)).unwrap();
        assert_eq!((target.number, target.kind), (DeviceNumber::new(8, 0), Kind::Disk));
        assert!(target.notes[0].contains("nothing is mounted from"), "{:?}", target.notes);
    }

    /// Regression: a btrfs was found only from the disk in its mount entry.
    #[test]
    fn every_member_leads_to_its_btrfs() {
        let (home, system) = machine(&[("sda", (8, 0), &[], ""), ("sdb", (8, 16), &[], "")]);
        let directory = home.path().join("sys/fs/btrfs/12-34");
        for name in ["devices/sda", "devices/sdb", "bdi"] {
            std::fs::create_dir_all(directory.join(name)).unwrap();
        }
        std::fs::write(directory.join("bdi/read_ahead_kb"), "4096\n").unwrap();
        let table = mounts::parse(b"1 0 0:43 / / rw - btrfs /dev/sda rw\n").unwrap();
        for device in [DeviceNumber::new(8, 0), DeviceNumber::new(8, 16)] {
            let found = of_device(&system, &table, Path::new("/dev/x"), device);
            let target = found.unwrap();
            assert_eq!((target.number, target.kind), (DeviceNumber::new(0, 43), Kind::Btrfs));
            assert!(target.notes[0].contains("takes the place of the device's"), "{:?}", target.notes);
        }
        assert!(
            of_device(&system, &[], Path::new("/dev/x"), DeviceNumber::new(8, 16))
                .unwrap_err()
                .to_string()
                .contains("btrfs 12-34")
        );
    }
}
