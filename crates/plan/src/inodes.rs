//! XFS: which inodes are read by ranges of their numbers, and which paths are left to look up.
//!
//! ```text
//!     inode    ──[ 64 ][ 64 ]·······[ 64 ]··············[ 64 ]──▶      chunks, as XFS allocates and reads them
//!     looked up   30     64          41                   2
//!     ranges    ╰────────── one call ───────╯        looked up as paths
//! ```
//!
//! A lookup of a path reads the blocks of its directory and then of its inode, one after the other. If a directory is listed, the
//! listing reads its blocks. If many inodes of a chunk are needed, one call reads many chunks. Paths whose blocks are read in
//! these ways need no lookup.

use crate::{LookUp, Path};
use ahead_model::xfs;
use ahead_profile::Profile;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::ops::Range;

/// A range of inodes that lie close together.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct InodeRange {
    pub numbers: Range<u64>,
    /// Inodes that are read ahead at a time: the largest number of wanted ones.
    pub at_a_time: u32,
    /// When the first of them was first looked up, microseconds since exec.
    pub first_use_us: u64,
    /// Number of lookups that it replaces.
    pub lookups: u64,
}

/// A chunk is read whole if at least this number of its inodes is needed: two blocks are cheaper than eight lookups.
const DENSE: usize = 8;

/// Chunks up to this distance apart are one range; existing chunks between them are read, too. Unit: chunks.
const NEAR_CHUNKS: u64 = 4;

/// One in this number of the paths of a listed directory is still looked up: the index of a large directory is separate from its
/// entries, with about 500 names in a block, and only lookups by name read it.
const NAMES_OF_INDEX: usize = 64;

/// Divides the lookups of an XFS file system: returns the ranges of inodes, and the remaining lookups, which include one for each
/// range ([`Path::Inodes`]).
pub fn gather(profile: &Profile, mut lookups: Vec<LookUp>) -> (Vec<InodeRange>, Vec<LookUp>) {
    let mut chunks: BTreeMap<u64, Vec<LookUp>> = BTreeMap::new();
    for lookup in lookups.iter().filter(|lookup| lookup.inode != 0) {
        chunks.entry(chunk_of(lookup)).or_default().push(*lookup);
    }
    chunks.retain(|_, wanted| wanted.len() >= DENSE);
    let needed = needed(profile, &lookups, |lookup| chunks.contains_key(&chunk_of(lookup)));
    let ranges = ranges(&chunks, &needed);
    lookups.retain(|lookup| needed.contains(&lookup.path));
    lookups.extend(ranges.iter().enumerate().map(|(index, range)| LookUp {
        path: Path::Inodes(index),
        inode: range.numbers.start,
        first_use_us: range.first_use_us,
    }));
    (ranges, lookups)
}

fn chunk_of(lookup: &LookUp) -> u64 {
    lookup.inode / xfs::CHUNK_INODES
}

/// The paths that must still be looked up: inodes in no range, listed directories, paths in directories that are not listed, and
/// one in [`NAMES_OF_INDEX`] of the others.
fn needed(profile: &Profile, lookups: &[LookUp], in_chunk: impl Fn(&LookUp) -> bool) -> HashSet<Path> {
    let listed = profile.lookups.iter().filter(|lookup| lookup.listed);
    let mut left_out: HashMap<&[u8], usize> = listed.map(|lookup| (&lookup.path[..], 0)).collect();
    let mut by_first_use: Vec<&LookUp> = lookups.iter().collect();
    by_first_use.sort_by_key(|lookup| (lookup.first_use_us, lookup.path));
    let mut is_needed = |lookup: &LookUp| {
        let Path::Lookup(index) = lookup.path else { return true };
        let recorded = &profile.lookups[index];
        let Some(left_out) = left_out.get_mut(directory_of(&recorded.path)) else { return true };
        if recorded.listed || !in_chunk(lookup) {
            return true;
        }
        *left_out += 1;
        *left_out % NAMES_OF_INDEX == 1
    };
    by_first_use.into_iter().filter(|lookup| is_needed(lookup)).map(|lookup| lookup.path).collect()
}

fn directory_of(path: &[u8]) -> &[u8] {
    let slash = path.iter().rposition(|byte| *byte == b'/');
    &path[..slash.unwrap_or(0)]
}

