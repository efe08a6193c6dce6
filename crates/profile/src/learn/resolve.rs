//! Resolves a path within a file system to one that can be opened, and to the one that the program used.
//!
//! ```text
//!     (device, /@/usr/lib/x)  ──our mount table──▶  /mnt/root/usr/lib/x   lstat: the same inode?  ──yes──▶ path
//!             │                 (every mount whose root is a prefix,           │ no
//!             │                  the longest first)                            └─ search its directory, or open by
//!             │                                                                   number: renamed; otherwise deleted
//!             └──the program's table, its root directory, overlay layers──▶ seen_path, if it differs
//! ```

use crate::learn::filesystem::{FileSystem, Stat};
use crate::learn::observation::{ExecSeen, FileSeen, Observation};
use crate::learn::renamed::Directories;
use ahead_model::{DeviceNumber, Mount, sorting};
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

/// File systems use the time of the last timer tick: with 100 ticks per second, a file looks up to this much older than it is.
pub(crate) const CLOCK_TICK: Duration = Duration::from_millis(10);

/// Bytes as a path.
pub(crate) fn as_path(bytes: &[u8]) -> &Path {
    Path::new(OsStr::from_bytes(bytes))
}

/// The rest of `path` after `prefix`, if `prefix` is the path or a directory above it: empty or with a leading slash.
fn below<'a>(path: &'a [u8], prefix: &[u8]) -> Option<&'a [u8]> {
    let prefix = prefix.strip_suffix(b"/").unwrap_or(prefix);
    let rest = path.strip_prefix(prefix)?;
    match rest {
        b"/" => Some(b""),
        _ if rest.is_empty() || rest.starts_with(b"/") => Some(rest),
        _ => None,
    }
}

/// Appends `rest` (empty or with a leading slash) to `directory`.
fn join(directory: &[u8], rest: &[u8]) -> Vec<u8> {
    let directory = directory.strip_suffix(b"/").unwrap_or(directory);
    let joined = [directory, rest].concat();
    if joined.is_empty() { b"/".to_vec() } else { joined }
}

/// The paths of a file by all mounts of its file system, the deepest mount root first, then the latest mount. `device`: number of its
/// superblock, in the kernel's own encoding; `path`: from the root of the file system.
pub fn places<'a>(table: &'a [Mount], device: u32, path: &'a [u8]) -> impl Iterator<Item = (&'a Mount, Vec<u8>)> {
    let device = DeviceNumber::from_kernel(device);
    let mut found: Vec<(&Mount, &[u8])> = table
        .iter()
        .rev()
        .filter(|mount| mount.device == device)
        .filter_map(|mount| Some((mount, below(path, &mount.root)?)))
        .collect();
    sorting::sort_by_key(&mut found, |(_, rest)| rest.len());
    found.into_iter().map(|(mount, rest)| (mount, join(&mount.mount_point, rest)))
}

/// A file that was found.
#[derive(Clone, Debug)]
pub struct FilePlace {
    /// A path that the recorder can open.
    pub path: Vec<u8>,
    /// Type of its file system.
    pub fs_type: String,
    /// The result of lstat; `None`: the file was unlinked, and `path` is its former path.
    pub stat: Option<Stat>,
}

/// A mount table, and the layers of its overlays as openable paths, with their mount points.
#[derive(Debug)]
struct View<'a> {
    table: &'a [Mount],
    layers: Vec<(PathBuf, Vec<u8>)>,
}

impl<'a> View<'a> {
    fn new(filesystem: &dyn FileSystem, table: &'a [Mount]) -> View<'a> {
        View { table, layers: layers(filesystem, table) }
    }

    /// The path at which an overlay shows a file of one of its layers.
    fn through_overlay(&self, path: &[u8]) -> Option<Vec<u8>> {
        let inside = |(layer, point): &(PathBuf, Vec<u8>)| {
            let layer = layer.as_os_str().as_bytes();
            Some((layer.len(), join(point, below(path, layer)?)))
        };
        // If one layer lies in another, the deepest one is the right one.
        self.layers.iter().filter_map(inside).max_by_key(|(length, _)| *length).map(|(_, seen)| seen)
    }
}

/// Resolves observed files by the mount tables.
pub struct Resolver<'a> {
    filesystem: &'a dyn FileSystem,
    observed: &'a Observation,
    own: &'a [Mount],
    began: SystemTime,
    /// Views of the mounts: of this process's namespace, and of other namespaces by number and root directory.
    own_view: View<'a>,
    views: BTreeMap<(u32, u32), View<'a>>,
    directories: Directories,
}

