//! State and decisions of the kernels since 2.6.23: *on-demand read-ahead* (Wu Fengguang).
//!
//! A hit does nothing. Read-ahead is called for an absent page, and for a page with the mark of the newest window. The state is this window:
//!
//! ```text
//!                        |<----- async_size ---------|
//!     |------------------- size -------------------->|
//!     start              mark                        start + size
//! ```
//!
//! A reader that reaches the mark is sequential: the next window is requested while `async_size` pages are still unread. It is larger than the
//! one before, up to the limit.
//!
//! Source: mm/readahead.c and mm/filemap.c of Linux 6.12 and 7.2; [`Rules`] has the differences.

mod search;

use crate::access::PAGE_BYTES;
use crate::streams::States;
use crate::{
    Access, Advice, By, Event, FileId, Folio, Found, Limits, OpenId, Page, Request, Requests, Rest, View, Wants,
};

/// Step of an explicit request, pages: 2 MiB (`force_page_cache_ra`).
const FORCED_CHUNK_PAGES: u64 = 512;
/// With this many more misses than hits, mappings get no read-around (`MMAP_LOTSAMISS`).
const LOTS_OF_MISSES: u32 = 100;
/// Limit of the balance of misses (`MMAP_LOTSAMISS * 10`).
const MOST_MISSES: u32 = 10 * LOTS_OF_MISSES;
/// A huge page has 512 pages (`HPAGE_PMD_ORDER` on x86-64; 2 MiB at most since 7.x).
const HUGE_ORDER: u8 = 9;

/// The differences between the kernels.
#[derive(Clone, Copy, Debug)]
pub struct Rules {
    /// The folio size is stored with the window and grows with it; before 6.16 it was that of the marked folio.
    pub order_is_remembered: bool,
    /// A window that reaches the end of the file has no mark (after 6.18).
    pub no_mark_at_end: bool,
    /// For program text the kernel reads from the fault on, not around it (since 6.16).
    pub programs_forwards: bool,
    /// Faults on program text and in sequential mappings do not count as misses, and pages mapped around a fault count as one hit; before, each
    /// of these pages was a hit (after 6.18).
    pub misses_balanced: bool,
    /// If a page of a large folio is cached already, the kernel reads the whole window again from there, not its rest
    /// (until about 6.15).
    /// rest (until about 6.15).
    pub reads_again: bool,
    /// A history as long as the window counts fully; before, its farthest page did not count (after 6.18; `page_cache_prev_miss`).
    pub whole_history: bool,
    /// A mapping with MADV_HUGEPAGE gets windows of huge pages on every file system; after 6.18 only where large folios are supported, and with
    /// the largest of these.
    pub huge_anywhere: bool,
}

/// `struct file_ra_state`: the kernel's state of an open file. Sizes in pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct State {
    /// First page of the newest window.
    pub start: Page,
    /// Its length.
    pub size: u64,
    /// The next window is due when this many pages are left.
    pub async_size: u64,
    /// Largest window of this open file; `None`: that of the disk, until advice changes it.
    pub window_pages: Option<u64>,
    /// Folio size of the newest window, as a power of two.
    pub order: u8,
    /// Faults that missed, minus those that hit.
    pub mmap_miss: u32,
    /// The end of the last finished read, bytes; -1 before the first.
    pub prev_pos: i64,
    /// The end of the current read, bytes.
    pub ends_at: Option<i64>,
    /// `POSIX_FADV_RANDOM` (`FMODE_RANDOM`).
    pub random: bool,
}

impl Default for State {
    fn default() -> Self {
        State {
            start: 0,
            size: 0,
            async_size: 0,
            window_pages: None,
            order: 0,
            mmap_miss: 0,
            prev_pos: -1,
            ends_at: None,
            random: false,
        }
    }
}

impl State {
    /// The last page of the last finished read; before the first read a value that no page follows.
    fn previous(&self) -> Page {
        self.prev_pos as u64 / PAGE_BYTES
    }

    fn window(&self, limits: &Limits) -> u64 {
        self.window_pages.unwrap_or(limits.window_pages)
    }
}

/// First window for a read of `wanted` pages: four times, twice, or once as much (`get_init_ra_size`).
pub fn first_size(wanted: u64, most: u64) -> u64 {
    // A read cannot be longer than a file, so this does not overflow.
    let size = wanted.clamp(1, 1 << 60).next_power_of_two();
    if size <= most / 32 {
        size * 4
    } else if size <= most / 4 {
        size * 2
    } else {
        most
    }
}

