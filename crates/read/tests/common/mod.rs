//! Files for the tests.

#![allow(dead_code, reason = "each test uses a part")]

use ahead_read::prefetcher::{Counters, Item, Prefetcher, PrefetcherOptions, Window};
use ahead_read::stream::Budget;
use ahead_tests::rig::cold::{becomes_cold, target_directory};
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};

/// Some files of the same size.
pub struct Files {
    pub home: tempfile::TempDir,
    pub paths: Vec<PathBuf>,
}

impl Files {
    pub fn new(count: usize, bytes: usize) -> Files {
        let home = tempfile::tempdir_in(target_directory()).unwrap();
        let paths: Vec<PathBuf> = (0..count).map(|n| home.path().join(format!("{n:04}"))).collect();
        for (n, path) in paths.iter().enumerate() {
            File::create(path).unwrap().write_all(&vec![n as u8; bytes]).unwrap();
        }
        Files { home, paths }
    }

    /// Without resident pages; `None`, with a message, if the file system does not evict.
    pub fn cold(count: usize, bytes: usize) -> Option<Files> {
        let files = Files::new(count, bytes);
        files.paths.iter().all(|path| becomes_cold(&File::open(path).unwrap())).then_some(files)
    }

    /// Resident bytes of a file.
    pub fn resident(&self, index: usize) -> u64 {
        ahead_tests::rig::cold::resident_bytes(&self.paths[index])
    }
}

pub fn options(window: Window) -> PrefetcherOptions {
    PrefetcherOptions::default().window(window).budget(Budget::new(1 << 30))
}

pub fn paths_of(items: impl IntoIterator<Item = Item>) -> Vec<PathBuf> {
    items.into_iter().map(|item| item.path).collect()
}

/// Sum of the outcomes: that of all taken items, and of those that are ready ahead.
pub fn outcomes(counters: &Counters) -> u64 {
    let Counters { prefetched_items, cached_items, skipped, late, consumed_before_start, unchecked, .. } = *counters;
    prefetched_items + cached_items + skipped + late + consumed_before_start + unchecked
}

/// Takes all items, and checks their order and the counts.
pub fn check_order(mut prefetcher: Prefetcher<Item>, expected: &[PathBuf]) -> Counters {
    assert_eq!(paths_of(prefetcher.by_ref()), expected);
    let counters = prefetcher.counters();
    assert_eq!((counters.items, outcomes(&counters)), (expected.len() as u64, expected.len() as u64), "{counters:?}");
    counters
}

/// A FIFO without a writer: opening it for reading would wait.
pub fn make_fifo(path: &Path) {
    let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
    rustix::fs::mknodat(rustix::fs::CWD, path, rustix::fs::FileType::Fifo, mode, 0).unwrap();
}

pub fn forbid_reading(path: &Path) {
    use std::os::unix::fs::PermissionsExt;
    fs::set_permissions(path, fs::Permissions::from_mode(0o0)).unwrap();
}
