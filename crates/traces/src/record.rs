//! What a trace holds: everything that a decision of the kernel depends on, and what came of it.

use ahead_policy::{Advice, Page};
use serde::{Deserialize, Serialize};

/// How a trace begins.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Header {
    /// Release of the kernel that was observed (`uname -r`).
    pub kernel: String,
    /// Its architecture (`uname -m`).
    pub machine: String,
    /// Bytes of a page.
    pub page_bytes: u32,
    /// The program that was run, with its arguments.
    pub command: Vec<String>,
}

/// How a trace ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Trailer {
    /// How many records it has.
    pub records: u64,
    /// Events that did not fit into the observer's buffer. A trace with losses proves nothing.
    pub lost: u64,
}

/// Advice on a range of memory with more than one mapping: which pages it asks for is not told.
pub const SPANNING: u32 = 0x100;

/// Something that happened. Files and open files are numbered in the order in which they were first seen.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// Microseconds since the record before.
    pub after_us: u64,
    /// The thread.
    pub task: u32,
    /// What.
    pub event: Event,
}

/// What happened.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Event {
    /// A file is seen for the first time.
    File(FileSeen),
    /// A file was opened.
    Opened(Use),
    /// A call that reads begins.
    Read {
        /// The open file, as it was before.
        by: Use,
        /// From here on, bytes.
        offset_bytes: u64,
        /// So much.
        length_bytes: u64,
        /// `RWF_` flags of preadv2.
        flags: u32,
        /// Which pages it reads is not told by its arguments (sendfile, splice).
        is_other: bool,
    },
    /// It ends, and gave so many bytes, or an error number below 0.
    ReadEnd(i64),
    /// A read has missed (`page_cache_sync_ra`).
    Sync(Asked),
    /// A marked page was touched (`page_cache_async_ra`).
    Async(Asked),
    /// A window is asked for (`page_cache_ra_order`).
    Window(Window),
    /// These pages are asked for (`page_cache_ra_unbounded`).
    Exact(Exact),
    /// A mapping was touched where no page is mapped (`mm_filemap_fault`).
    Fault {
        /// The open file, as it was before; only its file is true if the mapping is not known.
        by: Use,
        /// The page.
        page: Page,
        /// What the page belongs to; `None`: it was not found.
        mapping: Option<Mapping>,
    },
    /// A fault mapped what was cached around it (`mm_filemap_map_pages`).
    Around {
        /// Of this file.
        file: u32,
        /// From this page on,
        first: Page,
        /// to this one.
        last: Page,
    },
    /// A folio is cached from now on.
    Added(Cached),
    /// It is not any more.
    Removed(Cached),
    /// Advice was given (`posix_fadvise`, `readahead`, `madvise(MADV_WILLNEED)`).
    Advice {
        /// On this open file, as it was before.
        by: Use,
        /// `POSIX_FADV_…`; [`SPANNING`] with it: a range of several mappings, of which this is the first.
        advice: u32,
        /// From here on, bytes.
        offset_bytes: u64,
        /// So much; 0: to the end.
        length_bytes: u64,
    },
    /// A folio was written to: it loses its mark, now or when its writing ends.
    Dirtied(Cached),
    /// The call that reads begins here after all, bytes: it named no offset, and had to wait for another one through the same open
    /// file. Since version 2.
    ReadAt(u64),
}

/// A file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileSeen {
    /// Its number in the trace.
    pub file: u32,
    /// Device, as the kernel numbers it.
    pub device: u32,
    /// Inode number.
    pub inode: u64,
    /// Pages that were cached already: which, and in what folios, is not known.
    pub cached_pages: u64,
    /// Largest folio that its file system takes, as a power of two.
    pub folio_order: u8,
    /// Smallest one.
    pub least_order: u8,
}

