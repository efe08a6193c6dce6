//! Cuts pieces at the borders of blocks that the kernel can read as one large folio: pure.
//!
//! ```text
//!     block       │ 0         │ 1         │ 2         │ 3         │        aligned in the file
//!     pieces      ──[ p1 ][p2][ p3  ][ p4 ][  p5  ][p6]────────────▶ offset
//!     cut         ──[ p1 ][p2]│[ block 1 ]│[  p5  ][p6]
//!                               ╰ all of it is wanted, and so is the margin after it
//! ```
//!
//! A recording has a piece for each millisecond or so of a file that is read from its beginning to its end. So a block is made of all
//! pieces in it, if they are used soon after each other.

use crate::{Piece, Source};
use std::collections::BTreeMap;
use std::ops::Range;

/// The blocks of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Blocks {
    /// The size of a block, bytes, a power of two.
    pub bytes: u64,
    /// Bytes after a block that must be wanted, too, up to the end of the file: the kernel marks each large folio, and at the first access
    /// to it reads absent pages within its window after it.
    pub margin_bytes: u64,
}

/// Maximum distance between the first uses of the pieces of a block, in blocks: bytes of all pieces that are first used between them. A
/// block is read at its first use. So it delays what is used meanwhile by the transfer of at most this many blocks.
const MAX_DISTANCE: u64 = 2;

/// Maximum number of blocks: 128 GiB of 2 MiB each. A hostile profile may have extents without an end.
const MAX_BLOCKS: usize = 1 << 16;

impl Blocks {
    /// Whether this range is a block.
    pub fn is_block(&self, range: &Range<u64>) -> bool {
        range.end - range.start == self.bytes && range.start.is_multiple_of(self.bytes)
    }

    /// The same pieces, with one for each block. `end_of`: the size of a file that may have large folios; `None`: its pieces stay as they
    /// are.
    pub fn cut(&self, pieces: Vec<Piece>, end_of: impl Fn(Source) -> Option<u64>) -> Vec<Piece> {
        let mut by_source: BTreeMap<Source, Vec<(u64, Piece)>> = BTreeMap::new();
        let (mut cut, mut used_before) = (Vec::with_capacity(pieces.len()), 0u64);
        let mut pieces = pieces;
        pieces.sort_by_key(|piece| (piece.first_use_us, piece.source, piece.range.start));
        for piece in pieces {
            let bytes = piece.bytes();
            match end_of(piece.source) {
                Some(_) => by_source.entry(piece.source).or_default().push((used_before, piece)),
                None => cut.push(piece),
            }
            used_before = used_before.saturating_add(bytes);
        }
        let mut blocks_left = MAX_BLOCKS;
        for (source, mut pieces) in by_source {
            pieces.sort_by_key(|(_, piece)| piece.range.start);
            let blocks = self.within(&pieces, end_of(source).unwrap_or(0), blocks_left);
            blocks_left -= blocks.len();
            divide(pieces, &blocks, &mut cut);
        }
        cut
    }

    /// The first `most` blocks of a file, given its pieces in order of place, each with the bytes that are used before it.
    fn within(&self, pieces: &[(u64, Piece)], size_bytes: u64, most: usize) -> Vec<Range<u64>> {
        let mut blocks = Vec::new();
        for run in pieces.chunk_by(|(_, before), (_, after)| before.range.end == after.range.start) {
            let whole = run[0].1.range.start..run[run.len() - 1].1.range.end;
            let needed_bytes = |block_end: u64| block_end.saturating_add(self.margin_bytes).min(size_bytes);
            let mut first = 0;
            let mut start = whole.start.next_multiple_of(self.bytes);
            while let Some(end) = start.checked_add(self.bytes).filter(|end| needed_bytes(*end).max(*end) <= whole.end)
            {
                first += run[first..].partition_point(|(_, piece)| piece.range.end <= start);
                let count = run[first..].partition_point(|(_, piece)| piece.range.start < end);
                if blocks.len() == most {
                    return blocks;
                }
                if self.is_used_at_once(&run[first..first + count]) {
                    blocks.push(start..end);
                }
                start = end;
            }
        }
        blocks
    }

    fn is_used_at_once(&self, parts: &[(u64, Piece)]) -> bool {
        let used_before = parts.iter().map(|(used_before, _)| *used_before);
        let distance = used_before.clone().max().unwrap_or(0) - used_before.min().unwrap_or(0);
        parts.iter().all(|(_, piece)| !piece.late) && distance <= MAX_DISTANCE * self.bytes
    }
}

