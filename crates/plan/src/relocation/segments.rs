//! Which ranges of one file are moved: its used ranges, joined across gaps where that is cheaper than another fragment.
//!
//! ```text
//!     used      ▇▇ ▇   ▇▇▇                    ▇▇ ▇
//!     segments  ╰────────╯                    ╰──╯        split at the largest gaps
//! ```
//!
//! Each split costs fragments. A file with more than four keeps its extents in a separate block, which a cold start then reads,
//! too: an access. Each gap that is not split costs its transfer.

use super::runs::{Run, Used, covers, fragments, overlay, parts};
use ahead_model::DeviceDescription;
use std::ops::Range;

/// Fragments that are added to one file at most. A program that reads the whole file needs one more seek for each: 64 of 8 ms are
/// half a second at worst, on a file whose used parts lie far apart. All of them fit in one block of extents (340 of 12 bytes in 4 KiB).
pub const MAX_ADDED_FRAGMENTS: u64 = 64;

/// Smaller gaps are always moved along: their transfer takes a millisecond, and a replay reads most of them anyway, to join requests.
const SMALL_GAP_BYTES: u64 = 128 << 10;

/// Extents that an inode of ext4 holds itself (`EXT4_EXT` in `i_block`: 60 bytes, a header and four extents).
const IN_INODE: u64 = 4;

/// Extents in a block of 4 KiB that is a leaf of a file's extent tree.
const IN_LEAF: u64 = 340;

/// The used ranges cannot be moved within [`MAX_ADDED_FRAGMENTS`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooFragmented;

/// The ranges to move: ascending, disjoint. `used` ascends; each of its ranges is covered by `runs`, which ascend.
pub fn segments(used: &[Used], runs: &[Run], device: &DeviceDescription) -> Result<Vec<Range<u64>>, TooFragmented> {
    let gaps: Vec<Range<u64>> =
        used.windows(2).map(|pair| pair[0].range.end..pair[1].range.start).filter(|gap| !gap.is_empty()).collect();
    // A gap with a hole has no blocks that could be exchanged.
    let (solid, holes): (Vec<_>, Vec<_>) = gaps.into_iter().partition(|gap| covers(runs, gap));
    if holes.len() as u64 > MAX_ADDED_FRAGMENTS {
        return Err(TooFragmented);
    }
    let mut largest_first = solid;
    largest_first.retain(|gap| gap.end - gap.start > SMALL_GAP_BYTES);
    largest_first.sort_by_key(|gap| (std::cmp::Reverse(gap.end - gap.start), gap.start));
    let most = largest_first.len().min(MAX_ADDED_FRAGMENTS as usize);
    let mut best: Option<(f64, Vec<Range<u64>>)> = None;
    let total_gaps: u64 = largest_first.iter().map(|gap| gap.end - gap.start).sum();
    let mut bridged = total_gaps;
    for splits in 0..=most {
        if splits > 0 {
            let gap = &largest_first[splits - 1];
            bridged -= gap.end - gap.start;
        }
        let found = split(used, &holes, &largest_first[..splits]);
        let after = fragments_after(runs, &found);
        if after > fragments(runs) + MAX_ADDED_FRAGMENTS {
            continue;
        }
        let cost_us = device.transfer_us(bridged) + device.access_us() * leaves(after) as f64;
        if best.as_ref().is_none_or(|(least, _)| cost_us < *least) {
            best = Some((cost_us, found));
        }
    }
    best.map(|(_, found)| found).ok_or(TooFragmented)
}

/// Blocks of the extent tree below the inode.
fn leaves(fragments: u64) -> u64 {
    if fragments <= IN_INODE { 0 } else { fragments.div_ceil(IN_LEAF) }
}

fn split(used: &[Used], holes: &[Range<u64>], at: &[Range<u64>]) -> Vec<Range<u64>> {
    let mut starts: Vec<u64> = holes.iter().chain(at).map(|gap| gap.end).collect();
    starts.sort_unstable();
    let mut found: Vec<Range<u64>> = Vec::new();
    for used in used {
        match found.last_mut() {
            Some(last) if starts.binary_search(&used.range.start).is_err() => last.end = used.range.end,
            _ => found.push(used.range.clone()),
        }
    }
    found
}

