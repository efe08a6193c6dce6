//! Which bytes of the donor each segment gets.
//!
//! ```text
//!     donor, in the file    ├──────── run 2 ───────┤├──── run 1 ────┤
//!     donor, on the disk    ├──── run 1 ────┤  …  ├──────── run 2 ───────┤
//!     segments               A A A B C C C         C D D E …                 in this order on the disk
//! ```

use super::layout::Layout;
use super::runs::{Run, parts};
use serde::{Deserialize, Serialize};
use std::collections::HashMap;

/// Contiguous pieces of this size on average are accepted: the seek to one (8 ms) is then a fifth of its time at 120 MB/s.
const ENOUGH_RUN_BYTES: u64 = 4 << 20;

/// Contiguous pieces that are accepted in any case: block groups of 128 MiB begin with their own metadata.
const FEW_RUNS: u64 = 2;

/// An exchange of blocks between a file and the donor. Both ranges are contiguous on the disk before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Move {
    /// Index in [`super::Record::files`]; from [`place`], in the profile.
    pub file: usize,
    /// Offset in the file, bytes.
    pub offset_bytes: u64,
    /// Offset in the donor, bytes.
    pub donor_bytes: u64,
    /// Length, bytes: whole blocks.
    pub length_bytes: u64,
    /// Where the file's range lay before, bytes.
    pub old_physical_bytes: u64,
    /// Where the donor's range lay before, bytes.
    pub new_physical_bytes: u64,
}

impl Move {
    /// Where the range of the file lies after the exchange.
    pub fn after(&self) -> Run {
        Run {
            offset_bytes: self.offset_bytes,
            physical_bytes: self.new_physical_bytes,
            length_bytes: self.length_bytes,
        }
    }
}

/// The donor's blocks are in too many pieces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoRoom {
    /// Contiguous pieces of the donor.
    pub runs: u64,
    /// The accepted number.
    pub allowed: u64,
}

/// Size of the donor for a layout: each segment begins at a page, because the kernel exchanges within pages.
pub fn donor_bytes(layout: &Layout, page_bytes: u64) -> u64 {
    layout.segments.iter().fold(0, |sum, segment| sum + segment.bytes().next_multiple_of(page_bytes))
}

/// Contiguous pieces that a donor of this size may have.
pub fn allowed_runs(bytes: u64) -> u64 {
    FEW_RUNS + bytes / ENOUGH_RUN_BYTES
}

/// Assigns the donor's bytes to the segments. `donor`: its runs, ascending in the file, of whole pages; `runs`: those of each file in the
/// profile; `block_bytes`: the size of a block of the file system.
pub fn place(
    layout: &Layout,
    donor: &[Run],
    runs: &HashMap<usize, Vec<Run>>,
    page_bytes: u64,
    block_bytes: u64,
) -> Result<Vec<Move>, NoRoom> {
    let allowed = allowed_runs(donor_bytes(layout, page_bytes));
    if donor.len() as u64 > allowed {
        return Err(NoRoom { runs: donor.len() as u64, allowed });
    }
    let mut by_place = donor.to_vec();
    by_place.sort_by_key(|run| run.physical_bytes);
    let mut room = by_place.into_iter();
    let mut free = room.next();
    let mut moves = Vec::new();
    for segment in &layout.segments {
        let mut at = segment.range.start;
        while at < segment.range.end {
            let Some(run) = free.as_mut().filter(|run| run.length_bytes >= page_bytes) else {
                free = Some(room.next().ok_or(NoRoom { runs: donor.len() as u64, allowed })?);
                continue;
            };
            let length = run.length_bytes.min(segment.range.end - at);
            let pages = length.next_multiple_of(page_bytes).min(run.length_bytes);
            exchange(&runs[&segment.file], segment.file, at..at + length, run, block_bytes, &mut moves);
            run.offset_bytes += pages;
            run.physical_bytes += pages;
            run.length_bytes -= pages;
            at += length;
        }
    }
    Ok(moves)
}

