//! Cold files: without resident pages.

use super::wait::wait_until;
use ahead_sys::{cache, evict};
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// A file on a disk with this content, without resident pages. `None`, with the reason printed: its file system keeps them.
pub fn cold_file(content: &[u8]) -> Option<tempfile::NamedTempFile> {
    let mut file = tempfile::NamedTempFile::new_in(target_directory()).unwrap();
    file.write_all(content).unwrap();
    file.as_file().sync_all().unwrap();
    becomes_cold(file.as_file()).then_some(file)
}

/// Evicts all pages of a file. `false`, with the reason printed: its file system keeps them.
pub fn becomes_cold(file: &File) -> bool {
    let began = Instant::now();
    while !is_cold_after_eviction(file) {
        if began.elapsed() > Duration::from_secs(5) {
            eprintln!("skipped: the file system keeps pages that should be evicted");
            return false;
        }
        std::thread::yield_now();
    }
    true
}

/// Evicts all pages of a file on a file system that permits it.
pub fn make_cold(path: &Path) {
    let file = File::open(path).unwrap();
    wait_until("a cold file", || is_cold_after_eviction(&file));
}

/// Pages of the last reads and writes are in lists of each processor for a moment, and pages in flight cannot be evicted. Both stay, and count.
fn is_cold_after_eviction(file: &File) -> bool {
    evict::file(file).unwrap();
    cache::resident(file, 0, file.metadata().unwrap().len()).unwrap().is_empty()
}

/// Evicts the pages of a file as far as no other process uses them.
pub fn evict(path: &Path) {
    evict::file(File::open(path).unwrap()).unwrap();
}

/// Drops everything that the machine has cached.
pub fn drop_caches() {
    rustix::fs::sync();
    fs::write("/proc/sys/vm/drop_caches", "3").unwrap();
}

/// The resident ranges of a file, in whole pages.
pub fn resident(path: &Path) -> Vec<std::ops::Range<u64>> {
    cache::resident(File::open(path).unwrap(), 0, 1 << 40).unwrap()
}

pub fn resident_bytes(path: &Path) -> u64 {
    resident(path).iter().map(|range| range.end - range.start).sum()
}

/// Cargo's directory for the files of tests. It is on a disk: /tmp may be a tmpfs, whose pages are neither evicted nor prefetched.
pub fn target_directory() -> PathBuf {
    let target = std::env::current_exe().unwrap();
    // target/debug/deps/NAME-HASH
    let directory = target.ancestors().nth(3).unwrap().join("tmp");
    fs::create_dir_all(&directory).unwrap();
    fs::canonicalize(directory).unwrap()
}