/// The window after one of `size` pages (`get_next_ra_size`).
pub fn next_size(size: u64, most: u64) -> u64 {
    if size < most / 16 {
        4 * size
    } else if size <= most / 2 {
        2 * size
    } else {
        most
    }
}

fn round_down(value: u64, power_of_two: u64) -> u64 {
    value & !(power_of_two - 1)
}

/// The outcome of a decision, in the terms of the kernel's tracepoints (`readahead:*`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// No read-ahead; only the accessed page is read.
    Nothing,
    /// A window, as passed to `page_cache_ra_order`: not yet cut by the end of the file or the largest folio.
    Window {
        first: Page,
        /// Length, pages.
        size: u64,
        /// Distance of the mark from the end, pages.
        async_size: u64,
        /// Folio size as a power of two.
        order: u8,
    },
    /// These pages and no mark (`page_cache_ra_unbounded`, in steps of 2 MiB for an explicit request).
    Exact {
        first: Page,
        /// Number of pages; the file may end before.
        pages: u64,
    },
}

/// The context of one decision.
pub struct Decision<'a> {
    /// The kernel's rules.
    pub rules: &'a Rules,
    pub file: FileId,
    /// The content of the cache.
    pub view: &'a dyn View,
    /// Receives the requests.
    pub requests: &'a mut Requests,
}

