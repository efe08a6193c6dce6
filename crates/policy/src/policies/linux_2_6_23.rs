//! `linux-2.6.23`: the first on-demand read-ahead (Wu Fengguang, 2007). One window instead of two, and a mark.
//!
//! Read-ahead is called on a miss and on a marked page, never on other hits. The mark is on the first page of each window that was requested
//! ahead, so one window is always in flight. The length of the last window determines the next.
//!
//! ```text
//!     expected page (mark, or right after the window) ──▶ next window, twice or four times as long
//!     first page, or right after the last read ─────────▶ first window
//!     mark of another reader ───────────────────────────▶ the next hole in the cache is the end of that reader's window
//!     any other page ───────────────────────────────────▶ only the requested pages
//! ```
//!
//! Sources: mm/readahead.c of 2.6.24; history pages (*context*) came with 2.6.31. A congested queue prevents only windows that are requested
//! ahead. Faults read around the page as in earlier 2.6; those of mappings with sequential advice are handled like reads of one page. Advice on
//! the whole file changes the window ([`super::fadvise`]). The numbers 100 (`MMAP_LOTSAMISS`) and 16 (`max / 16`, below which windows become
//! four times as long) are from the source.

use super::fadvise;
use super::linux_2_6::LOTS_OF_MISSES;
use super::on_demand::first_size;
use crate::access::PAGE_BYTES;
use crate::streams::States;
use crate::{Access, Advice, By, Event, Found, Page, Policy, Request, Requests, View, Wants};

/// The state of an open file (`struct file_ra_state`), pages.
#[derive(Clone, Copy, Debug, Default)]
struct Linux2623State {
    start: Page,
    size: u64,
    async_size: u64,
    /// The last page of the last read, or the last touched page; `None` before the first.
    last: Option<Page>,
    /// The last page of the current read.
    ends_in: Option<Page>,
    mmap_miss: u64,
    mmap_hit: u64,
    advice: Advice,
}

/// A kernel of this version.
#[derive(Clone, Debug, Default)]
pub struct Linux2623 {
    states: States<Linux2623State>,
}

/// The window after one of `size` pages (`get_next_ra_size`).
fn next_size(size: u64, most: u64) -> u64 {
    (if size < most / 16 { 4 * size } else { 2 * size }).min(most)
}

impl Linux2623State {
    /// A fault without advice: reads around the page, unless there are a hundred more misses than hits (`filemap_fault`).
    fn read_around(&mut self, access: &Access, advice: Advice, most: u64, view: &dyn View, requests: &mut Requests) {
        if advice == Advice::Random {
            return;
        }
        if access.found != Found::Absent {
            self.mmap_hit += 1;
            return;
        }
        self.mmap_miss += 1;
        if self.mmap_miss <= self.mmap_hit + LOTS_OF_MISSES && !view.queue(access.file).is_congested() {
            let first = access.page.saturating_sub(most / 2);
            requests.pages(access.file, first, most.min(view.file_pages(access.file).saturating_sub(first)));
        }
    }

    /// `ondemand_readahead`. False: only the requested pages are read.
    fn decide(&mut self, access: &Access, marked: bool, most: u64, view: &dyn View) -> Option<bool> {
        let (page, wanted) = (access.page, access.wanted);
        let end = self.start + self.size;
        if page > 0 && (Some(page) == end.checked_sub(self.async_size) || page == end) {
            self.start = end;
            self.size = next_size(self.size, most);
            self.async_size = self.size;
            return Some(true);
        }
        let sequential = wanted > most || self.last.map_or(page == 0, |last| page.wrapping_sub(last) <= 1);
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
        Wants { calls: true, faults: true, ..Wants::default() }
    }

    fn access(&mut self, access: &Access, view: &dyn View, requests: &mut Requests) {
        let state = self.states.of(access.open);
        let most = fadvise::window(state.advice, view.limits(access.file).window_pages);
        match access.by {
            By::Read if access.begins => {
                let end_bytes = access.call.offset_bytes + access.call.length_bytes;
                state.last = state.ends_in.replace(end_bytes.saturating_sub(1) / PAGE_BYTES).or(state.last);
            }
            By::Read => {}
            By::Fault { advice: Advice::Sequential, .. } => {
                state.last = state.ends_in.replace(access.page).or(state.last)
            }
            By::Fault { advice, .. } => {
                state.ends_in = Some(access.page);
                return state.read_around(access, advice, most, view, requests);
            }
        }
        let marked = access.found.is_marked();
        if access.found != Found::Absent && (!marked || view.queue(access.file).is_congested()) {
            return;
        }
        let file_pages = view.file_pages(access.file);
        let request = |first: Page, pages: u64, mark: Option<Page>| {
            let pages = pages.min(file_pages.saturating_sub(first));
            Request { first, pages, mark, ..Request::of(access.file) }
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

    fn event(&mut self, event: &Event, view: &dyn View, requests: &mut Requests) {
        match *event {
            Event::Opened { open, .. } | Event::Closed { open } => self.states.forget(open),
            Event::Advised { open, advice, .. } => self.states.of(open).advice = advice,
            Event::WillNeed { file, first, pages, .. } => fadvise::will_need(file, first, pages, view, requests),
            Event::Mapped { open, pages, .. } => self.states.of(open).mmap_hit += pages - 1,
            _ => {}
        }
    }
}
