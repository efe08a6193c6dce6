//! The pages of a region in the order in which a reader of a known pattern comes to them.
//!
//! ```text
//!     forward    0 1 2 3 4 5 6 7         units are pages, counted in the direction of the reader
//!     backward   7 6 5 4 3 2 1 0
//!     stride     ·  0 0 ·  · 1 1 ·  ·    units are records: their beginnings lie `step` bytes apart, the first at `origin`
//! ```

use super::{Pattern, Steps};
use std::ops::Range;

/// The way of one reader through a region: units at equal steps. Without gaps, a unit and a step are a page.
#[derive(Clone, Debug)]
pub struct Route {
    /// The first unit, bytes.
    steps: Steps,
    pages: u64,
    page: u64,
}

impl Route {
    /// From the first page to the last ([`Pattern::Sequential`], or unknown), from the last to the first, or, for strides of more than a
    /// page, by records whose beginnings lie a stride apart: from the beginning of the region or, downwards, from its end, until
    /// [`Route::restart`] gives another first record. A record has one page until [`Route::widen`].
    pub fn new(pattern: Pattern, pages: u64, page_bytes: u64) -> Route {
        let step = match pattern {
            Pattern::Stride(step) if step.unsigned_abs() > page_bytes => step,
            Pattern::Backward | Pattern::Stride(..0) => -(page_bytes as i64),
            _ => page_bytes as i64,
        };
        let first = if step < 0 { pages.saturating_sub(1) * page_bytes } else { 0 };
        Route { steps: Steps { step, ..Steps::begin(first, page_bytes) }, pages, page: page_bytes }
    }

    /// Whether the place of the first record is not known before the first access.
    pub fn has_unknown_origin(&self) -> bool {
        !self.is_contiguous()
    }

    /// Whether the reader moves towards lower addresses.
    pub fn is_descending(&self) -> bool {
        self.steps.step < 0
    }

    /// Units from the first to the end of the region.
    pub fn units(&self) -> u64 {
        let origin = self.steps.first;
        match self.is_descending() {
            _ if self.pages == 0 => 0,
            true => origin / self.step_bytes() + 1,
            false => (self.pages * self.page - 1 - origin) / self.step_bytes() + 1,
        }
    }

    /// Memory of one unit, bytes.
    pub fn unit_bytes(&self) -> u64 {
        self.steps.length
    }

    /// From the beginning of one unit to that of the next, bytes.
    pub fn step_bytes(&self) -> u64 {
        self.steps.step.unsigned_abs()
    }

    /// Whether units are pages, without gaps.
    pub fn is_contiguous(&self) -> bool {
        self.step_bytes() == self.page
    }

    /// Whether the pages between the units are numerous: examining them costs more than a call for each unit: 1 MiB of page table entries
    /// take as long as a system call.
    pub fn is_sparse(&self) -> bool {
        self.step_bytes() > 1 << 20
    }

    /// The pages of units: disjoint, in the order of the reader, neighbours merged.
    pub fn pages(&self, units: Range<u64>) -> Vec<Range<u64>> {
        let units = units.start..units.end.min(self.units());
        if units.is_empty() {
            return Vec::new();
        }
        let (first, last) = (self.record(units.start), self.record(units.end - 1));
        if self.is_contiguous() {
            return vec![first.start.min(last.start)..first.end.max(last.end)];
        }
        let mut found: Vec<Range<u64>> = Vec::new();
        for record in units.map(|unit| self.record(unit)) {
            match found.last_mut() {
                Some(last) if last.end >= record.start && record.start >= last.start => {
                    last.end = last.end.max(record.end);
                }
                Some(last) if record.end >= last.start && record.end <= last.end => last.start = record.start,
                _ => found.push(record),
            }
        }
        found
    }

    /// The pages of a record.
    fn record(&self, unit: u64) -> Range<u64> {
        let start = self.steps.nth(unit).unwrap_or(0);
        start / self.page..(start + self.steps.length).div_ceil(self.page).min(self.pages)
    }

    /// The units whose first page, or for steps of broken pages one of their first two, is among these ascending pages: ascending, disjoint.
    pub fn units_within(&self, pages: &[Range<u64>]) -> Vec<Range<u64>> {
        let mut found: Vec<Range<u64>> = Vec::new();
        let ascending = pages.iter().map(|run| self.records_beginning_in(run));
        let runs: Vec<_> = if self.is_descending() { ascending.rev().collect() } else { ascending.collect() };
        for run in runs.into_iter().filter(|run| !run.is_empty()) {
            match found.last_mut() {
                Some(last) if last.end >= run.start => last.end = last.end.max(run.end),
                _ => found.push(run),
            }
        }
        found
    }

    fn records_beginning_in(&self, pages: &Range<u64>) -> Range<u64> {
        let (origin, size) = (self.steps.first, self.step_bytes());
        // A step of broken pages: the first access may be to the second page of the record.
        let slack = if size.is_multiple_of(self.page) { 0 } else { self.page - 1 };
        let (start, end) = ((pages.start * self.page).saturating_sub(slack), pages.end * self.page);
        let records = if self.is_descending() {
            // The beginning of record k is origin - k * size, and lies in start..end.
            let first = (origin + 1).saturating_sub(end).div_ceil(size);
            let end = if origin < start { 0 } else { (origin - start) / size + 1 };
            first..end
        } else {
            start.saturating_sub(origin).div_ceil(size)..end.saturating_sub(origin).div_ceil(size)
        };
        records.start..records.end.min(self.units())
    }

    /// The unit of a byte of the region. `None`: it lies between records.
    pub fn unit_at(&self, offset_bytes: u64) -> Option<u64> {
        let (unit, within) = self.steps.locate(offset_bytes)?;
        (within < self.steps.length && self.steps.nth(unit).is_some()).then_some(unit)
    }