/// Fragments if each segment becomes contiguous, apart from the others.
fn fragments_after(runs: &[Run], segments: &[Range<u64>]) -> u64 {
    let mut at = 1 << 62;
    let moved: Vec<Run> = segments
        .iter()
        .map(|segment| {
            // Places that no run continues.
            at += 2 * (segment.end - segment.start) + 1;
            Run { offset_bytes: segment.start, physical_bytes: at, length_bytes: segment.end - segment.start }
        })
        .collect();
    fragments(&overlay(runs, &moved))
}

/// Whether the range is one run, and where it starts.
pub(crate) fn contiguous_at(runs: &[Run], range: &Range<u64>) -> Option<u64> {
    match &parts(runs, range)[..] {
        [one] if one.offset_bytes == range.start && one.end() >= range.end => Some(one.physical_bytes),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DISK: DeviceDescription = DeviceDescription::ROTATING;
    const KIB: u64 = 1024;

    fn used(ranges: &[Range<u64>]) -> Vec<Used> {
        ranges.iter().map(|range| Used { range: range.clone(), first_use_us: 0, late: false }).collect()
    }

    fn whole(bytes: u64) -> [Run; 1] {
        [Run { offset_bytes: 0, physical_bytes: 1 << 30, length_bytes: bytes }]
    }

    #[test]
    fn small_gaps_are_moved_along() {
        let ranges = [0..4 * KIB, 64 * KIB..72 * KIB, 128 * KIB..132 * KIB];
        assert_eq!(segments(&used(&ranges), &whole(256 * KIB), &DISK), Ok(vec![0..132 * KIB]));
    }

    #[test]
    fn file_is_split_at_large_gaps() {
        let ranges = [0..4 * KIB, 64 * KIB..72 * KIB, (64 << 20)..(64 << 20) + 4 * KIB];
        let found = segments(&used(&ranges), &whole(128 << 20), &DISK).unwrap();
        assert_eq!(found, [0..72 * KIB, (64 << 20)..(64 << 20) + 4 * KIB]);
    }

    /// Five fragments need a block of extents, and that is an access of 12 ms: the transfer of 1.4 MB.
    #[test]
    fn fifth_fragment_must_save_an_access() {
        let ranges = |gap: u64| used(&[4 * KIB..8 * KIB, gap..gap + 4 * KIB]);
        assert_eq!(segments(&ranges(1 << 20), &whole(1 << 30), &DISK).unwrap().len(), 1);
        assert_eq!(segments(&ranges(2 << 20), &whole(1 << 30), &DISK).unwrap().len(), 2);
    }

    #[test]
    fn added_fragments_are_limited() {
        let ranges: Vec<_> = (1..500).map(|index| (index * (8 << 20))..(index * (8 << 20)) + 4 * KIB).collect();
        let runs = whole(8 << 30);
        let found = segments(&used(&ranges), &runs, &DISK).unwrap();
        let after = fragments_after(&runs, &found);
        assert!((60..=MAX_ADDED_FRAGMENTS + 1).contains(&after), "{after}");
    }

    #[test]
    fn hole_in_a_gap_splits_and_too_many_are_an_error() {
        let runs = |count: u64| -> Vec<Run> {
            let run = |index| Run {
                offset_bytes: index * 16 * KIB,
                physical_bytes: index * (1 << 20),
                length_bytes: 4 * KIB,
            };
            (0..count).map(run).collect()
        };
        let ranges = |count: u64| {
            used(&(0..count).map(|index| index * 16 * KIB..index * 16 * KIB + 4 * KIB).collect::<Vec<_>>())
        };
        assert_eq!(segments(&ranges(3), &runs(3), &DISK).unwrap().len(), 3);
        assert_eq!(segments(&ranges(100), &runs(100), &DISK), Err(TooFragmented));
    }
}
