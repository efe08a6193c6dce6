//! The accesses and events that a policy receives.

use serde::{Deserialize, Serialize};

/// A page of a file, counted from its beginning.
pub type Page = u64;

/// A file, shared by all its open files.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FileId(pub u32);

/// An open file (`struct file`), for which Linux keeps the read-ahead state. Numbers are small and are reused.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OpenId(pub u32);

/// A folio, a group of pages that is cached as a unit: `1 << order` pages from `first` on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Folio {
    /// Its first page, a multiple of its length.
    pub first: Page,
    /// Its length as a power of two.
    pub order: u8,
}

impl Folio {
    pub fn pages(&self) -> u64 {
        1 << self.order
    }

    /// Its pages.
    pub fn range(&self) -> std::ops::Range<Page> {
        self.first..self.first + self.pages()
    }

    /// A single page.
    pub fn single(page: Page) -> Folio {
        Folio { first: page, order: 0 }
    }
}

/// The kind of an access.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum By {
    /// A call that reads: `read`, `pread`, io_uring.
    #[default]
    Read,
    /// An access to mapped memory, with the properties of the mapping.
    Fault {
        /// The mapping's advice.
        advice: Advice,
        /// Whether it has `MADV_HUGEPAGE`, in addition to the advice.
        huge: bool,
        /// Whether it is executable (`VM_EXEC`).
        executable: bool,
        /// First page of the mapping.
        first: Page,
        /// One after the last page of the mapping.
        end: Page,
    },
}

/// A program's advice on its use of a file or mapping (`posix_fadvise`, `madvise`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Advice {
    /// No advice, or `NORMAL`.
    #[default]
    Normal,
    /// `SEQUENTIAL`: it reads in ascending order.
    Sequential,
    /// `RANDOM`: it reads in random order.
    Random,
}

/// The state of an accessed page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    /// Not cached: a miss.
    Absent,
    /// In flight: the program will wait for it.
    Locked {
        /// Whether it has a mark, which this access removes.
        marked: bool,
        folio: Folio,
    },
    /// Cached.
    Present {
        /// Whether it has a mark, which this access removes.
        marked: bool,
        folio: Folio,
    },
}

impl Found {
    /// Whether the page has the mark of a policy.
    pub fn is_marked(self) -> bool {
        matches!(self, Found::Locked { marked: true, .. } | Found::Present { marked: true, .. })
    }

    /// Whether the page is in flight.
    pub fn is_locked(self) -> bool {
        matches!(self, Found::Locked { .. })
    }
}

/// The call of an access. For a fault: the page itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Call {
    /// Its file offset.
    pub offset_bytes: u64,
    /// Its length within the file.
    pub length_bytes: u64,
}

/// An access of a program to a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Access {
    /// The open file.
    pub open: OpenId,
    pub file: FileId,
    /// A call or a fault.
    pub by: By,
    pub page: Page,
    /// Remaining pages of the call, including this one; may extend beyond the end of the file.
    pub wanted: u64,
    /// The whole call.
    pub call: Call,
    /// Whether it is the first page of the call.
    pub begins: bool,
    /// The state of the page.
    pub found: Found,
}

impl Access {
    /// A read of `wanted` pages from `page` on, of a single file that is open once; for examples and tests.
    pub fn read(page: Page, wanted: u64, found: Found) -> Access {
        Access {
            open: OpenId(0),
            file: FileId(0),
            by: By::Read,
            page,
            wanted,
            call: Call { offset_bytes: page * PAGE_BYTES, length_bytes: wanted * PAGE_BYTES },
            begins: true,
            found,
        }
    }

    /// A fault of a mapping of the whole file; the file is open once.
    pub fn fault(page: Page, file_pages: u64, found: Found) -> Access {
        let by = By::Fault { advice: Advice::Normal, huge: false, executable: false, first: 0, end: file_pages };
        Access { by, ..Access::read(page, 1, found) }
    }

    /// The page after the last page of the call.
    pub fn end(&self) -> Page {
        self.page.saturating_add(self.wanted)
    }
}

/// Bytes of a page. Policies count pages; kernels with other page sizes scale their limits.
pub use ahead_model::PAGE_BYTES;

/// An event other than an access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// A file was opened.
    Opened {
        /// The new open file.
        open: OpenId,
        file: FileId,
    },
    /// An open file is closed. Its number may be reused.
    Closed {
        /// The open file.
        open: OpenId,
    },
    /// The file position was set (`lseek`), perhaps to the same value.
    Sought {
        /// The open file.
        open: OpenId,
        file: FileId,
        /// The new position, bytes.
        offset_bytes: u64,
    },
    /// `posix_fadvise` with advice on the whole file.
    Advised {
        /// The open file.
        open: OpenId,
        file: FileId,
        advice: Advice,
    },
    /// A range was requested explicitly (`POSIX_FADV_WILLNEED`, `readahead`).
    WillNeed {
        /// The open file.
        open: OpenId,
        file: FileId,
        first: Page,
        pages: u64,
    },
    /// A program had to wait for a page.
    Waited {
        /// The open file.
        open: OpenId,
        file: FileId,
        page: Page,
        /// The duration, nanoseconds.
        wait_ns: u64,
    },
    /// Pages have arrived from the disk.
    Arrived { file: FileId, first: Page, pages: u64 },
    /// A page was evicted.
    Evicted {
        file: FileId,
        page: Page,
        /// Whether no access used it since it was read.
        unused: bool,
    },
    /// A fault also mapped the cached pages around its page.
    Mapped {
        /// The open file of the mapping.
        open: OpenId,
        /// The properties of the mapping.
        by: By,
        file: FileId,
        /// The accessed page.
        first: Page,
        /// Number of consecutive mapped pages from it on, including itself.
        pages: u64,
        /// Number of consecutive mapped pages before it.
        before: u64,
        /// Number of pages that this fault mapped.
        mapped: u64,
    },
    /// The queue was full, and the rest of a request was dropped ([`crate::WhenFull::Drop`]).
    Dropped {
        /// The open file of the access that caused the request.
        open: OpenId,
        file: FileId,
        /// The first dropped page.
        first: Page,
        pages: u64,
    },
}

/// The accesses and events that a policy needs in addition to accesses to absent and marked pages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Wants {
    /// The first page of each call, in any state.
    pub calls: bool,
    /// Every accessed page.
    pub pages: bool,
    /// Every fault, and [`Event::Mapped`].
    pub faults: bool,
    /// [`Event::Waited`].
    pub waits: bool,
    /// [`Event::Arrived`].
    pub arrivals: bool,
    /// [`Event::Evicted`].
    pub evictions: bool,
}
