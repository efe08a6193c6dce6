//! Whether a file that replaced a recorded one still has what was used of it.
//!
//! ```text
//!     recorded: extents ─▶ pieces of at most 16 KiB ─▶ digests ─┐
//!                                                               ├─▶ all equal                        ─▶ every extent is kept
//!     now:      the same pieces of the new file     ─▶ digests ─┤   same ELF layout, most are equal  ─▶ every extent is kept
//!                                                               └─▶ else                             ─▶ the equal pieces are kept
//! ```
//!
//! A package that is built again has another build-id, version string and time stamp, with everything else at the same place: what a boot
//! uses is decided by the place. If more than half differs, the new file is another program.
//!
//! The layout is that of the program headers. They are in the first page, which every start of the program reads. The section table is at the
//! end of the file, which no start reads: it would cost a device read for each file.

use ahead_model::RangeSet;
use ahead_profile::{ContentCheck, Extent, File, MAX_PIECES, PIECE_BYTES};
use std::ops::Range;

/// The used ranges, ascending.
pub fn used_ranges(file: &File) -> RangeSet {
    file.extents.iter().map(Extent::range).collect()
}

/// The used ranges for the content check: ascending, without overlap, cut at multiples of [`PIECE_BYTES`]. They depend on the used
/// bytes only, not on the order and the number of the extents. `None`: more than [`MAX_PIECES`].
pub fn pieces(file: &File) -> Option<Vec<Range<u64>>> {
    let mut pieces = Vec::new();
    for range in used_ranges(file).iter() {
        let mut start = range.start;
        while start < range.end {
            if pieces.len() == MAX_PIECES {
                return None;
            }
            let end = (start / PIECE_BYTES + 1).saturating_mul(PIECE_BYTES).min(range.end);
            pieces.push(start..end);
            start = end;
        }
    }
    Some(pieces)
}

/// What is kept of a file that was replaced.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KeptContent {
    /// The used ranges that still apply.
    pub ranges: RangeSet,
    /// Whether these are all.
    pub all: bool,
    /// Whether everything that could be compared is equal, and that is at least half.
    pub is_equal: bool,
}

/// Compares the content of a file now with the recorded one. `now`: the digests of [`pieces`] now. `None`: the profile
/// does not say what the file contained, or nothing could be compared.
pub fn compare_content(recorded: &File, now: &ContentCheck) -> Option<KeptContent> {
    let before = recorded.content.as_deref()?;
    let pieces = pieces(recorded)?;
    if before.pieces.len() != pieces.len() || now.pieces.len() != pieces.len() {
        return None;
    }
    let (mut compared, mut equal, mut ranges) = (0, 0, RangeSet::new());
    for (piece, (before, now)) in pieces.iter().zip(before.pieces.iter().zip(&now.pieces)) {
        if *before == 0 {
            continue;
        }
        compared += length(piece);
        if before == now {
            equal += length(piece);
            ranges.insert(piece.clone());
        }
    }
    let used: u64 = pieces.iter().map(length).sum();
    let same_layout = before.layout != 0 && before.layout == now.layout;
    // Pieces without a digest follow the others if these are at least half.
    let is_equal = compared * 2 >= used && equal == compared;
    let all = is_equal || compared * 2 >= used && same_layout && equal * 2 >= compared;
    if all {
        pieces.into_iter().for_each(|piece| ranges.insert(piece));
    }
    (compared > 0).then_some(KeptContent { ranges, all, is_equal })
}

fn length(range: &Range<u64>) -> u64 {
    range.end - range.start
}

/// The digest of a piece: never 0, which means that it is unknown.
pub fn digest(bytes: &[u8]) -> u32 {
    crc32fast::hash(bytes).max(1)
}

