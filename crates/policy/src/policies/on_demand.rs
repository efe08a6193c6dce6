//! The state and the decisions that the kernels since 2.6.23 share: *on-demand read-ahead* (Wu Fengguang).
//!
//! Nothing is done as long as pages are there. Two things call the kernel: a page that is absent, and a page that
//! carries the mark of the newest window. The state is that window, nothing more:
//!
//! ```text
//!                        |<----- async_size ---------|
//!     |------------------- size -------------------->|
//!     start              mark                        start + size
//! ```
//!
//! A reader that comes to the mark is sequential beyond doubt: the next window is asked for while `async_size` pages
//! are still unread, and is larger than the one before, up to the limit.
//!
//! Source of what follows: mm/readahead.c and mm/filemap.c of Linux 6.12 and 7.2; what changed between them is in
//! [`Rules`].

mod search;

use crate::access::PAGE_BYTES;
use crate::streams::States;
use crate::{
    Access, Advice, By, Event, FileId, Folio, Found, Limits, OpenId, Page, Request, Requests, Rest, View, Wants,
};

/// Most pages of one step of an explicit request: 2 MiB (`force_page_cache_ra`).
const FORCED_CHUNK_PAGES: u64 = 512;
/// From this many misses more than hits on, mappings get no read-around (`MMAP_LOTSAMISS`).
const LOTS_OF_MISSES: u32 = 100;
/// The balance of misses is kept no higher (`MMAP_LOTSAMISS * 10`).
const MOST_MISSES: u32 = 10 * LOTS_OF_MISSES;
/// A huge page has 512 pages (`HPAGE_PMD_ORDER` on x86-64; 2 MiB at most since 7.x).
const HUGE_ORDER: u8 = 9;

/// What changed between kernels that otherwise decide alike.
#[derive(Clone, Copy, Debug)]
pub struct Rules {
    /// The folio size is remembered with the window and grows with it; before 6.16 it was that of the marked folio.
    pub order_is_remembered: bool,
    /// A window that reaches the end of the file has no mark (after 6.18).
    pub no_mark_at_end: bool,
    /// Pages of programs are read from the fault on, not around it (since 6.16).
    pub programs_forwards: bool,
    /// Faults of programs and of sequential mappings do not count as misses, and what is mapped around counts once per
    /// fault; before, each page that was mapped around took one miss away (after 6.18).
    pub misses_balanced: bool,
    /// Where a page of a large folio is cached already, the whole window is read again from there on (until 6.15 or
    /// so), not what is left of it.
    pub reads_again: bool,
    /// A history as long as the window counts in full; before, its farthest page was left out (after 6.18;
    /// `page_cache_prev_miss`).
    pub whole_history: bool,
    /// A mapping that asks for huge pages gets their windows from every file system; after 6.18 only from those with
    /// large folios, and in the largest of these.
    pub huge_anywhere: bool,
}

/// `struct file_ra_state`: what the kernel keeps for each opening. Sizes in pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct State {
    /// Where the newest window begins.
    pub start: Page,
    /// Its length.
    pub size: u64,
    /// With so many pages left the next one is due.
    pub async_size: u64,
    /// Largest window of this opening; `None`: that of the disk, until advice changes it.
    pub window_pages: Option<u64>,
    /// Folio size of the newest window, as a power of two.
    pub order: u8,
    /// Faults that missed, less those that hit.
    pub mmap_miss: u32,
    /// Where the last finished read ended, bytes; -1 before the first.
    pub prev_pos: i64,
    /// Where the read that is going on will end, bytes.
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
    /// The page that the last finished read ended in; before the first read none that any page follows.
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

/// What a decision comes to, in the terms of the kernel's own tracepoints (`readahead:*`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Nothing is read, but for what the access itself has to wait for.
    Nothing,
    /// A window, as it is handed to `page_cache_ra_order`: neither the file's end nor the largest folio have cut it
    /// yet.
    Window {
        /// First page.
        first: Page,
        /// Length, pages.
        size: u64,
        /// So many pages from its end the mark is due.
        async_size: u64,
        /// Folio size as a power of two.
        order: u8,
    },
    /// These pages and no mark (`page_cache_ra_unbounded`, in steps of 2 MiB for an explicit request).
    Exact {
        /// First page.
        first: Page,
        /// How many; the file may end before.
        pages: u64,
    },
}

