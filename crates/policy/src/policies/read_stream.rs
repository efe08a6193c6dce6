//! `read-stream`: the distance of PostgreSQL's read streams (version 18).
//!
//! A scan has a list of its next blocks; the policy decides how many of them to keep in flight. The distance starts at
//! one block and doubles with each read that had to be started. It decreases by one block with each block that was
//! cached already. So a cached table is scanned without look-ahead, and a cold one soon with the largest distance.
//!
//! ```text
//!     ▲ block being used   │ pinned, read or in flight    │
//!                          └────────── distance ──────────┘   neighbours are one read, up to 128 KiB
//! ```
//!
//! Source: src/backend/storage/aio/read_stream.c. Blocks have 8 KiB, two pages; the largest distance is `effective_io_concurrency` 16 times
//! `io_combine_limit` 16 blocks. A page cache does not know scans: here the next blocks are those after the reader, after two sequential
//! requests or from the start of the file on.

use crate::access::PAGE_BYTES;
use crate::streams::States;
use crate::{Access, Event, Found, Page, Policy, Requests, View, Wants};

/// A block (`BLCKSZ` 8192), pages.
pub const BLOCK_PAGES: u64 = 8192 / PAGE_BYTES;
/// Largest combined read, blocks (`io_combine_limit`, 128 KiB).
pub const COMBINED_BLOCKS: u64 = 16;
/// Concurrent reads (`effective_io_concurrency`).
pub const CONCURRENCY: u64 = 16;

#[derive(Clone, Copy, Debug, Default)]
struct ReadStreamState {
    next: Page,
    asked: Page,
    /// Blocks.
    distance: u64,
}

/// PostgreSQL's distance.
#[derive(Clone, Debug, Default)]
pub struct ReadStream {
    states: States<ReadStreamState>,
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
        // Complete combined reads, unless the reader would have no block left.
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
