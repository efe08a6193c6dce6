//! `amp`: adaptive asynchronous prefetching (Gill and Bathen, FAST 2007). Each stream has two parameters, adapted by observed failures.
//!
//! ```text
//!     │ set being read                 g ▼        │ set in flight: p pages      │
//!                                     trigger
//!     p, length of a set:  + one request when the last page of a set was used;   − one request when it was evicted unused
//!     g, trigger distance: + one request when a reader had to wait for the first page of a set;   always less than p
//! ```
//!
//! So p converges to the rate of the stream times the lifetime of a page in the cache. g converges to the rate times
//! the latency of a read. A larger p wastes pages, a smaller g makes them late.
//!
//! Source: the paper, *Algorithm AMP*. The paper keeps p and g with the pages of the cache; here they belong to the stream. A set of up to 4
//! pages is synchronous; a longer one has a trigger (`APT`), at first at distance 2.

use crate::streams::States;
use crate::{Access, By, Event, FileId, Found, OpenId, Page, Policy, Request, Requests, View, Wants};
use std::collections::HashMap;

/// Longer sets are requested ahead (the paper's asynchronous prefetch threshold).
pub const ASYNCHRONOUS_PAGES: u64 = 4;

/// A sequential reader.
#[derive(Clone, Copy, Debug, Default)]
struct AmpStream {
    file: FileId,
    /// Pages of the next set.
    degree: u64,
    /// The next set is requested this many pages before the end of a set.
    trigger: u64,
    /// The newest set: first page and end.
    set: (Page, Page),
    /// The last page of the previous set.
    previous_last: Option<Page>,
    /// The expected next page of the reader.
    next: Page,
    /// Pages of its last request.
    wanted: u64,
}

/// Adaptive asynchronous prefetching.
#[derive(Clone, Debug, Default)]
pub struct Amp {
    streams: States<AmpStream>,
    /// Last pages of sets, and their streams.
    last_pages: HashMap<(FileId, Page), OpenId>,
}

impl Amp {
    fn ask(&mut self, open: OpenId, first: Page, pages: u64, view: &dyn View, requests: &mut Requests) {
        let stream = self.streams.of(open);
        let file = stream.file;
        let pages = pages.min(view.file_pages(file).saturating_sub(first));
        if pages == 0 {
            return;
        }
        let end = first + pages;
        stream.previous_last = stream.set.1.checked_sub(1);
        stream.set = (first, end);
        requests.add(Request { first, pages, ..Request::of(file) });
        self.last_pages.insert((file, end - 1), open);
    }
}

impl Policy for Amp {
    fn wants(&self) -> Wants {
        Wants { pages: true, faults: true, waits: true, evictions: true, ..Wants::default() }
    }

    fn access(&mut self, access: &Access, view: &dyn View, requests: &mut Requests) {
        let (open, page) = (access.open, access.page);
        let most = view.file_pages(access.file);
        let stream = self.streams.of(open);
        let sequential = stream.wanted > 0 && page == stream.next && stream.file == access.file;
        if !sequential {
            let wanted = if access.by == By::Read { access.wanted } else { 1 };
            let set = (page, page + wanted);
            *stream = AmpStream { file: access.file, next: page + 1, wanted, set, ..AmpStream::default() };
            if access.found == Found::Absent {
                requests.pages(access.file, page, wanted.min(most.saturating_sub(page)));
            }
            return;
        }
        stream.next = page + 1;
        if access.begins {
            stream.wanted = access.wanted;
        }
        let request = stream.wanted;
        if access.found == Found::Absent {
            // The stream continues at a page that was not requested: a synchronous set.
            stream.degree = stream.degree.max(request);
            let pages = access.wanted + stream.degree;
            return self.ask(open, page, pages, view, requests);
        }
        if self.last_pages.remove(&(access.file, page)).is_some() {
            let stream = self.streams.of(open);
            stream.degree = stream.degree.saturating_add(request).min(most);
            if stream.trigger == 0 && stream.degree > ASYNCHRONOUS_PAGES {
                stream.trigger = ASYNCHRONOUS_PAGES / 2;
            }
        }
        let stream = self.streams.of(open);
        let (_, end) = stream.set;
        let at = end.saturating_sub(stream.trigger.max(1));
        if stream.degree > ASYNCHRONOUS_PAGES && page >= at && page < end {
            let degree = stream.degree;
            self.ask(open, end, degree, view, requests);
        }
    }

    fn event(&mut self, event: &Event, _view: &dyn View, _requests: &mut Requests) {
        match *event {
            Event::Opened { open, .. } | Event::Closed { open } => {
                self.streams.forget(open);
            }
            Event::Mapped { open, first, pages, .. } => self.streams.of(open).next = first + pages,
            Event::Waited { open, page, .. } => {
                let stream = self.streams.of(open);
                if page == stream.set.0 && stream.degree > ASYNCHRONOUS_PAGES {
                    stream.trigger = (stream.trigger + stream.wanted).min(stream.degree - 1);
                }
            }
            Event::Evicted { file, page, unused: true } => {
                let Some(open) = self.last_pages.remove(&(file, page)) else { return };
                let stream = self.streams.of(open);
                // The number may belong to another reader now.
                if stream.file != file {
                    return;
                }
                stream.degree = stream.degree.saturating_sub(stream.wanted).max(1);
                stream.trigger = stream.trigger.min(stream.degree - 1);
            }
            _ => {}
        }
    }
}
