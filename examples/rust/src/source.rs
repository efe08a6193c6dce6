//! A file that is read front to back, plainly or by the library.

use ahead::{Budget, Pattern, Reader, ReaderOptions};
use anyhow::{Context, Result};
use clap::ValueEnum;
use rustix::fs::{Advice, fadvise};
use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

/// How a file is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Way {
    /// read(2) under the kernel's read-ahead
    #[value(alias = "std")]
    Plain,
    /// The same after posix_fadvise(SEQUENTIAL), which doubles the kernel's window
    Fadvise,
    /// ahead::Reader over the page cache
    Ahead,
    /// ahead::Reader with direct I/O
    AheadDirect,
}

impl fmt::Display for Way {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Way::Plain => "plain",
            Way::Fadvise => "fadvise",
            Way::Ahead => "ahead",
            Way::AheadDirect => "ahead-direct",
        })
    }
}

/// The memory of a reader that reads ahead by the library.
#[derive(Clone, Debug, Default)]
pub struct Memory {
    /// The budget that this reader shares with others; `None`: that of the process.
    pub budget: Option<Budget>,
    /// Largest distance between the reader and the last request, bytes; `None`: the library's default.
    pub distance_bytes: Option<u64>,
}

/// An open file.
#[derive(Debug)]
pub enum Source {
    /// Read by the kernel's read-ahead.
    Plain(File),
    /// Read by the library.
    Ahead(Box<Reader>),
}

impl Source {
    /// Opens a file.
    pub fn open(path: &Path, way: Way, memory: &Memory) -> Result<Source> {
        open(path, way, memory).with_context(|| format!("{}: cannot open the file", path.display()))
    }

    /// How often the reader waited for the disk; `None`: read without the library.
    pub fn waits(&self) -> Option<u64> {
        match self {
            Source::Plain(_) => None,
            Source::Ahead(reader) => Some(reader.counters().waits),
        }
    }
}

fn open(path: &Path, way: Way, memory: &Memory) -> io::Result<Source> {
    match way {
        Way::Plain => Ok(Source::Plain(File::open(path)?)),
        Way::Fadvise => {
            let file = File::open(path)?;
            fadvise(&file, 0, None, Advice::Sequential)?;
            Ok(Source::Plain(file))
        }
        Way::Ahead | Way::AheadDirect => {
            let usual = ReaderOptions::default();
            let distance_bytes = memory.distance_bytes.unwrap_or(usual.largest_distance_bytes);
            let options = ReaderOptions::default()
                .budget(memory.budget.clone().unwrap_or(usual.budget))
                .pattern(Some(Pattern::Sequential))
                .direct(way == Way::AheadDirect)
                .largest_distance_bytes(distance_bytes);
            Ok(Source::Ahead(Box::new(Reader::open_with(path, options)?)))
        }
    }
}

impl Read for Source {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Source::Plain(file) => file.read(buffer),
            Source::Ahead(reader) => reader.read(buffer),
        }
    }
}