impl<'a> Resolver<'a> {
    /// Creates a resolver with our own mount table, for an observation that began at this time.
    pub fn new(
        filesystem: &'a dyn FileSystem,
        observed: &'a Observation,
        own: &'a [Mount],
        began: SystemTime,
    ) -> Resolver<'a> {
        let view = |table| View::new(filesystem, table);
        let views = observed.namespaces.iter().map(|(key, table)| (*key, view(table))).collect();
        let directories = Directories::new(observed.files.values().map(|file| file.inode).collect());
        Resolver { filesystem, observed, own, began, own_view: view(own), views, directories }
    }

    /// The number of files that were not found because of the limit of directory entries.
    pub(crate) fn given_up(&self) -> u64 {
        self.directories.given_up()
    }

    /// Finds a file by its path in its file system. `None`: the file system is not mounted where we can reach it.
    pub fn place(&self, file: &FileSeen) -> Option<FilePlace> {
        let mut first = None;
        for (mount, path) in places(self.own, file.device, &file.path) {
            let stat = self.filesystem.lstat(as_path(&path)).filter(|stat| self.is_same(file, &path, stat));
            let place = FilePlace { path, fs_type: mount.fs_type.clone(), stat };
            if place.stat.is_some() && !file.unlinked && !file.incomplete {
                return Some(place);
            }
            first.get_or_insert((mount, place));
        }
        let (mount, place) = first?;
        let elsewhere = self.renamed(file, &place).or_else(|| self.moved(file, mount));
        Some(elsewhere.unwrap_or(FilePlace { stat: None, ..place }))
    }

    /// The current path of a file if a directory above it was renamed and the file system can open inodes by number.
    fn moved(&self, file: &FileSeen, mount: &Mount) -> Option<FilePlace> {
        let point = as_path(&mount.mount_point);
        let path = self.filesystem.path_of_inode(point, &mount.fs_type, file.inode, file.generation)?;
        // Another file system may be mounted over this one, and have the same inode number.
        let is_there = |stat: &Stat| stat.inode == file.inode && stat.device == DeviceNumber::from_kernel(file.device);
        let stat = self.filesystem.lstat(&path).filter(is_there)?;
        let path = path.into_os_string().into_vec();
        Some(FilePlace { path, fs_type: mount.fs_type.clone(), stat: Some(stat) })
    }

    /// The file that has the path of this one now, if it is another one: this one was replaced.
    pub(crate) fn successor(&self, file: &FileSeen) -> Option<(Vec<u8>, Stat)> {
        let (_, path) = places(self.own, file.device, &file.path).next().filter(|_| !file.incomplete)?;
        let stat = self.filesystem.lstat(as_path(&path))?;
        (!self.is_same(file, &path, &stat)).then_some((path, stat))
    }

    /// The same inode under another name in the same directory, as after an atomic replacement.
    fn renamed(&self, file: &FileSeen, place: &FilePlace) -> Option<FilePlace> {
        if file.incomplete {
            return None;
        }
        let path = self.directories.find(self.filesystem, as_path(&place.path).parent()?, file.inode)?;
        let stat = self.filesystem.lstat(&path)?;
        let path = path.into_os_string().into_vec();
        if !self.is_same(file, &path, &stat) {
            return None;
        }
        Some(FilePlace { path, stat: Some(stat), ..place.clone() })
    }

    /// Whether the file at a path now is the observed one, and not one that got its inode number later.
    fn is_same(&self, file: &FileSeen, path: &[u8], now: &Stat) -> bool {
        if now.inode != file.inode {
            return false;
        }
        let is_older = now.created.is_some_and(|created| created + CLOCK_TICK < self.began);
        if is_older || !now.is_file() {
            return true;
        }
        // Created in this run, or the time of creation is unknown: the number may have been reused.
        let generation = self.filesystem.generation(as_path(path));
        generation.is_none_or(|generation| generation == file.generation)
    }

    /// The path of an existing directory (a root or working directory) that we can open.
    pub fn directory(&self, id: u32) -> Option<Vec<u8>> {
        let file = self.observed.files.get(&id)?;
        let place = self.place(file)?;
        place.stat.is_some().then_some(place.path)
    }

    /// The path by which a process saw a file that we open at `path`, if it differs.
    pub fn seen_path(&self, file: &FileSeen, path: &[u8], process: Option<&ExecSeen>) -> Option<Vec<u8>> {
        let elsewhere = process.filter(|exec| exec.mount_namespace != self.observed.own_namespace);
        let seen = match elsewhere {
            Some(exec) => self.seen_elsewhere(file, path, exec)?,
            None => {
                let unrooted = self.own_view.through_overlay(path).unwrap_or_else(|| path.to_vec());
                let root = process.and_then(|exec| self.directory(exec.root)).unwrap_or_else(|| b"/".to_vec());
                join(b"/", below(&unrooted, &root)?)
            }
        };
        (seen != path).then_some(seen)
    }

    /// As [`Self::seen_path`], for a process in another mount namespace.
    fn seen_elsewhere(&self, file: &FileSeen, path: &[u8], process: &ExecSeen) -> Option<Vec<u8>> {
        let namespace = process.mount_namespace;
        let root = self.observed.files.get(&process.root)?;
        // Seen from its own root, or from another process's; then the path of its root is removed.
        let exact = self.views.get(&(namespace, process.root));
        let (view, above) = match exact {
            Some(view) => (view, b"/".to_vec()),
            None => {
                let (_, view) = self.views.range((namespace, 0)..=(namespace, u32::MAX)).next()?;
                (view, places(view.table, root.device, &root.path).next()?.1)
            }
        };
        let mounted = || places(view.table, file.device, &file.path).next().map(|(_, seen)| seen);
        if let Some(seen) = view.through_overlay(path).or_else(mounted) {
            return Some(join(b"/", below(&seen, &above)?));
        }
        // A chroot whose root is not a mount point is missing in its own table.
        let rest = below(&file.path, &root.path).filter(|_| root.device == file.device)?;
        Some(join(b"/", rest))
    }
}

