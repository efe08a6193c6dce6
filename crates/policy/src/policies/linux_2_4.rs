//! `linux-2.4`, and the reads of `linux-2.2`: windows that double, asked for before they are needed.
//!
//! Four numbers per opening: where the last request ended (`raend`), how long it was (`ralen`), how long the window was
//! (`rawin`), and how long the next one may be (`ramax`).
//!
//! ```text
//!     page locked ─────────────────▶ synchronous: a new request from here on, after a seek or at the beginning
//!     page there, and within the last request ─▶ asynchronous: the next request, ramax + 1 pages
//!                                    each request doubles ramax, up to the limit; a seek sets all of it back to 0
//! ```
//!
//! A missing page of a mapping brings the aligned cluster of 16 pages that it lies in; with the advice to read at
//! random itself alone. In a mapping with sequential advice 2.4 reads the next window, clusters again, when the page
//! half-way through the last one is touched:
//!
//! ```text
//!     │ window of 32 pages  ▲ page 16          │ next window: asked for now      │
//! ```
//!
//! Its place is reckoned from the mapping's first page once too often, so that it is right for mappings of whole files
//! alone (`nopage_sequential_readahead` adds `vm_pgoff` to a place in the file); kept as it is.
//!
//! Sources: `generic_file_readahead` in mm/filemap.c of 2.0, 2.3 and 2.4.0, `filemap_nopage` and
//! `nopage_sequential_readahead` of 2.4. Pages that were passed are deactivated by 2.4 (`drop_behind`), and unmapped in
//! sequential mappings: not done here, the cache's own order of eviction does nearly the same. Uncertain: that
//! `page_cluster` is 4 (3 or 2 on machines with less than 32 and 16 MB, from memory).
//!
//! The limits: 2.2 took them from `max_readahead` of each disk, 31 pages unless set otherwise, and late 2.4 from
//! /proc/sys/vm/max-readahead (31, from memory), 3 at least.

use super::advise;
use crate::access::PAGE_BYTES;
use crate::streams::States;
use crate::{Access, Advice, By, Event, Found, Page, Policy, Requests, View, Wants};

/// Largest window unless set otherwise (`MAX_READAHEAD` 31 in include/linux/blkdev.h).
pub const MOST_PAGES: u64 = 31;
/// Smallest window of a sequential reader (`MIN_READAHEAD` 3).
pub const LEAST_PAGES: u64 = 3;
/// A fault reads this aligned cluster (`page_cluster` = 4).
pub const CLUSTER_PAGES: u64 = 16;

/// The state of an opening, pages.
#[derive(Clone, Copy, Debug, Default)]
struct State {
    /// One after the last page asked for.
    end: Page,
    /// Most pages of the next request.
    most: u64,
    /// Length of the last one.
    length: u64,
    /// Length of the window.
    window: u64,
    /// The read that is going on continues where read-ahead is.
    continues: bool,
    /// It has asked for pages before they were needed.
    ran_ahead: bool,
    /// Where the mapping's window ends (`vm_raend`); 0: not begun.
    mapped_end: Page,
}

/// Which kernel it is: they begin differently.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kernel {
    /// 2.2: a read of no more than half a page is no beginning of a stream.
    Linux22,
    /// 2.4: nor is one at the file's beginning, and one page more is asked for.
    Linux24,
}

/// A kernel whose windows double.
#[derive(Clone, Debug)]
pub struct Doubling {
    kernel: Kernel,
    most_pages: u64,
    states: States<State>,
}

impl Doubling {
    /// With windows of at most so many pages.
    pub fn new(kernel: Kernel, most_pages: u64) -> Doubling {
        Doubling { kernel, most_pages, states: States::default() }
    }
}

impl State {
    /// A read begins.
    fn begin(&mut self, kernel: Kernel, access: &Access, most_pages: u64) {
        let page = access.page;
        self.continues = page <= self.end && page + self.window >= self.end;
        self.ran_ahead = false;
        if !self.continues {
            *self = State { mapped_end: self.mapped_end, ..State::default() };
        }
        let no_stream = match kernel {
            Kernel::Linux22 => access.call.offset_bytes + access.call.length_bytes <= PAGE_BYTES / 2,
            Kernel::Linux24 => page == 0 && access.call.offset_bytes + access.call.length_bytes <= PAGE_BYTES / 2,
        };
        if no_stream {
            self.most = 0;
            return;
        }
        // From the read's place in its page, in whole pages.
        let within_bytes = access.call.offset_bytes % PAGE_BYTES + access.call.length_bytes;
        let needed = within_bytes / PAGE_BYTES + u64::from(kernel == Kernel::Linux24);
        self.most = self.most.max(needed);
        if self.continues {
            self.most = self.most.max(LEAST_PAGES);
        }
        self.most = self.most.min(most_pages);
    }

