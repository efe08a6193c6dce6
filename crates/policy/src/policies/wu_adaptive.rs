//! `wu-adaptive`: windows limited by the lifetime of pages in memory (Wu Fengguang's adaptive read-ahead, 2005 to 2007).
//!
//! Pages that were read ahead are on the inactive list until they are used. If the list is too short for all streams, pages are evicted before
//! use and read again: *thrashing*. So the length of the list, divided among the streams by their speed, limits the window:
//!
//! ```text
//!     inactive list   new ▶ │ · · unread pages of this stream · · ahead of them those of all others · · │ ▶ evicted
//!                           └──── global_size: free and inactive pages ──────────────────────────────┘
//!     while the whole list moved by global_shift pages, this stream used stream_shift of its pages
//!     ─▶ it will have used T = stream_shift × global_size / global_shift pages when its newest page is evicted
//! ```
//!
//! *State method*, at a mark: the new window and the unread pages must fit into T. If the unread pages are about to be evicted, they are moved
//! to the new end of the list and nothing is read. *Context method*, at a miss without a window: the cached pages right before this page are
//! a lower bound of T.
//!
//! A first window is moderate, and the next one is requested as early as possible, to learn T soon.
//!
//! Sources: the patch of October 2005 and later versions, as posted. The look-ahead share of 8 is from memory. Not modelled: the bias of new
//! streams on a thrashing device, and the three samples of the history (here all of it is checked).

use super::on_demand::first_size;
use crate::access::PAGE_BYTES;
use crate::streams::States;
use crate::{Access, Event, FileId, Found, Memory, Page, Policy, Request, Requests, View, Wants};

/// Share of T that is used, percent (`readahead_ratio`).
pub const RATIO_PERCENT: u64 = 50;
/// The look-ahead is the window divided by this (`LOOKAHEAD_RATIO`).
pub const LOOKAHEAD_SHARE: u64 = 8;
/// Default of the smallest window (`VM_MIN_READAHEAD`, 16 KiB; 32 KiB in his patch of 2010).
pub const LEAST_PAGES: u64 = 4;

/// The state of an open file.
#[derive(Clone, Copy, Debug, Default)]
struct WuAdaptiveState {
    /// First page of the newest request.
    requested: Page,
    mark: Page,
    end: Page,
    /// The position of the reader at that time.
    reader: Page,
    /// [`Memory::added_pages`] at that time.
    added: u64,
    /// The ends of the current read and of the one before it, bytes.
    ends_at: Option<u64>,
    prev_pos: Option<u64>,
}

/// Windows limited by memory.
#[derive(Clone, Debug)]
pub struct WuAdaptive {
    /// Smallest window, pages; the disk's window if that is smaller.
    least: u64,
    states: States<WuAdaptiveState>,
}

impl WuAdaptive {
    /// With this smallest window, pages.
    pub fn new(least_pages: u64) -> WuAdaptive {
        WuAdaptive { least: least_pages.max(1), states: States::default() }
    }
}

struct Turn<'a> {
    file: FileId,
    page: Page,
    wanted: u64,
    least: u64,
    most: u64,
    view: &'a dyn View,
    requests: &'a mut Requests,
}

/// The number of pages that the stream can use before its newest page is evicted, and before its current unread pages are.
fn thrashing_threshold(memory: &Memory, global_shift: u64, stream_shift: u64) -> (u64, u64) {
    let size = memory.free_pages + memory.inactive_pages;
    let shift = u128::from(global_shift.max(1));
    let times =
        |pages: u64| (u128::from(stream_shift) * u128::from(pages) / shift).min(u128::from(u64::MAX / 256)) as u64;
    (times(size) * RATIO_PERCENT / 100, times(size.saturating_sub(global_shift)))
}

