//! Files for tests.

use ahead_sys::{cache, evict};
use std::fs::File;
use std::io::Write;
use std::time::{Duration, Instant};
use tempfile::NamedTempFile;

/// A file on the disk with the sources, which is no tmpfs.
pub(crate) struct DirectoryFile {
    pub file: NamedTempFile,
    pub content: Vec<u8>,
}

/// Bytes that differ from page to page, and within each page.
pub(crate) fn content(bytes: usize) -> Vec<u8> {
    (0..bytes).map(|at| (at / 4096 * 31 + at % 251) as u8).collect()
}

/// A file with these bytes, written to the disk.
pub(crate) fn file_with(content: Vec<u8>) -> DirectoryFile {
    let mut file = NamedTempFile::new_in(env!("CARGO_MANIFEST_DIR")).unwrap();
    file.write_all(&content).unwrap();
    file.as_file().sync_all().unwrap();
    DirectoryFile { file, content }
}

/// A file without resident pages. `None`, with a message: the file system keeps them.
pub(crate) fn cold_file(bytes: usize) -> Option<DirectoryFile> {
    let made = file_with(content(bytes));
    make_cold(made.file.as_file()).then_some(made)
}

/// Evicts a file. The pages of the last reads are in lists of each processor for a moment, so this tries for some seconds.
pub(crate) fn make_cold(file: &File) -> bool {
    let (began, bytes) = (Instant::now(), file.metadata().unwrap().len());
    loop {
        evict::file(file).unwrap();
        if cache::present(file, 0, bytes).unwrap().is_empty() {
            return true;
        }
        if began.elapsed() > Duration::from_secs(5) {
            eprintln!("skipped: the file system keeps pages that should be evicted");
            return false;
        }
        std::thread::yield_now();
    }
}
