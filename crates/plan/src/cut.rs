//! Selects the parts of a span to read, given its resident pages: pure.
//!
//! ```text
//!     span       [ used ][gap][    used     ][gap][ used ]
//!     resident                     ▓▓▓▓            ▓▓▓▓▓▓
//!     requests   ├───────────────┤      ├────┤                  the second gap is not read: its right side is resident
//! ```
//!
//! Requests are no longer than one read-ahead call reads: the kernel cuts longer calls without an error.

use ahead_model::RangeSet;
use std::ops::Range;

/// The read-ahead calls for the absent parts of `used`. A gap is included only if both neighbours are read and no page between them is
/// resident. No call is longer than `cap_bytes` (a multiple of the page size).
pub fn requests(used: &RangeSet, resident: &RangeSet, cap_bytes: u64) -> Vec<Range<u64>> {
    let mut joined: Vec<Range<u64>> = Vec::new();
    for absent in used.difference(resident) {
        match joined.last_mut() {
            Some(last) if resident.within(&(last.end..absent.start)).next().is_none() => last.end = absent.end,
            _ => joined.push(absent),
        }
    }
    joined.into_iter().flat_map(|range| chunks(range, cap_bytes)).collect()
}

/// Divides a range into its used parts and its gaps, in order; true marks a gap.
pub fn by_use(range: &Range<u64>, used: &RangeSet) -> Vec<(Range<u64>, bool)> {
    let wanted = used.within(range).map(|part| (part, false));
    let bridged = used.gaps(range).map(|part| (part, true));
    let mut parts: Vec<(Range<u64>, bool)> = wanted.chain(bridged).collect();
    parts.sort_by_key(|(part, _)| part.start);
    parts
}

fn chunks(range: Range<u64>, cap_bytes: u64) -> impl Iterator<Item = Range<u64>> {
    let cap = cap_bytes.max(1);
    let count = (range.end - range.start).div_ceil(cap);
    (0..count).map(move |index| {
        let start = range.start + index * cap;
        start..range.end.min(start.saturating_add(cap))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const PAGE: u64 = 4096;

    /// Page-aligned ranges, from the lengths of gaps and ranges.
    fn ranges(max: usize) -> impl Strategy<Value = RangeSet> {
        prop::collection::vec((0..4u64, 1..6u64), 0..max).prop_map(|lengths| {
            let mut end = 0;
            let range = |(gap, length): (u64, u64)| {
                let start = end + gap * PAGE;
                end = start + length * PAGE;
                start..end
            };
            lengths.into_iter().map(range).collect()
        })
    }

    fn contains(ranges: &RangeSet, at: u64) -> bool {
        ranges.count_within(&(at..at + 1)) > 0
    }

    proptest! {
        #[test]
        fn every_absent_used_byte_is_read_once_and_parts_are_divided_by_use(
            used in ranges(12), resident in ranges(12), cap_pages in 1..9u64
        ) {
            let requests = requests(&used, &resident, cap_pages * PAGE);
            let end = used.span().map_or(0, |span| span.end);
            for at in (0..end).step_by(PAGE as usize) {
                let times = requests.iter().filter(|request| request.contains(&at)).count();
                if contains(&used, at) {
                    prop_assert_eq!(times, usize::from(!contains(&resident, at)));
                } else {
                    prop_assert!(times <= 1);
                }
            }
            for request in &requests {
                let length = request.end - request.start;
                prop_assert!(!request.is_empty() && length <= cap_pages * PAGE);
                prop_assert_eq!(resident.count_within(request), 0);
                let parts = by_use(request, &used);
                let bridged: u64 = parts.iter().filter(|part| part.1).map(|part| part.0.end - part.0.start).sum();
                prop_assert_eq!(bridged, length - used.count_within(request));
                prop_assert_eq!(parts.iter().map(|part| part.0.end - part.0.start).sum::<u64>(), length);
            }
            prop_assert!(requests.windows(2).all(|pair| pair[0].end <= pair[1].start));
        }

        #[test]
        fn a_joined_request_begins_and_ends_with_what_is_used(used in ranges(12), resident in ranges(12)) {
            for request in requests(&used, &resident, u64::MAX) {
                prop_assert!(contains(&used, request.start) && contains(&used, request.end - 1));
            }
        }
    }

    #[test]
    fn nothing_is_read_of_what_is_resident() {
        assert!(
            requests(&[0..8192, 12_288..16_384].into_iter().collect(), &[0..20_000].into_iter().collect(), 1 << 20)
                .is_empty()
        );
    }

    #[test]
    fn the_last_page_may_be_short() {
        let all = requests(&[0..5000].into_iter().collect(), &RangeSet::new(), 4096);
        assert_eq!(all, [0..4096, 4096..5000]);
    }
}
