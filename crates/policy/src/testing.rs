//! A simple page cache of one file, for examples and tests of policies.

use crate::{FileId, Folio, Found, Limits, Memory, Page, Queue, Request, View, folios};
use std::collections::{BTreeMap, BTreeSet};

/// The cached pages of one file.
#[derive(Clone, Debug)]
pub struct Cache {
    /// Length of the file.
    pub file_pages: u64,
    /// The disk's settings.
    pub limits: Limits,
    pub memory: Memory,
    pub queue: Queue,
    /// The time.
    pub now_ns: u64,
    present: BTreeMap<Page, Folio>,
    locked: BTreeSet<Page>,
    marked: BTreeSet<Page>,
}

impl Cache {
    /// An empty cache on a disk with this window.
    pub fn new(file_pages: u64, window_pages: u64) -> Cache {
        Cache {
            file_pages,
            limits: Limits { window_pages, request_pages: 1024, folio_order: 9 },
            memory: Memory { free_pages: 1 << 20, ..Memory::default() },
            queue: Queue { limit: 128, requests: 0 },
            now_ns: 0,
            present: BTreeMap::new(),
            locked: BTreeSet::new(),
            marked: BTreeSet::new(),
        }
    }

    /// Executes a request. Its pages arrive at once.
    pub fn fill(&mut self, request: &Request) {
        let present = &self.present;
        let is_present = |page| present.contains_key(&page);
        let made: Vec<_> = folios(request, self.limits.folio_order, self.file_pages, is_present).collect();
        for (folio, marked) in made {
            self.present.extend(folio.range().map(|page| (page, folio)));
            if marked {
                self.marked.insert(folio.first);
            }
        }
    }

    /// Adds a cached folio without a mark.
    pub fn hold(&mut self, folio: Folio) {
        self.present.extend(folio.range().map(|page| (page, folio)));
    }

    /// Executes a request. Its pages stay in flight.
    pub fn start(&mut self, request: &Request) {
        let before: BTreeSet<Page> = self.present.keys().copied().collect();
        self.fill(request);
        self.locked.extend(self.present.keys().filter(|page| !before.contains(page)));
    }

    /// Lets all pages in flight arrive.
    pub fn arrive(&mut self) {
        self.locked.clear();
    }

    /// Evicts a page.
    pub fn evict(&mut self, page: Page) {
        self.present.remove(&page);
        self.locked.remove(&page);
    }

    /// The state of a page. Removes its mark.
    pub fn found(&mut self, page: Page) -> Found {
        match self.present.get(&page) {
            None => Found::Absent,
            Some(folio) => {
                let marked = self.marked.remove(&folio.first);
                if self.locked.contains(&page) {
                    Found::Locked { marked, folio: *folio }
                } else {
                    Found::Present { marked, folio: *folio }
                }
            }
        }
    }
}

impl View for Cache {
    fn now_ns(&self) -> u64 {
        self.now_ns
    }

    fn file_pages(&self, _file: FileId) -> u64 {
        self.file_pages
    }

    fn is_present(&self, _file: FileId, page: Page) -> bool {
        self.present.contains_key(&page)
    }

    fn is_locked(&self, _file: FileId, page: Page) -> bool {
        self.locked.contains(&page)
    }

    fn folio(&self, _file: FileId, page: Page) -> Option<Folio> {
        self.present.get(&page).copied()
    }

    fn limits(&self, _file: FileId) -> Limits {
        self.limits
    }

    fn memory(&self) -> Memory {
        self.memory
    }

    fn queue(&self, _file: FileId) -> Queue {
        self.queue
    }
}
