//! The learner's queries to the machine.

use ahead_model::{DeviceNumber, PhysicalExtent};
use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// The result of stat(2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stat {
    /// Device number, as stat reports it (on btrfs and overlayfs not the superblock's).
    pub device: DeviceNumber,
    /// Inode number.
    pub inode: u64,
    /// Length, bytes.
    pub size_bytes: u64,
    /// Time of modification, nanoseconds since 1970.
    pub mtime_ns: i64,
    /// Time of modification.
    pub modified: Option<SystemTime>,
    /// Time of creation, where the file system reports it.
    pub created: Option<SystemTime>,
    /// Type and permission bits.
    pub mode: u32,
}

/// The type in the mode of a file.
pub(crate) const S_IFMT: u32 = 0o170_000;
/// A regular file.
pub(crate) const S_IFREG: u32 = 0o100_000;

impl Stat {
    /// Whether it is a regular file.
    pub fn is_file(&self) -> bool {
        self.mode & S_IFMT == S_IFREG
    }
}

/// The names of some inodes in one directory, each the first that was found.
pub type Names = HashMap<u64, PathBuf>;

/// The machine's file systems, or a table in a test.
pub trait FileSystem {
    /// lstat(2): does not follow a symbolic link. `None`: the path does not exist or cannot be reached.
    fn lstat(&self, path: &Path) -> Option<Stat>;

    /// stat(2): follows symbolic links.
    fn stat(&self, path: &Path) -> Option<Stat>;

    /// The path without symbolic links, `.` and `..`. `None`: it cannot be resolved.
    fn canonicalize(&self, path: &Path) -> Option<PathBuf>;

    /// The generation of the inode at a path, which distinguishes files that had the same inode number at different times.
    /// `None`: its file system does not report it.
    fn generation(&self, path: &Path) -> Option<u32>;

    /// The current path of the inode with this number on the file system mounted at `mount_point`. `None`: the file system
    /// cannot open inodes by number, or has no such inode.
    fn path_of_inode(&self, mount_point: &Path, fs_type: &str, inode: u64, generation: u32) -> Option<PathBuf>;

    /// The names of the `wanted` inodes in a directory, and the number of entries read, at most `limit`. An unreadable
    /// directory has no entries.
    fn names_in(&self, directory: &Path, wanted: &HashSet<u64>, limit: usize) -> (Names, usize);

    /// The positions of a file's data on its disk, in file order. Empty: the file system does not report them.
    fn physical_extents(&self, path: &Path, size_bytes: u64) -> Vec<PhysicalExtent>;

    /// The node of a block device, `/dev/sda1`.
    fn block_device_node(&self, device: DeviceNumber) -> Option<PathBuf>;

    /// The read-ahead window of a device, KiB.
    fn read_ahead_kb(&self, device: DeviceNumber) -> Option<u64>;
}
