//! A policy's view of the real machine.

use crate::bench::live::book::{Book, index};
use ahead_policy::{FileId, Folio, Limits, Memory, PAGE_BYTES, Page, Queue, View};
use ahead_sys::{machine, memory};
use std::cell::Cell;
use std::time::{Duration, Instant};

/// Interval of reading the memory's counters: reading them costs about 20 us, and they change slowly.
const MEMORY_AGE: Duration = Duration::from_millis(100);

/// The state of files, queue, memory and time.
#[derive(Debug)]
pub(crate) struct World {
    began: Instant,
    /// By number of the file; `None`: the file is not open.
    pub books: Vec<Option<Book>>,
    pub queue: Queue,
    /// Pages that the engine has brought into the cache.
    pub added_pages: u64,
    memory: Cell<Option<(Instant, Memory)>>,
}

impl World {
    pub fn new(queue_limit: u32) -> World {
        let queue = Queue { limit: queue_limit, requests: 0 };
        World { began: Instant::now(), books: Vec::new(), queue, added_pages: 0, memory: Cell::new(None) }
    }

    /// The book of an open file.
    pub fn book(&self, file: FileId) -> Option<&Book> {
        self.books.get(index(file))?.as_ref()
    }

    pub fn book_mut(&mut self, file: FileId) -> Option<&mut Book> {
        self.books.get_mut(index(file))?.as_mut()
    }
}

/// Free memory and the lists of the page cache, within the limits of our control groups. A value that cannot be read is 0; a
/// policy that uses it then reads ahead little.
fn look_at_memory() -> Memory {
    let pages = |key: &str| machine::meminfo_bytes(key).unwrap_or(0) / PAGE_BYTES;
    let available = memory::available_bytes().unwrap_or(0) / PAGE_BYTES;
    Memory {
        free_pages: pages("MemFree").min(available),
        inactive_pages: pages("Inactive(file)").min(available),
        active_pages: pages("Active(file)").min(available),
        added_pages: 0,
    }
}

impl View for World {
    fn now_ns(&self) -> u64 {
        self.began.elapsed().as_nanos() as u64
    }

    fn file_pages(&self, file: FileId) -> u64 {
        self.book(file).map_or(0, Book::file_pages)
    }

    fn is_present(&self, file: FileId, page: Page) -> bool {
        self.book(file).is_some_and(|book| book.is_present(page))
    }

    fn is_locked(&self, file: FileId, page: Page) -> bool {
        self.book(file).is_some_and(|book| book.is_locked(page))
    }

    fn folio(&self, file: FileId, page: Page) -> Option<Folio> {
        self.book(file)?.folio(page)
    }

    fn limits(&self, file: FileId) -> Limits {
        self.book(file).map_or(Limits::default(), |book| book.limits)
    }

    fn memory(&self) -> Memory {
        let now = Instant::now();
        let known = self.memory.get().filter(|(at, _)| now - *at < MEMORY_AGE);
        let (_, memory) = known.unwrap_or_else(|| (now, look_at_memory()));
        if known.is_none() {
            self.memory.set(Some((now, memory)));
        }
        Memory { added_pages: self.added_pages, ..memory }
    }

    fn queue(&self, _file: FileId) -> Queue {
        self.queue
    }
}
