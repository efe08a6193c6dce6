//! What a policy may see.

use crate::{FileId, Folio, Page};

/// A read-only view of the page cache and what is around it, as it is at the moment of a call.
pub trait View {
    /// Time since some beginning, nanoseconds.
    fn now_ns(&self) -> u64;

    /// Length of a file in pages, the last one may be a part.
    fn file_pages(&self, file: FileId) -> u64;

    /// Whether a page is cached, or on its way.
    fn is_present(&self, file: FileId, page: Page) -> bool;

    /// Whether a page is on its way.
    fn is_locked(&self, file: FileId, page: Page) -> bool;

    /// What a cached page is a part of; `None`: it is not cached.
    fn folio(&self, file: FileId, page: Page) -> Option<Folio> {
        self.is_present(file, page).then(|| Folio::single(page))
    }

    /// The folio that an absent page was evicted with, where reclaim has left a note of that in its place (Linux's
    /// shadow entries); `None`: it is cached, or there is no such note.
    fn evicted(&self, _file: FileId, _page: Page) -> Option<Folio> {
        None
    }

    /// The first page from `page` on, among `most`, that is not cached.
    fn next_absent(&self, file: FileId, page: Page, most: u64) -> Option<Page> {
        (page..page.saturating_add(most)).find(|page| !self.is_present(file, *page))
    }

    /// How many pages right before `page` are cached, at most `most`.
    fn present_before(&self, file: FileId, page: Page, most: u64) -> u64 {
        let first = page.saturating_sub(most);
        (first..page).rev().take_while(|before| self.is_present(file, *before)).count() as u64
    }

    /// How many of these pages are not cached.
    fn absent(&self, file: FileId, first: Page, pages: u64) -> u64 {
        (first..first.saturating_add(pages)).filter(|page| !self.is_present(file, *page)).count() as u64
    }

    /// The settings of the disk under a file.
    fn limits(&self, file: FileId) -> Limits;

    /// The machine's memory.
    fn memory(&self) -> Memory;

    /// The disk's queue.
    fn queue(&self, file: FileId) -> Queue;
}

/// The settings of a disk, in pages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    /// Largest window: `read_ahead_kb` (`bdi->ra_pages`).
    pub window_pages: u64,
    /// Largest request: `max_sectors_kb` (`bdi->io_pages`).
    pub request_pages: u64,
    /// Largest folio that the file system takes, as a power of two; 0: it takes single pages alone.
    pub folio_order: u8,
}

/// The memory that the page cache has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Memory {
    /// Pages that are in no use.
    pub free_pages: u64,
    /// Pages on the inactive list: those that were used once or not at all.
    pub inactive_pages: u64,
    /// Pages on the active list.
    pub active_pages: u64,
    /// How many pages were added to the inactive list, since some beginning.
    pub added_pages: u64,
}

/// The queue of a disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Queue {
    /// Requests that fit.
    pub limit: u32,
    /// Requests that are in it or being served.
    pub requests: u32,
}

impl Queue {
    /// Whether it is so full that read-ahead should stay away: from seven eighths on, as in Linux 2.6
    /// (`queue_congestion_on_threshold` in block/ll_rw_blk.c).
    pub fn is_congested(&self) -> bool {
        self.requests > self.limit - self.limit / 8
    }
}
