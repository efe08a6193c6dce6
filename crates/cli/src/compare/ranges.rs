//! Sets of byte ranges per file and device, to say how much of what was fetched was used.

use std::collections::BTreeMap;
use std::ops::Range;

/// Disjoint, sorted ranges of one file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ranges(Vec<Range<u64>>);

impl Ranges {
    /// From ranges in any order, overlapping or not; empty ones vanish.
    pub fn new(ranges: impl IntoIterator<Item = Range<u64>>) -> Ranges {
        let mut sorted: Vec<_> = ranges.into_iter().filter(|range| !range.is_empty()).collect();
        sorted.sort_by_key(|range| range.start);
        let mut merged: Vec<Range<u64>> = Vec::with_capacity(sorted.len());
        for range in sorted {
            match merged.last_mut() {
                Some(last) if range.start <= last.end => last.end = last.end.max(range.end),
                _ => merged.push(range),
            }
        }
        Ranges(merged)
    }

    pub fn bytes(&self) -> u64 {
        self.0.iter().map(|range| range.end - range.start).sum()
    }

    /// The parts that lie in `window`.
    pub fn within(&self, window: &Range<u64>) -> impl Iterator<Item = Range<u64>> {
        let first = self.0.partition_point(|range| range.end <= window.start);
        let cut = |range: &Range<u64>| range.start.max(window.start)..range.end.min(window.end);
        self.0[first..].iter().take_while(|range| range.start < window.end).map(cut)
    }

    pub fn iter(&self) -> impl Iterator<Item = &Range<u64>> {
        self.0.iter()
    }

    /// Bytes that are in both.
    pub fn common_bytes(&self, other: &Ranges) -> u64 {
        let (mut mine, mut theirs) = (self.0.iter().peekable(), other.0.iter().peekable());
        let mut common = 0;
        while let (Some(a), Some(b)) = (mine.peek(), theirs.peek()) {
            common += a.end.min(b.end).saturating_sub(a.start.max(b.start));
            if a.end < b.end {
                mine.next()
            } else {
                theirs.next()
            };
        }
        common
    }
}

/// What ranges are of.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Whose {
    /// The file of this path.
    File(Vec<u8>),
    /// The block device that is mounted here. Its node tells nothing: it may be another one's by now.
    Device(Vec<u8>),
}

/// Ranges by file and device.
pub type ByOwner = BTreeMap<Whose, Ranges>;

/// Gathers ranges in any order.
pub fn by_owner(ranges: impl IntoIterator<Item = (Whose, Range<u64>)>) -> ByOwner {
    let mut gathered: BTreeMap<Whose, Vec<Range<u64>>> = BTreeMap::new();
    for (whose, range) in ranges {
        gathered.entry(whose).or_default().push(range);
    }
    gathered.into_iter().map(|(whose, ranges)| (whose, Ranges::new(ranges))).collect()
}

/// Bytes that are in both, over all files and devices.
pub fn common_bytes(a: &ByOwner, b: &ByOwner) -> u64 {
    a.iter().filter_map(|(whose, ranges)| Some(ranges.common_bytes(b.get(whose)?))).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn overlaps_are_counted_once() {
        let a = Ranges::new([0..10, 5..20, 30..30, 40..50]);
        assert_eq!(a.bytes(), 30);
        let b = Ranges::new(std::iter::once(15..45));
        assert_eq!(a.common_bytes(&b), 10);
        assert_eq!(b.common_bytes(&a), 10);
        assert_eq!(a.within(&(15..45)).collect::<Vec<_>>(), [15..20, 40..45]);
        assert_eq!(a.common_bytes(&Ranges::default()), 0);
    }
}
