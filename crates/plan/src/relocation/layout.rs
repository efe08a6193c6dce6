//! The order of what is moved, and what stays.

use super::runs::{Run, Used, covers};
use super::segments::{TooFragmented, contiguous_at, segments};
use ahead_model::DeviceDescription;
use std::ops::Range;

/// Contiguous bytes that already lie in order stay where they are from this size on: their transfer takes 35 ms on a disk with
/// 120 MB/s, four times the seek to them.
const STAYS_BYTES: u64 = 4 << 20;

/// A file whose blocks may be moved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// Index of the file in the profile.
    pub file: usize,
    /// Used ranges, ascending and disjoint.
    pub used: Vec<Used>,
    /// Where the file lies, ascending.
    pub runs: Vec<Run>,
}

/// A range of a file that becomes contiguous.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Segment {
    /// Index of the file in the profile.
    pub file: usize,
    /// Its bytes, gaps between used ranges included.
    pub range: Range<u64>,
    /// When it was first used, microseconds since exec.
    pub first_use_us: u64,
    /// All of it is replayed last.
    pub late: bool,
}

impl Segment {
    /// Its length.
    pub fn bytes(&self) -> u64 {
        self.range.end - self.range.start
    }
}

/// What is moved, in the order on the disk.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Layout {
    /// In order of first use; what is replayed last is last.
    pub segments: Vec<Segment>,
    /// Bytes that lie in order already and stay.
    pub stays_bytes: u64,
    /// Files (indices in the profile) that would get too many fragments.
    pub too_fragmented: Vec<usize>,
    /// Files (indices in the profile) with used ranges that have no block.
    pub with_holes: Vec<usize>,
}

impl Layout {
    /// Bytes to move.
    pub fn bytes(&self) -> u64 {
        self.segments.iter().map(Segment::bytes).sum()
    }
}

/// Plans the order of the used ranges on this device.
pub fn lay_out(candidates: &[Candidate], device: &DeviceDescription) -> Layout {
    let mut layout = Layout::default();
    let mut found: Vec<(Segment, Option<u64>)> = Vec::new();
    for candidate in candidates {
        if !candidate.used.iter().all(|used| covers(&candidate.runs, &used.range)) {
            layout.with_holes.push(candidate.file);
            continue;
        }
        match segments(&candidate.used, &candidate.runs, device) {
            Ok(ranges) => found.extend(ranges.into_iter().map(|range| {
                let place = contiguous_at(&candidate.runs, &range);
                (segment(candidate, range), place)
            })),
            Err(TooFragmented) => layout.too_fragmented.push(candidate.file),
        }
    }
    found.sort_by_key(|(segment, _)| (segment.late, segment.first_use_us, segment.file, segment.range.start));
    let all_bytes: u64 = found.iter().map(|(segment, _)| segment.bytes()).sum();
    for group in groups(found) {
        let bytes: u64 = group.iter().map(Segment::bytes).sum();
        match bytes >= STAYS_BYTES || bytes == all_bytes && group.len() > 1 {
            true => layout.stays_bytes += bytes,
            false => layout.segments.extend(group),
        }
    }
    layout
}

fn segment(candidate: &Candidate, range: Range<u64>) -> Segment {
    let within = || candidate.used.iter().filter(|used| used.range.start >= range.start && used.range.end <= range.end);
    let late = within().all(|used| used.late);
    let counts = within().filter(|used| used.late == late).map(|used| used.first_use_us);
    Segment { file: candidate.file, first_use_us: counts.min().unwrap_or(0), late, range }
}