    /// Where the window of a mapping from `first` on ends.
    fn mapped(&mut self, first: Page, window: u64) -> Page {
        if self.mapped_end == 0 {
            self.mapped_end = first.saturating_add(window);
        }
        self.mapped_end
    }

    /// How many pages are asked for, after `self.end`.
    fn ahead(&mut self, kernel: Kernel, page: Page, locked: bool, file_pages: u64) -> u64 {
        if locked {
            let reach = if kernel == Kernel::Linux24 { self.window } else { self.length };
            if self.length == 0 || page >= self.end || page + reach < self.end {
                let ahead = if page + 1 < file_pages { self.most } else { 0 };
                (self.end, self.window, self.length) = (page, 0, 1);
                if ahead == 0 {
                    (self.end, self.window) = (page + 1, 1);
                }
                return ahead;
            }
        } else if self.continues && self.most > 0 && self.end >= 1 && page <= self.end && page + self.length >= self.end
        {
            self.end -= 1;
            let ahead = if self.end + 1 < file_pages { self.most + 1 } else { 0 };
            if ahead == 0 {
                self.end += 1;
                return 0;
            }
            (self.window, self.length, self.ran_ahead) = (self.length, 0, true);
            return ahead;
        }
        0
    }
}

impl Policy for Doubling {
    fn wants(&self) -> Wants {
        Wants { pages: true, faults: self.kernel == Kernel::Linux24, ..Wants::default() }
    }

    fn access(&mut self, access: &Access, view: &dyn View, requests: &mut Requests) {
        if let By::Fault { advice, .. } = access.by {
            let alone = advice == Advice::Random && self.kernel == Kernel::Linux24;
            if access.found == Found::Absent && !alone {
                advise::group(access, CLUSTER_PAGES, view, requests);
            }
            return;
        }
        let state = self.states.of(access.open);
        if access.begins {
            state.begin(self.kernel, access, self.most_pages);
        }
        let file_pages = view.file_pages(access.file);
        if access.found == Found::Absent {
            requests.pages(access.file, access.page, 1.min(file_pages.saturating_sub(access.page)));
            // It should have been read ahead: perhaps it was, and is gone (2.0 and 2.2; not in 2.3 and 2.4).
            if self.kernel == Kernel::Linux22 && state.continues {
                state.most = state.most.min(LEAST_PAGES);
            }
        }
        let locked = !matches!(access.found, Found::Present { .. });
        let ahead = state.ahead(self.kernel, access.page, locked, file_pages);
        let first = state.end + 1;
        let ahead = ahead.min(file_pages.saturating_sub(first));
        if ahead == 0 {
            return;
        }
        requests.pages(access.file, first, ahead);
        state.length += ahead;
        state.window += state.length;
        state.end = first + ahead;
        state.most = (2 * state.most).min(self.most_pages);
    }

    fn event(&mut self, event: &Event, view: &dyn View, requests: &mut Requests) {
        match *event {
            Event::Opened { open, .. } | Event::Closed { open } => self.states.forget(open),
            // A page is there and has been touched; today's kernels map others with it, which 2.4 would have had faults
            // for.
            Event::Mapped { open, by: By::Fault { advice: Advice::Sequential, first, end, .. }, file, .. }
                if self.kernel == Kernel::Linux24 =>
            {
                let Event::Mapped { first: touched, pages, .. } = *event else { return };
                let window = self.most_pages.next_multiple_of(CLUSTER_PAGES);
                let state = self.states.of(open);
                let middle = state.mapped(first, window).saturating_sub(window / 2);
                if (touched..touched.saturating_add(pages)).contains(&middle) {
                    let file_pages = view.file_pages(file).min(end);
                    let from = first.saturating_add(state.mapped_end);
                    let from = from - from % CLUSTER_PAGES;
                    requests.pages(file, from, window.min(file_pages.saturating_sub(from)));
                    state.mapped_end = state.mapped_end.saturating_add(window);
                }
            }
            _ => {}
        }
    }
}

/// A kernel of this version.
pub fn policy() -> Doubling {
    Doubling::new(Kernel::Linux24, MOST_PAGES)
}
