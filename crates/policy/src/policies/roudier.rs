//! `roudier`: asynchronous read-ahead for Linux 1.3.84 (Gérard Roudier, 6 April 1996).
//!
//! The first patch that reads ahead on a hit:
//!
//! ```text
//!     page locked      ──▶ 7 pages after it, then wait                       as before
//!     page present, and within the last request
//!       ──▶ the last page of the request is in flight?  nothing: one request at a time
//!       ──▶ else 8 more pages, and start the disk at once      the new part: the program continues to compute
//! ```
//!
//! So while the program processes one request, the next one is in flight: disk and processor work at the same time. A first read at a position,
//! not yet known to be sequential, requests at most two pages.
//!
//! Source: the complete patch (`generic_file_read`, its `f_rapos`, `f_ralen`). From 1.3 and from memory: each read sets the flag for the next
//! one, and a seek clears it.

use crate::access::PAGE_BYTES;
use crate::streams::States;
use crate::{Access, By, Event, Found, Page, Policy, Requests, View, Wants};

/// Read-ahead of a reader that is not known to be sequential (`MIN_READAHEAD`).
pub const LEAST_PAGES: u64 = 2;
/// Read-ahead of a sequential reader (`MAX_READAHEAD`).
pub const MOST_PAGES: u64 = 8;

/// The state of an open file.
#[derive(Clone, Copy, Debug, Default)]
struct RoudierState {
    /// Reads are sequential (`f_reada`).
    sequential: bool,
    /// Last page requested ahead (`f_rapos`).
    position: Page,
    /// Pages of the last request (`f_ralen`).
    length: u64,
    /// This read may request more on a hit (`try_async`).
    asynchronous: bool,
    /// The end of the last read, bytes.
    ends_at: u64,
}

/// Roudier's kernel.
#[derive(Clone, Debug, Default)]
pub struct Roudier {
    states: States<RoudierState>,
}

impl RoudierState {
    /// Starts a read.
    fn begin(&mut self, offset_bytes: u64, length_bytes: u64) {
        let position_bytes = self.position * PAGE_BYTES;
        // Each read sets the flag at its end, and a seek clears it.
        self.sequential = self.ends_at > 0 && self.ends_at == offset_bytes;
        self.ends_at = offset_bytes + length_bytes;
        if offset_bytes + length_bytes < LEAST_PAGES * PAGE_BYTES {
            self.sequential = false;
        } else if offset_bytes <= position_bytes && offset_bytes + self.length * PAGE_BYTES > position_bytes {
            self.sequential = true;
        }
        self.asynchronous = self.sequential;
    }
}

impl Policy for Roudier {
    fn wants(&self) -> Wants {
        Wants { pages: true, ..Wants::default() }
    }

    fn access(&mut self, access: &Access, view: &dyn View, requests: &mut Requests) {
        if access.by != By::Read {
            return;
        }
        let state = self.states.of(access.open);
        if access.begins {
            state.begin(access.call.offset_bytes, access.call.length_bytes);
        }
        let file_pages = view.file_pages(access.file);
        let most = if state.sequential { MOST_PAGES } else { LEAST_PAGES };
        let (base, ahead) = if !matches!(access.found, Found::Present { .. }) {
            if access.found == Found::Absent {
                requests.pages(access.file, access.page, 1.min(file_pages.saturating_sub(access.page)));
            }
            state.asynchronous = state.sequential;
            (access.page, most - 1)
        } else if state.asynchronous && state.position <= access.page + state.length {
            let end = state.position;
            let waits = end + 1 >= file_pages || view.is_locked(access.file, end);
            (end, if waits { 0 } else { most })
        } else {
            return;
        };
        if ahead == 0 {
            // This read tries no more, unless it has to wait for a page.
            state.asynchronous = false;
            return;
        }
        requests.pages(access.file, base + 1, ahead.min(file_pages.saturating_sub(base + 1)));
        (state.position, state.length) = (base + ahead, ahead);
    }

    fn event(&mut self, event: &Event, _view: &dyn View, _requests: &mut Requests) {
        match event {
            Event::Opened { open, .. } | Event::Closed { open } => self.states.forget(*open),
            // The flag is cleared, but the last request is still known, and a read within it sets the flag again.
            Event::Sought { open, .. } => self.states.of(*open).ends_at = 0,
            _ => {}
        }
    }
}
