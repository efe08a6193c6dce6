//! What is requested ahead of one reader of a mapped file, group by group. Pure: positions of the reader go in, ranges come out.
//!
//! ```text
//!                    front of the reader
//!                    ▼
//!     ── group g-1 ──┼──── group g ────┼──── group g+1 ────┼
//!                     requested again    requested when the
//!                     if absent          reader enters g
//! ```
//!
//! This is the rule of O'Connor and Tracy (2000): with `n` given, memory for 2n pages suffices. Without, the distance between the reader and
//! the end of the requests is that of [`Distance`]: it doubles when the reader waits.
//!
//! A unit is a page, or a record of a stride ([`Route`](crate::pattern::Route)). Units count in the direction of the reader.
//!
//! The user is the library for programs (`ahead_read::advise`), or the policy [`mapped-reader`](crate::policies::mapped_reader) on the simulator's
//! machine.

use crate::reading::{Distance, LARGEST_PIECE_BYTES};
use std::ops::Range;

/// Largest adaptive distance, bytes: 16 ms at 1 GB/s, the latency of a network disk and the time that a thread may wait for a processor.
pub const LARGEST_DISTANCE_BYTES: u64 = 16 << 20;

/// Distance of the samples if everything is cached, bytes: a scan of cached pages takes more than 10 ms for it, the longest time between two looks.
/// It takes no memory.
const CACHED_DISTANCE_BYTES: u64 = 128 << 20;

/// Cached groups in a row after which only a sample of each group is examined. The examination of each page would cost more than 5 % of the
/// time of a scan of cached pages.
const CACHED_IN_A_ROW: u32 = 4;

/// Largest group, units: 64 MiB of pages. The lists of its pages, one entry for each record of a stride, stay below 256 KiB.
pub const LARGEST_GROUP_UNITS: u64 = 16_384;

#[derive(Debug)]
enum Sizes {
    /// Bytes of a group.
    Given(u64),
    Adaptive(Distance),
}

/// The groups of one region.
#[derive(Debug)]
pub struct Groups {
    units: u64,
    unit_bytes: u64,
    sizes: Sizes,
    /// The first unit that the reader has not reached.
    front: u64,
    /// Where the reader began, or began again.
    start: u64,
    /// End of the requests.
    requested: u64,
    /// End of the group that the reader is in; 0 before its first access.
    group_end: u64,
    /// The rest of this group was not checked yet.
    is_unchecked: bool,
    /// All that was requested is to be checked again.
    is_doubtful: bool,
    /// A group was requested since the reader has entered this one.
    has_requested: bool,
    /// End of the group of the last wait.
    waited_in: Option<u64>,
    cached_in_a_row: u32,
}

impl Groups {
    /// `group_bytes`: size of a group; 0: adapts.
    pub fn new(units: u64, unit_bytes: u64, group_bytes: u64) -> Groups {
        let sizes = match group_bytes {
            0 => Sizes::Adaptive(Distance::new(LARGEST_DISTANCE_BYTES)),
            bytes => Sizes::Given(bytes),
        };
        Groups {
            units,
            unit_bytes,
            sizes,
            front: 0,
            start: 0,
            requested: 0,
            group_end: 0,
            is_unchecked: false,
            is_doubtful: false,
            has_requested: false,
            waited_in: None,
            cached_in_a_row: 0,
        }
    }

    /// The reader is somewhere else, or its units are others. What was learned about sizes stays.
    pub fn restart(&mut self, units: u64, unit_bytes: u64, front: u64) {
        (self.units, self.unit_bytes) = (units, unit_bytes);
        self.front = front.min(units);
        (self.start, self.requested) = (self.front, self.front);
        (self.group_end, self.waited_in) = (0, None);
        self.enter();
    }

    /// The first unit that the reader has not reached.
    pub fn front(&self) -> u64 {
        self.front
    }

    /// Units between the reader and the end of the requests.
    pub fn ahead(&self) -> u64 {
        self.requested.saturating_sub(self.front)
    }

    /// Whether an absent page at the front is late: it was requested, or the reader has outrun the requests.
    pub fn is_front_late(&self) -> bool {
        self.front < self.requested || self.is_outrun()
    }

    /// Whether the reader has come to the end of the requests.
    pub fn is_outrun(&self) -> bool {
        self.start < self.requested && self.requested <= self.front
    }

    /// Units of the next group.
    pub fn size(&self) -> u64 {
        let bytes = match &self.sizes {
            Sizes::Given(bytes) => *bytes,
            Sizes::Adaptive(_) if self.is_cached() => LARGEST_PIECE_BYTES,
            Sizes::Adaptive(distance) => distance.piece_bytes(),
        };
        (bytes / self.unit_bytes).clamp(1, self.units.clamp(1, LARGEST_GROUP_UNITS))
    }

