//! Files for the tests: in the source directory, because /tmp may be a tmpfs, whose pages cannot be evicted.

#![allow(dead_code, reason = "each test uses a part")]

use ahead_prefetcher::{Counters, Item, Prefetcher, PrefetcherOptions, Window};
use ahead_stream::Budget;
use ahead_sys::{cache, evict};
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Longest wait for a page or a counter, on any machine.
const PATIENCE: Duration = Duration::from_secs(30);

/// Some files of the same size.
pub struct Files {
    pub home: tempfile::TempDir,
    pub paths: Vec<PathBuf>,
}

impl Files {
    pub fn new(count: usize, bytes: usize) -> Files {
        let home = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        let paths: Vec<PathBuf> = (0..count).map(|n| home.path().join(format!("{n:04}"))).collect();
        for (n, path) in paths.iter().enumerate() {
            File::create(path).unwrap().write_all(&vec![n as u8; bytes]).unwrap();
        }
        Files { home, paths }
    }

    /// Without resident pages; `None`, with a message, if the file system does not evict.
    pub fn cold(count: usize, bytes: usize) -> Option<Files> {
        let files = Files::new(count, bytes);
        let all_evicted = files.paths.iter().all(|path| make_cold(&File::open(path).unwrap()));
        if !all_evicted {
            eprintln!("skipped: the file system keeps pages that should be evicted");
            return None;
        }
        Some(files)
    }

    /// Resident bytes of a file.
    pub fn resident(&self, index: usize) -> u64 {
        cache::resident_bytes(File::open(&self.paths[index]).unwrap(), 0, u64::MAX >> 1).unwrap()
    }
}

/// Evicts a file, again for some seconds if need be: the last written pages are in lists of each processor for a moment, and stay then.
fn make_cold(file: &File) -> bool {
    let (began, bytes) = (Instant::now(), file.metadata().unwrap().len());
    loop {
        evict::file(file).unwrap();
        let is_cold = cache::resident_bytes(file, 0, bytes).unwrap() == 0;
        if is_cold || began.elapsed() > Duration::from_secs(5) {
            return is_cold;
        }
        std::thread::yield_now();
    }
}

/// Waits until the condition holds.
pub fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
    let began = Instant::now();
    while !holds() {
        assert!(began.elapsed() < PATIENCE, "after 30 s: {what}");
        std::thread::yield_now();
    }
}

pub fn options(window: Window) -> PrefetcherOptions {
    PrefetcherOptions { window, budget: Budget::new(1 << 30), threads: 0 }
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
