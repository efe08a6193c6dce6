//! `true-readahead(n, P)`: the policy of O'Connor and Tracy (2000). It also acts on hits, and never blocks.
//!
//! The file is divided into groups of n pages. The trigger is the second page of the file and every P accesses after
//! it, on hits and misses. At a trigger in group g, the policy requests all pages of g and g + 1 that were not
//! requested yet:
//!
//! ```text
//!     │ group g            │ group g + 1        │
//!     │ used ▲ requested   │ requested     │    │      high: the first page that was not requested yet
//!            access                        high
//! ```
//!
//! When the queue is full, the rest is dropped; `high` stays at the first dropped page, and the next trigger requests it again. So the program
//! waits only for pages that it needs. For n below P the period is n.
//!
//! The authors found P = 16 by trial; *"an optimal value for P could in principle be determined adaptively"*, says the paper. P = `adaptive`
//! does this: it doubles, up to n, when a trigger has nothing to request, and halves when the program waited.
//! A group is requested in two halves. In 2.2 each page arrived separately: when the program entered group g + 1 and
//! requested g + 2, the other pages of g + 1 were still in flight. Today all pages of a request arrive together. With
//! one request for a group, nothing would be in flight at that moment. The disk would then be idle until g + 2 is
//! requested.
//! at that moment, and the disk would be idle until g + 2 is requested.
//!
//! n need not be a power of two, which the paper left open. Not in the paper: after a jump backwards by more than a group, or forwards beyond
//! the requested pages, the policy starts again there.

use crate::streams::States;
use crate::{Access, Event, Page, Policy, Request, Requests, View, Wants, WhenFull};

/// The paper's P.
pub const PERIOD: u64 = 16;

/// The period of triggers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Period {
    /// A fixed number of accesses.
    Fixed(u64),
    /// Adapted to the speed of the program.
    Adaptive,
}

/// The state of an open file.
#[derive(Clone, Copy, Debug, Default)]
struct TrueReadaheadState {
    /// Accesses since the last trigger; the first one is at the second access.
    accesses: u64,
    /// The first page that was not requested yet.
    high: Page,
    /// The adaptive period; 0: not known yet.
    period: u64,
    begun: bool,
}

/// Reads ahead by groups.
#[derive(Clone, Debug)]
pub struct TrueReadahead {
    group: u64,
    period: Period,
    states: States<TrueReadaheadState>,
}

impl TrueReadahead {
    /// With groups of this many pages.
    pub fn new(group: u64, period: Period) -> TrueReadahead {
        TrueReadahead { group, period, states: States::default() }
    }

    fn period(&self, state: &TrueReadaheadState) -> u64 {
        match self.period {
            Period::Fixed(period) => period.min(self.group),
            Period::Adaptive => state.period.clamp(1, self.group),
        }
    }
}

impl Policy for TrueReadahead {
    fn wants(&self) -> Wants {
        Wants { pages: true, faults: true, waits: true, ..Wants::default() }
    }

    fn access(&mut self, access: &Access, view: &dyn View, requests: &mut Requests) {
        let mut state = *self.states.of(access.open);
        let first = !state.begun;
        state.begun = true;
        state.accesses += 1;
        let due = state.accesses >= if first { 2 } else { self.period(&state) };
        // The first access is one before a trigger.
        if first {
            state.accesses = self.period(&state).saturating_sub(1);
        }
        if due {
            state.accesses = 0;
            let group = access.page - access.page % self.group;
            let is_elsewhere = state.high + self.group < access.page || access.page + 2 * self.group < state.high;
            let from = if is_elsewhere { group } else { state.high.max(group) };
            let end = group.saturating_add(2 * self.group).min(view.file_pages(access.file));
            let pages = end.saturating_sub(from);
            if pages == 0 {
                state.period = 2 * self.period(&state);
            } else {
                state.high = end;
                let parts = 2 * pages.div_ceil(self.group) as u32;
                let when_full = WhenFull::Drop;
                requests.add(Request { first: from, pages, when_full, parts, ..Request::of(access.file) });
            }
        }
        *self.states.of(access.open) = state;
    }

    fn event(&mut self, event: &Event, _view: &dyn View, _requests: &mut Requests) {
        match *event {
            Event::Opened { open, .. } | Event::Closed { open } => self.states.forget(open),
            Event::Dropped { open, first, .. } => {
                let state = self.states.of(open);
                state.high = state.high.min(first);
            }
            // Today's kernels map present pages around a fault; 2.2 had a fault for each page.
            Event::Mapped { open, pages, .. } => self.states.of(open).accesses += pages - 1,
            Event::Waited { open, .. } => {
                let state = self.states.of(open);
                state.period /= 2;
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Found;
    use crate::testing::Cache;

    /// Reads a file page by page; returns the requests, each with the page of its access.
    fn run(n: u64, period: Period, pages: u64, mut waits: impl FnMut(Page) -> bool) -> Vec<(Page, Page, u64)> {
        let (mut policy, mut cache) = (TrueReadahead::new(n, period), Cache::new(1000, 0));
        let (mut asked, mut requests) = (Vec::new(), Requests::default());
        for page in 0..pages {
            let found = cache.found(page);
            policy.access(&Access::read(page, 1, found), &cache, &mut requests);
            for request in requests.take() {
                cache.fill(&request);
                asked.push((page, request.first, request.pages));
            }
            if found == Found::Absent || waits(page) {
                let event = Event::Waited { open: crate::OpenId(0), file: crate::FileId(0), page, wait_ns: 1 };
                policy.event(&event, &cache, &mut requests);
            }
        }
        asked
    }

    #[test]
    fn groups_of_any_size_are_requested_two_at_a_time() {
        for n in [7, 16, 24, 100] {
            let asked = run(n, Period::Fixed(PERIOD), 300, |_| false);
            assert_eq!(asked[0], (1, 0, 2 * n), "{n}");
            // Each page once, complete groups, at most a period after the reader entered the group before.
            for pair in asked.windows(2) {
                let ((_, before, pages), (at, first, _)) = (pair[0], pair[1]);
                assert_eq!(before + pages, first, "{n}");
                assert!(first % n == 0 && at + n >= first && at < first - n + PERIOD.min(n), "{n}: {asked:?}");
            }
        }
    }

    #[test]
    fn half_of_a_group_is_in_flight_when_the_next_one_is_requested() {
        let (mut policy, cache) = (TrueReadahead::new(64, Period::Fixed(PERIOD)), Cache::new(1000, 0));
        let mut requests = Requests::default();
        for page in 0..66 {
            policy.access(&Access::read(page, 1, Found::Absent), &cache, &mut requests);
        }
        let asked: Vec<_> =
            requests.take().iter().map(|request| (request.first, request.pages, request.parts)).collect();
        assert_eq!(asked, [(0, 128, 4), (128, 64, 2)]);
    }

    #[test]
    fn adaptive_period_grows_without_requests_and_shrinks_with_waits() {
        let looks = |waits: bool| {
            let (mut policy, cache) = (TrueReadahead::new(64, Period::Adaptive), Cache::new(1000, 0));
            for page in 0..40 {
                policy.access(&Access::read(page, 1, Found::Absent), &cache, &mut Requests::default());
                if waits {
                    let event = Event::Waited { open: crate::OpenId(0), file: crate::FileId(0), page, wait_ns: 1 };
                    policy.event(&event, &cache, &mut Requests::default());
                }
            }
            let state = *policy.states.of(crate::OpenId(0));
            policy.period(&state)
        };
        assert!(looks(false) >= 16, "{}", looks(false));
        assert_eq!(looks(true), 1);
    }
}
