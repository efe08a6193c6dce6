//! The requests of a policy.

use crate::{FileId, Folio, Page};

/// The handling of a request if the queue is full.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WhenFull {
    /// The requesting thread waits for room.
    #[default]
    Wait,
    /// The same, but waits for room for all requests of this call, or for half of the queue. On a disk with a head, pieces that enter a
    /// full queue one by one alternate with those of other readers, which costs seeks.
    WaitForAll,
    /// The rest is dropped ([`crate::Event::Dropped`]).
    Drop,
}

/// Pages to read. Pages that are cached already are skipped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    pub file: FileId,
    pub first: Page,
    /// Number of pages; within the file.
    pub pages: u64,
    /// Folios of at most this size ([`folios`]).
    pub order: u8,
    /// The page with the mark: the policy is called at its next access. A page that is cached already gets no mark.
    pub mark: Option<Page>,
    /// The handling if the queue is full.
    pub when_full: WhenFull,
    /// The new mark if a page of a large folio is cached already, and the rest is read in single pages; `None`: the mark stays.
    pub rest: Option<Rest>,
    /// Minimum number of parts in which its pages should arrive. On current kernels all pages of a request arrive at the same time. A
    /// policy whose reader needs the first pages earlier requests several parts. The simulator does not divide requests.
    pub parts: u32,
}

/// The pages to read and to mark after a cached page within a large folio.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rest {
    /// Whether the whole length of the request is read again from there on (Linux 6.12 and before), instead of the rest.
    pub whole: bool,
    /// Pages from the mark to the end of the range or of the file. A mark before the range is omitted.
    pub look_ahead: u64,
}

impl Request {
    /// An empty request for a file: single pages, no mark, waits for room.
    pub fn of(file: FileId) -> Request {
        Request { file, first: 0, pages: 0, order: 0, mark: None, when_full: WhenFull::Wait, rest: None, parts: 1 }
    }
}

/// The requests of one call, in the order of submission.
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

    /// Adds a request. Ignores a request without pages, and a mark outside its pages.
    pub fn add(&mut self, request: Request) {
        if request.pages > 0 {
            let mark = request.mark.filter(|mark| (request.first..request.first + request.pages).contains(mark));
            self.list.push(Request { mark, ..request });
        }
    }

    /// Makes these requests wait until there is room for all of them.
    pub fn wait_for_all(&mut self) {
        self.list.iter_mut().for_each(|request| request.when_full = WhenFull::WaitForAll);
    }

    /// Rescues cached unread pages from eviction: they move to the head of the inactive list.
    pub fn rescue(&mut self, file: FileId, first: Page, pages: u64) {
        self.rescued.push((file, first, pages));
    }

    /// Takes the pages to rescue: file, first page, number.
    pub fn take_rescued(&mut self) -> Vec<(FileId, Page, u64)> {
        std::mem::take(&mut self.rescued)
    }

    /// Takes the requests.
    pub fn take(&mut self) -> Vec<Request> {
        std::mem::take(&mut self.list)
    }

    /// Takes the requests as an iterator.
    pub fn drain(&mut self) -> impl Iterator<Item = Request> + '_ {
        self.list.drain(..)
    }

    /// Whether this page was requested.
    pub fn cover(&self, file: FileId, page: Page) -> bool {
        self.list
            .iter()
            .any(|request| request.file == file && (request.first..request.first + request.pages).contains(&page))
    }

    /// Whether there is no request.
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }
}

/// The folios that Linux allocates for a request, and the marked one (`page_cache_ra_order` in mm/readahead.c, since
/// 5.18). Their size is limited by the request's order, by the alignment, and by the end of the request and of the
/// file. If a page of a large folio is cached already, the rest of the request is read in single pages, except cached
/// ones.
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
