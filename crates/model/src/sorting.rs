//! Sorting and collecting where size counts more than time.
//!
//! Each call of `slice::sort_by_key` adds 4 KB to a program: the standard library's sort is made again for each type and key. The functions
//! here share one sort of positions, and then move the elements; a call adds a tenth of that. They are stable, as the standard library's are,
//! and about half as fast. `BTreeMap` and `BTreeSet` sort when they are collected, so [`set_of`] and [`map_of`] insert instead.
//!
//! Not for what `ahead run` sorts while a program waits: that is worth its size.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};

/// As `slice::sort`.
pub fn sort<T: Ord>(elements: &mut [T]) {
    sort_by(elements, T::cmp);
}

/// As `slice::sort_by_key`.
pub fn sort_by_key<T, K: Ord>(elements: &mut [T], key: impl Fn(&T) -> K) {
    sort_by(elements, |a, b| key(a).cmp(&key(b)));
}

/// As `slice::sort_by`.
pub fn sort_by<T>(elements: &mut [T], compare: impl Fn(&T, &T) -> Ordering) {
    let mut source = sorted_positions(elements.len(), &|a, b| compare(&elements[a], &elements[b]));
    move_elements(&mut source, &mut |a, b| elements.swap(a, b));
}

/// For each position after the sort, the position before. `&dyn`, so that the program has this function once.
#[inline(never)]
fn sorted_positions(count: usize, compare: &dyn Fn(usize, usize) -> Ordering) -> Vec<usize> {
    let mut positions: Vec<usize> = (0..count).collect();
    positions.sort_by(|a, b| compare(*a, *b));
    positions
}

/// Moves each element from its source, cycle by cycle: a cycle's first element is swapped along until its place is reached.
#[inline(never)]
fn move_elements(source: &mut [usize], swap: &mut dyn FnMut(usize, usize)) {
    for first in 0..source.len() {
        let mut to = first;
        loop {
            let from = std::mem::replace(&mut source[to], to);
            if from == first {
                break;
            }
            swap(to, from);
            to = from;
        }
    }
}

/// As `collect::<BTreeSet<_>>`.
pub fn set_of<T: Ord>(elements: impl IntoIterator<Item = T>) -> BTreeSet<T> {
    let mut set = BTreeSet::new();
    for element in elements {
        set.insert(element);
    }
    set
}

/// As `collect::<BTreeMap<_, _>>`: the last value of a key remains.
pub fn map_of<K: Ord, V>(entries: impl IntoIterator<Item = (K, V)>) -> BTreeMap<K, V> {
    let mut map = BTreeMap::new();
    for (key, value) in entries {
        map.insert(key, value);
    }
    map
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::SplitMix64;

    /// Few keys, so that the order of equal elements shows.
    #[test]
    fn sorts_are_stable_and_equal_to_those_of_the_standard_library() {
        let mut random = SplitMix64::new(7);
        for count in [0, 1, 2, 3, 10, 100, 3000] {
            let elements: Vec<(u64, String)> = (0..count).map(|index| (random.below(20), index.to_string())).collect();
            let (mut ours, mut expected) = (elements.clone(), elements.clone());
            sort_by_key(&mut ours, |element| element.0);
            expected.sort_by_key(|element| element.0);
            assert_eq!(ours, expected);
            sort(&mut ours);
            expected.sort();
            assert_eq!(ours, expected);
            sort_by(&mut ours, |a, b| b.1.cmp(&a.1));
            expected.sort_by(|a, b| b.1.cmp(&a.1));
            assert_eq!(ours, expected);
            assert_eq!(set_of(elements.clone()), elements.iter().cloned().collect());
            assert_eq!(map_of(elements.clone()), elements.into_iter().collect());
        }
    }
}
