//! `linux-1.3`: synchronous read-ahead, the kernel that Roudier set out from.
//!
//! ```text
//!     page is locked (our own read of it has just begun) ──▶ ask for 8 more pages ──▶ wait for the page
//! ```
//!
//! Whoever waits anyway asks for more first. But as long as pages are there nothing is asked for, so the disk stands
//! still while the program computes, once in nine pages.
//!
//! Sources: what Roudier's patch of April 1996 takes out of `generic_file_read`, and its constants. When the read-ahead
//! flag is set and how much a short read asks for is from memory of the 1.3 sources, not checked. There is none for
//! mappings.

use crate::streams::States;
use crate::{Access, By, Event, Found, Policy, Requests, View, Wants};

/// Most pages ahead (`MAX_READAHEAD` in the patch: `PAGE_SIZE*8`).
pub const MOST_PAGES: u64 = 8;

/// The state of an opening.
#[derive(Clone, Copy, Debug, Default)]
struct State {
    /// A read has ended where the next one begins (`f_reada`): set by reading, cleared by seeking.
    reads_on: bool,
    /// Where the last read will have ended, bytes.
    ends_at: u64,
}

/// A kernel of this version.
#[derive(Clone, Debug, Default)]
pub struct Linux13 {
    states: States<State>,
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
            // Also one to where the position was: what is read next counts as the first read.
            Event::Sought { open, .. } => self.states.of(*open).ends_at = 0,
            _ => {}
        }
    }
}
