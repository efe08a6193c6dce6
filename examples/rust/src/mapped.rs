//! A file as a slice. The only unsafe call of the examples: every program that maps a file has it.

#![allow(unsafe_code)]

use anyhow::{Context, Result};
use memmap2::Mmap;
use std::fs::File;
use std::path::Path;

/// Maps a file for reading.
///
/// As with every mapping, the file must keep its length while it is mapped: a page that is lost to a truncation ends the program with
/// SIGBUS.
pub fn map(path: &Path) -> Result<Mmap> {
    let map = || {
        let file = File::open(path)?;
        // SAFETY: the bytes are only searched, and no reference into them is used as text or as a typed value. A program that changes the
        // file meanwhile changes what is found.
        unsafe { Mmap::map(&file) }
    };
    map().with_context(|| format!("{}: cannot map the file", path.display()))
}