    /// How far ahead of the reader requests may end, bytes.
    pub fn distance_bytes(&self) -> u64 {
        match &self.sizes {
            Sizes::Given(_) => 2 * self.size() * self.unit_bytes,
            Sizes::Adaptive(distance) => distance.bytes(),
        }
    }

    /// Whether the last groups were cached: samples suffice.
    pub fn is_cached(&self) -> bool {
        self.cached_in_a_row >= CACHED_IN_A_ROW
    }

    /// The reader has come to `front`. Small steps back change nothing: the pages there were read. Large ones are a new beginning.
    pub fn moved(&mut self, front: u64) {
        let front = front.min(self.units);
        if front < self.front {
            if self.front - front > 2 * self.size() {
                self.restart(self.units, self.unit_bytes, front);
            }
            return;
        }
        self.front = front;
        self.enter();
    }

    fn enter(&mut self) {
        if self.front < self.group_end {
            return;
        }
        if std::mem::take(&mut self.has_requested)
            && let Sizes::Adaptive(distance) = &mut self.sizes
        {
            distance.requested();
        }
        self.group_end = self.end_of_group(self.front);
        self.is_unchecked = true;
    }

    fn end_of_group(&self, start: u64) -> u64 {
        let end = match &self.sizes {
            Sizes::Given(_) => (start / self.size() + 1) * self.size(),
            Sizes::Adaptive(_) => start + self.size(),
        };
        end.min(self.units)
    }

    /// End of what may be requested now.
    fn limit(&self) -> u64 {
        let end = match &self.sizes {
            Sizes::Given(_) => (self.front / self.size() + 2) * self.size(),
            Sizes::Adaptive(_) if self.is_cached() => self.front + (CACHED_DISTANCE_BYTES / self.unit_bytes).max(2),
            Sizes::Adaptive(distance) => self.front + (distance.bytes() / self.unit_bytes).max(2),
        };
        end.min(self.units)
    }

    /// The next group that is due. `None`: enough is requested.
    pub fn due(&self) -> Option<Range<u64>> {
        let start = self.requested.max(self.front);
        let end = self.end_of_group(start);
        (start < end && end <= self.limit()).then_some(start..end)
    }

    /// A group that was due is requested.
    pub fn submitted(&mut self, group: &Range<u64>) {
        (self.requested, self.has_requested, self.cached_in_a_row) = (group.end, true, 0);
    }

    /// All of a group that was due, or of its sample, is cached.
    pub fn found_cached(&mut self, group: &Range<u64>) {
        self.requested = group.end;
        self.cached_in_a_row = self.cached_in_a_row.saturating_add(1);
    }

    /// A page is absent: samples do not suffice.
    pub fn found_absent(&mut self) {
        self.cached_in_a_row = 0;
    }

    /// The rest of the group that the reader has just entered, as far as it was requested before: its absent pages were dropped, or are on their
    /// way. Once for each group.
    pub fn take_unchecked(&mut self) -> Option<Range<u64>> {
        let is_doubtful = std::mem::take(&mut self.is_doubtful);
        let end = if is_doubtful { self.requested } else { self.group_end.min(self.requested) };
        let rest = self.front..end;
        (std::mem::take(&mut self.is_unchecked) || is_doubtful).then_some(rest).filter(|rest| !rest.is_empty())
    }

    /// The reader has waited for so long that the requested pages were perhaps dropped, or evicted since: all are checked again.
    pub fn doubt(&mut self) {
        self.is_doubtful = true;
    }