/// The layers of all overlays. Their paths are those that the mounting process used, with symbolic links (container engines use
/// short ones).
fn layers(filesystem: &dyn FileSystem, table: &[Mount]) -> Vec<(PathBuf, Vec<u8>)> {
    let of_mount = |mount: &Mount| {
        let point = mount.mount_point.clone();
        let whole = mount.root == b"/";
        let layers = if whole { mount.overlay_layers() } else { Vec::new() };
        layers.into_iter().filter_map(move |layer| {
            let canonical = filesystem.canonicalize(as_path(&layer))?;
            Some((canonical, point.clone()))
        })
    };
    table.iter().flat_map(of_mount).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn mount(device: DeviceNumber, root: &str, point: &str) -> Mount {
        Mount { device, root: root.into(), mount_point: point.into(), fs_type: "ext4".into(), ..Mount::default() }
    }

    fn paths(table: &[Mount], device: u32, path: &str) -> Vec<String> {
        places(table, device, path.as_bytes()).map(|(_, path)| String::from_utf8(path).unwrap()).collect()
    }

    #[test]
    fn below_respects_component_boundaries() {
        assert_eq!(below(b"/a/b", b"/a"), Some(&b"/b"[..]));
        assert_eq!(below(b"/a", b"/a"), Some(&b""[..]));
        assert_eq!(below(b"/", b"/"), Some(&b""[..]));
        assert_eq!(below(b"/a", b"/"), Some(&b"/a"[..]));
        assert_eq!(below(b"/ab", b"/a"), None);
        assert_eq!(below(b"/a", b"/a/b"), None);
    }

    #[test]
    fn deepest_mount_root_comes_first_and_then_the_latest_mount() {
        let device = 8 << 20 | 1;
        let table = [
            mount(DeviceNumber::new(8, 1), "/", "/"),
            mount(DeviceNumber::new(8, 2), "/", "/other"),
            mount(DeviceNumber::new(8, 1), "/@/home", "/home"),
            mount(DeviceNumber::new(8, 1), "/", "/again"),
        ];
        assert_eq!(paths(&table, device, "/@/home/x"), ["/home/x", "/again/@/home/x", "/@/home/x"]);
        assert_eq!(paths(&table, device, "/@/home"), ["/home", "/again/@/home", "/@/home"]);
        assert_eq!(paths(&table, device, "/y"), ["/again/y", "/y"]);
        assert!(paths(&table, 9 << 20, "/y").is_empty());
    }

    proptest! {
        #[test]
        fn join_and_below_are_inverse(
            directory in "(/[a-z\u{e9}]{1,5}){0,4}",
            rest in "(/[a-z]{1,5}){0,4}",
        ) {
            let whole = join(directory.as_bytes(), rest.as_bytes());
            prop_assert_eq!(below(&whole, directory.as_bytes()), Some(rest.as_bytes()));
            prop_assert!(whole.starts_with(b"/"));
        }
    }
}
