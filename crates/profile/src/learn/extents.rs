//! Converts touched pages to extents: selects pages that count as used, clips them to the file, in order of first use.

use crate::learn::observation::{Access, AccessKind};
use crate::{Extent, WarmUse};
use ahead_model::{PhysicalExtent, RangeSet, sorting};
use std::collections::BTreeMap;

/// Which touches count as use, besides reads and faults, which always do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct CountedKinds {
    /// Pages added to the cache: exact without read-ahead, and the only source if accesses are not recorded.
    pub added: bool,
    /// Pages mapped around a fault: an upper bound.
    pub around: bool,
    /// All pages of a folio with a fault, if it has at least this number of pages: the fault maps all of them, an upper bound.
    pub folio_pages: Option<u64>,
}

/// The touches of a file that count as use, in order, without repeats. Those that are only an upper bound are of the kind
/// [`AccessKind::Around`]. A touch is an access and its index in the recording.
pub(crate) fn used(touches: &[(usize, Access)], counting: CountedKinds) -> Vec<(usize, Access)> {
    let is_certain = |(_, access): &&(usize, Access)| matches!(access.kind, AccessKind::Read | AccessKind::Fault);
    let is_possible = |(_, access): &&(usize, Access)| match access.kind {
        AccessKind::Added => counting.added,
        AccessKind::Around => counting.around,
        AccessKind::Read | AccessKind::Fault => false,
    };
    let folios = counting.folio_pages.map(|least| mapped_folios(touches, least)).unwrap_or_default();
    let mut known = RangeSet::new();
    let mut used = Vec::new();
    // Certain uses first: their times are times of use.
    let possible = touches.iter().filter(is_possible);
    for (order, access) in touches.iter().filter(is_certain).chain(possible).chain(&folios) {
        let parts = known.insert_new(access.pages.clone());
        used.extend(parts.into_iter().map(|pages| (*order, Access { pages, ..access.clone() })));
    }
    sorting::sort_by_key(&mut used, |(order, _)| *order);
    used
}

/// The folios of at least this number of pages that a fault has mapped, at the time of their first fault.
///
/// ```text
///     added    [ 4 pages ][  4 pages  ]
///     faults      ▲          (none)          the other three pages of the first folio are mapped, too
/// ```
fn mapped_folios(touches: &[(usize, Access)], least_pages: u64) -> Vec<(usize, Access)> {
    let mut first_faults = BTreeMap::new();
    for (order, fault) in touches.iter().filter(|(_, access)| access.kind == AccessKind::Fault) {
        first_faults.entry(fault.pages.start).or_insert((*order, fault));
    }
    let added = touches.iter().map(|(_, access)| access).filter(|access| access.kind == AccessKind::Added);
    let large = added.filter(|access| access.pages.end.saturating_sub(access.pages.start) >= least_pages);
    let mapped = |folio: &Access| {
        let (_, (order, fault)) = first_faults.range(folio.pages.clone()).min_by_key(|(_, (order, _))| *order)?;
        Some((*order, Access { pages: folio.pages.clone(), kind: AccessKind::Around, ..(*fault).clone() }))
    };
    large.filter_map(mapped).collect()
}

/// Extents in order of first use. Consecutive touches without another file's between them become one extent if each begins
/// where the last one ended, and the program has not computed for long in between. `times_of` the index of a touch: since exec, microseconds, and on the
/// program's own timeline.
pub(crate) fn extents(
    used: &[(usize, Access)],
    page_bytes: u64,
    size_bytes: u64,
    times_of: &dyn Fn(usize) -> (u64, Option<WarmUse>),
) -> Vec<Extent> {
    let mut extents: Vec<Extent> = Vec::new();
    let mut last_order = None;
    for (order, access) in used {
        let start = access.pages.start.saturating_mul(page_bytes);
        let end = access.pages.end.saturating_mul(page_bytes).min(size_bytes);
        if start >= end {
            continue;
        }
        let follows = last_order.is_some_and(|last| *order <= last + 1);
        last_order = Some(*order);
        let (first_use_us, warm_use) = times_of(*order);
        match extents.last_mut() {
            Some(last) if follows && last.end_bytes() == start && is_one_use(last.warm_use, warm_use) => {
                last.length_bytes = end - last.offset_bytes;
            }
            _ => extents.push(Extent {
                offset_bytes: start,
                length_bytes: end - start,
                first_use_us,
                runs: 1,
                physical_bytes: None,
                warm_use,
            }),
        }
    }
    extents
}

/// Touches by one thread within this processor time are one use, microseconds: the resolution of merged times in a profile.
const ONE_USE_US: u64 = 1000;

