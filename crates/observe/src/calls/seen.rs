//! From what was collected to an observation: the file systems of the files, and lookups that had failed.

use super::collector::{Collector, Used};
use ahead_model::Mount;
use ahead_model::file_system_kind::Place;
use ahead_profile::learn::{Counters, FileSeen, LookupSeen, Observation};
use ahead_sys::{Result, generation, mounts, openat};
use std::collections::{BTreeMap, HashMap};
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

const SOURCE: &str = "held calls, page tables";
const REGULAR_FILE: u32 = 0o100_000;
const DIRECTORY: u32 = 0o040_000;
/// What the kernel puts behind the path of a file that has no name any more.
const DELETED: &[u8] = b" (deleted)";
/// Magic number of tmpfs (linux/magic.h), for all file systems that need no prefetching: their files are only counted.
const TMPFS_MAGIC: u64 = 0x0102_1994;

fn as_path(bytes: &[u8]) -> &Path {
    Path::new(OsStr::from_bytes(bytes))
}

impl Collector {
    /// Finds the files. May wait for their file systems.
    pub(super) fn observation(self) -> Result<Observation> {
        let table = mounts::own()?;
        let own_namespace = mounts::namespace(None)?;
        let clock = Clock { now: SystemTime::now(), now_ns: crate::now_ns() };
        let counters = Counters { unkept: self.unkept(), unreadable: self.unreadable, ..Counters::default() };
        let parents = self.parents();
        let mut files = BTreeMap::new();
        let mut unnamed_files = 0;
        for (id, used) in &self.used {
            match file_seen(&table, *id, used) {
                Some(seen) => drop(files.insert(*id, seen)),
                None => unnamed_files += 1,
            }
        }
        let bases: HashMap<u32, PathBuf> =
            self.directories.iter().map(|(path, id)| (*id, as_path(path).to_owned())).collect();
        files.extend(bases.iter().filter_map(|(id, path)| Some((*id, directory_seen(&table, *id, path)?))));
        // Of the names that a shell tries, the last one is executed.
        let is_program = |base, name: &[u8]| bases.get(&base).is_some_and(|base| base.join(as_path(name)).is_file());
        let execs = self.execs.into_iter().filter(|exec| is_program(exec.directory, &exec.name)).collect();
        let had_failed = |seen: LookupSeen| {
            let failed = bases.get(&seen.base).is_some_and(|base| clock.had_failed(base, &seen));
            LookupSeen { failed, ..seen }
        };
        let mut observation = Observation {
            accesses: self.accesses.into_iter().filter(|access| is_on_device(&files, access.file)).collect(),
            lookups: self.lookups.into_iter().map(had_failed).collect(),
            files,
            execs,
            parents,
            unnamed_files,
            own_namespace,
            source: SOURCE.into(),
            sees_hits: true,
            counters,
            ..Observation::default()
        };
        observation.sort();
        Ok(observation)
    }
}

fn is_on_device(files: &BTreeMap<u32, FileSeen>, id: u32) -> bool {
    files.get(&id).is_some_and(|file| file.magic != TMPFS_MAGIC)
}

/// Times of events as times of files.
struct Clock {
    now: SystemTime,
    now_ns: u64,
}

impl Clock {
    /// Whether a path was not there when it was looked up, by what is there now.
    fn had_failed(&self, base: &Path, seen: &LookupSeen) -> bool {
        let Ok(found) = fs::symlink_metadata(base.join(as_path(&seen.path))) else { return true };
        let at = self.now - Duration::from_nanos(self.now_ns.saturating_sub(seen.time_ns));
        found.created().is_ok_and(|created| created > at)
    }
}

/// The mount that a path lies in, and the path from the root of its file system.
fn in_file_system<'a>(table: &'a [Mount], path: &[u8]) -> Option<(&'a Mount, Vec<u8>)> {
    let mount = &table[mounts::covering(table, path)?];
    let rest = path.strip_prefix(&mount.mount_point[..]).filter(|_| mount.mount_point != b"/").unwrap_or(path);
    let inside = [mount.root.strip_suffix(b"/").unwrap_or(&mount.root), rest].concat();
    Some((mount, if inside.is_empty() { b"/".to_vec() } else { inside }))
}

/// `None`: its path leads to no mount.
fn file_seen(table: &[Mount], id: u32, used: &Used) -> Option<FileSeen> {
    let path = used.path.strip_suffix(DELETED).unwrap_or(&used.path);
    let (mount, inside) = in_file_system(table, path)?;
    Some(FileSeen {
        time_ns: used.first_ns,
        id,
        mode: REGULAR_FILE,
        device: mount.device.to_kernel(),
        inode: used.inode,
        generation: openat::handle(as_path(path))
            .and_then(|file| file.reopen())
            .ok()
            .and_then(generation::of)
            .unwrap_or(0),
        size_bytes: used.size_bytes,
        magic: if mount.kind().place == Place::Kernel { TMPFS_MAGIC } else { 0 },
        unlinked: path.len() < used.path.len(),
        path: inside,
        ..FileSeen::default()
    })
}

fn directory_seen(table: &[Mount], id: u32, path: &Path) -> Option<FileSeen> {
    let inode = fs::symlink_metadata(path).ok()?.ino();
    let (mount, inside) = in_file_system(table, path.as_os_str().as_bytes())?;
    Some(FileSeen { id, mode: DIRECTORY, device: mount.device.to_kernel(), inode, path: inside, ..FileSeen::default() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn path_in_a_file_system_begins_at_its_root() {
        let mount =
            |root: &str, point: &str| Mount { root: root.into(), mount_point: point.into(), ..Mount::default() };
        let table = [mount("/", "/"), mount("/@home", "/home"), mount("/", "/mnt")];
        let inside = |path: &str| String::from_utf8(in_file_system(&table, path.as_bytes()).unwrap().1).unwrap();
        assert_eq!(
            (inside("/a/b"), inside("/home/u"), inside("/home")),
            ("/a/b".into(), "/@home/u".into(), "/@home".into())
        );
        assert_eq!((inside("/mnt"), inside("/")), ("/".into(), "/".into()));
    }
}
