//! What is known of the pages of one file.

use ahead_kernel::cache;
use ahead_policy::{FileId, Folio, Found, Limits, PAGE_BYTES, Page};
use std::fs::File;
use std::ops::Range;
use std::sync::Arc;

/// It is cached, or on its way.
const CACHED: u8 = 1;
/// It is on its way.
const LOCKED: u8 = 2;
/// The policy wants to hear when it is touched.
const MARKED: u8 = 4;
/// A policy asked for it.
const ASKED: u8 = 8;
/// Somebody has used it since it was read.
const USED: u8 = 16;
/// It is the last page of a request: what follows arrives by itself.
const LAST: u8 = 32;

/// The pages of a file, as far as we know.
#[derive(Debug)]
pub(crate) struct Book {
    /// Through which it is read ahead.
    pub file: Arc<File>,
    /// Its length, bytes.
    pub size_bytes: u64,
    /// The settings of what is below it.
    pub limits: Limits,
    pages: Vec<u8>,
}

impl Book {
    /// What is cached of the file now; all that cannot be known counts as absent.
    pub fn new(file: Arc<File>, size_bytes: u64, limits: Limits) -> Book {
        let mut book = Book { size_bytes: 0, limits, pages: Vec::new(), file };
        book.grow(size_bytes);
        for range in cache::resident(&*book.file, 0, size_bytes).unwrap_or_default() {
            book.hold(range.start / PAGE_BYTES..range.end.div_ceil(PAGE_BYTES));
        }
        book
    }

    /// The file is at least so long now.
    pub fn grow(&mut self, size_bytes: u64) {
        self.size_bytes = self.size_bytes.max(size_bytes);
        self.pages.resize(self.size_bytes.div_ceil(PAGE_BYTES) as usize, 0);
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

    pub fn is_marked(&self, page: Page) -> bool {
        self.state(page) & MARKED != 0
    }

    /// How a page is found; its mark stays.
    pub fn found(&self, page: Page) -> Found {
        let (state, folio) = (self.state(page), Folio::single(page));
        let marked = state & MARKED != 0;
        match () {
            () if state & CACHED == 0 => Found::Absent,
            () if state & LOCKED != 0 => Found::Locked { marked, folio },
            () => Found::Present { marked, folio },
        }
    }

    /// The end of the pages from `page` on, before `end`, that are found like it: none marked, none of another request.
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

    /// Takes the mark away.
    pub fn unmark(&mut self, page: Page) {
        self.part(page..page + 1).iter_mut().for_each(|state| *state &= !MARKED);
    }

    /// These pages, which are absent, were asked for, with a mark on one of them.
    pub fn ask(&mut self, range: Range<Page>, mark: Option<Page>) {
        let last = range.end - 1;
        self.part(range.clone()).iter_mut().for_each(|state| *state = CACHED | LOCKED | ASKED);
        self.part(last..last + 1).iter_mut().for_each(|state| *state |= LAST);
        if let Some(mark) = mark.filter(|mark| range.contains(mark)) {
            self.part(mark..mark + 1).iter_mut().for_each(|state| *state |= MARKED);
        }
    }

    /// These pages are there, but not through us: resident before we came, or written.
    pub fn hold(&mut self, range: Range<Page>) {
        self.part(range).iter_mut().for_each(|state| *state = (*state | CACHED) & !LOCKED);
    }

    /// These pages are there.
    pub fn arrive(&mut self, range: Range<Page>) {
        self.part(range).iter_mut().for_each(|state| *state &= !LOCKED);
    }

    /// These pages could not be read.
    pub fn fail(&mut self, range: Range<Page>) {
        self.part(range).iter_mut().filter(|state| **state & LOCKED != 0).for_each(|state| *state = 0);
    }

    /// A page is gone. Whether a policy had asked for it, and nobody had used it.
    pub fn evict(&mut self, page: Page) -> bool {
        let unused = self.state(page) & (ASKED | USED) == ASKED;
        self.part(page..page + 1).fill(0);
        unused
    }

    /// These pages are used; gives how many of them a policy had asked for and nobody had used.
    pub fn use_pages(&mut self, range: Range<Page>) -> u64 {
        let mut first = 0;
        for state in self.part(range) {
            first += u64::from(*state & (ASKED | USED) == ASKED);
            *state |= USED;
        }
        first
    }

    /// How many pages were asked for, are there, and were never used.
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
        Book::new(file, pages * PAGE_BYTES, Limits::default())
    }

    #[test]
    fn pages_go_from_absent_to_used() {
        let mut book = book(100);
        assert_eq!((book.found(3), book.next_absent(0, 100)), (Found::Absent, Some(0)));
        book.ask(2..10, Some(6));
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
        book.ask(0..8, None);
        book.ask(8..16, None);
        assert_eq!(book.run_end(0, 100), 8);
        book.arrive(0..16);
        assert_eq!(book.run_end(0, 100), 16);
        book.ask(16..20, None);
        book.fail(10..20);
        assert_eq!((book.run_end(0, 100), book.found(16)), (16, Found::Absent));
    }

    #[test]
    fn beyond_the_end_there_is_nothing() {
        let mut book = book(4);
        book.ask(2..9, Some(8));
        assert_eq!((book.found(4), book.found(u64::MAX)), (Found::Absent, Found::Absent));
        book.grow(8 * PAGE_BYTES);
        assert_eq!(book.file_pages(), 8);
        assert!(!book.evict(7));
    }
}
