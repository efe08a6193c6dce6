//! The accesses and events that a policy receives.

/// A page of a file, counted from its beginning.
pub type Page = u64;

/// A file, shared by all its openings.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FileId(pub u32);

/// One opening of a file: what Linux keeps its read-ahead state for (`struct file`). Numbers are small and used again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OpenId(pub u32);

/// A group of pages that is cached as one: `1 << order` pages from `first` on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Folio {
    /// Its first page, a multiple of its length.
    pub first: Page,
    /// Its length as a power of two.
    pub order: u8,
}

impl Folio {
    /// How many pages it has.
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

/// How a page is touched.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum By {
    /// By a call that reads: `read`, `pread`, io_uring.
    #[default]
    Read,
    /// By an access to mapped memory, with what was said of the mapping.
    Fault {
        /// The mapping's advice.
        advice: Advice,
        /// It wants huge pages (`MADV_HUGEPAGE`), whatever the advice.
        huge: bool,
        /// It holds a program (`VM_EXEC`).
        executable: bool,
        /// First page of the mapping.
        first: Page,
        /// One after the last page of the mapping.
        end: Page,
    },
}

/// What a program said of its use of a file or mapping (`posix_fadvise`, `madvise`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Advice {
    /// Nothing, or that there is nothing to say.
    #[default]
    Normal,
    /// It reads from front to back.
    Sequential,
    /// It reads here and there.
    Random,
}

/// How a touched page was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    /// It is not cached: a miss.
    Absent,
    /// It is on its way from the disk: the program will wait for it.
    Locked {
        /// It carries a mark, which this access takes away.
        marked: bool,
        /// What it is a part of.
        folio: Folio,
    },
    /// It is there.
    Present {
        /// It carries a mark, which this access takes away.
        marked: bool,
        /// What it is a part of.
        folio: Folio,
    },
}

impl Found {
    /// Whether the page carries the mark of a policy.
    pub fn is_marked(self) -> bool {
        matches!(self, Found::Locked { marked: true, .. } | Found::Present { marked: true, .. })
    }

    /// Whether the page is on its way.
    pub fn is_locked(self) -> bool {
        matches!(self, Found::Locked { .. })
    }
}

/// The call that an access belongs to. Of a fault: the page itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Call {
    /// Where it began.
    pub offset_bytes: u64,
    /// What it asked for, within the file.
    pub length_bytes: u64,
}

/// A program touches a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Access {
    /// By which opening.
    pub open: OpenId,
    /// Of which file.
    pub file: FileId,
    /// Through a call or a mapping.
    pub by: By,
    /// The page.
    pub page: Page,
    /// Pages that the call still wants, this one included; it may want more than the file has.
    pub wanted: u64,
    /// The whole call.
    pub call: Call,
    /// It is the first page of the call.
    pub begins: bool,
    /// How it was found.
    pub found: Found,
}

impl Access {
    /// A read of `wanted` pages from `page` on, by the one opening of the one file: for examples and tests.
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

    /// A fault of a mapping of the whole file, likewise.
    pub fn fault(page: Page, file_pages: u64, found: Found) -> Access {
        let by = By::Fault { advice: Advice::Normal, huge: false, executable: false, first: 0, end: file_pages };
        Access { by, ..Access::read(page, 1, found) }
    }

    /// One after the last page that the call wants.
    pub fn end(&self) -> Page {
        self.page.saturating_add(self.wanted)
    }
}

/// Bytes of a page. Policies count pages; kernels with other page sizes scale their limits.
pub use ahead_model::PAGE_BYTES;

/// What happens besides accesses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// A file was opened.
    Opened {
        /// The new opening.
        open: OpenId,
        /// Of this file.
        file: FileId,
    },
    /// An opening is closed; its number may be given out again.
    Closed {
        /// The opening.
        open: OpenId,
    },
    /// The file position was set (`lseek`), be it to where it was.
    Sought {
        /// Of this opening.
        open: OpenId,
        /// Of this file.
        file: FileId,
        /// To here, bytes.
        offset_bytes: u64,
    },
    /// `posix_fadvise` with advice on the whole file.
    Advised {
        /// On this opening.
        open: OpenId,
        /// Of this file.
        file: FileId,
        /// What.
        advice: Advice,
    },
    /// A range was asked for explicitly (`POSIX_FADV_WILLNEED`, `readahead`).
    WillNeed {
        /// Through this opening.
        open: OpenId,
        /// Of this file.
        file: FileId,
        /// From this page on.
        first: Page,
        /// Number of pages.
        pages: u64,
    },
    /// A program had to wait for a page.
    Waited {
        /// By this opening.
        open: OpenId,
        /// Of this file.
        file: FileId,
        /// For this page.
        page: Page,
        /// So long.
        wait_ns: u64,
    },
    /// Pages have arrived from the disk.
    Arrived {
        /// Of this file.
        file: FileId,
        /// The first of them.
        first: Page,
        /// How many.
        pages: u64,
    },
    /// A page was evicted.
    Evicted {
        /// Of this file.
        file: FileId,
        /// The page.
        page: Page,
        /// No access touched it since it was read.
        unused: bool,
    },
    /// A fault mapped cached pages around it, too.
    Mapped {
        /// Through a mapping of this opening.
        open: OpenId,
        /// What was said of the mapping, and whether it holds a program.
        by: By,
        /// Of this file.
        file: FileId,
        /// The page that was touched.
        first: Page,
        /// How many in a row are mapped from it on, itself included.
        pages: u64,
        /// How many in a row are mapped before it.
        before: u64,
        /// How many were mapped by this fault, wherever.
        mapped: u64,
    },
    /// The queue was full, and the rest of a request was left out ([`crate::WhenFull::Drop`]).
    Dropped {
        /// On whose behalf it was asked for.
        open: OpenId,
        /// Of this file.
        file: FileId,
        /// The first page that was left out.
        first: Page,
        /// How many.
        pages: u64,
    },
}

/// The accesses and events that a policy receives besides absent and marked pages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Wants {
    /// The first page of each call, however it was found.
    pub calls: bool,
    /// Every page.
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
