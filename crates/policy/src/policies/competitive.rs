//! `competitive`: requests as long as what the disk transfers during a switch (Li, Shen and Papathanasiou, EuroSys
//! 2007).
//!
//! Two readers on one disk cost a switch of its arm per request. A request is as long as what the disk would have read
//! in the time of a switch. So at most half of the time is spent on switching, whatever the pattern is. If the pages
//! are not used, at most half of the time was spent on them. The throughput is therefore at least half of that of a
//! clairvoyant policy.
//!
//! ```text
//!     depth = bandwidth × switch time          8 ms at 100 MB/s: 195 pages
//! ```
//!
//! The description of the disk comes from its model or from a measurement. A reader is sequential from its second
//! consecutive request on. The next depth is requested when half of the last one is read.
//!
//! Source: the paper. Its detection of sequential readers is that of Linux 2.6.10, simplified here to two consecutive
//! requests.

use crate::streams::States;
use crate::{Access, DeviceDescription, Event, Found, Page, Policy, Request, Requests, View, Wants};

#[derive(Clone, Copy, Debug, Default)]
struct CompetitiveState {
    /// The expected next page of the reader; 0: unknown.
    next: Page,
    /// One after the last requested page.
    end: Page,
}

/// Requests as long as a switch of the disk.
#[derive(Clone, Debug)]
pub struct Competitive {
    depth: u64,
    states: States<CompetitiveState>,
}

impl Competitive {
    /// A policy for a disk of this description.
    pub fn new(device: &DeviceDescription) -> Competitive {
        Competitive { depth: device.pages_per_access(), states: States::default() }
    }
}

impl Policy for Competitive {
    fn wants(&self) -> Wants {
        Wants { calls: true, ..Wants::default() }
    }

    fn access(&mut self, access: &Access, view: &dyn View, requests: &mut Requests) {
        let state = self.states.of(access.open);
        let (page, file_pages) = (access.page, view.file_pages(access.file));
        let sequential = page == 0 || (state.next > 0 && page == state.next) || (page > 0 && page < state.end);
        if access.begins {
            state.next = access.end();
        }
        if !sequential && access.found == Found::Absent {
            state.end = 0;
            return requests.pages(access.file, page, access.wanted.min(file_pages.saturating_sub(page)));
        }
        let first = match access.found {
            Found::Absent => page,
            _ if access.found.is_marked() => state.end.max(page + 1),
            _ => return,
        };
        let pages = self.depth.max(if first == page { access.wanted } else { 1 });
        let pages = pages.min(file_pages.saturating_sub(first));
        state.end = first + pages;
        let mark = Some(first + pages / 2);
        requests.add(Request { first, pages, mark, ..Request::of(access.file) });
    }

    fn event(&mut self, event: &Event, _view: &dyn View, _requests: &mut Requests) {
        if let Event::Opened { open, .. } | Event::Closed { open } = event {
            self.states.forget(*open);
        }
    }
}
