//! A policy's view of the machine.

use crate::{FileId, Folio, Page};

/// A read-only view of page cache, memory, disk and queue at the time of a call.
pub trait View {
    /// Time since an arbitrary start, nanoseconds.
    fn now_ns(&self) -> u64;

    /// Length of a file in pages, including a partial last one.
    fn file_pages(&self, file: FileId) -> u64;

    /// Whether a page is cached or in flight.
    fn is_present(&self, file: FileId, page: Page) -> bool;

    /// Whether a page is in flight.
    fn is_locked(&self, file: FileId, page: Page) -> bool;

    /// The folio of a cached page; `None`: it is not cached.
    fn folio(&self, file: FileId, page: Page) -> Option<Folio> {
        self.is_present(file, page).then(|| Folio::single(page))
    }

    /// The folio with which an absent page was evicted, if reclaim has left a shadow entry; `None`: the page is cached, or has no shadow
    /// entry.
    fn evicted(&self, _file: FileId, _page: Page) -> Option<Folio> {
        None
    }

    /// The first page from `page` on, among `most`, that is not cached.
    fn next_absent(&self, file: FileId, page: Page, most: u64) -> Option<Page> {
        (page..page.saturating_add(most)).find(|page| !self.is_present(file, *page))
    }

    /// Number of consecutive cached pages right before `page`, at most `most`.
    fn present_before(&self, file: FileId, page: Page, most: u64) -> u64 {
        let first = page.saturating_sub(most);
        (first..page).rev().take_while(|before| self.is_present(file, *before)).count() as u64
    }

    /// Number of these pages that are not cached.
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
    /// Largest folio of the file system, as a power of two; 0: single pages only.
    pub folio_order: u8,
}

/// The memory of the page cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Memory {
    pub free_pages: u64,
    /// Pages on the inactive list, which were used at most once.
    pub inactive_pages: u64,
    /// Pages on the active list.
    pub active_pages: u64,
    /// Number of pages added to the inactive list since an arbitrary start.
    pub added_pages: u64,
}

/// The queue of a disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Queue {
    /// Its length, requests.
    pub limit: u32,
    /// Requests that are queued or in service.
    pub requests: u32,
}

impl Queue {
    /// Whether it is congested, so that read-ahead should not add requests: from seven eighths on, as in Linux 2.6
    /// (`queue_congestion_on_threshold` in block/ll_rw_blk.c).
    pub fn is_congested(&self) -> bool {
        self.requests > self.limit - self.limit / 8
    }
}