/// An open file, with all that a decision depends on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Use {
    /// The open file's number in the trace.
    pub open: u32,
    /// Its file.
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
    /// Where the newest window begins.
    pub start: Page,
    /// Its length, pages.
    pub size: u32,
    /// With so many pages left the next one is due.
    pub async_size: u32,
    /// Largest window of this open file, pages.
    pub window: u32,
    /// Folio size, as a power of two.
    pub order: u16,
    /// Faults that missed, less those that hit.
    pub mmap_miss: u16,
    /// Where the last read ended, bytes.
    pub prev_pos: i64,
    /// `POSIX_FADV_RANDOM`.
    pub random: bool,
}

/// Where a decision begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Asked {
    /// The open file, as it was before.
    pub by: Use,
    /// The page.
    pub page: Page,
    /// How many are wanted.
    pub wanted: u64,
}

/// A window.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Window {
    /// First page.
    pub first: Page,
    /// Length, pages.
    pub size: u64,
    /// So many pages from its end the mark is due.
    pub async_size: u64,
    /// Folio size, as a power of two.
    pub order: u16,
}

/// Pages that are read as they are asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Exact {
    /// First page.
    pub first: Page,
    /// How many.
    pub pages: u64,
    /// So many pages from the end a mark is due; 0: none.
    pub look_ahead: u64,
}

/// A part of memory that a file is mapped to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mapping {
    /// Its first page of the file.
    pub first: Page,
    /// One after its last.
    pub end: Page,
    /// `vm_flags`, the lower half.
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
    /// How it was said to be used.
    pub fn advice(&self) -> Advice {
        if self.flags & VM_RAND_READ != 0 {
            Advice::Random
        } else if self.flags & VM_SEQ_READ != 0 {
            Advice::Sequential
        } else {
            Advice::Normal
        }
    }

    /// It wants huge pages.
    pub fn is_huge(&self) -> bool {
        self.flags & VM_HUGEPAGE != 0
    }

    /// It holds a program.
    pub fn is_executable(&self) -> bool {
        self.flags & VM_EXEC != 0
    }
}

/// A folio.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cached {
    /// Of this file.
    pub file: u32,
    /// First page.
    pub first: Page,
    /// Length as a power of two.
    pub order: u8,
    /// Added: by a thread whose decisions are told. Removed: by one that frees memory.
    pub special: bool,
}

/// No page is beyond this: a file has at most 2^63 bytes.
const MOST_PAGE: Page = 1 << 51;
/// No folio is larger, as a power of two (`MAX_XAS_ORDER`: two levels of the cache's tree).
const MOST_ORDER: u8 = 11;

/// No window and no request is longer, pages: 256 MiB, as nobody sets it.
const MOST_WINDOW: u32 = 1 << 16;
/// A call reads no more at a time, bytes (`MAX_RW_COUNT`).
pub const MOST_READ: u64 = 0x7fff_f000;

/// Verifies that each record can follow those before it: files are numbered in order, pages and folios exist.
#[derive(Debug, Default)]
pub struct Validator {
    files: u32,
}

impl Validator {
    /// Verifies the next record.
    ///
    /// Errors: what is wrong with it.
    pub fn check(&mut self, record: &Record) -> Result<(), &'static str> {
        match &record.event {
            Event::File(seen) if seen.file != self.files => return Err("a file with another number than the next"),
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
                    return Err("a range around a fault that is larger than any");
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
            Event::ReadEnd(result) if *result > MOST_READ as i64 => return Err("a read longer than any"),
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
            return Err("a window larger than any");
        }
        self.are_pages(by.state.start, by.state.size.into())
    }

    fn is_order(&self, order: u8) -> Result<(), &'static str> {
        if order <= MOST_ORDER { Ok(()) } else { Err("a folio larger than any") }
    }

    fn are_pages(&self, first: Page, pages: u64) -> Result<(), &'static str> {
        match first.checked_add(pages) {
            Some(end) if end <= MOST_PAGE + (1 << 20) => Ok(()),
            _ => Err("a page beyond the end of any file"),
        }
    }
}
