//! `linux-2.6`: two windows, that of the reader and the one ahead of it (2.6.11 to 2.6.22).
//!
//! ```text
//!     │ current window  ▲reader      │ ahead window, in flight      │
//!      start           start + size = ahead_start
//!                                     ▲ the reader enters it: it becomes the current one, and the next is requested
//! ```
//!
//! The kernel calls it on every read, not on misses. A seek closes both windows and reads the requested pages; the second of two sequential
//! reads opens them again. A page that was read ahead and evicted before use makes the next window two pages shorter. After 256 adjacent pages
//! that were cached already, read-ahead is off until the next miss. While the disk's queue is congested there is no ahead window. Advice on the
//! whole file changes the window ([`super::fadvise`]).
//!
//! Sources: mm/readahead.c of 2.6.19; the number 256 (`VM_MAX_CACHE_HIT`) from memory, not checked. Mappings:
//! read-around, until there are 100 misses more than hits.

use super::fadvise;
use super::on_demand::first_size;
use crate::streams::States;
use crate::{Access, Advice, By, Event, FileId, Found, Page, Policy, Requests, View, Wants};

/// Smallest window (`VM_MIN_READAHEAD` 16 KiB).
pub const LEAST_PAGES: u64 = 4;
/// This many adjacent cached pages turn read-ahead off (`VM_MAX_CACHE_HIT`).
pub const MOST_HITS: u64 = 256;
/// With this many more misses than hits, mappings get no read-around (`MMAP_LOTSAMISS`).
pub const LOTS_OF_MISSES: u64 = 100;

/// The state of an open file (`struct file_ra_state`), pages.
#[derive(Clone, Copy, Debug, Default)]
struct Linux26State {
    start: Page,
    size: u64,
    ahead_start: Page,
    ahead_size: u64,
    /// One after the last page of the last read: `prev_page` + 1.
    next: Page,
    /// The next call is due when the read reaches this page.
    again: Page,
    hits: u64,
    missed: bool,
    /// The file seems to be cached: read-ahead is off.
    cached: bool,
    mmap_miss: u64,
    mmap_hit: u64,
    advice: Advice,
}

/// A kernel of this version.
#[derive(Clone, Debug, Default)]
pub struct Linux26 {
    states: States<Linux26State>,
}

/// The handling of one read.
struct Read<'a> {
    file: FileId,
    most: u64,
    view: &'a dyn View,
    requests: &'a mut Requests,
}

impl Read<'_> {
    /// Requests pages; false if that turned read-ahead off or was skipped (`blockable_page_cache_readahead`).
    fn ask(&mut self, state: &mut Linux26State, first: Page, pages: u64, block: bool) -> bool {
        if !block && self.view.queue(self.file).is_congested() {
            return false;
        }
        let within = pages.min(self.view.file_pages(self.file).saturating_sub(first));
        if self.view.absent(self.file, first, within) > 0 {
            state.hits = 0;
        } else {
            state.hits += pages;
            if state.hits >= MOST_HITS {
                (state.start, state.size, state.ahead_start, state.ahead_size) = (0, 0, 0, 0);
                (state.missed, state.cached) = (false, true);
                return false;
            }
        }
        self.requests.pages(self.file, first, within);
        true
    }

    /// Opens the ahead window (`make_ahead_window`).
    fn make_ahead(&mut self, state: &mut Linux26State, force: bool) -> bool {
        let most = self.most;
        state.ahead_size = if std::mem::take(&mut state.missed) {
            state.size.saturating_sub(2).max(LEAST_PAGES)
        } else if state.size < most / 16 {
            4 * state.size
        } else {
            2 * state.size
        }
        .min(most);
        state.ahead_start = state.start + state.size;
        let block = force || state.next > state.ahead_start;
        let asked = self.ask(state, state.ahead_start, state.ahead_size, block);
        if !asked && !force {
            (state.ahead_start, state.ahead_size) = (0, 0);
        }
        asked
    }

    /// Handles a read of `wanted` pages from `page` on (`page_cache_readahead`); returns the page of the next call.
    fn handle(&mut self, state: &mut Linux26State, mut page: Page, mut wanted: u64) -> Page {
        // The read starts in the last page of the previous one; if it does not leave that page, there is nothing to do.
        if page + 1 == state.next {
            wanted -= 1;
            page += u64::from(wanted > 0);
        }
        let sequential = page == state.next;
        let size = wanted.min(self.most);
        state.next = page + 1;
        if size == 0 || state.cached {
            return page + 1;
        }
        state.next = page + size;
        if sequential && state.size == 0 {
            (state.start, state.size) = (page, first_size(size, self.most));
            if self.ask(state, page, state.size, true) && wanted >= self.most {
                self.make_ahead(state, true);
            }
        } else if !sequential {
            (state.start, state.size, state.ahead_start, state.ahead_size) = (0, 0, 0, 0);
            state.missed = false;
            self.ask(state, page, size, true);
        } else {
            let open = state.ahead_start > 0 || self.make_ahead(state, false);
            if open && state.next > state.ahead_start {
                (state.start, state.size) = (state.ahead_start, state.ahead_size);
                self.make_ahead(state, false);
            }
            if state.ahead_start > 0 {
                state.next = state.next.min(state.ahead_start + state.ahead_size);
            }
        }
        state.next
    }
}

impl Policy for Linux26 {
    fn wants(&self) -> Wants {
        Wants { pages: true, faults: true, ..Wants::default() }
    }

    fn access(&mut self, access: &Access, view: &dyn View, requests: &mut Requests) {
        let state = self.states.of(access.open);
        let most = fadvise::window(state.advice, view.limits(access.file).window_pages);
        let mut read = Read { file: access.file, most, view, requests };
        match access.by {
            By::Read => {
                if access.begins || access.page == state.again {
                    state.again = read.handle(state, access.page, access.wanted);
                }
            }
            By::Fault { advice: Advice::Sequential, .. } => {
                read.handle(state, access.page, 1);
            }
            By::Fault { .. } if access.found != Found::Absent => state.mmap_hit += 1,
            By::Fault { advice: Advice::Random, .. } => return,
            By::Fault { .. } => {
                state.mmap_miss += 1;
                let congested = read.view.queue(access.file).is_congested();
                if most > 0 && !congested && state.mmap_miss <= state.mmap_hit + LOTS_OF_MISSES {
                    let first = access.page.saturating_sub(most / 2);
                    read.requests.pages(
                        access.file,
                        first,
                        most.min(view.file_pages(access.file).saturating_sub(first)),
                    );
                }
                return;
            }
        }
        if access.found == Found::Absent && !requests.cover(access.file, access.page) {
            // It was read ahead, and evicted.
            (state.missed, state.cached, state.hits) = (true, false, 0);
        }
    }

    fn event(&mut self, event: &Event, view: &dyn View, requests: &mut Requests) {
        match *event {
            Event::Opened { open, .. } | Event::Closed { open } => self.states.forget(open),
            Event::Advised { open, advice, .. } => self.states.of(open).advice = advice,
            Event::WillNeed { file, first, pages, .. } => fadvise::will_need(file, first, pages, view, requests),
            // Today's kernels map present pages around a fault; this one would have had a fault, and a hit, for each page.
            Event::Mapped { open, pages, .. } => self.states.of(open).mmap_hit += pages - 1,
            _ => {}
        }
    }
}
