//! `read-stream`: the distance of PostgreSQL's read streams (version 18).
//!
//! A scan knows which blocks it will need; the question is only how many of them to have under way. The distance starts
//! at one block, doubles with each read that had to be started, and falls by one block with each that was there
//! already: a cached table is scanned without any look-ahead, a cold one soon with the most there may be.
//!
//! ```text
//!     ▲ block being used   │ pinned, read or on their way │
//!                          └────────── distance ──────────┘   neighbours are read as one, up to 128 KiB
//! ```
//!
//! Source: src/backend/storage/aio/read_stream.c. Blocks are of 8 KiB, two pages; the most is
//! `effective_io_concurrency` 16 times `io_combine_limit` 16 blocks. A page cache knows no scan: here the blocks that
//! will be needed are those after the reader, once it has read two requests in a row or begins at the file's beginning.

use crate::access::PAGE_BYTES;
use crate::streams::States;
use crate::{Access, Event, Found, Page, Policy, Requests, View, Wants};

/// A block (`BLCKSZ` 8192), pages.
pub const BLOCK_PAGES: u64 = 8192 / PAGE_BYTES;
/// Blocks that are read as one (`io_combine_limit`, 128 KiB).
pub const COMBINED_BLOCKS: u64 = 16;
/// Reads under way at the same time (`effective_io_concurrency`).
pub const CONCURRENCY: u64 = 16;

#[derive(Clone, Copy, Debug, Default)]
struct State {
    next: Page,
    asked: Page,
    /// Blocks.
    distance: u64,
}

/// PostgreSQL's distance.
#[derive(Clone, Debug, Default)]
pub struct ReadStream {
    states: States<State>,
}

impl Policy for ReadStream {
    fn wants(&self) -> Wants {
        Wants { pages: true, faults: true, ..Wants::default() }
    }

    fn access(&mut self, access: &Access, view: &dyn View, requests: &mut Requests) {
        let state = self.states.of(access.open);
        let (page, file_pages) = (access.page, view.file_pages(access.file));
        let goes_on = page == 0 || (state.next > 0 && page == state.next);
        state.next = page + 1;
        if !goes_on {
            (state.distance, state.asked) = (0, 0);
            if access.found == Found::Absent {
                requests.pages(access.file, page, access.wanted.min(file_pages.saturating_sub(page)));
                state.asked = access.end();
            }
            return;
        }
        if page % BLOCK_PAGES != 0 && access.found != Found::Absent {
            return;
        }
        let from = state.asked.max(page);
        let to = page + state.distance.max(1) * BLOCK_PAGES;
        // Whole combined reads, unless the reader would have nothing left meanwhile.
        let combined = COMBINED_BLOCKS * BLOCK_PAGES;
        if to > from && (to - from >= combined.min(state.distance * BLOCK_PAGES) || from <= page) {
            let pages = (to - from).min(file_pages.saturating_sub(from));
            let missing = view.absent(access.file, from, pages);
            state.asked = from + pages;
            requests.pages(access.file, from, pages);
            state.distance = if missing > 0 {
                (2 * state.distance.max(1)).min(CONCURRENCY * COMBINED_BLOCKS)
            } else {
                state.distance.saturating_sub(pages / BLOCK_PAGES).max(1)
            };
        }
    }

    fn event(&mut self, event: &Event, _view: &dyn View, _requests: &mut Requests) {
        match *event {
            Event::Opened { open, .. } | Event::Closed { open } => self.states.forget(open),
            Event::Mapped { open, first, pages, .. } => self.states.of(open).next = first + pages,
            _ => {}
        }
    }
}
