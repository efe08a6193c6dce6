//! Where the bytes of a file lie: runs of contiguous bytes.

use ahead_model::PhysicalExtent;
use serde::{Deserialize, Serialize};
use std::ops::Range;

/// Bytes of a file that are contiguous on the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Run {
    /// Offset in the file, bytes.
    pub offset_bytes: u64,
    /// Offset on the device, bytes.
    pub physical_bytes: u64,
    pub length_bytes: u64,
}

impl Run {
    /// The end in the file.
    pub fn end(&self) -> u64 {
        self.offset_bytes.saturating_add(self.length_bytes)
    }

    /// The end on the device.
    pub fn physical_end(&self) -> u64 {
        self.physical_bytes.saturating_add(self.length_bytes)
    }

    /// Whether the other run continues this one in the file and on the device.
    fn continues(&self, next: &Run) -> bool {
        self.end() == next.offset_bytes && self.physical_end() == next.physical_bytes
    }

    /// The part of this run within a range of the file.
    fn within(&self, range: &Range<u64>) -> Option<Run> {
        let (start, end) = (self.offset_bytes.max(range.start), self.end().min(range.end));
        let physical_bytes = self.physical_bytes.saturating_add(start.saturating_sub(self.offset_bytes));
        (start < end).then(|| Run { offset_bytes: start, physical_bytes, length_bytes: end - start })
    }
}

/// A used range of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Used {
    /// Its bytes: whole pages, except at the end of the file.
    pub range: Range<u64>,
    /// When it was first used, microseconds since exec.
    pub first_use_us: u64,
    /// It is replayed last.
    pub late: bool,
}

/// The runs of a file: adjacent extents are joined. Without `unwritten`, ranges that were allocated and not written have none, as holes.
pub fn runs_of(extents: &[PhysicalExtent], unwritten: bool) -> Vec<Run> {
    let is_usable = |extent: &&PhysicalExtent| {
        let has_block = !(extent.delayed || extent.unknown || extent.encoded || extent.inline);
        has_block && (unwritten || !extent.unwritten)
    };
    let run = |extent: &PhysicalExtent| Run {
        offset_bytes: extent.logical_bytes,
        physical_bytes: extent.physical_bytes,
        length_bytes: extent.length_bytes,
    };
    join(extents.iter().filter(is_usable).map(run))
}

fn join(runs: impl IntoIterator<Item = Run>) -> Vec<Run> {
    let mut joined: Vec<Run> = Vec::new();
    for run in runs {
        match joined.last_mut() {
            Some(last) if last.continues(&run) => last.length_bytes += run.length_bytes,
            _ => joined.push(run),
        }
    }
    joined
}

/// The parts of a range of the file, in order. `runs` ascend. Holes have none.
pub fn parts(runs: &[Run], range: &Range<u64>) -> Vec<Run> {
    let first = runs.partition_point(|run| run.end() <= range.start);
    runs[first..].iter().take_while(|run| run.offset_bytes < range.end).filter_map(|run| run.within(range)).collect()
}

/// Whether each byte of the range has a place.
pub(crate) fn covers(runs: &[Run], range: &Range<u64>) -> bool {
    let mut at = range.start;
    for part in parts(runs, range) {
        if part.offset_bytes != at {
            return false;
        }
        at = part.end();
    }
    at >= range.end
}

/// The runs after some ranges of the file got other places. `moved` ascend and are disjoint.
pub fn overlay(runs: &[Run], moved: &[Run]) -> Vec<Run> {
    let mut all: Vec<Run> = moved.to_vec();
    let mut start = 0;
    let ends = moved.iter().map(|run| (run.offset_bytes, run.end())).chain([(u64::MAX, u64::MAX)]);
    for (next_start, next_end) in ends {
        all.extend(parts(runs, &(start..next_start)));
        start = next_end;
    }
    all.sort_by_key(|run| run.offset_bytes);
    join(all)
}

/// The number of fragments of a file with these runs: holes do not count, as the file system stores no extent for them.
pub fn fragments(runs: &[Run]) -> u64 {
    runs.len() as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn run(offset_bytes: u64, physical_bytes: u64, length_bytes: u64) -> Run {
        Run { offset_bytes, physical_bytes, length_bytes }
    }

    #[test]
    fn parts_are_cut_and_holes_are_not_covered() {
        let runs = [run(0, 1000, 10), run(20, 2000, 10)];
        assert_eq!(parts(&runs, &(5..25)), [run(5, 1005, 5), run(20, 2000, 5)]);
        assert!(covers(&runs, &(0..10)) && covers(&runs, &(22..30)));
        assert!(!covers(&runs, &(5..25)) && !covers(&runs, &(0..11)) && !covers(&runs, &(29..31)));
    }

    #[test]
    fn overlaid_range_splits_a_run_in_three() {
        let runs = [run(0, 1000, 100)];
        assert_eq!(overlay(&runs, &[run(40, 5000, 20)]), [run(0, 1000, 40), run(40, 5000, 20), run(60, 1060, 40)]);
        assert_eq!(overlay(&runs, &[]), runs);
        assert_eq!(overlay(&runs, &[run(0, 5000, 100)]), [run(0, 5000, 100)]);
    }

    proptest! {
        /// Each byte is at the place of the last move of it, and no byte is lost.
        #[test]
        fn overlay_moves_exactly_the_given_bytes(lengths in prop::collection::vec((1u64..20, 0u64..9), 1..20), moves in prop::collection::vec((0u64..10, 1u64..10), 0..10)) {
            let mut at = 0;
            let mut runs = Vec::new();
            for (index, (length, hole)) in lengths.iter().enumerate() {
                at += hole;
                runs.push(run(at, 1_000_000 * (index as u64 + 1), *length));
                at += length;
            }
            let mut moved = Vec::new();
            let mut from = 0;
            for (gap, length) in moves {
                moved.push(run(from + gap, 900_000_000 + from * 1000, length));
                from += gap + length;
            }
            let new = overlay(&runs, &moved);
            prop_assert!(new.windows(2).all(|pair| pair[0].end() <= pair[1].offset_bytes));
            let place = |runs: &[Run], byte: u64| parts(runs, &(byte..byte + 1)).first().map(|part| part.physical_bytes);
            for byte in 0..at + 100 {
                prop_assert_eq!(place(&new, byte), place(&moved, byte).or_else(|| place(&runs, byte)));
            }
        }
    }
}
