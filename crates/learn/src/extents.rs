//! Converts touched pages to extents: selects pages that count as used, clips them to the file, in order of first use.

use crate::observation::AccessKind;
use ahead_model::{PhysicalExtent, RangeSet, sorting};
use ahead_profile::Extent;
use std::ops::Range;

/// Pages of one file, touched at one time. `order` is the index of the touch in the recording.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Touch {
    pub order: usize,
    pub time_us: u64,
    pub pages: Range<u64>,
    pub kind: AccessKind,
}

/// Which touches count as use, besides reads and faults, which always do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct CountedKinds {
    /// Pages added to the cache: exact without read-ahead, and the only source if accesses are not recorded.
    pub added: bool,
    /// Pages mapped around a fault: an upper bound.
    pub around: bool,
}

/// The touches that count as use, in order, without repeats.
pub(crate) fn used(touches: &[Touch], counting: CountedKinds) -> Vec<Touch> {
    let rank = |kind| match kind {
        AccessKind::Read | AccessKind::Fault => Some(0),
        AccessKind::Added => counting.added.then_some(1),
        AccessKind::Around => counting.around.then_some(1),
    };
    let mut known = RangeSet::new();
    let mut used = Vec::new();
    // Certain uses first: their times are times of use.
    for wanted in [0, 1] {
        for touch in touches.iter().filter(|touch| rank(touch.kind) == Some(wanted)) {
            let parts = known.insert_new(touch.pages.clone());
            used.extend(parts.into_iter().map(|pages| Touch { pages, ..touch.clone() }));
        }
    }
    sorting::sort_by_key(&mut used, |touch| touch.order);
    used
}

/// Extents in order of first use. Consecutive touches without another file's between them become one extent if each begins
/// where the last one ended.
pub(crate) fn extents(used: &[Touch], page_bytes: u64, size_bytes: u64) -> Vec<Extent> {
    let mut extents: Vec<Extent> = Vec::new();
    let mut last_order = None;
    for touch in used {
        let start = touch.pages.start.saturating_mul(page_bytes);
        let end = touch.pages.end.saturating_mul(page_bytes).min(size_bytes);
        if start >= end {
            continue;
        }
        let follows = last_order.is_some_and(|order| touch.order <= order + 1);
        last_order = Some(touch.order);
        match extents.last_mut() {
            Some(last) if follows && last.offset_bytes + last.length_bytes == start => {
                last.length_bytes = end - last.offset_bytes;
            }
            _ => extents.push(Extent {
                offset_bytes: start,
                length_bytes: end - start,
                first_use_us: touch.time_us,
                runs: 1,
                physical_bytes: None,
            }),
        }
    }
    extents
}

/// Splits extents where the blocks of the file are not contiguous, and adds the position of each part.
pub fn split_by_position(extents: Vec<Extent>, physical: &[PhysicalExtent]) -> Vec<Extent> {
    let mut placed = Vec::with_capacity(extents.len());
    for extent in extents {
        let end = extent.offset_bytes + extent.length_bytes;
        let mut at = extent.offset_bytes;
        while at < end {
            let (stop, physical_bytes) = run_at(physical, at);
            let stop = stop.min(end);
            placed.push(Extent { offset_bytes: at, length_bytes: stop - at, physical_bytes, ..extent });
            at = stop;
        }
    }
    placed
}

/// The end of the contiguous run of blocks with this byte, and the byte's position.
fn run_at(physical: &[PhysicalExtent], at: u64) -> (u64, Option<u64>) {
    let index = physical.partition_point(|run| run.logical_bytes + run.length_bytes <= at);
    match physical.get(index) {
        None => (u64::MAX, None),
        Some(run) if run.logical_bytes > at => (run.logical_bytes, None),
        Some(run) if !run.is_placed() => (run.logical_bytes + run.length_bytes, None),
        Some(run) => {
            let mut last = run;
            for next in &physical[index + 1..] {
                let logical = last.logical_bytes + last.length_bytes == next.logical_bytes;
                let side_by_side = last.physical_bytes + last.length_bytes == next.physical_bytes;
                if !(logical && side_by_side && next.is_placed()) {
                    break;
                }
                last = next;
            }
            (last.logical_bytes + last.length_bytes, Some(run.physical_bytes + (at - run.logical_bytes)))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn touch(order: usize, pages: Range<u64>, kind: AccessKind) -> Touch {
        Touch { order, time_us: order as u64 * 10, pages, kind }
    }

    fn spans(extents: &[Extent]) -> Vec<(u64, u64, u64)> {
        extents.iter().map(|e| (e.offset_bytes, e.length_bytes, e.first_use_us)).collect()
    }

    const PRECISE: CountedKinds = CountedKinds { added: true, around: false };
    const UPPER_BOUND: CountedKinds = CountedKinds { added: false, around: true };

    #[test]
    fn pages_around_a_fault_count_only_in_an_upper_bound() {
        let touches = [touch(0, 0..16, AccessKind::Around), touch(1, 3..4, AccessKind::Fault)];
        assert_eq!(used(&touches, PRECISE), [touch(1, 3..4, AccessKind::Fault)]);
        let upper: Vec<_> = used(&touches, UPPER_BOUND).into_iter().map(|t| t.pages).collect();
        assert_eq!(upper, [0..3, 4..16, 3..4]);
    }

    #[test]
    fn added_pages_count_in_a_precise_run() {
        let touches = [touch(0, 0..4, AccessKind::Added), touch(1, 1..2, AccessKind::Read)];
        let pages: Vec<_> = used(&touches, PRECISE).into_iter().map(|t| t.pages).collect();
        assert_eq!(pages, [0..1, 2..4, 1..2]);
        assert_eq!(used(&touches, UPPER_BOUND).len(), 1);
    }

    #[test]
    fn consecutive_touches_become_one_extent_clipped_to_the_file() {
        let read = |order, pages| touch(order, pages, AccessKind::Read);
        let found = extents(&[read(0, 0..2), read(1, 2..3), read(5, 3..4), read(6, 9..10)], 4096, 14_000);
        assert_eq!(spans(&found), [(0, 12_288, 0), (12_288, 14_000 - 12_288, 50)]);
    }

    fn run(logical: u64, physical: u64, length: u64) -> PhysicalExtent {
        PhysicalExtent {
            logical_bytes: logical,
            physical_bytes: physical,
            length_bytes: length,
            delayed: false,
            unknown: false,
            encoded: false,
            inline: false,
            unwritten: false,
            shared: false,
            merged: false,
        }
    }

    #[test]
    fn extents_are_split_where_blocks_jump() {
        let whole = Extent { offset_bytes: 10, length_bytes: 90, ..Extent::default() };
        let runs = [run(0, 1000, 20), run(20, 1020, 20), run(40, 5000, 20), run(80, 9000, 100)];
        let found: Vec<_> = split_by_position(vec![whole], &runs)
            .iter()
            .map(|e| (e.offset_bytes, e.length_bytes, e.physical_bytes))
            .collect();
        assert_eq!(found, [(10, 30, Some(1010)), (40, 20, Some(5000)), (60, 20, None), (80, 20, Some(9000))]);
        assert_eq!(split_by_position(vec![whole], &[]), [whole]);
    }
}
