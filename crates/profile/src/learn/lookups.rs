//! Converts observed lookups to paths that can be looked up again.

use crate::learn::filesystem::FileSystem;
use crate::learn::memory_limit::MemoryLimit;
use crate::learn::observation::{FileSeen, Observation};
use crate::learn::resolve::{Resolver, as_path};
use crate::learn::run::{Host, Run};
use crate::learn::timeline::WarmTimes;
use crate::{Lookup, PathBytes, check_path};
use ahead_model::file_system_kind::Place;
use ahead_model::mounts::{self, Mount};
use ahead_model::sorting;
use std::collections::HashMap;
use std::os::unix::ffi::OsStringExt;

/// The lookups of a recording, each path once, in order of time, and the number of lookups beyond the memory limit. `links`:
/// symbolic links whose pages were read, with the time, also with everything cached (microseconds).
pub(crate) fn lookups(
    filesystem: &dyn FileSystem,
    host: &Host,
    observed: &Observation,
    resolver: &Resolver<'_>,
    run: &Run,
    links: &[(&FileSeen, u64, Option<u64>)],
    warm: &WarmTimes,
) -> (Vec<Lookup>, u64) {
    // A short name may be looked up from a deep directory: joined paths can be longer than the observed ones.
    let mut limit = MemoryLimit::of(host.memory_bytes);
    let mut directories: HashMap<u32, Option<PathBytes>> = HashMap::new();
    let mut found: Vec<Lookup> = Vec::new();
    let mut index: HashMap<PathBytes, usize> = HashMap::new();
    let mut add = |path: PathBytes, first_use_us: u64, warm_use_us: Option<u64>, listed: bool| match index.get(&path) {
        Some(at) => found[*at].listed |= listed,
        None if limit.take::<(Lookup, PathBytes)>(1, 2 * path.len()) => {
            index.insert(path.clone(), found.len());
            found.push(Lookup { path: path.into(), listed, first_use_us, warm_use_us, ..Lookup::default() });
        }
        None => {}
    };
    for (at, seen) in observed.lookups.iter().enumerate().filter(|(_, seen)| seen.time_ns <= run.ended_ns) {
        let base = directories.entry(seen.base).or_insert_with(|| resolver.directory(seen.base));
        if let Some(path) = base.as_ref().and_then(|base| whole_path(filesystem, base, &seen.path)) {
            add(path, seen.time_ns.saturating_sub(run.started_ns) / 1000, warm.of_lookup(at), seen.listed);
        }
    }
    for (link, time_us, warm_us) in links {
        if let Some(place) = resolver.place(link) {
            add(place.path, *time_us, *warm_us, false);
        }
    }
    found.retain_mut(|lookup| identify(filesystem, lookup, &host.mounts));
    sorting::sort_by_key(&mut found, |lookup| lookup.first_use_us);
    (found, limit.refused())
}

/// The path of a name that is looked up from a directory, without double slashes and dots. A path with `..` is resolved, since
/// after a symbolic link `..` has another meaning; `None` if that fails.
pub(crate) fn whole_path(filesystem: &dyn FileSystem, base: &[u8], named: &[u8]) -> Option<PathBytes> {
    let mut path = Vec::with_capacity(base.len() + 1 + named.len());
    let names = base.split(|byte| *byte == b'/').chain(named.split(|byte| *byte == b'/'));
    for name in names.filter(|name| !name.is_empty() && *name != b".") {
        path.push(b'/');
        path.extend(name);
    }
    if path.is_empty() {
        path.push(b'/');
    }
    if names_parent(&path) {
        path = resolved(filesystem, &path)?;
    }
    check_path(&path).is_ok().then_some(path)
}

fn names_parent(path: &[u8]) -> bool {
    path.split(|byte| *byte == b'/').any(|name| name == b"..")
}

