//! What was asked for goes to the disk: room in the queue, room in the cache, and what had to go for it.

use super::Machine;
use crate::cache::Evicted;
use crate::queue::{Added, Range};
use ahead_device::Op as DiskOp;
use ahead_policy::{Event, FileId, OpenId, PAGE_BYTES, Page, Request, View, WhenFull, folios};
use std::collections::VecDeque;

impl Machine {
    /// Asks the disk for pages, in their order; false if the queue was full before the last one, and the rest is to wait.
    pub(super) fn submit(&mut self, requests: &mut VecDeque<Request>, open: OpenId) -> bool {
        while let Some(request) = requests.front().copied() {
            let file_pages = self.world.file_pages(request.file);
            let end = request.first.saturating_add(request.pages).min(file_pages);
            let done =
                if request.order == 0 { self.submit_pages(&request, end) } else { self.submit_folios(&request, end) };
            match done {
                None => {
                    requests.pop_front();
                }
                Some(first) if request.when_full == WhenFull::Drop => {
                    requests.pop_front();
                    self.counters.dropped_pages += end - first;
                    self.tell(&Event::Dropped { open, file: request.file, first, pages: end - first });
                }
                Some(first) => {
                    if let Some(rest) = requests.front_mut() {
                        (rest.first, rest.pages) = (first, end - first);
                    }
                    return false;
                }
            }
        }
        true
    }

    /// Single pages; gives the first one for which there was no room.
    fn submit_pages(&mut self, request: &Request, end: Page) -> Option<Page> {
        let mut at = request.first;
        let longest = (self.world.queue.longest_bytes() / PAGE_BYTES).max(1);
        while at < end {
            let present = self.world.cache.next_absent(request.file, at, end - at).unwrap_or(end) - at;
            at += present;
            let run = (self.world.cache.next_present(request.file, at, end) - at).min(longest);
            if run == 0 {
                break;
            }
            if !self.send(request.file, at, run) {
                return Some(at);
            }
            self.world.cache.add_run(request.file, at, run);
            if let Some(mark) = request.mark.filter(|mark| (at..at + run).contains(mark)) {
                self.world.cache.mark(request.file, mark);
            }
            at += run;
        }
        None
    }

    fn submit_folios(&mut self, request: &Request, end: Page) -> Option<Page> {
        let (largest, file_pages) = (self.world.limits.folio_order, end);
        let cache = &self.world.cache;
        let is_present = |page| cache.is_present(request.file, page);
        let list: Vec<_> = folios(request, largest, file_pages, is_present).collect();
        for (folio, marked) in list {
            if !self.send(request.file, folio.first, folio.pages()) {
                return Some(folio.first);
            }
            self.world.cache.add(request.file, folio, marked);
        }
        None
    }

    /// Makes room for absent pages and asks the disk for them; false: the queue is full.
    fn send(&mut self, file: FileId, first: Page, pages: u64) -> bool {
        let (place_bytes, range) = (self.world.place_bytes(file, first), Range { file, first, pages });
        let longest_bytes = self.world.queue.longest_bytes();
        let now_ns = self.world.now_ns;
        // A folio may be longer than a request: it goes as several, and has to find room for all of them.
        let length_bytes = (pages * PAGE_BYTES).min(longest_bytes.max(PAGE_BYTES));
        let mut sent = 0;
        while sent < pages {
            let now_pages = (length_bytes / PAGE_BYTES).min(pages - sent);
            let part = Range { first: range.first + sent, pages: now_pages, ..range };
            let place_bytes = place_bytes + sent * PAGE_BYTES;
            match self.world.queue.add(DiskOp::Read, place_bytes, part, now_pages * PAGE_BYTES, now_ns) {
                Added::Full if sent == 0 => return false,
                Added::Full => {
                    self.world.queue.add_beyond(DiskOp::Read, place_bytes, part, now_pages * PAGE_BYTES, now_ns)
                }
                Added::Yes => {}
            }
            sent += now_pages;
        }
        self.make_room(pages);
        self.counters.issued_pages += pages;
        self.system(self.settings.costs.request_per_page_ns * pages as f64);
        true
    }

    fn make_room(&mut self, pages: u64) {
        let mut evicted = std::mem::take(&mut self.evicted);
        self.world.cache.make_room(pages, &mut evicted);
        for gone in evicted.drain(..) {
            if gone.unused {
                self.counters.wasted_pages += 1;
                self.remember(gone);
            } else if !self.ghosts.is_empty() {
                self.ghosts.remove(&(gone.file, gone.page));
            }
            if self.wants.evictions {
                self.tell(&Event::Evicted { file: gone.file, page: gone.page, unused: gone.unused });
            }
        }
        self.evicted = evicted;
    }

    /// Remembers what was evicted unused, as many pages as the cache may hold.
    fn remember(&mut self, gone: Evicted) {
        let (page, number) = ((gone.file, gone.page), self.counters.wasted_pages);
        self.ghosts.insert(page, number);
        self.ghosts_in_order.push_back((page, number));
        if self.ghosts_in_order.len() as u64 > self.world.cache.limit_pages()
            && let Some((oldest, number)) = self.ghosts_in_order.pop_front()
            && self.ghosts.get(&oldest) == Some(&number)
        {
            self.ghosts.remove(&oldest);
        }
    }
}
