//! The records of a trace: all inputs of the kernel's read-ahead decisions, and their results.

use crate::{Advice, Page};
use serde::{Deserialize, Serialize};

/// The beginning of a trace.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Header {
    /// Release of the kernel that was observed (`uname -r`).
    pub kernel: String,
    /// Its architecture (`uname -m`).
    pub machine: String,
    /// Page size, bytes.
    pub page_bytes: u32,
    /// The recorded program with its arguments.
    pub command: Vec<String>,
}

/// The end of a trace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Trailer {
    pub records: u64,
    /// Events lost because the observer's buffer was full. A trace with losses is no evidence.
    pub lost: u64,
}

/// Flag of an advice: the range of memory has more than one mapping, so its pages are unknown.
pub const SPANNING: u32 = 0x100;

/// A record. Files and open files are numbered in the order in which they were first seen.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// Microseconds since the previous record.
    pub after_us: u64,
    /// The thread.
    pub task: u32,
    pub event: Event,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Event {
    /// A file is seen for the first time.
    File(FileSeen),
    /// A file was opened.
    Opened(Use),
    /// A read call begins.
    Read {
        /// The open file before the call.
        by: Use,
        /// Start offset, bytes.
        offset_bytes: u64,
        length_bytes: u64,
        /// `RWF_` flags of preadv2.
        flags: u32,
        /// Whether the arguments do not determine the pages (sendfile, splice).
        is_other: bool,
    },
    /// The read call ends: bytes read, or a negative error number.
    ReadEnd(i64),
    /// A read missed a page (`page_cache_sync_ra`).
    Sync(Asked),
    /// A marked page was accessed (`page_cache_async_ra`).
    Async(Asked),
    /// A window is requested (`page_cache_ra_order`).
    Window(Window),
    /// Exactly these pages are requested (`page_cache_ra_unbounded`).
    Exact(Exact),
    /// A mapping was accessed at a page that is not mapped (`mm_filemap_fault`).
    Fault {
        /// The open file before the fault; if the mapping is unknown, only its file is valid.
        by: Use,
        page: Page,
        /// The mapping of the page; `None`: it was not found.
        mapping: Option<Mapping>,
    },
    /// A fault mapped the cached pages around it (`mm_filemap_map_pages`).
    Around { file: u32, first: Page, last: Page },
    /// A folio was added to the page cache.
    Added(Cached),
    /// A folio was removed from the page cache.
    Removed(Cached),
    /// Advice was given (`posix_fadvise`, `readahead`, `madvise(MADV_WILLNEED)`).
    Advice {
        /// The open file before the call.
        by: Use,
        /// `POSIX_FADV_…`; with [`SPANNING`]: the range has several mappings, and this is the first.
        advice: u32,
        /// Start offset, bytes.
        offset_bytes: u64,
        /// Length, bytes; 0: to the end.
        length_bytes: u64,
    },
    /// A folio was written to. It loses its marker, now or when its writeback ends.
    Dirtied(Cached),
    /// The read call begins at this offset, bytes: its offset was unknown at first, because it had to wait for another call on
    /// the same open file.
    ReadAt(u64),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileSeen {
    /// Its number in the trace.
    pub file: u32,
    /// Device number in the kernel's encoding.
    pub device: u32,
    pub inode: u64,
    /// Pages that were cached already; which ones, and in what folios, is unknown.
    pub cached_pages: u64,
    /// Largest folio of its file system, as a power of two.
    pub folio_order: u8,
    /// Smallest folio, as a power of two.
    pub least_order: u8,
}

/// An open file, with all inputs of a decision.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Use {
    /// Number of the open file in the trace.
    pub open: u32,
    pub file: u32,
    /// The file's length, bytes.
    pub file_bytes: u64,
    /// The disk's window (`read_ahead_kb`), pages.
    pub disk_window: u32,
    /// The disk's largest request (`io_pages`).
    pub disk_request: u32,
    /// `struct file_ra_state`.
    pub state: RaState,
}

/// `struct file_ra_state`, and `FMODE_RANDOM`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RaState {
    /// Start of the newest window.
    pub start: Page,
    /// Its length, pages.
    pub size: u32,
    /// When this many pages are left, the next window is requested.
    pub async_size: u32,
    /// Largest window of this open file, pages.
    pub window: u32,
    /// Folio size, as a power of two.
    pub order: u16,
    /// Faults that missed minus faults that hit.
    pub mmap_miss: u16,
    /// End of the last read, bytes.
    pub prev_pos: i64,
    /// `POSIX_FADV_RANDOM`.
    pub random: bool,
}

/// The input of a decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Asked {
    /// The open file before the decision.
    pub by: Use,
    pub page: Page,
    /// Number of pages requested.
    pub wanted: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Window {
    pub first: Page,
    /// Length, pages.
    pub size: u64,
    /// Distance of the marker from the end, pages.
    pub async_size: u64,
    /// Folio size, as a power of two.
    pub order: u16,
}

/// Pages that are read exactly as requested.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Exact {
    pub first: Page,
    pub pages: u64,
    /// Distance of the marker from the end, pages; 0: no marker.
    pub look_ahead: u64,
}