impl Turn<'_> {
    /// Handles the newest mark.
    fn by_state(&mut self, state: &mut WuAdaptiveState) {
        let memory = self.view.memory();
        let stream_shift = self.page.saturating_sub(state.reader).max(1);
        let (threshold, remain) = thrashing_threshold(&memory, memory.added_pages - state.added, stream_shift);
        let unread = state.end.saturating_sub(state.mark);
        if remain <= unread && unread > 1 {
            return self.requests.rescue(self.file, state.mark, unread);
        }
        if threshold <= unread {
            return;
        }
        let old = state.end - state.requested;
        let limit = self.most.min(2 * old + self.most.saturating_sub(old) / 16);
        let size = (threshold - unread).min(limit);
        let mut ahead = (1 + (threshold - unread) / LOOKAHEAD_SHARE).min(size);
        // At least a quarter of the window should be unread when the next one is requested.
        let stream = unread + size - ahead;
        if stream < size / 4 {
            ahead -= (size / 4 - stream).min(ahead);
        }
        self.ask(state, state.end, size, ahead);
    }

    /// Handles a miss of an unknown reader, by its history in the cache.
    fn by_context(&mut self, state: &mut WuAdaptiveState) -> bool {
        // As far back as a complete window with its look-ahead needs.
        let back = self.most * (LOOKAHEAD_SHARE + 1) * 100 / (RATIO_PERCENT + 1);
        let history = self.view.present_before(self.file, self.page, back);
        if history == 0 {
            return false;
        }
        let bound = history * RATIO_PERCENT / 100;
        let mut size = bound.max(self.least).max(self.wanted).min(self.most);
        let mut ahead = 1 + size / LOOKAHEAD_SHARE;
        if history == self.page {
            // The reader has read the file from its start: twice the speed.
            size = (2 * size).min(self.most);
            ahead = size / 2;
        }
        self.ask(state, self.page, size, ahead.min(size));
        true
    }

    fn ask(&mut self, state: &mut WuAdaptiveState, first: Page, size: u64, ahead: u64) {
        let file_pages = self.view.file_pages(self.file);
        let (mut end, mut mark) = (first + size, Some(first + size - ahead));
        if end + size / 2 > file_pages {
            // The rest would be so short that it is read, too.
            (end, mark) = (file_pages, None);
        }
        let pages = end.saturating_sub(first);
        self.requests.add(Request { first, pages, mark, ..Request::of(self.file) });
        (state.requested, state.mark, state.end) = (first, mark.unwrap_or(end), end);
        (state.reader, state.added) = (self.page, self.view.memory().added_pages);
    }
}

impl Policy for WuAdaptive {
    fn wants(&self) -> Wants {
        Wants { calls: true, ..Wants::default() }
    }

    fn access(&mut self, access: &Access, view: &dyn View, requests: &mut Requests) {
        let state = self.states.of(access.open);
        if access.begins {
            let end = access.call.offset_bytes + access.call.length_bytes;
            state.prev_pos = state.ends_at.replace(end);
        }
        let most = view.limits(access.file).window_pages;
        let (file, page, wanted, least) = (access.file, access.page, access.wanted, self.least);
        let mut turn = Turn { file, page, wanted, least, most, view, requests };
        if most == 0 {
            return;
        }
        if access.found.is_marked() && !turn.view.queue(access.file).is_congested() {
            if access.page == state.mark {
                turn.by_state(state);
            } else if let Some(hole) = view.next_absent(access.file, access.page + 1, most) {
                // The mark of another reader, or an older one of this reader: the window is as far ahead again.
                let size = (2 * (hole - access.page)).min(most);
                turn.ask(state, hole, size, size);
            }
        } else if access.found == Found::Absent {
            let sequential =
                state.prev_pos.is_some_and(|pos| access.page.wrapping_sub(pos.saturating_sub(1) / PAGE_BYTES) <= 1);
            if access.page == 0 {
                // A new file: four times the requested pages, and at most four times the smallest window. The mark is in the middle, so that
                // the speed of the stream is known soon.
                let wanted = access.wanted.clamp(1, self.least);
                let size = (4 * wanted).min(most).max(access.wanted.min(most));
                turn.ask(state, 0, size, (2 * wanted).min(size));
            } else if !turn.by_context(state) {
                if sequential || access.wanted > most {
                    let size = first_size(access.wanted, most);
                    turn.ask(state, access.page, size, size.saturating_sub(access.wanted).max(1));
                } else {
                    let left = view.file_pages(access.file).saturating_sub(access.page);
                    turn.requests.pages(access.file, access.page, access.wanted.min(left));
                }
            }
        }
    }

    fn event(&mut self, event: &Event, _view: &dyn View, _requests: &mut Requests) {
        if let Event::Opened { open, .. } | Event::Closed { open } = event {
            self.states.forget(*open);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Cache;

    /// The request at a miss with this much history, within the file.
    fn asked(least: u64, window: u64, history: u64) -> u64 {
        let mut cache = Cache::new(2048, window);
        cache.fill(&Request { first: 1024 - history, pages: history, ..Request::of(FileId(0)) });
        let mut requests = Requests::default();
        WuAdaptive::new(least).access(&Access::read(1024, 1, Found::Absent), &cache, &mut requests);
        requests.take().iter().map(|request| request.pages).sum()
    }

    #[test]
    fn window_after_a_history_is_not_shorter_than_the_minimum() {
        assert_eq!([4, 8].map(|least| asked(least, 32, 1)), [4, 8]);
        assert_eq!([4, 8].map(|least| asked(least, 32, 40)), [20, 20], "half of the history");
        assert_eq!(asked(1 << 24, 32, 1), 32, "no longer than the disk's window");
    }
}