impl Decision<'_> {
    fn limits(&self) -> Limits {
        self.view.limits(self.file)
    }

    /// The largest window for a request of this many pages (`ractl_max_pages`).
    fn most(&self, state: &State, wanted: u64) -> u64 {
        let (limits, window) = (self.limits(), state.window(&self.limits()));
        if wanted > window && limits.request_pages > window { wanted.min(limits.request_pages) } else { window }
    }

    /// Handles a miss of a read (`page_cache_sync_ra`).
    pub fn sync(&mut self, state: &mut State, page: Page, wanted: u64) -> Outcome {
        let window = state.window(&self.limits());
        if window == 0 || state.random {
            return self.forced(state, page, if window == 0 { 1 } else { wanted });
        }
        let most = self.most(state, wanted);
        if page == 0 || wanted > most || page.wrapping_sub(state.previous()) <= 1 {
            state.size = first_size(wanted, most);
            state.async_size = if state.size > wanted { state.size - wanted } else { state.size / 2 };
        } else {
            // The history of a stream: the cached pages before this one.
            let seen = self.history(page, most);
            let history = if seen == most && !self.rules.whole_history { seen - 1 } else { seen };
            if history <= wanted {
                self.single_pages(page, wanted, None);
                return Outcome::Exact { first: page, pages: wanted };
            }
            // History since the start of the file: the stream is longer than it seems.
            let weight = if history == page { 2 * history } else { history };
            state.size = (weight + wanted).min(most);
            state.async_size = 1;
        }
        (state.start, state.order) = (page, 0);
        self.window(state, page, 0)
    }

    /// Handles a touch of a marked folio (`page_cache_async_ra`); `page` is its first one for a read, the touched one for a fault.
    pub fn marked(&mut self, state: &mut State, page: Page, folio: Folio, wanted: u64) -> Outcome {
        if state.window(&self.limits()) == 0 {
            return Outcome::Nothing;
        }
        let most = self.most(state, wanted);
        let mark = (state.start + state.size).wrapping_sub(state.async_size);
        if page == round_down(mark, folio.pages()) {
            state.start += state.size;
            // A window of huge pages may have been larger than the limit.
            state.size = next_size(state.size, most).max(state.size);
        } else {
            // The mark of another reader: the cached pages after it are that reader's window.
            let Some(hole) = self.hole(page + 1, most).filter(|hole| hole - page <= most) else {
                return Outcome::Nothing;
            };
            state.start = hole;
            state.size = next_size(hole - page + wanted, most);
        }
        if self.rules.order_is_remembered {
            state.order = state.order.saturating_add(2);
            let align = 1 << u64::from(state.order).min(u64::from(most.trailing_zeros()));
            let (end, aligned) = (state.start + state.size, round_down(state.start + state.size, align));
            if aligned > state.start {
                state.size -= end - aligned;
            }
        }
        state.async_size = state.size;
        self.window(state, state.start, folio.order)
    }

    /// Handles a miss of a fault (`do_sync_mmap_readahead`).
    pub fn fault(&mut self, state: &mut State, access: &Access) -> Outcome {
        let By::Fault { advice, huge, executable, first, end } = access.by else { return Outcome::Nothing };
        let (limits, page) = (self.limits(), access.page);
        let window = state.window(&limits);
        let huge_order = if self.rules.huge_anywhere { HUGE_ORDER } else { limits.folio_order.min(HUGE_ORDER) };
        let huge = huge && huge_order > 0;
        if !huge {
            let is_random = advice == Advice::Random && !(executable && self.rules.misses_balanced);
            if is_random || window == 0 {
                return Outcome::Nothing;
            }
            if advice == Advice::Sequential {
                return self.sync(state, page, window);
            }
        }
        let counts = match self.rules.misses_balanced {
            true => !executable && advice != Advice::Sequential,
            false => !huge,
        };
        if counts {
            state.mmap_miss = (state.mmap_miss + 1).min(MOST_MISSES);
            if state.mmap_miss > LOTS_OF_MISSES {
                return Outcome::Nothing;
            }
        }
        if huge {
            // Two huge pages, so that the second one has a mark, unless read-ahead is off. The position of the window is not
            // stored.
            let (at, size) = (round_down(page, 1 << huge_order), 1 << huge_order);
            let count = if advice == Advice::Random { 1 } else { 2 };
            (state.size, state.async_size, state.order) = (count * size, size, huge_order);
            return self.window(state, at, huge_order);
        }
        if executable && self.rules.programs_forwards {
            state.start = page.max(first);
            (state.size, state.async_size) = ((state.start + window).min(end).saturating_sub(state.start), 0);
        } else {
            state.start = page.saturating_sub(window / 2);
            (state.size, state.async_size) = (window, window / 4);
        }
        state.order = 0;
        self.window(state, state.start, 0)
    }

    /// An explicit request (`force_page_cache_ra`): the kernel cuts it silently.
    pub fn forced(&mut self, state: &State, first: Page, pages: u64) -> Outcome {
        let limits = self.limits();
        let end = first.saturating_add(pages.min(limits.request_pages.max(state.window(&limits))));
        for chunk in (first..end).step_by(FORCED_CHUNK_PAGES as usize) {
            self.single_pages(chunk, FORCED_CHUNK_PAGES.min(end - chunk), None);
        }
        Outcome::Exact { first, pages: end - first }
    }

    /// The number of cached pages before `page`, as the kernel finds it.
    fn history(&self, page: Page, most: u64) -> u64 {
        match self.limits().folio_order {
            0 => self.view.present_before(self.file, page, most),
            _ => search::history(self.view, self.file, page, most),
        }
    }

    /// The first page from `page` on that is not cached, as the kernel finds it.
    fn hole(&self, page: Page, most: u64) -> Option<Page> {
        match self.limits().folio_order {
            0 => self.view.next_absent(self.file, page, most),
            _ => search::hole(self.view, self.file, page, most),
        }
    }

    /// Requests the window of the state, from `first` on (`page_cache_ra_order`). `marked`: folio size of the marked page.
    fn window(&mut self, state: &mut State, first: Page, marked: u8) -> Outcome {
        let limits = self.limits();
        let outcome = Outcome::Window { first, size: state.size, async_size: state.async_size, order: state.order };
        let file_pages = self.view.file_pages(self.file);
        let (size, reaches_end) = (state.size, first + state.size >= file_pages);
        let large = limits.folio_order > 0 && (self.rules.order_is_remembered || size >= 4);
        if !large {
            state.order = 0;
            let pages = size.min(file_pages.saturating_sub(first));
            let mark = (first + pages).checked_sub(state.async_size).filter(|mark| *mark >= first);
            let mark = mark.filter(|_| !(self.rules.no_mark_at_end && reaches_end));
            self.single_pages(first, size, mark);
            return outcome;
        }
        let order = match self.rules.order_is_remembered {
            true => state.order,
            false if marked < limits.folio_order => marked + 2,
            false => marked,
        };
        let order = order.min(limits.folio_order).min(size.max(1).ilog2() as u8);
        if self.rules.order_is_remembered {
            state.order = order;
        }
        let mark = (first + size).checked_sub(state.async_size);
        let mark = mark.filter(|_| !(self.rules.no_mark_at_end && reaches_end));
        let look_ahead = state.async_size;
        let rest = (!self.rules.no_mark_at_end).then_some(Rest { whole: self.rules.reads_again, look_ahead });
        self.request(first, size, order, mark, rest);
        outcome
    }

    fn single_pages(&mut self, first: Page, pages: u64, mark: Option<Page>) {
        self.request(first, pages, 0, mark, None);
    }

    fn request(&mut self, first: Page, pages: u64, order: u8, mark: Option<Page>, rest: Option<Rest>) {
        let pages = pages.min(self.view.file_pages(self.file).saturating_sub(first));
        let mark = mark.filter(|mark| (first..first + pages).contains(mark));
        self.requests.add(Request { first, pages, order, mark, rest, ..Request::of(self.file) });
    }
}

