//! The union of the extents that several runs used of one file: arithmetic on ranges.

use crate::check::MAX_NUMBER;
use crate::model::Extent;
use crate::timeline::WarmUse;
use ahead_model::sorting;

/// Neighbours used within this time become one extent. Shorter than one request on any disk with a head, and about as long as
/// scheduling jitter: the order within this time is noise. Unit: microseconds.
const SAME_TIME_US: u64 = 1000;

/// Disjoint extents in order of offset that cover exactly the bytes of the input: extents, each after the index of its profile (ordered by
/// age, the latest last).
pub fn union(mut input: Vec<(usize, Extent)>) -> Vec<Extent> {
    input.retain(|(_, extent)| extent.length_bytes > 0);
    sorting::sort_by_key(&mut input, |(profile, extent)| (extent.offset_bytes, *profile));
    let mut edges: Vec<u64> = input.iter().flat_map(|(_, e)| [e.offset_bytes, e.end_bytes()]).collect();
    edges.sort_unstable();
    edges.dedup();
    let mut output: Vec<Extent> = Vec::new();
    let mut open: Vec<(usize, Extent)> = Vec::new();
    let mut waiting = input.into_iter().peekable();
    for pair in edges.windows(2) {
        open.retain(|(_, extent)| extent.end_bytes() > pair[0]);
        while let Some(next) = waiting.next_if(|(_, extent)| extent.offset_bytes <= pair[0]) {
            open.push(next);
        }
        if !open.is_empty() {
            push(&mut output, piece(&open, pair[0], pair[1]));
        }
    }
    output
}

/// The extent for the bytes `from..to`, which all open extents cover.
fn piece(open: &[(usize, Extent)], from: u64, to: u64) -> Extent {
    let mut by_profile: Vec<(usize, u64, u32)> = Vec::with_capacity(open.len());
    for (of, extent) in open {
        // Within one run, the first use counts, once.
        match by_profile.iter_mut().find(|(profile, ..)| profile == of) {
            Some((_, first_use_us, runs)) => {
                *first_use_us = extent.first_use_us.min(*first_use_us);
                *runs = extent.runs.max(*runs);
            }
            None => by_profile.push((*of, extent.first_use_us, extent.runs)),
        }
    }
    // An extent may begin at the last valid position.
    let is_place = |at: &u64| *at <= MAX_NUMBER;
    let place = |extent: &Extent| extent.physical_bytes?.checked_add(from - extent.offset_bytes).filter(is_place);
    let newest = open.iter().filter(|(_, extent)| extent.physical_bytes.is_some()).max_by_key(|(profile, _)| *profile);
    Extent {
        offset_bytes: from,
        length_bytes: to - from,
        first_use_us: median(by_profile.iter().map(|(_, first_use_us, runs)| (*first_use_us, *runs)).collect()),
        runs: by_profile.iter().fold(0u32, |sum, (_, _, runs)| sum.saturating_add(*runs)),
        physical_bytes: newest.and_then(|(_, extent)| place(extent)),
        // Only one of the runs has a timeline.
        warm_use: open.iter().filter_map(|(_, extent)| extent.warm_use).min_by_key(|warm_use| warm_use.time_us),
    }
}

/// Appends an extent, and joins neighbours if that loses no information.
fn push(output: &mut Vec<Extent>, next: Extent) {
    output.push(next);
    // Joining may make the result joinable with the extent before it, hence the loop.
    while let [.., before, last] = output.as_mut_slice()
        && joinable(before, last)
    {
        before.length_bytes += last.length_bytes;
        before.first_use_us = before.first_use_us.min(last.first_use_us);
        output.pop();
    }
}

fn joinable(before: &Extent, after: &Extent) -> bool {
    let expected_place = before.physical_bytes.and_then(|at| at.checked_add(before.length_bytes));
    before.end_bytes() == after.offset_bytes
        && before.runs == after.runs
        && before.first_use_us.abs_diff(after.first_use_us) < SAME_TIME_US
        && expected_place == after.physical_bytes
        && is_same_use(before.warm_use, after.warm_use)
}

fn is_same_use(before: Option<WarmUse>, after: Option<WarmUse>) -> bool {
    match (before, after) {
        (Some(before), Some(after)) => {
            before.thread == after.thread && before.cpu_us.abs_diff(after.cpu_us) < SAME_TIME_US
        }
        (before, after) => before.is_none() && after.is_none(),
    }
}

/// The lower median of (time, number of runs) pairs; 0 if there are none.
pub fn median(mut times: Vec<(u64, u32)>) -> u64 {
    times.sort_unstable();
    let total: u64 = times.iter().map(|(_, runs)| u64::from(*runs)).sum();
    let mut below = 0;
    for (time, runs) in &times {
        below += u64::from(*runs);
        if below * 2 >= total {
            return *time;
        }
    }
    0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(profile: usize, offset_bytes: u64, length_bytes: u64, first_use_us: u64) -> (usize, Extent) {
        (profile, Extent { offset_bytes, length_bytes, first_use_us, runs: 1, ..Extent::default() })
    }

    fn tuples(extents: &[Extent]) -> Vec<(u64, u64, u64, u32)> {
        extents.iter().map(|e| (e.offset_bytes, e.length_bytes, e.first_use_us, e.runs)).collect()
    }

    #[test]
    fn run_that_used_less_splits_the_extent() {
        let merged = union(vec![seen(0, 0, 65536, 5000), seen(1, 0, 16384, 6000), seen(2, 0, 65536, 7000)]);
        assert_eq!(tuples(&merged), [(0, 16384, 6000, 3), (16384, 49152, 5000, 2)]);
    }

    #[test]
    fn overlaps_within_one_run_count_once() {
        let merged = union(vec![seen(0, 0, 8192, 9000), seen(0, 4096, 8192, 3000)]);
        assert_eq!(tuples(&merged), [(0, 4096, 9000, 1), (4096, 8192, 3000, 1)]);
    }

    #[test]
    fn neighbours_used_at_the_same_time_are_joined() {
        let merged = union(vec![seen(0, 4096, 4096, 5100), seen(0, 0, 4096, 5900), seen(0, 16384, 4096, 5000)]);
        assert_eq!(tuples(&merged), [(0, 8192, 5100, 1), (16384, 4096, 5000, 1)]);
    }

    #[test]
    fn different_disk_positions_keep_neighbours_apart() {
        let mut two = [seen(0, 0, 4096, 0), seen(0, 4096, 4096, 0)];
        two[0].1.physical_bytes = Some(1 << 20);
        two[1].1.physical_bytes = Some(2 << 20);
        assert_eq!(union(two.to_vec()).len(), 2);
        two[1].1.physical_bytes = Some((1 << 20) + 4096);
        assert_eq!(union(two.to_vec()).len(), 1);
    }

    /// Regression: the second part of an extent at the last valid position got an invalid position.
    #[test]
    fn position_beyond_the_last_valid_one_is_unknown() {
        let mut extents = [seen(0, 0, 8192, 0), seen(1, 4096, 4096, 9000)];
        extents[0].1.physical_bytes = Some(MAX_NUMBER);
        let places: Vec<Option<u64>> = union(extents.to_vec()).iter().map(|extent| extent.physical_bytes).collect();
        assert_eq!(places, [Some(MAX_NUMBER), None]);
    }

    #[test]
    fn median_is_weighted_by_runs() {
        assert_eq!(median(vec![(10, 1), (20, 1), (90, 1)]), 20);
        assert_eq!(median(vec![(10, 1), (20, 5)]), 20);
        assert_eq!(median(vec![]), 0);
    }
}