    /// The reader waits for a request. Only the first wait in a group counts: a greater distance has an effect in the next one.
    pub fn waited(&mut self) -> bool {
        self.found_absent();
        if self.waited_in == Some(self.group_end) {
            return false;
        }
        self.waited_in = Some(self.group_end);
        if let Sizes::Adaptive(distance) = &mut self.sizes {
            distance.waited();
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const PAGE: u64 = 4096;

    /// Requests all that is due.
    fn request(groups: &mut Groups) -> Vec<Range<u64>> {
        let mut requested = Vec::new();
        while let Some(group) = groups.due() {
            groups.submitted(&group);
            requested.push(group);
        }
        requested
    }

    #[test]
    fn given_groups_are_requested_when_the_reader_enters_the_one_before() {
        let mut groups = Groups::new(100, PAGE, 16 * PAGE);
        assert_eq!(request(&mut groups), [0..16, 16..32]);
        groups.moved(15);
        assert!(request(&mut groups).is_empty());
        groups.moved(16);
        assert_eq!(request(&mut groups), [32..48]);
        groups.moved(40);
        assert_eq!(request(&mut groups), [48..64]);
        groups.moved(90);
        assert_eq!(request(&mut groups), [90..96, 96..100]);
        groups.moved(100);
        assert!(request(&mut groups).is_empty());
    }

    #[test]
    fn adaptive_groups_grow_with_the_reader_and_the_distance_with_waits() {
        let mut groups = Groups::new(1 << 20, PAGE, 0);
        assert_eq!(request(&mut groups), [0..32, 32..64]);
        groups.moved(1);
        assert_eq!(request(&mut groups), [64..128]);
        let before = groups.distance_bytes();
        assert!(groups.waited());
        assert!(!groups.waited(), "once for a group");
        assert_eq!(groups.distance_bytes(), 2 * before);
        assert!(groups.is_front_late());
        for _ in 0..20 {
            groups.moved(groups.front() + groups.size());
            groups.waited();
            request(&mut groups);
        }
        assert_eq!(groups.distance_bytes(), LARGEST_DISTANCE_BYTES);
    }

    #[test]
    fn absent_pages_of_the_entered_group_are_checked_once() {
        let mut groups = Groups::new(100, PAGE, 16 * PAGE);
        request(&mut groups);
        groups.moved(1);
        assert_eq!(groups.take_unchecked(), Some(1..16));
        groups.moved(2);
        assert_eq!(groups.take_unchecked(), None);
        groups.moved(17);
        assert_eq!(groups.take_unchecked(), Some(17..32));
        request(&mut groups);
        groups.doubt();
        assert_eq!((groups.take_unchecked(), groups.take_unchecked()), (Some(17..48), None));
    }

    #[test]
    fn cached_groups_are_sampled_far_ahead_until_a_page_is_absent() {
        let mut groups = Groups::new(1 << 20, PAGE, 0);
        let mut cached = 0;
        while let Some(group) = groups.due() {
            groups.found_cached(&group);
            groups.moved(group.end);
            cached += 1;
            if cached == 4 {
                break;
            }
        }
        assert!(groups.is_cached());
        while let Some(group) = groups.due() {
            groups.found_cached(&group);
        }
        assert_eq!(groups.ahead(), CACHED_DISTANCE_BYTES / PAGE);
        groups.found_absent();
        assert!(!groups.is_cached() && groups.due().is_none());
    }

    #[test]
    fn large_steps_back_restart_and_small_ones_do_not() {
        let mut groups = Groups::new(1000, PAGE, 16 * PAGE);
        request(&mut groups);
        groups.moved(500);
        request(&mut groups);
        groups.moved(490);
        assert_eq!(groups.front(), 500);
        groups.moved(10);
        assert!(!groups.is_front_late(), "nothing was requested since the jump");
        assert_eq!(request(&mut groups), [10..16, 16..32]);
        groups.moved(40);
        assert!(groups.is_front_late(), "the reader has outrun the requests");
    }

    proptest! {
        /// Between jumps no unit is requested twice, none beyond the region, and none further ahead than the distance.
        #[test]
        fn requests_are_disjoint_and_within_the_window(
            (units, group) in (0..5000u64, prop::option::of(1..200u64)),
            steps in prop::collection::vec((0..400u64, any::<bool>(), 0..4u8), 0..60),
        ) {
            let mut groups = Groups::new(units, PAGE, group.unwrap_or(0) * PAGE);
            let (mut end, mut front) = (0, 0);
            for (step, waits, kind) in steps {
                front = (front + step).min(units);
                groups.moved(front);
                if waits {
                    groups.waited();
                }
                if let Some(rest) = groups.take_unchecked() {
                    prop_assert!(rest.start == front && rest.end <= end);
                }
                while let Some(group) = groups.due() {
                    prop_assert!(group.start >= end && group.start >= front && group.start < group.end && group.end <= units);
                    let window = if groups.is_cached() { CACHED_DISTANCE_BYTES } else { groups.distance_bytes() };
                    prop_assert!((group.end - front) * PAGE <= window.max(2 * PAGE));
                    end = group.end;
                    if kind == 0 { groups.found_cached(&group) } else { groups.submitted(&group) }
                }
                prop_assert!(groups.ahead() > 0 || front == units, "something is always ahead");
            }
        }

        /// Jumps, other units and any order of calls neither panic nor leave the region.
        #[test]
        fn any_calls_stay_in_the_region(
            calls in prop::collection::vec((0..7u8, 0..3000u64, 1..20u64), 0..100),
            group in 0..3u64,
        ) {
            let mut units = 1000;
            let mut groups = Groups::new(units, PAGE, group * 8 * PAGE);
            for (call, number, pages) in calls {
                match call {
                    0 | 1 => groups.moved(number),
                    2 => { groups.waited(); }
                    3 => {
                        units = number;
                        groups.restart(units, pages * PAGE, number / pages);
                    }
                    4 => groups.found_absent(),
                    _ => if let Some(due) = groups.due() { groups.submitted(&due) },
                }
                prop_assert!(groups.front() <= units && groups.front() + groups.ahead() <= units && groups.size() > 0);
            }
        }
    }
}