/// A memory mapping of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mapping {
    /// First page of the file.
    pub first: Page,
    /// Page after the last one.
    pub end: Page,
    /// `vm_flags`, the lower 32 bits.
    pub flags: u32,
}

/// Flag of `vm_flags` (include/linux/mm.h): the mapping holds program code.
pub const VM_EXEC: u32 = 0x4;
/// Flag of `vm_flags`: madvise(2) announced sequential access.
pub const VM_SEQ_READ: u32 = 0x8000;
/// Flag of `vm_flags`: madvise(2) announced random access.
pub const VM_RAND_READ: u32 = 0x1_0000;
/// Flag of `vm_flags`: madvise(2) asked for huge pages.
const VM_HUGEPAGE: u32 = 0x2000_0000;

impl Mapping {
    /// The access pattern announced by madvise(2).
    pub fn advice(&self) -> Advice {
        if self.flags & VM_RAND_READ != 0 {
            Advice::Random
        } else if self.flags & VM_SEQ_READ != 0 {
            Advice::Sequential
        } else {
            Advice::Normal
        }
    }

    /// Whether huge pages were requested.
    pub fn is_huge(&self) -> bool {
        self.flags & VM_HUGEPAGE != 0
    }

    /// Whether it holds program code.
    pub fn is_executable(&self) -> bool {
        self.flags & VM_EXEC != 0
    }
}

/// A folio.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cached {
    pub file: u32,
    pub first: Page,
    /// Length as a power of two.
    pub order: u8,
    /// Added: by a thread whose decisions are recorded. Removed: by memory reclaim.
    pub special: bool,
}

/// Limit of page numbers: a file has at most 2^63 bytes.
const MOST_PAGE: Page = 1 << 51;
/// Maximum size of a folio as a power of two (`MAX_XAS_ORDER`: two levels of the cache's tree).
const MOST_ORDER: u8 = 11;

/// Maximum length of a window or request: 256 MiB, more than any usual setting. Unit: pages.
const MOST_WINDOW: u32 = 1 << 16;
/// Maximum length of a read call (`MAX_RW_COUNT`). Unit: bytes.
pub const MOST_READ: u64 = 0x7fff_f000;

/// Verifies that each record can follow those before it: files are numbered in order, pages and folios exist.
#[derive(Debug, Default)]
pub struct Validator {
    files: u32,
}

impl Validator {
    /// Verifies the next record.
    ///
    /// Errors: the problem of the record.
    pub fn check(&mut self, record: &Record) -> Result<(), &'static str> {
        match &record.event {
            Event::File(seen) if seen.file != self.files => return Err("a file whose number is not the next one"),
            Event::File(seen) => {
                self.files += 1;
                self.is_order(seen.folio_order.max(seen.least_order))?;
            }
            Event::Opened(by) => self.is_use(by)?,
            Event::Read { by, .. } | Event::Advice { by, .. } => self.is_use(by)?,
            Event::Sync(asked) | Event::Async(asked) => {
                self.is_use(&asked.by)?;
                self.are_pages(asked.page, asked.wanted)?;
            }
            Event::Window(window) => self.are_pages(window.first, window.size)?,
            Event::Exact(exact) => self.are_pages(exact.first, exact.pages)?,
            Event::Fault { by, page, mapping } => {
                self.is_use(by)?;
                self.are_pages(*page, 1)?;
                if let Some(mapping) = mapping {
                    self.are_pages(
                        mapping.first,
                        mapping.end.checked_sub(mapping.first).ok_or("a mapping without pages")?,
                    )?;
                }
            }
            Event::Around { file, first, last } => {
                self.is_file(*file)?;
                self.are_pages(*first, last.checked_sub(*first).ok_or("a range without pages")?.saturating_add(1))?;
                if last - first >= 1 << MOST_ORDER {
                    return Err("a range around a fault that is too large");
                }
            }
            Event::Added(cached) | Event::Removed(cached) | Event::Dirtied(cached) => {
                self.is_file(cached.file)?;
                self.is_order(cached.order)?;
                self.are_pages(cached.first, 1 << cached.order)?;
                if cached.first & ((1 << cached.order) - 1) != 0 {
                    return Err("a folio that is not aligned");
                }
            }
            Event::ReadEnd(result) if *result > MOST_READ as i64 => return Err("a read that is too long"),
            Event::ReadEnd(_) | Event::ReadAt(_) => {}
        }
        Ok(())
    }

    fn is_file(&self, file: u32) -> Result<(), &'static str> {
        if file < self.files { Ok(()) } else { Err("a file that was never seen") }
    }

    fn is_use(&self, by: &Use) -> Result<(), &'static str> {
        self.is_file(by.file)?;
        if by.disk_window.max(by.disk_request).max(by.state.window).max(by.state.size) > MOST_WINDOW {
            return Err("a window that is too large");
        }
        self.are_pages(by.state.start, by.state.size.into())
    }

    fn is_order(&self, order: u8) -> Result<(), &'static str> {
        if order <= MOST_ORDER { Ok(()) } else { Err("a folio that is too large") }
    }

    fn are_pages(&self, first: Page, pages: u64) -> Result<(), &'static str> {
        match first.checked_add(pages) {
            Some(end) if end <= MOST_PAGE + (1 << 20) => Ok(()),
            _ => Err("a page beyond the end of any file"),
        }
    }
}
