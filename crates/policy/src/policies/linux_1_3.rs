//! `linux-1.3`: synchronous read-ahead, in the kernel that Roudier's patch changes.
//!
//! ```text
//!     page is locked (its read has just started) ──▶ request 8 more pages ──▶ wait for the page
//! ```
//!
//! A program that has to wait requests more pages first. On a hit nothing is requested, so the disk is idle while the program computes, once in
//! nine pages.
//!
//! Sources: the lines that Roudier's patch of April 1996 removes from `generic_file_read`, and its constants. From memory of the 1.3 sources,
//! not checked: when the read-ahead flag is set, and how much a short read requests. Mappings have no read-ahead.

use crate::streams::States;
use crate::{Access, By, Event, Found, Policy, Requests, View, Wants};

/// Limit of pages ahead (`MAX_READAHEAD` in the patch: `PAGE_SIZE*8`).
pub const MOST_PAGES: u64 = 8;

/// The state of an open file.
#[derive(Clone, Copy, Debug, Default)]
struct Linux13State {
    /// Reads are sequential (`f_reada`): set by a read, cleared by a seek.
    reads_on: bool,
    /// The end of the last read, bytes.
    ends_at: u64,
}

/// A kernel of this version.
#[derive(Clone, Debug, Default)]
pub struct Linux13 {
    states: States<Linux13State>,
}

impl Policy for Linux13 {
    fn wants(&self) -> Wants {
        Wants { pages: true, ..Wants::default() }
    }

    fn access(&mut self, access: &Access, view: &dyn View, requests: &mut Requests) {
        if access.by != By::Read {
            return;
        }
        let state = self.states.of(access.open);
        if access.begins {
            state.reads_on = state.ends_at > 0 && state.ends_at == access.call.offset_bytes;
            state.ends_at = access.call.offset_bytes + access.call.length_bytes;
        }
        if matches!(access.found, Found::Present { .. }) {
            return;
        }
        let left = view.file_pages(access.file).saturating_sub(access.page);
        let ahead = if state.reads_on || access.wanted > MOST_PAGES { MOST_PAGES } else { access.wanted - 1 };
        requests.pages(access.file, access.page, 1.min(left));
        requests.pages(access.file, access.page + 1, ahead.min(left.saturating_sub(1)));
    }

    fn event(&mut self, event: &Event, _view: &dyn View, _requests: &mut Requests) {
        match event {
            Event::Opened { open, .. } | Event::Closed { open } => self.states.forget(*open),
            // Also a seek to the current position: the next read counts as the first.
            Event::Sought { open, .. } => self.states.of(*open).ends_at = 0,
            _ => {}
        }
    }
}
