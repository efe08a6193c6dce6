//! Sets of bytes or of pages, as disjoint ranges.

use std::ops::Range;

/// A set of numbers, stored as disjoint, non-empty ranges that do not touch each other. What the numbers count (bytes, pages)
/// is up to the caller.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RangeSet(rangemap::RangeSet<u64>);

impl RangeSet {
    /// The empty set.
    pub fn new() -> RangeSet {
        RangeSet::default()
    }

    /// Adds a range.
    pub fn insert(&mut self, range: Range<u64>) {
        // `rangemap` panics on an empty range.
        if !range.is_empty() {
            self.0.insert(range);
        }
    }

    /// Adds a range and returns those parts of it that were not in the set before, in ascending order.
    pub fn insert_new(&mut self, range: Range<u64>) -> Vec<Range<u64>> {
        let new = self.gaps(&range).collect();
        self.insert(range);
        new
    }

    /// The smallest range that holds the whole set. `None`: the set is empty.
    pub fn span(&self) -> Option<Range<u64>> {
        Some(self.0.first()?.start..self.0.last()?.end)
    }

    /// How many numbers are in the set.
    pub fn count(&self) -> u64 {
        self.iter().map(|range| range.end - range.start).sum()
    }

    /// Whether no number is in the set.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The ranges in ascending order.
    pub fn iter(&self) -> impl Iterator<Item = &Range<u64>> {
        self.0.iter()
    }

    /// The parts of the set that lie in `window`, in ascending order.
    pub fn within<'a>(&'a self, window: &'a Range<u64>) -> impl Iterator<Item = Range<u64>> + 'a {
        let cut = |range: &Range<u64>| range.start.max(window.start)..range.end.min(window.end);
        // `overlapping` of an empty range panics.
        let overlapping = (!window.is_empty()).then(|| self.0.overlapping(window.clone()));
        overlapping.into_iter().flatten().map(cut)
    }

    /// The parts of `window` that are not in the set, in ascending order.
    pub fn gaps<'a>(&'a self, window: &'a Range<u64>) -> impl Iterator<Item = Range<u64>> + 'a {
        let gaps = (!window.is_empty()).then(|| self.0.gaps(window));
        gaps.into_iter().flatten()
    }

    /// How many numbers of `window` are in the set.
    pub fn count_within(&self, window: &Range<u64>) -> u64 {
        self.within(window).map(|range| range.end - range.start).sum()
    }

    /// How many numbers are in both sets.
    pub fn count_common(&self, other: &RangeSet) -> u64 {
        let (mut own, mut others) = (self.iter().peekable(), other.iter().peekable());
        let mut common = 0;
        while let (Some(a), Some(b)) = (own.peek(), others.peek()) {
            common += a.end.min(b.end).saturating_sub(a.start.max(b.start));
            if a.end < b.end {
                own.next()
            } else {
                others.next()
            };
        }
        common
    }

    /// The numbers of this set that are not in `other`, as ranges in ascending order.
    pub fn difference<'a>(&'a self, other: &'a RangeSet) -> impl Iterator<Item = Range<u64>> + 'a {
        self.iter().flat_map(|range| other.gaps(range))
    }
}

/// From ranges in any order, overlapping or not; empty ones are left out.
impl FromIterator<Range<u64>> for RangeSet {
    fn from_iter<T: IntoIterator<Item = Range<u64>>>(ranges: T) -> RangeSet {
        RangeSet(ranges.into_iter().filter(|range| !range.is_empty()).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    #[test]
    fn overlaps_are_counted_once() {
        let a = RangeSet::from_iter([0..10, 5..20, 30..30, 40..50]);
        assert_eq!((a.count(), a.count_within(&(15..45))), (30, 10));
        assert_eq!(a.within(&(15..45)).collect::<Vec<_>>(), [15..20, 40..45]);
        assert_eq!(a.gaps(&(15..45)).collect::<Vec<_>>(), [20..40]);
        assert_eq!(a.count_common(&RangeSet::new()), 0);
    }

    type Lengths = Vec<(u64, u64)>;

    fn set(lengths: &Lengths) -> RangeSet {
        lengths.iter().map(|(start, length)| *start..start + length).collect()
    }

    fn numbers(lengths: &Lengths) -> BTreeSet<u64> {
        lengths.iter().flat_map(|(start, length)| *start..start + length).collect()
    }

    fn lengths() -> impl Strategy<Value = Lengths> {
        prop::collection::vec((0u64..60, 0u64..12), 0..20)
    }

    proptest! {
        #[test]
        fn insert_new_returns_what_is_new(lengths in lengths()) {
            let (mut set, mut model) = (RangeSet::new(), BTreeSet::new());
            for (start, length) in lengths {
                let new: Vec<u64> = set.insert_new(start..start + length).into_iter().flatten().collect();
                let expected: Vec<u64> = (start..start + length).filter(|number| model.insert(*number)).collect();
                prop_assert_eq!(new, expected);
            }
            let stored: Vec<u64> = set.iter().cloned().flatten().collect();
            prop_assert_eq!(stored, model.into_iter().collect::<Vec<_>>());
        }

        #[test]
        fn operations_agree_with_a_set_of_numbers(a in lengths(), b in lengths(), start in 0u64..60, length in 0u64..30) {
            let (set_a, set_b, window) = (set(&a), set(&b), start..start + length);
            let (a, b) = (numbers(&a), numbers(&b));
            prop_assert_eq!(set_a.count(), a.len() as u64);
            prop_assert_eq!(set_a.is_empty(), a.is_empty());
            prop_assert_eq!(set_a.count_common(&set_b), a.intersection(&b).count() as u64);
            let difference: Vec<u64> = set_a.difference(&set_b).flatten().collect();
            prop_assert_eq!(difference, a.difference(&b).copied().collect::<Vec<_>>());
            let within: Vec<u64> = set_a.within(&window).flatten().collect();
            prop_assert_eq!(within, window.clone().filter(|number| a.contains(number)).collect::<Vec<_>>());
            let gaps: Vec<u64> = set_a.gaps(&window).flatten().collect();
            prop_assert_eq!(gaps, window.clone().filter(|number| !a.contains(number)).collect::<Vec<_>>());
            prop_assert_eq!(set_a.count_within(&window), window.filter(|number| a.contains(number)).count() as u64);
        }
    }
}