    /// A record of a stride begins in the page of this byte, and is the first from now on.
    pub fn restart(&mut self, offset_bytes: u64) {
        if !self.is_contiguous() {
            self.steps.first = offset_bytes / self.page * self.page;
        }
    }

    /// Records of a stride have more pages, at most up to the next record.
    pub fn widen(&mut self, by_pages: u64) {
        let most = self.step_bytes().div_ceil(self.page) * self.page;
        self.steps.length = self.steps.length.saturating_add(by_pages * self.page).min(most);
    }

    /// The pages between the end of a record and the next one. `None`: there are none.
    pub fn gap_after(&self, unit: u64) -> Option<Range<u64>> {
        let record = self.record(unit);
        let next = (record.start + self.step_bytes() / self.page).min(self.pages);
        (record.end < next).then_some(record.end..next)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const PAGE: u64 = 4096;

    #[test]
    fn backward_counts_from_the_end() {
        let route = Route::new(Pattern::Backward, 10, PAGE);
        assert_eq!(route.pages(0..3), [7..10]);
        assert_eq!(route.units_within(&[0..1, 7..9]), [1..3, 9..10]);
        assert_eq!((route.unit_at(0), route.unit_at(9 * PAGE + 5)), (Some(9), Some(0)));
    }

    #[test]
    fn strides_have_records_at_equal_distances() {
        let mut route = Route::new(Pattern::Stride(16 * PAGE as i64), 100, PAGE);
        assert_eq!(route.units(), 7);
        assert_eq!(route.pages(0..9), [0..1, 16..17, 32..33, 48..49, 64..65, 80..81, 96..97]);
        route.restart(3 * PAGE + 7);
        route.widen(3);
        assert_eq!(route.pages(0..2), [3..7, 19..23]);
        assert_eq!(route.units_within(&[0..4, 19..36]), [0..3]);
        assert_eq!((route.unit_at(19 * PAGE + 1), route.unit_at(30 * PAGE), route.unit_at(0)), (Some(1), None, None));
        assert_eq!((route.gap_after(0), route.unit_bytes()), (Some(7..19), 4 * PAGE));
        route.widen(100);
        assert_eq!((route.gap_after(0), route.pages(0..2)), (None, vec![3..35]));
    }

    #[test]
    fn strides_downwards_begin_at_the_end() {
        let mut route = Route::new(Pattern::Stride(-16 * PAGE as i64), 100, PAGE);
        assert_eq!(route.pages(0..7), [99..100, 83..84, 67..68, 51..52, 35..36, 19..20, 3..4]);
        route.restart(50 * PAGE);
        assert_eq!((route.units(), route.pages(2..4)), (4, vec![18..19, 2..3]));
        assert_eq!(route.units_within(&[2..3, 34..35, 60..61]), [1..2, 3..4]);
        assert_eq!((route.unit_at(34 * PAGE + 9), route.unit_at(33 * PAGE)), (Some(1), None));
    }

    #[test]
    fn steps_of_broken_pages_request_both_pages_of_a_record() {
        let route = Route::new(Pattern::Stride(10_000), 100, PAGE);
        assert_eq!(route.pages(0..3), [0..1, 2..6], "the second and the third record touch");
        assert_eq!(route.units_within(&[3..4]), [1..2]);
    }

    fn routes() -> impl Strategy<Value = Route> {
        let step = prop_oneof![PAGE as i64 + 1..200 * PAGE as i64, -200 * (PAGE as i64)..-(PAGE as i64)];
        (1..2000u64, 0..3usize, step, 0..2000u64, 0..4u64).prop_map(|(pages, kind, step, origin, wider)| {
            let pattern = [Pattern::Sequential, Pattern::Backward, Pattern::Stride(step)][kind];
            let mut route = Route::new(pattern, pages, PAGE);
            if origin < pages {
                route.restart(origin * PAGE);
            }
            route.widen(wider);
            route
        })
    }

    proptest! {
        /// Every unit has pages in the region, and is found again by them.
        #[test]
        fn units_are_found_by_their_pages(route in routes()) {
            let units = route.units();
            prop_assert!(units > 0);
            for unit in (0..units).step_by(units as usize / 16 + 1).chain([units - 1]) {
                let pages = route.pages(unit..unit + 1);
                prop_assert_eq!(pages.len(), 1);
                prop_assert!(!pages[0].is_empty() && pages[0].end <= route.pages);
                let found = route.units_within(&[pages[0].start..pages[0].start + 1]);
                prop_assert!(found.iter().any(|run| run.contains(&unit)), "{:?} of {:?}", found, unit);
                prop_assert!(found.iter().all(|run| run.start < run.end && run.end <= units));
            }
        }

        /// A byte at the beginning of a unit's pages belongs to it, unless records overlap.
        #[test]
        fn bytes_lead_to_their_unit(route in routes(), offset in 0..2000 * PAGE) {
            if let Some(unit) = route.unit_at(offset.min(route.pages * PAGE - 1)) {
                prop_assert!(unit < route.units());
                let page = offset.min(route.pages * PAGE - 1) / PAGE;
                prop_assert!(route.pages(unit..unit + 1).iter().any(|run| run.contains(&page)));
            }
        }

        /// The pages of all units are disjoint, and those of forward and backward are the whole region.
        #[test]
        fn pages_of_units_are_disjoint(route in routes()) {
            let mut pages = route.pages(0..route.units());
            pages.sort_by_key(|run| run.start);
            prop_assert!(pages.windows(2).all(|pair| pair[0].end <= pair[1].start));
            if !route.has_unknown_origin() {
                prop_assert_eq!(pages, [0..route.pages]);
            }
        }
    }
}
