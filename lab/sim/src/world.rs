//! The state of the machine that a policy sees: cache, memory, queue and time.

use crate::cache::Cache;
use crate::layout::{Block, FileLayout, Place};
use crate::queue::Queue;
use ahead_policy::{FileId, Folio, Found, Limits, Memory, Page, View};

/// The disk itself as a file. Its pages are the blocks without file data, as in the page cache of a block device.
pub const METADATA: FileId = FileId(u32::MAX);

/// The machine without its processes.
#[derive(Debug)]
pub struct World {
    /// The current time.
    pub now_ns: u64,
    /// The files on the disk.
    pub files: Vec<FileLayout>,
    /// The page cache.
    pub cache: Cache,
    /// The disk's queue.
    pub queue: Queue,
    /// The disk's settings.
    pub limits: Limits,
}

impl World {
    /// The place of a page on the disk. A page of [`METADATA`] is its block.
    pub fn place(&self, file: FileId, page: Page) -> Place {
        match file {
            METADATA => Place { block: page, pages: u64::MAX },
            file => self.layout(file).place(page),
        }
    }

    /// The first block that must be read, or is in flight, before a page can be found.
    pub fn next_pointer(&self, file: FileId, page: Page) -> Option<Block> {
        let is_there = |block: &Block| matches!(self.cache.found(METADATA, *block), Found::Present { .. });
        self.layout(file).pointers(page).find(|block| !is_there(block))
    }

    /// Extends a file to at least this number of pages.
    pub(crate) fn grow(&mut self, file: FileId, pages: u64) {
        if let Some(layout) = self.files.get_mut(file.0 as usize) {
            layout.pages = layout.pages.max(pages);
        }
    }

    pub(crate) fn layout(&self, file: FileId) -> FileLayout {
        self.files.get(file.0 as usize).copied().unwrap_or(FileLayout::in_one_piece(0, 0))
    }
}

impl View for World {
    fn now_ns(&self) -> u64 {
        self.now_ns
    }

    fn file_pages(&self, file: FileId) -> u64 {
        self.layout(file).pages
    }

    fn is_present(&self, file: FileId, page: Page) -> bool {
        self.cache.is_present(file, page)
    }

    fn is_locked(&self, file: FileId, page: Page) -> bool {
        self.cache.is_locked(file, page)
    }

    fn folio(&self, file: FileId, page: Page) -> Option<Folio> {
        match self.cache.found(file, page) {
            Found::Absent => None,
            Found::Locked { folio, .. } | Found::Present { folio, .. } => Some(folio),
        }
    }

    fn next_absent(&self, file: FileId, page: Page, most: u64) -> Option<Page> {
        self.cache.next_absent(file, page, most)
    }

    fn present_before(&self, file: FileId, page: Page, most: u64) -> u64 {
        self.cache.present_before(file, page, most)
    }

    fn absent(&self, file: FileId, first: Page, pages: u64) -> u64 {
        self.cache.absent(file, first, pages)
    }

    fn limits(&self, _file: FileId) -> Limits {
        self.limits
    }

    fn memory(&self) -> Memory {
        let cache = &self.cache;
        Memory {
            free_pages: cache.limit_pages().saturating_sub(cache.pages()),
            inactive_pages: cache.inactive_pages(),
            active_pages: cache.active_pages(),
            added_pages: cache.added_pages(),
        }
    }

    fn queue(&self, _file: FileId) -> ahead_policy::Queue {
        ahead_policy::Queue { limit: self.queue.limit(), requests: self.queue.requests() }
    }
}
