//! Lists of files: from other programs and for them, and whether a profile still lists what is there.
//!
//! ```text
//!     find, an init script ──▶ plain list ────────┐
//!     readahead-list's list, ureadahead's pack ───┼──▶ List ──▶ ahead::prefetch::resolve ──▶ Profile
//!     template with patterns ──▶ expand ──────────┘                                            │
//!                                                                                              ├──▶ plain list, readahead-list, pack
//!                                        findings ◀── check ◀──────────────────────────────────┤
//!                                           └───────▶ fix ──▶ Profile without them ◀───────────┘
//! ```
//!
//! Bytes of a list come in, which are untrusted: their size and the number of entries are limited, and errors have a position. Parsing
//! and writing open no file; [`expand`] lists directories, [`check`] opens handles without access, [`content`] reads regular files. This
//! crate must never fetch anything, and never change or write a file.

mod check;
pub mod content;
mod expand;
mod fix;
mod pack;
mod pattern;
mod plain;

pub use check::{Checked, Finding, Problem, check, compare};
pub use expand::{Expanded, expand};
pub use fix::{Fixed, fix};
pub use pack::{PACK_SIGNATURE, PackHeader, decode as decode_pack, encode as encode_pack, main_device};
pub use pattern::{NamePattern, Pattern};
pub use plain::{Syntax, Template, parse, parse_template, write, write_paths};

use ahead_model::RangeSet;
use ahead_profile::{Extent, File, MAX_EXTENTS, MAX_FILES, MAX_PATH_BYTES, PathBytes, Profile, join_extents};
use ahead_sys::machine;
use ahead_sys::root::Root;
use std::collections::HashMap;
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The range of a whole file, whatever its size.
pub const WHOLE: Range<u64> = 0..u64::MAX;

/// Maximum number of bytes and time of [`add_content_checks`]: a digest takes a third of a millisecond for each MiB.
const CONTENT_BYTES: u64 = 1 << 30;
const CONTENT_TIME: Duration = Duration::from_secs(2);

/// Adds to each file of a profile what its used parts contain, for [`Checked::accept_same_content`]: from resident pages, within limits.
pub fn add_content_checks(profile: &mut Profile, root: &Root) {
    content::ContentReader::new(root, CONTENT_BYTES, CONTENT_TIME).add_checks(profile);
}

/// The list as the origin of a profile, made now on this machine.
pub fn add_origin(profile: &mut Profile, list_name: &str, root: &Root) {
    let recording = &mut profile.recording;
    recording.created_unix_s = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs());
    recording.kernel = machine::kernel_release();
    recording.machine = machine::describe();
    recording.source = format!("list {}", list_name.chars().take(MAX_NAME_CHARACTERS).collect::<String>());
    recording.root = root.prefix().as_os_str().as_bytes().to_vec();
}

/// Maximum number of characters of a list's name in a profile.
const MAX_NAME_CHARACTERS: usize = 1000;

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
    /// More bytes, unless a file has the name of the whole entry.
    pub ranged: Vec<Ranged>,
}

/// An entry that ends like a range: if a file of this name exists, it is that file, and else a range.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ranged {
    /// What follows the path in the entry, as `:0-4K`.
    pub suffix: Box<[u8]>,
    /// The bytes.
    pub range: Range<u64>,
}

impl Listed {
    /// All bytes, if no file has the name of a whole entry.
    pub fn everything(&self) -> RangeSet {
        let ranges = self.ranged.iter().map(|ranged| ranged.range.clone());
        self.wanted.iter().cloned().chain(ranges).collect()
    }
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
    pub fn files(&self) -> &[Listed] {
        &self.files
    }

    /// Adds a range of a file; an empty one adds the file.
    ///
    /// Errors: the reason, for a path that no file can have, or beyond the limits of a profile.
    pub fn add(&mut self, path: &[u8], range: Range<u64>) -> Result<(), String> {
        self.file(path)?.wanted.insert(range);
        Ok(())
    }

    /// Adds a range of a file, or the file that has the name of the whole entry: the path with `suffix`.
    ///
    /// Errors: as [`List::add`].
    pub fn add_ranged(&mut self, path: &[u8], suffix: &[u8], range: Range<u64>) -> Result<(), String> {
        self.file(path)?.ranged.push(Ranged { suffix: suffix.into(), range });
        Ok(())
    }

    /// The entry of a path, for one more range.
    fn file(&mut self, path: &[u8]) -> Result<&mut Listed, String> {
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
                self.files.push(Listed { path: path.to_vec(), wanted: RangeSet::new(), ranged: Vec::new() });
                self.files.len() - 1
            }
        };
        Ok(&mut self.files[index])
    }
}

/// The extents of several entries of one file, each byte once.
#[derive(Debug, Default)]
pub struct Joined {
    listed: RangeSet,
    /// What the first entry does not list.
    more: Vec<Extent>,
}

impl Joined {
    /// With the extents of the first entry.
    pub fn new(first: &[Extent]) -> Joined {
        let mut joined = Joined::default();
        joined.add(first);
        joined.more.clear();
        joined
    }

    /// Adds the extents of another entry. Returns the number of bytes that no entry had listed.
    pub fn add(&mut self, extents: &[Extent]) -> u64 {
        let mut new_bytes = 0;
        for extent in extents {
            for part in self.listed.insert_new(extent.range()) {
                let physical_bytes = extent.physical_bytes.map(|place| place + (part.start - extent.offset_bytes));
                let (offset_bytes, length_bytes) = (part.start, part.end - part.start);
                new_bytes += length_bytes;
                self.more.push(Extent { offset_bytes, length_bytes, physical_bytes, ..*extent });
            }
        }
        new_bytes
    }

    /// Whether the first entry lists everything.
    pub fn is_complete(&self) -> bool {
        self.more.is_empty()
    }

    /// Gives the first entry the extents of all, in order of first use, in a profile of this many runs.
    pub fn complete(&self, first: &mut File, total_runs: u32) {
        // It is one of other extents.
        first.content = None;
        first.extents = join_extents(&first.extents, &self.more, total_runs);
    }
}