/// The digest of the layout of an ELF file, from its first bytes; 0: another file, or the program headers lie elsewhere.
pub fn layout_of(begin: &[u8]) -> u32 {
    let number = |at: usize, length: usize| {
        let bytes = begin.get(at..at + length)?;
        // A file of another byte order has no layout: its numbers are too large.
        Some(bytes.iter().rev().fold(0u64, |number, byte| number << 8 | u64::from(*byte)))
    };
    let layout = || {
        let is_64 = match begin.get(..5)? {
            b"\x7fELF\x01" => false,
            b"\x7fELF\x02" => true,
            _ => return None,
        };
        // elf(5): e_phoff, then e_phentsize and e_phnum.
        let (offset, sizes) = if is_64 { (number(32, 8)?, 54) } else { (number(28, 4)?, 42) };
        let table = number(sizes, 2)?.checked_mul(number(sizes + 2, 2)?)?;
        let (offset, table) = (usize::try_from(offset).ok()?, usize::try_from(table).ok()?);
        let headers = begin.get(offset..offset.checked_add(table)?).filter(|headers| !headers.is_empty())?;
        let mut hasher = crc32fast::Hasher::new();
        // The class, the type and the machine.
        hasher.update(&begin[4..5]);
        hasher.update(begin.get(16..20)?);
        hasher.update(headers);
        Some(hasher.finalize().max(1))
    };
    layout().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use ahead_profile::Extent;

    /// A file with these used ranges, in pieces, and the digests of its pieces.
    fn file(extents: &[Range<u64>], layout: u32, pieces: &[u32]) -> File {
        let extent = |range: &Range<u64>| Extent {
            offset_bytes: range.start * PIECE_BYTES,
            length_bytes: (range.end - range.start) * PIECE_BYTES,
            runs: 1,
            ..Extent::default()
        };
        let content = Some(Box::new(ContentCheck { layout, pieces: pieces.to_vec() }));
        File { path: b"/x".to_vec(), extents: extents.iter().map(extent).collect(), content, ..File::default() }
    }

    fn kept(recorded: &File, layout: u32, pieces: &[u32]) -> Option<(Vec<u64>, bool)> {
        let kept = compare_content(recorded, &ContentCheck { layout, pieces: pieces.to_vec() })?;
        let first = kept.ranges.iter().flat_map(|range| range.start / PIECE_BYTES..range.end / PIECE_BYTES);
        Some((first.collect(), kept.all))
    }

    #[test]
    fn pieces_are_cut_at_multiples_and_ordered_by_offset() {
        let extent = |offset_bytes, length_bytes| Extent { offset_bytes, length_bytes, runs: 1, ..Extent::default() };
        let extents = vec![extent(40_960, 100), extent(0, 4096), extent(8192, 16_384)];
        let file = File { extents, ..File::default() };
        assert_eq!(super::pieces(&file).unwrap(), [0..4096, 8192..16_384, 16_384..24_576, 40_960..41_060]);
        let huge = File { extents: vec![extent(0, 1 << 62)], ..File::default() };
        assert_eq!(super::pieces(&huge), None);
    }

    #[test]
    fn equal_content_keeps_everything_and_a_difference_costs_its_piece() {
        let recorded = file(&[5..7, 0..2], 0, &[1, 2, 3, 4]);
        assert_eq!(kept(&recorded, 0, &[1, 2, 3, 4]), Some((vec![0, 1, 5, 6], true)));
        assert_eq!(kept(&recorded, 0, &[1, 9, 3, 4]), Some((vec![0, 5, 6], false)));
        assert_eq!(kept(&recorded, 0, &[9, 9, 9, 0]), Some((vec![], false)));
    }

    #[test]
    fn same_layout_keeps_everything_while_half_is_equal() {
        let recorded = file(&[0..4], 7, &[1, 2, 3, 4]);
        assert_eq!(kept(&recorded, 7, &[9, 2, 9, 4]), Some((vec![0, 1, 2, 3], true)));
        assert_eq!(kept(&recorded, 7, &[9, 9, 9, 4]), Some((vec![3], false)));
        assert_eq!(kept(&recorded, 8, &[9, 2, 3, 4]), Some((vec![1, 2, 3], false)));
    }

    #[test]
    fn unknown_pieces_follow_the_others_and_nothing_known_decides_nothing() {
        assert_eq!(kept(&file(&[0..4], 0, &[1, 0, 3, 0]), 0, &[1, 2, 3, 4]), Some((vec![0, 1, 2, 3], true)));
        assert_eq!(kept(&file(&[0..4], 0, &[1, 0, 0, 0]), 0, &[1, 2, 3, 4]), Some((vec![0], false)));
        assert_eq!(kept(&file(&[0..4], 7, &[0; 4]), 7, &[1, 2, 3, 4]), None);
        // Of another number of extents: the profile was changed by a program that does not know the check.
        assert_eq!(kept(&file(&[0..4], 7, &[1; 3]), 7, &[1, 2, 3]), None);
        assert_eq!(kept(&File { content: None, ..file(&[0..1], 0, &[]) }, 0, &[1]), None);
    }

    #[test]
    fn layout_is_that_of_the_program_headers() {
        let mut elf = vec![0; 4096];
        elf[..5].copy_from_slice(b"\x7fELF\x02");
        (elf[32], elf[54], elf[56]) = (64, 56, 13);
        let layout = layout_of(&elf);
        assert_ne!(layout, 0);
        // The position of the section table, and the content behind the headers.
        (elf[40], elf[2000]) = (9, 9);
        assert_eq!(layout_of(&elf), layout);
        elf[64 + 12 * 56 + 40] = 1;
        assert_ne!(layout_of(&elf), layout);
        for no_elf in [&b"#!/bin/sh"[..], b"", b"\x7fELF\x02", &elf[..700], &[b'\x7f'; 4096]] {
            assert_eq!(layout_of(no_elf), 0);
        }
        elf[32..40].fill(0xff);
        assert_eq!(layout_of(&elf), 0);
    }
}
