//! Submission of requests: room in the queue, room in the cache, and eviction to make that room.

use super::{Machine, Submitted};
use crate::cache::Fresh;
use crate::queue::{Added, Range};
use crate::world::METADATA;
use ahead_device::Op as DiskOp;
use ahead_policy::{Event, FileId, OpenId, PAGE_BYTES, Page, Request, View, WhenFull, folios};
use std::collections::VecDeque;

impl Machine {
    /// Submits requests in their order. Requests that the queue does not accept stay in the list.
    pub(super) fn submit(&mut self, requests: &mut VecDeque<Request>, open: OpenId) -> Submitted {
        if !self.has_room_for(requests) {
            return Submitted::NoRoom;
        }
        while let Some(request) = requests.front().copied() {
            let file_pages = self.world.file_pages(request.file);
            let end = request.first.saturating_add(request.pages).min(file_pages);
            let stop =
                if request.order == 0 { self.submit_pages(&request, end) } else { self.submit_folios(&request, end) };
            let Some((first, why)) = stop else {
                requests.pop_front();
                continue;
            };
            if let (Submitted::NoRoom, WhenFull::Drop) = (&why, request.when_full) {
                requests.pop_front();
                self.drop_rest(request.file, first, end, open);
                continue;
            }
            if let Some(rest) = requests.front_mut() {
                (rest.first, rest.pages) = (first, end - first);
            }
            return why;
        }
        Submitted::All
    }

    /// Whether the queue has room for the requests that must be submitted together ([`WhenFull::WaitForAll`]).
    fn has_room_for(&self, requests: &VecDeque<Request>) -> bool {
        let queue = &self.world.queue;
        let longest = (queue.longest_bytes() / PAGE_BYTES).max(1);
        let together = requests.iter().take_while(|request| request.when_full == WhenFull::WaitForAll);
        let pages: u64 = together.map(|request| self.world.absent(request.file, request.first, request.pages)).sum();
        let needed = pages.div_ceil(longest).min(u64::from(queue.limit() / 2));
        needed == 0 || u64::from(queue.requests()) + needed <= u64::from(queue.limit())
    }

    pub(super) fn drop_rest(&mut self, file: FileId, first: Page, end: Page, open: OpenId) {
        self.counters.dropped_pages += end - first;
        self.tell(&Event::Dropped { open, file, first, pages: end - first });
    }

    /// Submits single pages. Returns the first page that was not submitted, and the reason.
    fn submit_pages(&mut self, request: &Request, end: Page) -> Option<(Page, Submitted)> {
        let mut at = request.first;
        let longest = (self.world.queue.longest_bytes() / PAGE_BYTES).max(1);
        while at < end {
            let present = self.world.cache.next_absent(request.file, at, end - at).unwrap_or(end) - at;
            at += present;
            if at == end {
                break;
            }
            if let Some(block) = self.pointer_for(request.file, at) {
                return Some((at, Submitted::Needs(block)));
            }
            let in_a_row = self.world.place(request.file, at).pages;
            let longest = longest.min(in_a_row);
            let run = self.world.cache.next_present(request.file, at, end.min(at.saturating_add(longest))) - at;
            if !self.send(request.file, at, run) {
                return Some((at, Submitted::NoRoom));
            }
            self.world.cache.add_run(request.file, at, run, Fresh::Asked);
            if let Some(mark) = request.mark.filter(|mark| (at..at + run).contains(mark)) {
                self.world.cache.mark(request.file, mark);
            }
            at += run;
        }
        None
    }

    fn submit_folios(&mut self, request: &Request, end: Page) -> Option<(Page, Submitted)> {
        let (largest, file_pages) = (self.world.limits.folio_order, end);
        let cache = &self.world.cache;
        let is_present = |page| cache.is_present(request.file, page);
        let list: Vec<_> = folios(request, largest, file_pages, is_present).collect();
        for (folio, marked) in list {
            if let Some(block) = self.pointer_for(request.file, folio.first) {
                return Some((folio.first, Submitted::Needs(block)));
            }
            if !self.send(request.file, folio.first, folio.pages()) {
                return Some((folio.first, Submitted::NoRoom));
            }
            self.world.cache.add(request.file, folio, marked);
        }
        None
    }

    /// Makes room for contiguous absent pages and requests them from the disk. False: the queue is full.
    fn send(&mut self, file: FileId, first: Page, pages: u64) -> bool {
        let place_bytes = self.world.place(file, first).block * PAGE_BYTES;
        let range = Range { file, first, pages, asker: file };
        let longest_bytes = self.world.queue.longest_bytes();
        let now_ns = self.world.now_ns;
        // A folio can be longer than a request. Then the folio needs several requests, and room for all of them.
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

    pub(super) fn make_room(&mut self, pages: u64) {
        let mut evicted = std::mem::take(&mut self.evicted);
        self.world.cache.make_room(pages, &mut evicted);
        for gone in evicted.drain(..).filter(|gone| gone.file != METADATA) {
            self.counters.wasted_pages += u64::from(gone.unused.count_ones());
            if gone.unused == 0 && self.ghosts.is_empty() && !self.wants.evictions {
                continue;
            }
            for (page, unused) in gone.each() {
                if unused {
                    self.remember((gone.file, page));
                } else {
                    self.ghosts.remove(&(gone.file, page));
                }
                if self.wants.evictions {
                    self.tell(&Event::Evicted { file: gone.file, page, unused });
                }
            }
        }
        self.evicted = evicted;
    }

    /// Remembers a page that was evicted unused, up to the capacity of the cache.
    fn remember(&mut self, page: (FileId, Page)) {
        self.next_ghost += 1;
        let number = self.next_ghost;
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