/// Replaces the parts of pieces that lie in blocks by one piece for each block. Both are in order of place.
fn divide(pieces: Vec<(u64, Piece)>, blocks: &[Range<u64>], cut: &mut Vec<Piece>) {
    let mut blocks = blocks.iter().peekable();
    for (_, piece) in pieces {
        let mut at = piece.range.start;
        while at < piece.range.end {
            while blocks.next_if(|block| block.end <= at).is_some() {}
            let block = blocks.peek().filter(|block| block.start < piece.range.end);
            let physical_bytes = piece.physical_bytes.map(|place| place.saturating_add(at - piece.range.start));
            let end = match block {
                Some(block) if block.start <= at => {
                    match cut.last_mut().filter(|last| last.source == piece.source && last.range == **block) {
                        Some(known) => known.first_use_us = known.first_use_us.min(piece.first_use_us),
                        None => cut.push(Piece { range: (*block).clone(), physical_bytes, ..piece.clone() }),
                    }
                    block.end.min(piece.range.end)
                }
                other => {
                    let end = other.map_or(piece.range.end, |block| block.start);
                    cut.push(Piece { range: at..end, physical_bytes, ..piece.clone() });
                    end
                }
            };
            at = end;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ahead_model::RangeSet;
    use proptest::prelude::*;

    const BLOCKS: Blocks = Blocks { bytes: 8, margin_bytes: 3 };

    fn piece(range: Range<u64>, first_use_us: u64) -> Piece {
        let physical_bytes = Some(1000 + range.start);
        Piece { source: Source::File(0), range, late: false, first_use_us, physical_bytes }
    }

    fn cut(pieces: &[Piece], size_bytes: u64) -> Vec<(Range<u64>, u64)> {
        let mut cut = BLOCKS.cut(pieces.to_vec(), |_| Some(size_bytes));
        cut.sort_by_key(|piece| piece.range.start);
        assert!(cut.iter().all(|piece| piece.physical_bytes == Some(1000 + piece.range.start)), "{cut:?}");
        cut.into_iter().map(|piece| (piece.range, piece.first_use_us)).collect()
    }

    #[test]
    fn pieces_of_a_block_become_one_at_its_first_use() {
        let pieces = [piece(5..10, 2), piece(10..16, 3), piece(16..19, 1)];
        assert_eq!(cut(&pieces, 100), [(5..8, 2), (8..16, 2), (16..19, 1)]);
    }

    #[test]
    fn large_piece_becomes_blocks_up_to_the_margin() {
        assert_eq!(cut(&[piece(0..26, 7)], 100), [(0..8, 7), (8..16, 7), (16..26, 7)]);
        // At the end of the file nothing follows.
        assert_eq!(cut(&[piece(0..26, 7)], 26), [(0..8, 7), (8..16, 7), (16..24, 7), (24..26, 7)]);
        assert_eq!(cut(&[piece(8..16, 7)], 16), [(8..16, 7)]);
        assert_eq!(cut(&[piece(8..18, 7)], 19), [(8..18, 7)]);
    }

    #[test]
    fn block_with_a_gap_or_a_late_part_stays_as_it_is() {
        let gap = [piece(0..4, 0), piece(5..30, 0)];
        assert_eq!(cut(&gap, 30), [(0..4, 0), (5..8, 0), (8..16, 0), (16..24, 0), (24..30, 0)]);
        let late = [piece(0..4, 0), Piece { late: true, ..piece(4..30, 0) }];
        assert_eq!(cut(&late, 30), [(0..4, 0), (4..30, 0)]);
    }

    #[test]
    fn block_whose_parts_are_used_far_from_each_other_stays_as_it_is() {
        let other = |bytes| Piece { source: Source::File(1), ..piece(0..bytes, 5) };
        let parts = [piece(0..4, 0), piece(4..8, 9)];
        let size = |source: Source| (source == Source::File(0)).then_some(8);
        let cut = |bytes| BLOCKS.cut([&parts[..], &[other(bytes)]].concat(), size).len();
        assert_eq!((cut(12), cut(13)), (2, 3));
    }

    #[test]
    fn hostile_length_has_a_limited_number_of_blocks() {
        let cut =
            Blocks { bytes: 1 << 21, margin_bytes: 0 }.cut(vec![piece(0..i64::MAX as u64, 0)], |_| Some(u64::MAX));
        assert_eq!(cut.len(), MAX_BLOCKS + 1);
    }

    proptest! {
        #[test]
        fn every_byte_stays_wanted_once(lengths in prop::collection::vec((0..3u64, 1..20u64, 0..4u64), 0..20), size in 0..300u64) {
            let mut end = 0;
            let pieces: Vec<Piece> = lengths.into_iter().map(|(gap, length, first_use_us)| {
                let start = end + gap;
                end = start + length;
                piece(start..end, first_use_us)
            }).collect();
            let cut = BLOCKS.cut(pieces.clone(), |_| Some(size));
            let set = |pieces: &[Piece]| pieces.iter().map(|piece| piece.range.clone()).collect::<RangeSet>();
            prop_assert_eq!(set(&cut), set(&pieces));
            prop_assert_eq!(cut.iter().map(Piece::bytes).sum::<u64>(), set(&pieces).count());
            prop_assert!(cut.iter().all(|piece| !piece.range.is_empty()));
        }
    }
}
