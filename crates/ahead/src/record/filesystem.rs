//! The machine's own file systems.

use ahead_model::{DeviceNumber, PhysicalExtent};
use ahead_profile::learn::{FileSystem, Names, Stat};
use ahead_sys::{bdi, fiemap, filehandle, generation, openat};
use rustix::fs::RawDir;
use std::collections::HashSet;
use std::ffi::OsStr;
use std::fs::{self, Metadata};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// The file systems of this machine. Files are opened only where that is needed, never by a symbolic link, and only regular files and
/// directories.
#[derive(Clone, Copy, Debug, Default)]
pub struct OsFileSystem;

fn stat_of(metadata: &Metadata) -> Stat {
    Stat {
        device: DeviceNumber::from_stat(metadata.dev()),
        inode: metadata.ino(),
        size_bytes: metadata.size(),
        mtime_ns: metadata.mtime().saturating_mul(1_000_000_000).saturating_add(metadata.mtime_nsec()),
        modified: metadata.modified().ok(),
        created: metadata.created().ok(),
        mode: metadata.mode(),
    }
}

impl FileSystem for OsFileSystem {
    fn lstat(&self, path: &Path) -> Option<Stat> {
        fs::symlink_metadata(path).ok().map(|metadata| stat_of(&metadata))
    }

    fn stat(&self, path: &Path) -> Option<Stat> {
        fs::metadata(path).ok().map(|metadata| stat_of(&metadata))
    }

    fn canonicalize(&self, path: &Path) -> Option<PathBuf> {
        fs::canonicalize(path).ok()
    }

    fn generation(&self, path: &Path) -> Option<u32> {
        openat::handle(path).and_then(|handle| handle.reopen()).ok().and_then(generation::of)
    }

    fn path_of_inode(&self, mount_point: &Path, fs_type: &str, inode: u64, generation: u32) -> Option<PathBuf> {
        filehandle::path_of(mount_point, fs_type, inode, generation).ok()
    }

    fn names_in(&self, directory: &Path, wanted: &HashSet<u64>, limit: usize) -> (Names, usize) {
        let (mut names, mut entries) = (Names::new(), 0);
        // By no symbolic link: another user who may write above it could have put one there.
        let Ok(open) = openat::handle(directory).and_then(|handle| handle.reopen_directory()) else {
            return (names, entries);
        };
        let mut buffer = Vec::with_capacity(64 << 10);
        let mut listing = RawDir::new(&open, buffer.spare_capacity_mut());
        while entries < limit {
            let Some(Ok(entry)) = listing.next() else { break };
            entries += 1;
            let name = entry.file_name().to_bytes();
            if wanted.contains(&entry.ino()) && name != b"." && name != b".." {
                names.entry(entry.ino()).or_insert_with(|| directory.join(OsStr::from_bytes(name)));
            }
        }
        (names, entries)
    }

    fn physical_extents(&self, path: &Path, size_bytes: u64) -> Vec<PhysicalExtent> {
        let open = openat::handle(path).and_then(|handle| handle.reopen());
        open.and_then(|open| fiemap::extents(open, 0, size_bytes)).unwrap_or_else(|error| {
            tracing::debug!("{}: {error}", path.display());
            Vec::new()
        })
    }

    fn block_device_node(&self, device: DeviceNumber) -> Option<PathBuf> {
        openat::block_device_node(device.key()).ok()
    }

    fn read_ahead_kb(&self, device: DeviceNumber) -> Option<u64> {
        bdi::read_ahead_kb(device).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_wanted_inodes_in_a_directory() {
        let home = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        let directory = fs::canonicalize(home.path()).unwrap();
        for name in ["a", "b", "c"] {
            fs::write(directory.join(name), "").unwrap();
        }
        let inode = |name: &str| fs::metadata(directory.join(name)).unwrap().ino();
        let wanted = HashSet::from([inode("b"), inode("c")]);
        let (names, entries) = OsFileSystem.names_in(&directory, &wanted, 1000);
        let expected = [("b", inode("b")), ("c", inode("c"))].map(|(name, inode)| (inode, directory.join(name)));
        assert_eq!((names, entries), (Names::from(expected), 5));
        assert_eq!(OsFileSystem.names_in(&directory, &wanted, 2).1, 2);
        // Not by a symbolic link.
        std::os::unix::fs::symlink(&directory, directory.join("link")).unwrap();
        assert_eq!(OsFileSystem.names_in(&directory.join("link"), &wanted, 1000), (Names::new(), 0));
    }

    #[test]
    fn links_are_followed_by_stat_and_not_by_lstat() {
        let home = tempfile::tempdir().unwrap();
        let (file, link) = (home.path().join("file"), home.path().join("link"));
        fs::write(&file, "12345").unwrap();
        std::os::unix::fs::symlink(&file, &link).unwrap();
        let stat = OsFileSystem.stat(&link).unwrap();
        assert_eq!((stat.size_bytes, stat.is_file(), Some(stat)), (5, true, OsFileSystem.lstat(&file)));
        assert!(!OsFileSystem.lstat(&link).unwrap().is_file());
        assert_eq!(OsFileSystem.stat(&home.path().join("none")), None);
    }
}
