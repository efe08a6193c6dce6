//! The book: the state of the pages of one file.

use ahead_model::DeviceNumber;
use ahead_policy::{FileId, Folio, Found, Limits, PAGE_BYTES, Page, Request, folios};
use ahead_sys::cache;
use std::fs::File;
use std::ops::Range;
use std::sync::Arc;

/// The page is cached or in flight.
const CACHED: u8 = 1;
/// The page is in flight.
const LOCKED: u8 = 2;
/// The page is marked: the policy receives its next access.
const MARKED: u8 = 4;
/// A policy requested the page.
const ASKED: u8 = 8;
/// A reader has used the page since it was read.
const USED: u8 = 16;
/// The page is the last one of a request. The next page arrives with another request.
const LAST: u8 = 32;

/// The pages of a file, as far as they are known.
#[derive(Debug)]
pub(crate) struct Book {
    /// The open file for read-ahead calls.
    pub file: Arc<File>,
    pub device: DeviceNumber,
    /// Its length, bytes.
    pub size_bytes: u64,
    /// The settings of its device and file system.
    pub limits: Limits,
    pages: Vec<u8>,
    /// For each page, the size of the folio that the policy requested, as a power of two. The kernel has single pages, but policies
    /// that decide by folios see the requested ones.
    orders: Vec<u8>,
}

impl Book {
    /// The pages that are cached now; pages with unknown state count as absent.
    pub fn new(file: Arc<File>, device: DeviceNumber, size_bytes: u64, limits: Limits) -> Book {
        let mut book = Book { size_bytes: 0, limits, pages: Vec::new(), orders: Vec::new(), file, device };
        book.grow(size_bytes);
        for range in cache::resident(&*book.file, 0, size_bytes).unwrap_or_default() {
            book.hold(range.start / PAGE_BYTES..range.end.div_ceil(PAGE_BYTES));
        }
        book
    }

    /// Sets a new minimum length of the file.
    pub fn grow(&mut self, size_bytes: u64) {
        self.size_bytes = self.size_bytes.max(size_bytes);
        self.pages.resize(self.size_bytes.div_ceil(PAGE_BYTES) as usize, 0);
        self.orders.resize(self.pages.len(), 0);
    }

    pub fn file_pages(&self) -> u64 {
        self.pages.len() as u64
    }

    fn state(&self, page: Page) -> u8 {
        usize::try_from(page).ok().and_then(|page| self.pages.get(page)).copied().unwrap_or(0)
    }

    fn part(&mut self, range: Range<Page>) -> &mut [u8] {
        let end = range.end.min(self.file_pages());
        &mut self.pages[range.start.min(end) as usize..end as usize]
    }

    pub fn is_present(&self, page: Page) -> bool {
        self.state(page) & CACHED != 0
    }

    pub fn is_locked(&self, page: Page) -> bool {
        self.state(page) & LOCKED != 0
    }

    /// Whether the page, or its folio, is marked.
    pub fn is_marked(&self, page: Page) -> bool {
        self.folio(page).is_some_and(|folio| self.state(folio.first) & MARKED != 0)
    }

    /// The folio of a cached page.
    pub fn folio(&self, page: Page) -> Option<Folio> {
        let order = *self.orders.get(page as usize)?;
        self.is_present(page).then_some(Folio { first: page >> order << order, order })
    }

    /// The state of a page. Its mark stays.
    pub fn found(&self, page: Page) -> Found {
        let Some(folio) = self.folio(page) else { return Found::Absent };
        let marked = self.is_marked(page);
        if self.is_locked(page) { Found::Locked { marked, folio } } else { Found::Present { marked, folio } }
    }

    /// The end of the pages from `page` on, before `end`, that have the same state: unmarked, and of the same request.
    pub fn run_end(&self, page: Page, end: Page) -> Page {
        let like = self.state(page) & (CACHED | LOCKED);
        let mut at = page;
        while at < end {
            let state = self.state(at);
            if state & (CACHED | LOCKED) != like || (at > page && state & MARKED != 0) {
                return at;
            }
            at += 1;
            if state & (LAST | LOCKED) == LAST | LOCKED {
                return at;
            }
        }
        end
    }