/// Neighbours in order of use that are neighbours on the disk, too. One that is not contiguous itself is alone.
fn groups(found: Vec<(Segment, Option<u64>)>) -> Vec<Vec<Segment>> {
    let mut groups: Vec<Vec<Segment>> = Vec::new();
    let mut end = None;
    for (segment, place) in found {
        let next_end = place.map(|place| place.saturating_add(segment.bytes()));
        match groups.last_mut() {
            Some(last) if place.is_some() && place == end => last.push(segment),
            _ => groups.push(vec![segment]),
        }
        end = next_end;
    }
    groups
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const DISK: DeviceDescription = DeviceDescription::ROTATING;

    fn candidate(file: usize, first_use_us: u64, physical_bytes: u64, length_bytes: u64) -> Candidate {
        let used = vec![Used { range: 0..length_bytes, first_use_us, late: false }];
        Candidate { file, used, runs: vec![Run { offset_bytes: 0, physical_bytes, length_bytes }] }
    }

    #[test]
    fn segments_are_in_order_of_first_use() {
        let files = [candidate(0, 30, 0, 8192), candidate(1, 10, 1 << 20, 4096), candidate(2, 20, 1 << 21, 4096)];
        let order: Vec<usize> = lay_out(&files, &DISK).segments.iter().map(|segment| segment.file).collect();
        assert_eq!(order, [1, 2, 0]);
    }

    #[test]
    fn what_lies_in_order_stays() {
        let files = [candidate(0, 10, 4096, 8192), candidate(1, 20, 12_288, 4096)];
        let layout = lay_out(&files, &DISK);
        assert_eq!((layout.segments.len(), layout.stays_bytes), (0, 12_288));
        let large = [candidate(0, 10, 1 << 30, 8 << 20), candidate(1, 5, 4096, 4096)];
        let layout = lay_out(&large, &DISK);
        assert_eq!((layout.segments.len(), layout.stays_bytes, layout.bytes()), (1, 8 << 20, 4096));
    }

    #[test]
    fn file_with_a_hole_in_its_used_part_is_left_out() {
        let hole = Candidate { runs: Vec::new(), ..candidate(7, 1, 0, 4096) };
        assert_eq!(lay_out(&[hole], &DISK).with_holes, [7]);
    }

    proptest! {
        /// Every used byte is moved once, stays, or belongs to a file that is named.
        #[test]
        fn no_used_byte_is_lost_or_moved_twice(files in prop::collection::vec((prop::collection::vec((0u64..600, 1u64..40, any::<bool>(), any::<u16>()), 1..12), 0u64..3), 1..12)) {
            let page = 4096;
            let mut candidates = Vec::new();
            for (file, (ranges, cut)) in files.iter().enumerate() {
                let (mut at, mut used) = (0, Vec::new());
                for (gap, pages, late, time) in ranges {
                    let start = at + gap * page;
                    at = start + pages * page;
                    used.push(Used { range: start..at, first_use_us: u64::from(*time), late: *late });
                }
                let base = (file as u64 + 1) << 32;
                let runs = match cut {
                    0 => vec![Run { offset_bytes: 0, physical_bytes: base, length_bytes: at }],
                    _ => {
                        let half = (at / page / 2).max(1) * page;
                        let run = |offset_bytes, length_bytes| Run { offset_bytes, physical_bytes: base + 2 * offset_bytes, length_bytes };
                        vec![run(0, half), run(half, at - half)].into_iter().filter(|run| run.length_bytes > 0).collect()
                    }
                };
                candidates.push(Candidate { file, used, runs });
            }
            let layout = lay_out(&candidates, &DISK);
            prop_assert!(layout.with_holes.is_empty() && layout.too_fragmented.is_empty());
            for candidate in &candidates {
                let mut own: Vec<&Segment> = layout.segments.iter().filter(|segment| segment.file == candidate.file).collect();
                own.sort_by_key(|segment| segment.range.start);
                prop_assert!(own.windows(2).all(|pair| pair[0].range.end <= pair[1].range.start));
                for used in &candidate.used {
                    let whole = |segment: &&&Segment| segment.range.start <= used.range.start && used.range.end <= segment.range.end;
                    prop_assert!(own.iter().filter(whole).count() == 1 || layout.stays_bytes >= used.range.end - used.range.start);
                }
            }
            let key = |segment: &Segment| (segment.late, segment.first_use_us);
            prop_assert!(layout.segments.windows(2).all(|pair| key(&pair[0]) <= key(&pair[1])));
        }
    }
}