fn ranges(chunks: &BTreeMap<u64, Vec<LookUp>>, needed: &HashSet<Path>) -> Vec<InodeRange> {
    let mut ranges: Vec<InodeRange> = Vec::new();
    for (chunk, wanted) in chunks {
        let numbers = chunk * xfs::CHUNK_INODES..(chunk + 1).saturating_mul(xfs::CHUNK_INODES);
        let left_out = wanted.iter().filter(|lookup| !needed.contains(&lookup.path)).count() as u64;
        // All of its paths are looked up, which reads its blocks.
        if left_out == 0 {
            continue;
        }
        let is_near = |range: &InodeRange| {
            numbers.start - range.numbers.end < NEAR_CHUNKS * xfs::CHUNK_INODES
                && range.at_a_time < xfs::MAX_PREFETCH_INODES
        };
        if !ranges.last().is_some_and(is_near) {
            let numbers = numbers.start..numbers.start;
            ranges.push(InodeRange { numbers, first_use_us: u64::MAX, ..InodeRange::default() });
        }
        let range = ranges.last_mut().expect("there is one now");
        range.numbers.end = numbers.end;
        range.at_a_time += xfs::CHUNK_INODES as u32;
        range.first_use_us = wanted.iter().map(|lookup| lookup.first_use_us).fold(range.first_use_us, u64::min);
        range.lookups += left_out;
    }
    ranges
}

#[cfg(test)]
mod tests {
    use super::*;
    use ahead_profile::Lookup;
    use proptest::prelude::*;

    fn gathered(recorded: Vec<(String, u64, bool)>) -> (Vec<InodeRange>, Vec<Path>) {
        let lookup = |(index, (path, inode, listed)): (usize, (String, u64, bool))| Lookup {
            path: path.into_bytes().into(),
            inode,
            listed,
            first_use_us: index as u64,
            ..Lookup::default()
        };
        let lookups: Vec<Lookup> = recorded.into_iter().enumerate().map(lookup).collect();
        let planned = lookups.iter().enumerate();
        let planned = planned
            .map(|(index, l)| LookUp { path: Path::Lookup(index), inode: l.inode, first_use_us: l.first_use_us })
            .collect();
        let (ranges, left) = gather(&Profile { lookups, ..Profile::default() }, planned);
        (ranges, left.into_iter().map(|lookup| lookup.path).collect())
    }

    fn files(count: u64) -> impl Iterator<Item = (String, u64, bool)> {
        (0..count).map(|i| (format!("/d/{i}"), 6400 + i, false))
    }

    #[test]
    fn many_of_a_chunk_come_as_a_range() {
        let directory = ("/d".to_owned(), 50, true);
        let far = ("/e/far".to_owned(), 90_000, false);
        let (ranges, left) = gathered([directory].into_iter().chain(files(100)).chain([far]).collect());
        let range = &ranges[0];
        assert_eq!((ranges.len(), &range.numbers, range.at_a_time, range.lookups), (1, &(6400..6528), 128, 98));
        // The directory, its 1st and its 65th path, and the paths elsewhere.
        assert_eq!(left, [Path::Lookup(0), Path::Lookup(1), Path::Lookup(65), Path::Lookup(101), Path::Inodes(0)]);
    }

    /// Regression: of a directory of many blocks that the program does not list, only one block was prefetched.
    #[test]
    fn paths_in_a_directory_that_is_not_listed_are_looked_up() {
        let (ranges, left) = gathered(files(100).collect());
        assert_eq!((ranges.len(), left.len()), (0, 100));
    }

    #[test]
    fn scattered_inodes_and_missing_ones_are_looked_up() {
        let (ranges, left) = gathered((0..100).map(|i| (format!("/d/{i}"), i * 1000, false)).collect());
        assert_eq!((ranges.len(), left.len()), (0, 100));
        let (ranges, left) = gathered((0..100).map(|i| (format!("/d/{i}"), 0, false)).collect());
        assert_eq!((ranges.len(), left.len()), (0, 100));
    }

    proptest! {
        /// Every lookup remains or is in a range.
        #[test]
        fn no_lookup_is_lost(inodes in prop::collection::vec(0u64..20_000, 0..400), hostile in any::<u64>()) {
            let recorded = inodes.iter().chain([&hostile]).enumerate();
            let recorded: Vec<_> = recorded.map(|(i, inode)| (format!("/{}/{i}", i % 7), *inode, i % 11 == 0)).collect();
            let directories = (0..7).map(|d| (format!("/{d}"), 1_000_000 + d * 1000, d % 2 == 0));
            let recorded: Vec<_> = directories.chain(recorded).collect();
            let (ranges, left) = gathered(recorded.clone());
            let paths: Vec<usize> = left.iter().filter_map(|path| match path {
                Path::Lookup(index) => Some(*index),
                _ => None,
            }).collect();
            prop_assert_eq!(left.len() - paths.len(), ranges.len());
            prop_assert_eq!(paths.len() as u64 + ranges.iter().map(|range| range.lookups).sum::<u64>(), recorded.len() as u64);
            let in_range = |inode: u64| ranges.iter().any(|range| range.numbers.contains(&inode));
            for index in (0..recorded.len()).filter(|index| !paths.contains(index)) {
                prop_assert!(in_range(recorded[index].1), "{}", recorded[index].1);
            }
            prop_assert!(ranges.iter().all(|range| (1..=xfs::MAX_PREFETCH_INODES).contains(&range.at_a_time)));
        }
    }
}
