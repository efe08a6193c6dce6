//! What of a span must be read, now that it is known what is resident: pure.
//!
//! ```text
//!     span       [ used ][gap][    used     ][gap][ used ]
//!     resident                     ▓▓▓▓            ▓▓▓▓▓▓
//!     requests   ├───────────────┤      ├────┤                  the second gap is not read: it leads to nothing
//! ```
//!
//! Requests are cut below the kernel's silent cap of one read-ahead call.

use std::ops::Range;

/// One read-ahead call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// What to read.
    pub range: Range<u64>,
    /// How much of it nobody asked for.
    pub bridged_bytes: u64,
}

/// The requests that bring the absent parts of `used` (ascending, disjoint), and gaps only where both neighbours are read
/// and nothing between them is resident. None is longer than `cap_bytes` (a multiple of the page size).
pub fn requests(used: &[Range<u64>], resident: &[Range<u64>], cap_bytes: u64) -> Vec<Request> {
    let absent = subtract(used, resident);
    let mut joined: Vec<Request> = Vec::new();
    for range in absent {
        match joined.last_mut() {
            Some(last) if !touches(resident, &(last.range.end..range.start)) => {
                last.range.end = range.end;
            }
            _ => joined.push(Request { range, bridged_bytes: 0 }),
        }
    }
    joined.into_iter().flat_map(|request| chunks(request.range, cap_bytes)).map(|range| counted(range, used)).collect()
}

fn counted(range: Range<u64>, used: &[Range<u64>]) -> Request {
    let wanted = overlap_bytes(used, &range);
    Request { bridged_bytes: range.end - range.start - wanted, range }
}

/// Bytes of `range` that lie in any of `ranges` (ascending, disjoint).
pub fn overlap_bytes(ranges: &[Range<u64>], range: &Range<u64>) -> u64 {
    overlapping(ranges, range).map(|r| r.end.min(range.end) - r.start.max(range.start)).sum()
}

/// A range in its used and its other parts, in order, with whether nobody asked for them.
pub fn by_use(range: &Range<u64>, used: &[Range<u64>]) -> Vec<(Range<u64>, bool)> {
    let mut parts = Vec::new();
    let mut at = range.start;
    for wanted in overlapping(used, range) {
        let (start, end) = (wanted.start.max(range.start), wanted.end.min(range.end));
        if at < start {
            parts.push((at..start, true));
        }
        parts.push((start..end, false));
        at = end;
    }
    if at < range.end {
        parts.push((at..range.end, true));
    }
    parts
}

fn touches(ranges: &[Range<u64>], range: &Range<u64>) -> bool {
    overlapping(ranges, range).next().is_some()
}

/// Those of `ranges` (ascending, disjoint) that share a byte with `range`.
fn overlapping<'a>(ranges: &'a [Range<u64>], range: &'a Range<u64>) -> impl Iterator<Item = &'a Range<u64>> {
    let first = ranges.partition_point(|r| r.end <= range.start);
    ranges[first..].iter().take_while(|r| r.start < range.end).filter(|r| !r.is_empty())
}

/// `ranges` without `holes`; both ascending and disjoint.
fn subtract(ranges: &[Range<u64>], holes: &[Range<u64>]) -> Vec<Range<u64>> {
    let mut rest = Vec::new();
    for range in ranges {
        let mut start = range.start;
        for hole in overlapping(holes, range) {
            if hole.start > start {
                rest.push(start..hole.start);
            }
            start = start.max(hole.end);
        }
        if start < range.end {
            rest.push(start..range.end);
        }
    }
    rest
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

    /// Ascending, disjoint, page-aligned ranges from lengths of gaps and of ranges.
    fn ranges(max: usize) -> impl Strategy<Value = Vec<Range<u64>>> {
        prop::collection::vec((0..4u64, 1..6u64), 0..max).prop_map(|lengths| {
            let mut at = 0;
            let mut ranges: Vec<Range<u64>> = Vec::new();
            for (gap, length) in lengths {
                at += gap * PAGE;
                match ranges.last_mut() {
                    Some(last) if last.end == at => last.end += length * PAGE,
                    _ => ranges.push(at..at + length * PAGE),
                }
                at += length * PAGE;
            }
            ranges
        })
    }

    fn contains(ranges: &[Range<u64>], at: u64) -> bool {
        ranges.iter().any(|range| range.contains(&at))
    }

    proptest! {
        #[test]
        fn every_absent_used_byte_is_read_once_and_bridged_bytes_are_counted(
            used in ranges(12), resident in ranges(12), cap_pages in 1..9u64
        ) {
            let requests = requests(&used, &resident, cap_pages * PAGE);
            let end = used.last().map_or(0, |range| range.end);
            for at in (0..end).step_by(PAGE as usize) {
                let times = requests.iter().filter(|request| request.range.contains(&at)).count();
                if contains(&used, at) {
                    prop_assert_eq!(times, usize::from(!contains(&resident, at)));
                } else {
                    prop_assert!(times <= 1);
                }
            }
            for request in &requests {
                prop_assert!(!request.range.is_empty() && request.range.end - request.range.start <= cap_pages * PAGE);
                prop_assert_eq!(overlap_bytes(&resident, &request.range), 0);
                let length = request.range.end - request.range.start;
                prop_assert_eq!(request.bridged_bytes, length - overlap_bytes(&used, &request.range));
                let parts = by_use(&request.range, &used);
                let bridged: u64 = parts.iter().filter(|part| part.1).map(|part| part.0.end - part.0.start).sum();
                prop_assert_eq!(bridged, request.bridged_bytes);
                prop_assert_eq!(parts.iter().map(|part| part.0.end - part.0.start).sum::<u64>(), length);
            }
            prop_assert!(requests.windows(2).all(|pair| pair[0].range.end <= pair[1].range.start));
        }

        #[test]
        fn a_joined_request_begins_and_ends_with_what_is_used(used in ranges(12), resident in ranges(12)) {
            for request in requests(&used, &resident, u64::MAX) {
                prop_assert!(contains(&used, request.range.start) && contains(&used, request.range.end - 1));
            }
        }
    }

    #[test]
    fn nothing_is_read_of_what_is_resident() {
        assert!(requests(&[0..8192, 12_288..16_384], &[0..20_000], 1 << 20).is_empty());
    }

    #[test]
    fn the_last_page_may_be_short() {
        let all = requests(&[0..5000], &[], 4096);
        assert_eq!(all.iter().map(|request| request.range.clone()).collect::<Vec<_>>(), [0..4096, 4096..5000]);
    }
}