fn is_one_use(first: Option<WarmUse>, next: Option<WarmUse>) -> bool {
    match (first, next) {
        (Some(first), Some(next)) => first.thread == next.thread && next.cpu_us.abs_diff(first.cpu_us) < ONE_USE_US,
        (first, next) => first.is_none() && next.is_none(),
    }
}

/// Splits extents where the blocks of the file are not contiguous, and adds the position of each part.
pub fn split_by_position(extents: Vec<Extent>, physical: &[PhysicalExtent]) -> Vec<Extent> {
    let mut placed = Vec::with_capacity(extents.len());
    for extent in extents {
        let end = extent.end_bytes();
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
    use std::ops::Range;

    fn touch(order: usize, pages: Range<u64>, kind: AccessKind) -> (usize, Access) {
        (order, Access { time_ns: 0, tgid: 1, tid: 1, file: 1, pages, kind, cpu_ns: 0 })
    }

    fn spans(extents: &[Extent]) -> Vec<(u64, u64, u64)> {
        extents.iter().map(|e| (e.offset_bytes, e.length_bytes, e.first_use_us)).collect()
    }

    const PRECISE: CountedKinds = CountedKinds { added: true, around: false, folio_pages: None };
    const UPPER_BOUND: CountedKinds = CountedKinds { added: false, around: true, folio_pages: None };

    #[test]
    fn pages_around_a_fault_count_only_in_an_upper_bound() {
        let touches = [touch(0, 0..16, AccessKind::Around), touch(1, 3..4, AccessKind::Fault)];
        assert_eq!(used(&touches, PRECISE), [touch(1, 3..4, AccessKind::Fault)]);
        let upper: Vec<_> = used(&touches, UPPER_BOUND).into_iter().map(|(_, access)| access.pages).collect();
        assert_eq!(upper, [0..3, 4..16, 3..4]);
    }

    #[test]
    fn added_pages_count_in_a_precise_run() {
        let touches = [touch(0, 0..4, AccessKind::Added), touch(1, 1..2, AccessKind::Read)];
        let pages: Vec<_> = used(&touches, PRECISE).into_iter().map(|(_, access)| access.pages).collect();
        assert_eq!(pages, [0..1, 2..4, 1..2]);
        assert_eq!(used(&touches, UPPER_BOUND).len(), 1);
    }

    #[test]
    fn pages_mapped_with_their_folio_are_an_upper_bound() {
        let touches = [
            touch(0, 0..4, AccessKind::Added),
            touch(1, 4..8, AccessKind::Added),
            touch(2, 8..9, AccessKind::Added),
            touch(3, 2..3, AccessKind::Fault),
            touch(4, 8..9, AccessKind::Fault),
        ];
        let counting = |least| CountedKinds { folio_pages: Some(least), ..CountedKinds::default() };
        let found: Vec<_> =
            used(&touches, counting(2)).into_iter().map(|(order, access)| (order, access.pages, access.kind)).collect();
        let around = |pages| (3, pages, AccessKind::Around);
        assert_eq!(found, [(3, 2..3, AccessKind::Fault), around(0..2), around(3..4), (4, 8..9, AccessKind::Fault)]);
        // An older kernel maps only huge pages completely.
        assert!(used(&touches, counting(512)).iter().all(|(_, access)| access.kind == AccessKind::Fault));
    }

    #[test]
    fn consecutive_touches_become_one_extent_clipped_to_the_file() {
        let read = |order, pages| touch(order, pages, AccessKind::Read);
        let used = [read(0, 0..2), read(1, 2..3), read(5, 3..4), read(6, 9..10)];
        let found = extents(&used, 4096, 14_000, &|order| (order as u64 * 10, None));
        assert_eq!(spans(&found), [(0, 12_288, 0), (12_288, 14_000 - 12_288, 50)]);
    }

    #[test]
    fn computing_and_other_threads_separate_extents() {
        let used = [0, 1, 2, 3].map(|at| touch(at, at as u64..at as u64 + 1, AccessKind::Read));
        let warm_use = |thread, cpu_us| Some(WarmUse { time_us: cpu_us, thread, cpu_us });
        let warm_uses = [warm_use(1, 0), warm_use(1, 999), warm_use(1, 1000), warm_use(2, 1000)];
        let found = extents(&used, 4096, 1 << 20, &|order| (order as u64 * 10, warm_uses[order]));
        assert_eq!(spans(&found), [(0, 8192, 0), (8192, 4096, 20), (12_288, 4096, 30)]);
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