/// The place of one decision.
pub struct Decision<'a> {
    /// The kernel's rules.
    pub rules: &'a Rules,
    /// The file.
    pub file: FileId,
    /// What is cached.
    pub view: &'a dyn View,
    /// Where requests go.
    pub requests: &'a mut Requests,
}

impl Decision<'_> {
    fn limits(&self) -> Limits {
        self.view.limits(self.file)
    }

    /// The largest window for a request of so many pages (`ractl_max_pages`).
    fn most(&self, state: &State, wanted: u64) -> u64 {
        let (limits, window) = (self.limits(), state.window(&self.limits()));
        if wanted > window && limits.request_pages > window { wanted.min(limits.request_pages) } else { window }
    }

    /// A read has missed (`page_cache_sync_ra`).
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
            // What a stream leaves behind: the pages before this one.
            let seen = self.history(page, most);
            let history = if seen == most && !self.rules.whole_history { seen - 1 } else { seen };
            if history <= wanted {
                self.single_pages(page, wanted, None);
                return Outcome::Exact { first: page, pages: wanted };
            }
            // All of it since the file's beginning: the stream is longer than it looks.
            let weight = if history == page { 2 * history } else { history };
            state.size = (weight + wanted).min(most);
            state.async_size = 1;
        }
        (state.start, state.order) = (page, 0);
        self.window(state, page, 0)
    }

    /// A marked folio was touched (`page_cache_async_ra`); `page` is its first one for a read, the touched one for a
    /// fault.
    pub fn marked(&mut self, state: &mut State, page: Page, folio: Folio, wanted: u64) -> Outcome {
        if state.window(&self.limits()) == 0 {
            return Outcome::Nothing;
        }
        let most = self.most(state, wanted);
        let mark = (state.start + state.size).wrapping_sub(state.async_size);
        if page == round_down(mark, folio.pages()) {
            state.start += state.size;
            // One for a huge page may have been larger than any other.
            state.size = next_size(state.size, most).max(state.size);
        } else {
            // The mark of another reader: what is cached after it tells how far that one was ahead.
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

    /// A fault has missed (`do_sync_mmap_readahead`).
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
            // Two huge pages, so that there is a mark on the second one, unless nothing is to be read ahead. The
            // window's place is not noted.
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

    /// An explicit request (`force_page_cache_ra`): what one call may ask for is cut without a word.
    pub fn forced(&mut self, state: &State, first: Page, pages: u64) -> Outcome {
        let limits = self.limits();
        let end = first.saturating_add(pages.min(limits.request_pages.max(state.window(&limits))));
        for chunk in (first..end).step_by(FORCED_CHUNK_PAGES as usize) {
            self.single_pages(chunk, FORCED_CHUNK_PAGES.min(end - chunk), None);
        }
        Outcome::Exact { first, pages: end - first }
    }

    /// How many pages before `page` are cached, as the kernel finds it.
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

    /// Requests the window of the state, from `first` on (`page_cache_ra_order`). `marked`: folio size of the page
    /// whose mark called us.
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

    /// The state of an opening, to look at or to set.
    pub fn state(&mut self, open: OpenId) -> &mut State {
        self.states.of(open)
    }

    /// The disk's window of this moment is taken over; later changes reach files that are opened later.
    fn advised(&mut self, open: OpenId, advice: Advice, window_pages: u64) {
        let state = self.states.of(open);
        match advice {
            Advice::Normal => (state.window_pages, state.random) = (Some(window_pages), false),
            Advice::Sequential => (state.window_pages, state.random) = (Some(2 * window_pages), false),
            Advice::Random => state.random = true,
        }
    }

    /// A page is there (`filemap_readahead`, `do_async_mmap_readahead`).
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
                    // What was mapped without a look at the page is counted there.
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
            // Newer kernels have counted the hit already, and do not count the fault that comes again after a wait.
            Event::Mapped { open, mapped, .. } if !self.rules.misses_balanced => {
                let state = self.states.of(open);
                state.mmap_miss = state.mmap_miss.saturating_sub(mapped.min(u64::from(MOST_MISSES)) as u32);
            }
            _ => {}
        }
    }
}
