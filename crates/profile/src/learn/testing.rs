//! A file system in a table, for tests.

use crate::learn::filesystem::{FileSystem, Names, Stat};
use ahead_model::{DeviceNumber, PhysicalExtent};
use std::cell::RefCell;
use std::collections::{BTreeMap, HashSet};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

/// Time of creation and modification of every file in the table: long before any recording.
pub(crate) fn long_ago() -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000)
}

/// Files by path. A directory without an entry exists if a file lies in it.
#[derive(Debug, Default)]
pub(crate) struct TableFileSystem {
    pub files: BTreeMap<PathBuf, Stat>,
    pub links: BTreeMap<PathBuf, PathBuf>,
    pub generations: BTreeMap<PathBuf, u32>,
    pub extents: BTreeMap<PathBuf, Vec<PhysicalExtent>>,
    /// Every directory that was read.
    pub directories_read: RefCell<Vec<PathBuf>>,
}

impl TableFileSystem {
    /// Regular files, by path, inode and length, on the device 8:1.
    pub fn of(files: &[(&str, u64, u64)]) -> TableFileSystem {
        let stat = |inode, size_bytes| Stat {
            device: DeviceNumber::new(8, 1),
            inode,
            size_bytes,
            mtime_ns: 7,
            modified: Some(long_ago()),
            created: Some(long_ago()),
            mode: 0o100_644,
        };
        let files = files.iter().map(|(path, inode, size)| (PathBuf::from(path), stat(*inode, *size))).collect();
        TableFileSystem { files, ..TableFileSystem::default() }
    }
}

impl FileSystem for TableFileSystem {
    fn lstat(&self, path: &Path) -> Option<Stat> {
        self.files.get(path).copied()
    }

    fn stat(&self, path: &Path) -> Option<Stat> {
        self.files.get(self.links.get(path).map_or(path, PathBuf::as_path)).copied()
    }

    fn canonicalize(&self, path: &Path) -> Option<PathBuf> {
        let exists = |path: &Path| path == Path::new("/") || self.files.keys().any(|file| file.starts_with(path));
        let mut resolved = PathBuf::new();
        for component in path.components() {
            match component.as_os_str().to_str()? {
                ".." => drop(resolved.pop()),
                name => resolved.push(name),
            }
            resolved = self.links.get(&resolved).cloned().unwrap_or(resolved);
            if !exists(&resolved) {
                return None;
            }
        }
        Some(resolved)
    }

    fn generation(&self, path: &Path) -> Option<u32> {
        self.generations.get(path).copied()
    }

    fn path_of_inode(&self, _: &Path, _: &str, _: u64, _: u32) -> Option<PathBuf> {
        None
    }

    fn names_in(&self, directory: &Path, wanted: &HashSet<u64>, limit: usize) -> (Names, usize) {
        self.directories_read.borrow_mut().push(directory.into());
        let entries: Vec<_> =
            self.files.iter().filter(|(path, _)| path.parent() == Some(directory)).take(limit).collect();
        let names = entries.iter().filter(|(_, stat)| wanted.contains(&stat.inode));
        (names.map(|(path, stat)| (stat.inode, (*path).clone())).collect(), entries.len())
    }

    fn physical_extents(&self, path: &Path, _: u64) -> Vec<PhysicalExtent> {
        self.extents.get(path).cloned().unwrap_or_default()
    }

    fn block_device_node(&self, device: DeviceNumber) -> Option<PathBuf> {
        Some(format!("/dev/block/{device}").into())
    }

    fn read_ahead_kb(&self, _: DeviceNumber) -> Option<u64> {
        Some(128)
    }
}
