//! What a policy sees of the machine: cache, memory, queue and time.

use crate::cache::Cache;
use crate::queue::Queue;
use ahead_policy::{FileId, Folio, Found, Limits, Memory, Page, View};

/// A file on the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileLayout {
    /// Length, pages; the last one is whole.
    pub pages: u64,
    /// Where it begins on the disk, bytes. It lies there in one piece.
    pub offset_bytes: u64,
}

/// The machine without its processes.
#[derive(Debug)]
pub struct World {
    /// The time.
    pub now_ns: u64,
    /// Its files.
    pub files: Vec<FileLayout>,
    /// The page cache.
    pub cache: Cache,
    /// The disk's queue.
    pub queue: Queue,
    /// The disk's settings.
    pub limits: Limits,
}

impl World {
    /// Where a page lies on the disk.
    pub fn place_bytes(&self, file: FileId, page: Page) -> u64 {
        self.layout(file).offset_bytes + page * ahead_policy::PAGE_BYTES
    }

    fn layout(&self, file: FileId) -> FileLayout {
        self.files.get(file.0 as usize).copied().unwrap_or(FileLayout { pages: 0, offset_bytes: 0 })
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