/// A kernel that reads ahead on demand.
#[derive(Clone, Debug)]
pub struct OnDemand {
    rules: Rules,
    states: States<State>,
}

impl OnDemand {
    /// A kernel with these rules.
    pub fn new(rules: Rules) -> OnDemand {
        OnDemand { rules, states: States::default() }
    }

    /// The state of an open file.
    pub fn state(&mut self, open: OpenId) -> &mut State {
        self.states.of(open)
    }

    /// The current window of the disk is copied; later changes apply to files that are opened later.
    fn advised(&mut self, open: OpenId, advice: Advice, window_pages: u64) {
        let state = self.states.of(open);
        match advice {
            Advice::Normal => (state.window_pages, state.random) = (Some(window_pages), false),
            Advice::Sequential => (state.window_pages, state.random) = (Some(2 * window_pages), false),
            Advice::Random => state.random = true,
        }
    }

    /// Handles a hit (`filemap_readahead`, `do_async_mmap_readahead`).
    fn found(rules: &Rules, state: &mut State, decision: &mut Decision, access: &Access, folio: Folio) {
        let (page, wanted) = match access.by {
            By::Read => (folio.first, access.end() - folio.first),
            By::Fault { advice, executable, .. } => {
                let window = state.window(&decision.limits());
                if advice == Advice::Random || window == 0 {
                    return;
                }
                let counts = if rules.misses_balanced {
                    !access.found.is_locked() && advice != Advice::Sequential && !executable
                } else {
                    // Pages that were mapped without a check are counted there.
                    access.found.is_locked() || access.found.is_marked()
                };
                state.mmap_miss = state.mmap_miss.saturating_sub(u32::from(counts));
                (access.page, window)
            }
        };
        if access.found.is_marked() {
            decision.marked(state, page, folio, wanted);
        }
    }
}

impl crate::Policy for OnDemand {
    fn wants(&self) -> Wants {
        Wants { calls: true, faults: true, ..Wants::default() }
    }

    fn access(&mut self, access: &Access, view: &dyn View, requests: &mut Requests) {
        let state = self.states.of(access.open);
        let mut decision = Decision { rules: &self.rules, file: access.file, view, requests };
        if access.by == By::Read && access.begins {
            let end = (access.call.offset_bytes + access.call.length_bytes) as i64;
            if let Some(ended) = state.ends_at.replace(end) {
                state.prev_pos = ended;
            }
        }
        match (access.by, access.found) {
            (By::Read, Found::Absent) => {
                decision.sync(state, access.page, access.wanted);
            }
            (By::Fault { .. }, Found::Absent) => {
                decision.fault(state, access);
            }
            (_, Found::Locked { folio, .. } | Found::Present { folio, .. }) => {
                Self::found(&self.rules, state, &mut decision, access, folio)
            }
        }
    }

    fn event(&mut self, event: &Event, view: &dyn View, requests: &mut Requests) {
        match *event {
            Event::Opened { open, file } => {
                self.states.forget(open);
                self.advised(open, Advice::Normal, view.limits(file).window_pages);
            }
            Event::Closed { open } => self.states.forget(open),
            Event::Advised { open, file, advice } => self.advised(open, advice, view.limits(file).window_pages),
            Event::WillNeed { open, file, first, pages } => {
                let state = *self.states.of(open);
                Decision { rules: &self.rules, file, view, requests }.forced(&state, first, pages);
            }
            // Newer kernels have counted the hit already, and do not count a fault that is repeated after a wait.
            Event::Mapped { open, mapped, .. } if !self.rules.misses_balanced => {
                let state = self.states.of(open);
                state.mmap_miss = state.mmap_miss.saturating_sub(mapped.min(u64::from(MOST_MISSES)) as u32);
            }
            _ => {}
        }
    }
}