/// The exchanges of a range that gets the start of a run: one for each contiguous piece of the file.
fn exchange(
    file_runs: &[Run],
    file: usize,
    range: std::ops::Range<u64>,
    to: &Run,
    block_bytes: u64,
    moves: &mut Vec<Move>,
) {
    let whole_blocks = range.start..range.end.next_multiple_of(block_bytes);
    for part in parts(file_runs, &whole_blocks) {
        let skipped = part.offset_bytes - range.start;
        moves.push(Move {
            file,
            offset_bytes: part.offset_bytes,
            donor_bytes: to.offset_bytes + skipped,
            length_bytes: part.length_bytes,
            old_physical_bytes: part.physical_bytes,
            new_physical_bytes: to.physical_bytes + skipped,
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::relocation::layout::Segment;
    use proptest::prelude::*;

    const PAGE: u64 = 4096;

    fn run(offset_bytes: u64, physical_bytes: u64, length_bytes: u64) -> Run {
        Run { offset_bytes, physical_bytes, length_bytes }
    }

    fn segment(file: usize, range: std::ops::Range<u64>) -> Segment {
        Segment { file, range, first_use_us: 0, late: false }
    }

    #[test]
    fn segments_fill_the_runs_in_order_of_the_disk() {
        let layout =
            Layout { segments: vec![segment(0, 0..3 * PAGE), segment(1, PAGE..3 * PAGE)], ..Layout::default() };
        let runs = HashMap::from([(0, vec![run(0, 1 << 30, 3 * PAGE)]), (1, vec![run(0, 1 << 31, 8 * PAGE)])]);
        // The second run of the donor is the first on the disk.
        let donor = [run(0, 1 << 20, PAGE), run(PAGE, 1 << 16, 4 * PAGE)];
        let moves = place(&layout, &donor, &runs, PAGE, PAGE).unwrap();
        let places: Vec<_> = moves
            .iter()
            .map(|m| (m.file, m.offset_bytes, m.donor_bytes, m.length_bytes, m.new_physical_bytes))
            .collect();
        assert_eq!(
            places,
            [
                (0, 0, PAGE, 3 * PAGE, 1 << 16),
                (1, PAGE, 4 * PAGE, PAGE, (1 << 16) + 3 * PAGE),
                (1, 2 * PAGE, 0, PAGE, 1 << 20)
            ]
        );
    }

    #[test]
    fn scattered_donor_is_refused() {
        let layout = Layout { segments: vec![segment(0, 0..3 * PAGE)], ..Layout::default() };
        let donor: Vec<Run> = (0..3).map(|index| run(index * PAGE, index * (1 << 20), PAGE)).collect();
        let runs = HashMap::from([(0, vec![run(0, 1 << 30, 3 * PAGE)])]);
        assert_eq!(place(&layout, &donor, &runs, PAGE, PAGE), Err(NoRoom { runs: 3, allowed: 2 }));
        assert!(place(&layout, &donor[..1], &runs, PAGE, PAGE).is_err());
    }

    #[test]
    fn last_block_of_a_file_is_moved_whole() {
        let layout = Layout { segments: vec![segment(0, 0..PAGE + 100), segment(1, 0..10)], ..Layout::default() };
        let runs = HashMap::from([(0, vec![run(0, 1 << 30, 2 * PAGE)]), (1, vec![run(0, 1 << 31, 1024)])]);
        let moves = place(&layout, &[run(0, 0, 3 * PAGE)], &runs, PAGE, 1024).unwrap();
        assert_eq!(
            moves.iter().map(|m| (m.length_bytes, m.donor_bytes)).collect::<Vec<_>>(),
            [(PAGE + 1024, 0), (1024, 2 * PAGE)]
        );
    }

    proptest! {
        /// Every byte of every segment is moved once, to a byte of the donor that is used once, in ascending order.
        #[test]
        fn moves_are_a_bijection_in_ascending_order(
            segments in prop::collection::vec((1u64..40, 0u64..5), 1..20),
            cuts in prop::collection::vec(1u64..60, 0..3),
            pieces in 1u64..4,
        ) {
            let (mut all, mut runs) = (Vec::new(), HashMap::new());
            for (file, (pages, start)) in segments.iter().enumerate() {
                let range = start * PAGE..(start + pages) * PAGE;
                all.push(segment(file, range.clone()));
                let step = (pages + start).div_ceil(pieces) * PAGE;
                let parts = (0..pieces).map(|index| run(index * step, ((file as u64 + 1) << 34) + index * step * 2, step));
                runs.insert(file, parts.collect::<Vec<_>>());
            }
            let layout = Layout { segments: all, ..Layout::default() };
            let total = donor_bytes(&layout, PAGE);
            let mut donor = Vec::new();
            let mut at = 0;
            for (index, pages) in cuts.iter().copied().chain([u64::MAX / PAGE]).enumerate() {
                let length = (pages * PAGE).min(total - at);
                if length > 0 {
                    // Later runs of the file lie before earlier ones on the disk.
                    donor.push(run(at, (100 - index as u64) << 40, length));
                }
                at += length;
            }
            let moves = match place(&layout, &donor, &runs, PAGE, PAGE) {
                Err(refused) => {
                    prop_assert!(refused.runs > refused.allowed);
                    return Ok(());
                }
                Ok(moves) => moves,
            };
            prop_assert_eq!(moves.iter().map(|m| m.length_bytes).sum::<u64>(), layout.bytes());
            prop_assert!(moves.windows(2).all(|pair| pair[0].new_physical_bytes + pair[0].length_bytes <= pair[1].new_physical_bytes));
            for m in &moves {
                prop_assert_eq!(parts(&donor, &(m.donor_bytes..m.donor_bytes + m.length_bytes)), [run(m.donor_bytes, m.new_physical_bytes, m.length_bytes)]);
                prop_assert_eq!(parts(&runs[&m.file], &(m.offset_bytes..m.offset_bytes + m.length_bytes)), [run(m.offset_bytes, m.old_physical_bytes, m.length_bytes)]);
            }
        }
    }
}