    /// The first absent page from `page` on, before `end`.
    pub fn next_absent(&self, page: Page, end: Page) -> Option<Page> {
        (page..end).find(|page| !self.is_present(*page))
    }

    /// One after the last absent page from `page` on, before `end`.
    pub fn absent_end(&self, page: Page, end: Page) -> Page {
        (page..end).find(|page| self.is_present(*page)).unwrap_or(end)
    }

    /// Removes the mark.
    pub fn unmark(&mut self, page: Page) {
        let first = self.folio(page).map_or(page, |folio| folio.first);
        self.part(first..first + 1).iter_mut().for_each(|state| *state &= !MARKED);
    }

    /// Records the folios and the mark of a request, and returns its runs of absent pages. Cached pages stay unchanged.
    pub fn lay_out(&mut self, request: &Request) -> Vec<Range<Page>> {
        let (largest, file_pages) = (self.limits.folio_order, self.file_pages());
        if request.order.min(largest) == 0 {
            let end = request.first.saturating_add(request.pages).min(file_pages);
            for page in (request.first..end).filter(|page| !self.is_present(*page)).collect::<Vec<Page>>() {
                self.lay(Folio::single(page), request.mark == Some(page));
            }
            return vec![request.first..end];
        }
        let laid: Vec<(Folio, bool)> = folios(request, largest, file_pages, |page| self.is_present(page)).collect();
        let mut rows: Vec<Range<Page>> = Vec::new();
        for (folio, marked) in laid {
            self.lay(folio, marked);
            match rows.last_mut() {
                Some(last) if last.end == folio.first => last.end = folio.range().end,
                _ => rows.push(folio.range()),
            }
        }
        rows
    }

    fn lay(&mut self, folio: Folio, marked: bool) {
        let end = folio.range().end.min(self.file_pages());
        self.orders[folio.first as usize..end as usize].fill(folio.order);
        self.part(folio.range()).fill(0);
        if marked {
            self.part(folio.first..folio.first + 1).fill(MARKED);
        }
    }

    /// Pages with recorded folios were not requested after all.
    pub fn leave_out(&mut self, range: Range<Page>) {
        self.part(range).iter_mut().filter(|state| **state & CACHED == 0).for_each(|state| *state = 0);
    }

    /// Absent pages with recorded folios were requested.
    pub fn ask(&mut self, range: Range<Page>) {
        let last = range.end - 1;
        self.part(range).iter_mut().for_each(|state| *state = *state & MARKED | CACHED | LOCKED | ASKED);
        self.part(last..last + 1).iter_mut().for_each(|state| *state |= LAST);
    }

    /// Pages are cached without a request: they were resident before, or were written.
    pub fn hold(&mut self, range: Range<Page>) {
        self.part(range).iter_mut().for_each(|state| *state = (*state | CACHED) & !LOCKED);
    }

    /// Pages have arrived.
    pub fn arrive(&mut self, range: Range<Page>) {
        self.part(range).iter_mut().for_each(|state| *state &= !LOCKED);
    }

    /// Pages could not be read.
    pub fn fail(&mut self, range: Range<Page>) {
        self.part(range).iter_mut().filter(|state| **state & LOCKED != 0).for_each(|state| *state = 0);
    }

    /// Records that the kernel evicted a page, and splits its folio. Returns whether a policy had asked for the page and no reader
    /// had used it.
    pub fn evict(&mut self, page: Page) -> bool {
        let folio = self.folio(page).unwrap_or(Folio::single(page));
        let end = folio.range().end.min(self.file_pages());
        self.orders[folio.first.min(end) as usize..end as usize].fill(0);
        let unused = self.state(page) & (ASKED | USED) == ASKED;
        self.part(page..page + 1).fill(0);
        unused
    }

