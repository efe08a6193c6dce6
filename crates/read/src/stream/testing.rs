//! Files for tests.

use crate::stream::version::Version;
use ahead_tests::rig::cold::{becomes_cold, target_directory};
use std::io::Write;
use tempfile::NamedTempFile;

/// A file on a disk.
pub(crate) struct DirectoryFile {
    pub file: NamedTempFile,
    pub content: Vec<u8>,
}

/// Bytes that differ from page to page, and within each page.
pub(crate) fn content(bytes: usize) -> Vec<u8> {
    (0..bytes).map(|at| (at / 4096 * 31 + at % 251) as u8).collect()
}

/// A file with these bytes, written to the disk, so long ago that direct reads are made ahead.
pub(crate) fn file_with(content: Vec<u8>) -> DirectoryFile {
    let mut file = NamedTempFile::new_in(target_directory()).unwrap();
    file.write_all(&content).unwrap();
    file.as_file().sync_all().unwrap();
    while !Version::of(file.as_file()).unwrap().is_settled() {
        std::thread::yield_now();
    }
    DirectoryFile { file, content }
}

/// A file without resident pages. `None`, with a message: the file system keeps them.
pub(crate) fn cold_file(bytes: usize) -> Option<DirectoryFile> {
    let made = file_with(content(bytes));
    becomes_cold(made.file.as_file()).then_some(made)
}