/// The path with its directory resolved. The last name stays: it may be a link, or missing.
fn resolved(filesystem: &dyn FileSystem, path: &[u8]) -> Option<PathBytes> {
    let at = path.iter().rposition(|byte| *byte == b'/')?;
    let (directory, name) = (&path[..at], &path[at..]);
    if name == b"/.." {
        return Some(filesystem.canonicalize(as_path(path))?.into_os_string().into_vec());
    }
    let directory = filesystem.canonicalize(as_path(directory))?.into_os_string().into_vec();
    Some([directory.strip_suffix(b"/").unwrap_or(&directory), name].concat())
}

/// The mount of a path, if its file system has a device.
fn device_mount<'a>(table: &'a [Mount], path: &[u8]) -> Option<&'a Mount> {
    let mount = mounts::covering(table, path).map(|index| &table[index]);
    mount.filter(|mount| !matches!(mount.kind().place, Place::Kernel | Place::Automounter))
}

/// Whether the file system of a path has a device.
pub(crate) fn is_on_device(table: &[Mount], path: &[u8]) -> bool {
    device_mount(table, path).is_some()
}

/// Sets device and inode. `false`: the lookup reads no device.
fn identify(filesystem: &dyn FileSystem, lookup: &mut Lookup, table: &[Mount]) -> bool {
    let path = as_path(&lookup.path);
    let Some(mount) = device_mount(table, &lookup.path) else { return false };
    lookup.device = mount.device.key();
    let stat = filesystem.stat(path).or_else(|| filesystem.lstat(path));
    lookup.inode = stat.map_or(0, |stat| stat.inode);
    true
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::learn::testing::TableFileSystem;
    use ahead_model::DeviceNumber;

    fn filesystem() -> TableFileSystem {
        TableFileSystem::of(&[("/", 2, 4096), ("/usr/bin/x", 3, 1)])
    }

    fn whole(base: &str, path: &str) -> String {
        String::from_utf8(whole_path(&filesystem(), base.as_bytes(), path.as_bytes()).unwrap()).unwrap()
    }

    #[test]
    fn paths_are_joined_and_cleaned_but_not_resolved() {
        assert_eq!(whole("/", "/usr//lib/./x"), "/usr/lib/x");
        assert_eq!(whole("/usr/bin", "../no-such-thing/"), "/usr/no-such-thing");
        assert_eq!(whole("/usr/bin", "../.."), "/");
        assert!(whole_path(&filesystem(), b"/", b"no-such-thing/../x").is_none());
        assert_eq!(whole("/home/u", ""), "/home/u");
        assert_eq!(whole("/", "."), "/");
        assert!(whole_path(&filesystem(), b"/", "a/".repeat(3000).as_bytes()).is_none());
    }

    /// Regression: lookups on an ext4 mounted on its automounter were taken for the automounter's, and dropped.
    #[test]
    fn lookups_below_an_automounted_file_system_are_kept() {
        let text = b"1 0 8:1 / / rw - ext4 /dev/sda1 rw\n2 1 0:40 / /srv rw - autofs systemd-1 rw\n\
            3 2 8:2 / /srv rw - ext4 /dev/sda2 rw\n";
        let table = mounts::parse(text).unwrap();
        let mut lookup = Lookup { path: "/srv/no-such-file".to_owned().into(), ..Lookup::default() };
        assert!(identify(&filesystem(), &mut lookup, &table));
        assert_eq!(lookup.device, 8 << 32 | 2);
    }

    #[test]
    fn lookups_without_a_device_are_left_out() {
        let mount = |point: &str, fs_type: &str| Mount {
            mount_point: point.into(),
            fs_type: fs_type.into(),
            device: DeviceNumber::new(8, 1),
            ..Mount::default()
        };
        let table = [mount("/", "ext4"), mount("/proc", "proc")];
        let lookup = |path: &str| Lookup { path: path.to_owned().into(), ..Lookup::default() };
        assert!(!identify(&filesystem(), &mut lookup("/proc/self/maps"), &table));
        let mut missing = lookup("/no/such/file/here");
        assert!(identify(&filesystem(), &mut missing, &table));
        assert_eq!((missing.inode, missing.device), (0, 8 << 32 | 1));
        let mut root = lookup("/");
        assert!(identify(&filesystem(), &mut root, &table));
        assert_ne!(root.inode, 0);
    }
}