    /// Records that a reader used pages. Returns how many of them a policy had asked for and no reader had used before.
    pub fn use_pages(&mut self, range: Range<Page>) -> u64 {
        let mut first = 0;
        for state in self.part(range) {
            first += u64::from(*state & (ASKED | USED) == ASKED);
            *state |= USED;
        }
        first
    }

    /// Number of requested pages that are cached and were never used.
    pub fn unread(&self) -> u64 {
        self.pages.iter().filter(|state| **state & (CACHED | ASKED | USED) == CACHED | ASKED).count() as u64
    }
}

/// Number of a file in the list of books.
pub(crate) fn index(file: FileId) -> usize {
    file.0 as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    fn book(pages: u64) -> Book {
        let file = Arc::new(tempfile::tempfile().unwrap());
        Book::new(file, DeviceNumber::default(), pages * PAGE_BYTES, Limits::default())
    }

    fn request(range: Range<Page>, mark: Option<Page>) -> Request {
        Request { first: range.start, pages: range.end - range.start, mark, ..Request::of(FileId(0)) }
    }

    fn ask(book: &mut Book, range: Range<Page>, mark: Option<Page>) {
        for row in book.lay_out(&request(range, mark)) {
            book.ask(row);
        }
    }

    #[test]
    fn folios_carry_one_mark_and_fall_apart_when_a_page_goes() {
        let mut book = book(100);
        book.limits.folio_order = 9;
        let wide = Request { order: 2, ..request(4..16, Some(9)) };
        assert_eq!(book.lay_out(&wide), [4..16]);
        assert_eq!(book.found(9), Found::Absent);
        book.ask(4..16);
        assert_eq!(book.folio(9), Some(Folio { first: 8, order: 2 }));
        assert!(book.is_marked(11) && !book.is_marked(12) && !book.is_marked(7));
        assert_eq!(book.run_end(4, 16), 8);
        book.unmark(10);
        assert!(!book.is_marked(8));
        book.arrive(4..16);
        assert!(book.evict(9));
        assert_eq!((book.folio(9), book.folio(10)), (None, Some(Folio::single(10))));
        // Pages with recorded folios that were not requested are as before.
        assert_eq!(book.lay_out(&Request { order: 2, ..request(16..24, Some(20)) }), [16..24]);
        book.leave_out(16..24);
        ask(&mut book, 16..24, None);
        assert!(!book.is_marked(20));
    }

    #[test]
    fn pages_go_from_absent_to_used() {
        let mut book = book(100);
        assert_eq!((book.found(3), book.next_absent(0, 100)), (Found::Absent, Some(0)));
        ask(&mut book, 2..10, Some(6));
        assert!(book.is_locked(2) && book.is_marked(6) && !book.is_present(10));
        assert_eq!((book.run_end(2, 100), book.run_end(6, 100)), (6, 10));
        book.arrive(2..10);
        assert_eq!(book.use_pages(0..5), 3);
        assert_eq!(book.use_pages(0..5), 0);
        assert_eq!(book.unread(), 5);
        assert!(!book.evict(2) && book.evict(9));
        assert_eq!(book.found(9), Found::Absent);
    }

    #[test]
    fn requests_beside_one_another_arrive_by_themselves() {
        let mut book = book(100);
        ask(&mut book, 0..8, None);
        ask(&mut book, 8..16, None);
        assert_eq!(book.run_end(0, 100), 8);
        book.arrive(0..16);
        assert_eq!(book.run_end(0, 100), 16);
        ask(&mut book, 16..20, None);
        book.fail(10..20);
        assert_eq!((book.run_end(0, 100), book.found(16)), (16, Found::Absent));
    }

    #[test]
    fn beyond_the_end_there_is_nothing() {
        let mut book = book(4);
        ask(&mut book, 2..4, None);
        assert_eq!((book.found(4), book.found(u64::MAX)), (Found::Absent, Found::Absent));
        book.grow(8 * PAGE_BYTES);
        assert_eq!(book.file_pages(), 8);
        assert!(!book.evict(7));
    }
}
