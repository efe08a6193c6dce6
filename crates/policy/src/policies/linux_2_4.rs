//! `linux-2.4`, and the reads of `linux-2.2`: windows that double, requested before they are needed.
//!
//! Each open file has four numbers: the end of the last request (`raend`), its length (`ralen`), the length of the window (`rawin`), and the
//! limit of the next request (`ramax`).
//!
//! ```text
//!     page locked ─────────────────▶ synchronous: a new request from this page on, after a seek or at the start
//!     page present, and within the last request ─▶ asynchronous: the next request, ramax + 1 pages
//!                                    each request doubles ramax, up to the limit; a seek resets all four to 0
//! ```
//!
//! For a missing page of a mapping the kernel reads the aligned cluster of 16 pages; with random advice only the page.
//! In a mapping with sequential advice, an access to the page in the middle of the last window makes 2.4 read the next
//! window, also in clusters:
//!
//! ```text
//!     │ window of 32 pages  ▲ page 16          │ next window: requested now      │
//! ```
//!
//! The calculated position adds the first page of the mapping twice (`nopage_sequential_readahead` adds `vm_pgoff` to a
//! position in the file). So it is correct only for mappings of whole files. This error is modelled, too.
//!
//! Sources: `generic_file_readahead` in mm/filemap.c of 2.0, 2.3 and 2.4.0, `filemap_nopage` and `nopage_sequential_readahead` of 2.4. Not
//! modelled: 2.4 deactivates pages that the reader has passed (`drop_behind`), and unmaps them in sequential mappings; the eviction order of
//! the cache has nearly the same effect. Uncertain: `page_cluster` is 4 (3 or 2 on machines with less than 32 and 16 MB; from memory).
//!
//! The limits: in 2.2 `max_readahead` of each disk, by default 31 pages; in late 2.4 /proc/sys/vm/max-readahead (31, from memory), at least 3.

use super::advise;
use crate::access::PAGE_BYTES;
use crate::streams::States;
use crate::{Access, Advice, By, Event, Found, Page, Policy, Requests, View, Wants};

/// Default of the largest window (`MAX_READAHEAD` 31 in include/linux/blkdev.h).
pub const MOST_PAGES: u64 = 31;
/// Smallest window of a sequential reader (`MIN_READAHEAD` 3).
pub const LEAST_PAGES: u64 = 3;
/// A fault reads this aligned cluster (`page_cluster` = 4).
pub const CLUSTER_PAGES: u64 = 16;

/// The state of an open file, pages.
#[derive(Clone, Copy, Debug, Default)]
struct Linux24State {
    /// One after the last requested page.
    end: Page,
    /// Limit of the next request.
    most: u64,
    /// Length of the last one.
    length: u64,
    /// Length of the window.
    window: u64,
    /// The current read continues at the read-ahead.
    continues: bool,
    /// It has requested pages ahead.
    ran_ahead: bool,
    /// The end of the mapping's window (`vm_raend`); 0: not started.
    mapped_end: Page,
}

/// The kernel: each starts differently.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kernel {
    /// 2.2: a read of at most half a page does not start a stream.
    Linux22,
    /// 2.4: nor does one at the start of the file, and requests have one page more.
    Linux24,
}

/// A kernel whose windows double.
#[derive(Clone, Debug)]
pub struct Doubling {
    kernel: Kernel,
    most_pages: u64,
    states: States<Linux24State>,
}

impl Doubling {
    /// With windows of at most this many pages.
    pub fn new(kernel: Kernel, most_pages: u64) -> Doubling {
        Doubling { kernel, most_pages, states: States::default() }
    }
}

impl Linux24State {
    /// Starts a read.
    fn begin(&mut self, kernel: Kernel, access: &Access, most_pages: u64) {
        let page = access.page;
        self.continues = page <= self.end && page + self.window >= self.end;
        self.ran_ahead = false;
        if !self.continues {
            *self = Linux24State { mapped_end: self.mapped_end, ..Linux24State::default() };
        }
        let no_stream = match kernel {
            Kernel::Linux22 => access.call.offset_bytes + access.call.length_bytes <= PAGE_BYTES / 2,
            Kernel::Linux24 => page == 0 && access.call.offset_bytes + access.call.length_bytes <= PAGE_BYTES / 2,
        };
        if no_stream {
            self.most = 0;
            return;
        }
        // From the offset of the read in its page, in whole pages.
        let within_bytes = access.call.offset_bytes % PAGE_BYTES + access.call.length_bytes;
        let needed = within_bytes / PAGE_BYTES + u64::from(kernel == Kernel::Linux24);
        self.most = self.most.max(needed);
        if self.continues {
            self.most = self.most.max(LEAST_PAGES);
        }
        self.most = self.most.min(most_pages);
    }

    /// The end of the window of a mapping from `first` on.
    fn mapped(&mut self, first: Page, window: u64) -> Page {
        if self.mapped_end == 0 {
            self.mapped_end = first.saturating_add(window);
        }
        self.mapped_end
    }

    /// The number of pages to request after `self.end`.
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
            // It should have been read ahead, and may have been evicted (2.0 and 2.2; not in 2.3 and 2.4).
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
            // A present page was touched. Today's kernels map others with it; 2.4 would have had a fault for each of them.
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
