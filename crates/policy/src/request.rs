//! What a policy asks for.

use crate::{FileId, Folio, Page};

/// What becomes of a request that finds the queue full.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WhenFull {
    /// The thread that reads ahead waits until there is room.
    #[default]
    Wait,
    /// The same, but until there is room for all that is asked for at once, or for half of the queue: on a disk with a
    /// head, what goes into a full queue piece by piece is read between others' pieces.
    WaitForAll,
    /// The rest is left out ([`crate::Event::Dropped`]).
    Drop,
}

/// Pages to read, without those that are cached already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// Of this file.
    pub file: FileId,
    /// From this page on.
    pub first: Page,
    /// Number of pages; within the file.
    pub pages: u64,
    /// Folios of at most this size ([`folios`]).
    pub order: u8,
    /// The policy wants to be called when this page is touched. If it was cached already, there is no mark.
    pub mark: Option<Page>,
    /// What to do when the queue is full.
    pub when_full: WhenFull,
    /// What becomes of the mark where a page of a large folio is cached already, and what is left is read in single
    /// pages; `None`: it stays where it is.
    pub rest: Option<Rest>,
    /// Least number of parts in which its pages should arrive. On today's kernels all pages of a request arrive at the same
    /// moment; a policy whose reader needs the first of them before the last asks for parts. The simulator does not cut.
    pub parts: u32,
}

/// What is read, and marked, after a page of a large folio was found cached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rest {
    /// The whole length of the request once more, from there on (Linux 6.12 and before), not what is left of it.
    pub whole: bool,
    /// Pages from the mark to the end, or to the file's end. If the mark would lie before the range, there is none.
    pub look_ahead: u64,
}

impl Request {
    /// A request for no page of a file: single pages, without a mark, that wait for room.
    pub fn of(file: FileId) -> Request {
        Request { file, first: 0, pages: 0, order: 0, mark: None, when_full: WhenFull::Wait, rest: None, parts: 1 }
    }
}

/// The requests of one call, in the order in which they are to be sent.
#[derive(Clone, Debug, Default)]
pub struct Requests {
    list: Vec<Request>,
    rescued: Vec<(FileId, Page, u64)>,
}

impl Requests {
    /// Adds a request for single pages that waits for room.
    pub fn pages(&mut self, file: FileId, first: Page, pages: u64) {
        self.add(Request { first, pages, ..Request::of(file) });
    }

    /// Adds a request; one for no page is none, and a mark beyond its pages is none either.
    pub fn add(&mut self, request: Request) {
        if request.pages > 0 {
            let mark = request.mark.filter(|mark| (request.first..request.first + request.pages).contains(mark));
            self.list.push(Request { mark, ..request });
        }
    }

    /// What was asked for waits until there is room for all of it.
    pub fn wait_for_all(&mut self) {
        self.list.iter_mut().for_each(|request| request.when_full = WhenFull::WaitForAll);
    }

    /// These pages are cached and unread, and about to be evicted: they go back to the list's new end.
    pub fn rescue(&mut self, file: FileId, first: Page, pages: u64) {
        self.rescued.push((file, first, pages));
    }

    /// What is to be rescued: file, first page, pages; afterwards there is nothing.
    pub fn take_rescued(&mut self) -> Vec<(FileId, Page, u64)> {
        std::mem::take(&mut self.rescued)
    }

    /// The requests so far; afterwards there are none.
    pub fn take(&mut self) -> Vec<Request> {
        std::mem::take(&mut self.list)
    }

    /// Goes through the requests, and forgets them.
    pub fn drain(&mut self) -> impl Iterator<Item = Request> + '_ {
        self.list.drain(..)
    }

    /// Whether this page was asked for.
    pub fn cover(&self, file: FileId, page: Page) -> bool {
        self.list
            .iter()
            .any(|request| request.file == file && (request.first..request.first + request.pages).contains(&page))
    }

    /// Whether nothing was asked for.
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }
}

/// The folios that Linux allocates for a request, and which of them is marked: as large as the request's order, the
/// position's alignment and the end of request and file allow (`page_cache_ra_order` in mm/readahead.c, since 5.18).
/// Where a page of a large folio is cached already, the rest of the request is read in single pages, without those that
/// are.
///
/// `largest` is the file system's limit as a power of two, `file_pages` the length of the file.
pub fn folios(
    request: &Request,
    largest: u8,
    file_pages: u64,
    mut is_present: impl FnMut(Page) -> bool,
) -> impl Iterator<Item = (Folio, bool)> {
    let (mut mark, mut end) = (request.mark, request.first.saturating_add(request.pages).min(file_pages));
    let (pages, mut rest) = (request.pages, request.rest);
    let mut order = request.order.min(largest).min(request.pages.max(1).ilog2() as u8);
    let mut next = request.first;
    std::iter::from_fn(move || {
        while next < end {
            let aligned = next.trailing_zeros().min(u32::from(order)) as u8;
            let folio = Folio { first: next, order: aligned.min((end - next).ilog2() as u8) };
            if folio.range().any(&mut is_present) {
                if let Some(rest) = rest.take() {
                    if rest.whole {
                        end = next.saturating_add(pages).min(file_pages);
                    }
                    mark = end.checked_sub(rest.look_ahead).filter(|mark| *mark >= next);
                }
                next += u64::from(folio.order == 0);
                order = 0;
                continue;
            }
            next += folio.pages();
            return Some((folio, mark.is_some_and(|mark| folio.range().contains(&mark))));
        }
        None
    })
}
