//! The machine: what is there, who may change it at the moment, and where files are kept.
//!
//! A cold recording evicts all cached pages and switches read-ahead off on every disk. This would disturb a concurrent test that measures a cache or
//! a device. So a test that changes caches or settings holds the machine alone, and one that needs them unchanged shares it.

pub use super::cold::target_directory;
use ahead_sys::locks::IgnorePoison;
use std::path::Path;
use std::sync::{RwLock, RwLockReadGuard, RwLockWriteGuard};

static MACHINE: RwLock<()> = RwLock::new(());

/// The lock during a test: shared, exclusive, or that of the test itself.
#[derive(Debug)]
pub enum Held {
    Shared { _lock: RwLockReadGuard<'static, ()> },
    Alone { _lock: RwLockWriteGuard<'static, ()> },
    ByTest,
}

impl Held {
    pub fn shared() -> Held {
        Held::Shared { _lock: shared() }
    }

    pub fn alone() -> Held {
        Held::Alone { _lock: alone() }
    }
}

/// For a test that needs unchanged caches and settings.
pub fn shared() -> RwLockReadGuard<'static, ()> {
    MACHINE.read().ignore_poison()
}

/// For a test that changes caches or settings, and for one with mount namespaces: a new one holds a copy of every mount.
pub fn alone() -> RwLockWriteGuard<'static, ()> {
    MACHINE.write().ignore_poison()
}

/// Prints why a test is skipped. `make test` counts these lines.
pub fn skip<T>(why: impl std::fmt::Display) -> Option<T> {
    eprintln!("skipped: {why}");
    None
}

/// `None`, with the reason printed: the test is not root.
pub fn needs_root() -> Option<()> {
    if ahead_sys::machine::is_root() { Some(()) } else { skip("needs root") }
}

/// `None`, with the reason printed: disks cannot be emulated here.
pub fn needs_emulated_disks() -> Option<()> {
    for (path, what) in [("/dev/fuse", "FUSE"), ("/dev/loop-control", "loop devices")] {
        if !Path::new(path).exists() {
            return skip(format!("no {what} here"));
        }
    }
    needs_root()
}

/// A directory in memory: pages of files in it stay when caches are dropped, and storage is never slower than a model of a disk.
pub fn in_memory() -> tempfile::TempDir {
    let base = Some(Path::new("/dev/shm")).filter(|path| path.is_dir()).unwrap_or(Path::new("/tmp"));
    tempfile::tempdir_in(base).unwrap()
}

/// A directory on a disk, by its path without links.
pub fn on_disk() -> tempfile::TempDir {
    tempfile::tempdir_in(target_directory()).unwrap()
}
