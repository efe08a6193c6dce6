//! Lists of files: from other programs and for them, and whether a profile still lists what is there.
//!
//! ```text
//!     find, an init script ──▶ plain list ────────┐
//!     readahead-list's list, ureadahead's pack ───┼──▶ List ──▶ prefetch::resolve ──▶ Profile
//!     template with patterns ──▶ expand ──────────┘                                     │
//!                                                                                       ├──▶ plain list, readahead-list, pack
//!                                        findings ◀── check ◀───────────────────────────┤
//!                                           └───────▶ fix ──▶ Profile without them ◀────┘
//! ```
//!
//! Bytes of a list come in, which are untrusted: their size and the number of entries are limited, and errors have a position. Parsing
//! and writing open no file; [`expand`] lists directories, [`check`] opens handles without access.

mod check;
mod expand;
mod fix;
mod pack;
mod pattern;
mod plain;

pub use check::{Checked, Finding, Problem, check};
pub use expand::{Expanded, expand};
pub use fix::{Fixed, fix};
pub use pack::{PACK_SIGNATURE, PackHeader, decode as decode_pack, encode as encode_pack, main_device};
pub use pattern::Pattern;
pub use plain::{Syntax, Template, parse, parse_template, write, write_paths};

use ahead_model::RangeSet;
use ahead_profile::{Extent, File, MAX_EXTENTS, MAX_FILES, MAX_PATH_BYTES, PathBytes, join_extents};
use std::collections::HashMap;
use std::ops::Range;

/// The range of a whole file, whatever its size.
pub const WHOLE: Range<u64> = 0..u64::MAX;

/// Files to prefetch, each once, in the order in which they were first listed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct List {
    files: Vec<Listed>,
    by_path: HashMap<PathBytes, usize>,
    ranges: usize,
}

/// A file of a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    /// Its path as listed; a relative one starts at the root directory, or at the working directory without one.
    pub path: PathBytes,
    /// The bytes to prefetch. They may lie beyond the end of the file.
    pub wanted: RangeSet,
}

/// Why a list cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{place}: {reason}")]
pub struct ListError {
    /// The place: `line 3`, `byte 24`, or the path of a profile's file.
    pub place: String,
    /// The problem.
    pub reason: String,
}

impl ListError {
    fn new(place: impl Into<String>, reason: impl Into<String>) -> ListError {
        ListError { place: place.into(), reason: reason.into() }
    }
}

impl List {
    /// The files.
    pub fn files(&self) -> &[Listed] {
        &self.files
    }

    /// Adds a range of a file; an empty one adds the file.
    ///
    /// Errors: the reason, for a path that no file can have, or beyond the limits of a profile.
    pub fn add(&mut self, path: &[u8], range: Range<u64>) -> Result<(), String> {
        if path.is_empty() {
            return Err("there is no path".into());
        }
        if path.len() > MAX_PATH_BYTES {
            return Err(format!("the path is longer than {MAX_PATH_BYTES} bytes"));
        }
        if path.contains(&0) {
            return Err("the path contains a NUL byte".into());
        }
        if self.ranges == MAX_EXTENTS {
            return Err(format!("more than {MAX_EXTENTS} ranges"));
        }
        self.ranges += 1;
        let index = match self.by_path.get(path) {
            Some(index) => *index,
            None if self.files.len() == MAX_FILES => return Err(format!("more than {MAX_FILES} files")),
            None => {
                self.by_path.insert(path.to_vec(), self.files.len());
                self.files.push(Listed { path: path.to_vec(), wanted: RangeSet::new() });
                self.files.len() - 1
            }
        };
        self.files[index].wanted.insert(range);
        Ok(())
    }
}

/// The extents of several entries of one file, each byte once.
#[derive(Debug, Default)]
pub(crate) struct Joined {
    listed: RangeSet,
    /// What the first entry does not list.
    more: Vec<Extent>,
}

impl Joined {
    /// With the extents of the first entry.
    pub(crate) fn new(first: &[Extent]) -> Joined {
        let mut joined = Joined::default();
        joined.add(first);
        joined.more.clear();
        joined
    }

    /// Adds the extents of another entry. Returns the number of bytes that no entry had listed.
    pub(crate) fn add(&mut self, extents: &[Extent]) -> u64 {
        let mut new_bytes = 0;
        for extent in extents {
            for part in self.listed.insert_new(extent.offset_bytes..extent.offset_bytes + extent.length_bytes) {
                let physical_bytes = extent.physical_bytes.map(|place| place + (part.start - extent.offset_bytes));
                let (offset_bytes, length_bytes) = (part.start, part.end - part.start);
                new_bytes += length_bytes;
                self.more.push(Extent { offset_bytes, length_bytes, physical_bytes, ..*extent });
            }
        }
        new_bytes
    }

    /// Whether the first entry lists everything.
    pub(crate) fn is_complete(&self) -> bool {
        self.more.is_empty()
    }

    /// Gives the first entry the extents of all, in order of first use, in a profile of this many runs.
    pub(crate) fn complete(&self, first: &mut File, total_runs: u32) {
        // It is one of other extents.
        first.content = None;
        first.extents = join_extents(&first.extents, &self.more, total_runs);
    }
}
