//! Which part of a move is still to be made, judged by where both sides lie now.

use super::placement::Move;
use super::runs::{Run, parts};
use std::ops::Range;

/// Which way blocks are exchanged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// The file gets the donor's blocks.
    Pack,
    /// The file gets its old blocks back.
    Undo,
}

/// The parts of a move that are still to be made: the file and the donor lie where they lay before an exchange in this direction. Bytes from
/// the start of the move, ascending. What lies elsewhere (another program has moved it, or the file is shorter now) is left alone.
/// `file` and `donor`: the runs of now, ascending; of the donor with ranges that were never written.
pub fn pending(one: &Move, direction: Direction, file: &[Run], donor: &[Run]) -> Vec<Range<u64>> {
    let (file_at, donor_at) = match direction {
        Direction::Pack => (one.old_physical_bytes, one.new_physical_bytes),
        Direction::Undo => (one.new_physical_bytes, one.old_physical_bytes),
    };
    let file = in_place(file, one.offset_bytes, one.length_bytes, file_at);
    let donor = in_place(donor, one.donor_bytes, one.length_bytes, donor_at);
    let both = file.iter().flat_map(|a| donor.iter().map(|b| a.start.max(b.start)..a.end.min(b.end)));
    both.filter(|range| !range.is_empty()).collect()
}

/// Bytes of the file's range that lie at its new place.
pub fn moved_bytes(one: &Move, file: &[Run]) -> u64 {
    let parts = in_place(file, one.offset_bytes, one.length_bytes, one.new_physical_bytes);
    parts.iter().map(|range| range.end - range.start).sum()
}

/// The parts of `length_bytes` from `start` on that lie where a contiguous range at `place` has them; from `start`.
fn in_place(runs: &[Run], start: u64, length_bytes: u64, place: u64) -> Vec<Range<u64>> {
    let parts = parts(runs, &(start..start.saturating_add(length_bytes)));
    let there = parts.iter().filter(|part| part.physical_bytes == place.saturating_add(part.offset_bytes - start));
    there.map(|part| part.offset_bytes - start..part.end() - start).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::relocation::runs::overlay;
    use proptest::prelude::*;

    const ONE: Move = Move {
        file: 0,
        offset_bytes: 4096,
        donor_bytes: 0,
        length_bytes: 40_960,
        old_physical_bytes: 1 << 20,
        new_physical_bytes: 1 << 30,
    };

    fn run(offset_bytes: u64, physical_bytes: u64, length_bytes: u64) -> Run {
        Run { offset_bytes, physical_bytes, length_bytes }
    }

    fn old() -> (Vec<Run>, Vec<Run>) {
        (vec![run(0, (1 << 20) - 4096, 1 << 16)], vec![run(0, 1 << 30, 1 << 16)])
    }

    #[test]
    fn what_lies_elsewhere_is_left_alone() {
        let (file, donor) = old();
        assert_eq!(pending(&ONE, Direction::Pack, &file, &donor), [0..40_960]);
        assert_eq!(pending(&ONE, Direction::Undo, &file, &donor), []);
        let shorter = [run(0, (1 << 20) - 4096, 8192)];
        assert_eq!(pending(&ONE, Direction::Pack, &shorter, &donor), [0..4096]);
        assert_eq!(pending(&ONE, Direction::Pack, &[run(0, 1 << 25, 1 << 16)], &donor), []);
        assert_eq!(pending(&ONE, Direction::Pack, &file, &[]), []);
    }

    proptest! {
        /// After any sequence of interruptions, packing to the end and undoing to the end give back every place.
        #[test]
        fn interrupted_work_can_be_continued_and_undone(steps in prop::collection::vec((any::<bool>(), 0usize..4, 1u64..11), 0..12)) {
            let (mut file, mut donor) = old();
            let exchange = |file: &mut Vec<Run>, donor: &mut Vec<Run>, direction, range: Range<u64>| {
                let length = range.end - range.start;
                let (to_file, to_donor) = match direction {
                    Direction::Pack => (ONE.new_physical_bytes, ONE.old_physical_bytes),
                    Direction::Undo => (ONE.old_physical_bytes, ONE.new_physical_bytes),
                };
                *file = overlay(file, &[run(ONE.offset_bytes + range.start, to_file + range.start, length)]);
                *donor = overlay(donor, &[run(ONE.donor_bytes + range.start, to_donor + range.start, length)]);
            };
            for (packs, which, pages) in steps {
                let direction = if packs { Direction::Pack } else { Direction::Undo };
                let ranges = pending(&ONE, direction, &file, &donor);
                if let Some(range) = ranges.get(which % ranges.len().max(1)) {
                    let end = range.end.min(range.start + pages * 4096);
                    exchange(&mut file, &mut donor, direction, range.start..end);
                }
            }
            for range in pending(&ONE, Direction::Pack, &file, &donor) {
                exchange(&mut file, &mut donor, Direction::Pack, range);
            }
            prop_assert_eq!(moved_bytes(&ONE, &file), ONE.length_bytes);
            for range in pending(&ONE, Direction::Undo, &file, &donor) {
                exchange(&mut file, &mut donor, Direction::Undo, range);
            }
            prop_assert_eq!((file, donor), old());
        }
    }
}
