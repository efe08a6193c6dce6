//! The mounts whose files a recording without BPF looks for, and walks through them.

use ahead_model::Mount;
use ahead_model::file_system_kind::Place;
use ahead_model::sorting;
use ahead_sys::directory::mount_id;
use ahead_sys::mounts::covering;
pub(crate) use ahead_sys::walk::{Budget, Entry, Next};
use ahead_sys::{Error, Result};
use rustix::fs::{Mode, OFlags, open};
use std::ffi::OsStr;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// The mount point as a path.
pub(crate) fn point_of(mount: &Mount) -> &Path {
    Path::new(OsStr::from_bytes(&mount.mount_point))
}

/// The mounts of file systems on block devices, by which all of their reachable files are found once: of several mounts of one
/// file system, those whose roots do not lie in that of another.
pub fn roots(table: &[Mount]) -> Vec<&Mount> {
    let is_candidate = |index: &usize| {
        let mount = &table[*index];
        is_on_block_device(mount) && covering(table, &mount.mount_point) == Some(*index)
    };
    let mut candidates: Vec<&Mount> = (0..table.len()).filter(is_candidate).map(|index| &table[index]).collect();
    sorting::sort_by_key(&mut candidates, |mount| mount.root.len());
    let mut roots: Vec<&Mount> = Vec::new();
    for mount in candidates {
        let is_in = |other: &&Mount| other.device == mount.device && below(&mount.root, &other.root).is_some();
        if !roots.iter().any(is_in) {
            roots.push(mount);
        }
    }
    roots
}

fn is_on_block_device(mount: &Mount) -> bool {
    // A FUSE file system may never answer, also one on a block device.
    let kind = mount.kind();
    (!mount.device.is_anonymous() || kind.has_own_device_number) && kind.place != Place::Process
}

/// The rest of `path` after the directory `prefix`: empty or with a leading slash.
pub(crate) fn below<'a>(path: &'a [u8], prefix: &[u8]) -> Option<&'a [u8]> {
    let rest = path.strip_prefix(prefix.strip_suffix(b"/").unwrap_or(prefix))?;
    match rest {
        b"/" => Some(b""),
        _ if rest.is_empty() || rest.starts_with(b"/") => Some(rest),
        _ => None,
    }
}

/// Appends `rest` (empty or with a leading slash) to a directory.
pub(crate) fn join(directory: &[u8], rest: &[u8]) -> Vec<u8> {
    let joined = [directory.strip_suffix(b"/").unwrap_or(directory), rest].concat();
    if joined.is_empty() { b"/".to_vec() } else { joined }
}

/// Calls `visit` for everything below a mount point that is not a directory. Returns whether nothing was left out because of a
/// limit.
///
/// # Errors
/// The mount point cannot be opened, or is another mount's now; the kernel has no openat2 (Linux 5.6).
pub(crate) fn walk(mount: &Mount, budget: &mut Budget, visit: impl FnMut(&Entry<'_>) -> Next) -> Result<bool> {
    let walked = ahead_sys::walk::walk(open_root(mount)?, budget, visit);
    let failed = |e| Error::io(format!("list {}", point_of(mount).display()), e);
    Ok(!walked.map_err(failed)?.is_cut)
}

/// Opens a mount point for reading. Fails if another file system is mounted there now.
pub(crate) fn open_root(mount: &Mount) -> Result<OwnedFd> {
    let point = point_of(mount);
    let failed = |e: std::io::Error| Error::io(format!("open {}", point.display()), e);
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let root = open(point, flags, Mode::empty()).map_err(|e| failed(e.into()))?;
    match mount_id(&root) {
        Some(id) if id != u64::from(mount.id) => Err(failed(std::io::Error::other("another file system is mounted"))),
        _ => Ok(root),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ahead_model::DeviceNumber;
    use std::fs;
    use std::time::Duration;

    fn mount(device: (u32, u32), root: &str, point: &str, id: u32) -> Mount {
        let (device, fs_type) = (DeviceNumber::new(device.0, device.1), "ext4".into());
        let (root, mount_point) = (root.into(), point.into());
        Mount { id, parent: 1, device, root, mount_point, fs_type, ..Mount::default() }
    }

    /// The mount of a directory, as if the directory were its mount point.
    fn mount_at(directory: &Path) -> Mount {
        let own = ahead_sys::mounts::holding(directory).unwrap().unwrap();
        Mount { mount_point: directory.as_os_str().as_bytes().to_vec(), ..own }
    }

    fn found(mount: &Mount, budget: &mut Budget) -> (Vec<String>, bool) {
        let mut names = Vec::new();
        let complete = walk(mount, budget, |entry| {
            names.push(String::from_utf8(entry.path()).unwrap());
            Next::GoOn
        });
        names.sort();
        (names, complete.unwrap())
    }

    #[test]
    fn walk_finds_files_and_follows_no_link() {
        let home = tempfile::tempdir().unwrap();
        let directory = fs::canonicalize(home.path()).unwrap();
        fs::create_dir_all(directory.join("a/b")).unwrap();
        for name in ["x", "a/y", "a/b/z"] {
            fs::write(directory.join(name), "").unwrap();
        }
        std::os::unix::fs::symlink(&directory, directory.join("a/link")).unwrap();
        let mount = mount_at(&directory);
        let all = ["/a/b/z", "/a/link", "/a/y", "/x"].map(str::to_owned).to_vec();
        assert_eq!(found(&mount, &mut Budget::of(1000, Duration::from_secs(600))), (all, true));
        assert!(!found(&mount, &mut Budget::of(5, Duration::from_secs(600))).1);
        assert_eq!(found(&mount, &mut Budget::of(64, Duration::ZERO)), (Vec::new(), false));
        let other = Mount { id: mount.id + 100_000, ..mount };
        assert!(
            mount_id(fs::File::open("/").unwrap()).is_none()
                || walk(&other, &mut Budget::new(), |_| Next::Stop).is_err()
        );
    }

    #[test]
    fn each_reachable_file_is_below_one_root() {
        let mut table = vec![
            mount((8, 1), "/", "/", 1),
            mount((8, 2), "/@home", "/home", 2),
            mount((8, 2), "/@home/eva", "/srv", 3),
            mount((8, 2), "/@", "/other", 4),
            mount((0, 5), "/", "/proc", 5),
            mount((8, 3), "/", "/hidden", 6),
            mount((8, 4), "/", "/hidden", 7),
        ];
        table[0].parent = 0;
        table[6].parent = 6;
        let points = |roots: Vec<&Mount>| roots.iter().map(|mount| point_of(mount).to_owned()).collect::<Vec<_>>();
        let expected = ["/", "/hidden", "/other", "/home"].map(std::path::PathBuf::from);
        assert_eq!(points(roots(&table)), expected);
    }

    #[test]
    fn below_and_join_are_inverse() {
        for (path, prefix) in [("/a/b", "/a"), ("/a", "/"), ("/a/b", "/a/b")] {
            let rest = below(path.as_bytes(), prefix.as_bytes()).unwrap();
            assert_eq!(join(prefix.as_bytes(), rest), path.as_bytes());
        }
        assert_eq!(below(b"/ab", b"/a"), None);
    }
}
