//! `linux-2.6.23`: the first on-demand read-ahead (Wu Fengguang, 2007). One window instead of two, and a mark.
//!
//! The kernel is called on a miss and on a marked page, never on a plain hit. The mark is on the first page of each window
//! that was asked for ahead, so that there is always one window under way; the last window's length tells the next one's.
//!
//! ```text
//!     expected page (mark, or right after the window) ──▶ next window, twice or four times as long
//!     first page, or right after the last read ─────────▶ first window
//!     marked, but not ours (another reader's) ──────────▶ the next hole in the cache tells how far that one had come
//!     anything else ────────────────────────────────────▶ just what is wanted
//! ```
//!
//! Sources: mm/readahead.c of 2.6.24; history pages (*context*) came with 2.6.31 and are not in it. The window is left alone
//! by congested queues only when it is asked for ahead. Faults go the same way as reads of one page.

use super::on_demand::first_size;
use crate::access::PAGE_BYTES;
use crate::streams::States;
use crate::{Access, By, Event, Found, Page, Policy, Request, Requests, View, Wants, WhenFull};

/// The state of an opening (`struct file_ra_state`), pages.
#[derive(Clone, Copy, Debug, Default)]
struct State {
    start: Page,
    size: u64,
    async_size: u64,
    /// Where the last read ended, bytes; `None` before the first.
    prev_pos: Option<u64>,
    /// Where the read that is going on will end, bytes.
    ends_at: Option<u64>,
}

/// A kernel of this version.
#[derive(Clone, Debug, Default)]
pub struct Linux2623 {
    states: States<State>,
}

/// The window after one of `size` pages (`get_next_ra_size`).
fn next_size(size: u64, most: u64) -> u64 {
    (if size < most / 16 { 4 * size } else { 2 * size }).min(most)
}

impl State {
    /// `ondemand_readahead`. False: only what is wanted.
    fn decide(&mut self, access: &Access, marked: bool, most: u64, view: &dyn View) -> Option<bool> {
        let (page, wanted) = (access.page, access.wanted);
        let end = self.start + self.size;
        if page > 0 && (Some(page) == end.checked_sub(self.async_size) || page == end) {
            self.start = end;
            self.size = next_size(self.size, most);
            self.async_size = self.size;
            return Some(true);
        }
        let sequential =
            wanted > most || self.prev_pos.map_or(page == 0, |pos| page.wrapping_sub(pos / PAGE_BYTES) <= 1);
        if !marked && !sequential {
            return Some(false);
        }
        if marked {
            let start = view.next_absent(access.file, page + 1, most)?;
            (self.start, self.size) = (start, next_size(start - page, most));
            self.async_size = self.size;
            return Some(true);
        }
        (self.start, self.size) = (page, first_size(wanted, most));
        self.async_size = if self.size > wanted { self.size - wanted } else { self.size };
        Some(true)
    }
}

impl Policy for Linux2623 {
    fn wants(&self) -> Wants {
        Wants { calls: true, ..Wants::default() }
    }

    fn access(&mut self, access: &Access, view: &dyn View, requests: &mut Requests) {
        let state = self.states.of(access.open);
        if access.begins || access.by != By::Read {
            let end = access.call.offset_bytes + access.call.length_bytes;
            state.prev_pos = state.ends_at.replace(end).or(state.prev_pos);
        }
        let marked = access.found.is_marked();
        let most = view.limits(access.file).window_pages;
        if access.found != Found::Absent && (!marked || view.queue(access.file).is_congested()) {
            return;
        }
        let file_pages = view.file_pages(access.file);
        let request = |first: Page, pages: u64, mark: Option<Page>| {
            let pages = pages.min(file_pages.saturating_sub(first));
            Request { file: access.file, first, pages, order: 0, mark, when_full: WhenFull::Wait }
        };
        if most == 0 {
            return;
        }
        match state.decide(access, marked, most, view) {
            Some(true) => {
                let mark = (state.start + state.size).checked_sub(state.async_size);
                requests.add(request(state.start, state.size, mark));
            }
            Some(false) => requests.add(request(access.page, access.wanted, None)),
            None => {}
        }
    }

    fn event(&mut self, event: &Event, _view: &dyn View, _requests: &mut Requests) {
        if let Event::Opened { open, .. } | Event::Closed { open } = event {
            self.states.forget(*open);
        }
    }
}
