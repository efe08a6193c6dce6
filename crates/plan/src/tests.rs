//! Properties of every plan, over random profiles.

use super::*;
use ahead_profile::{File, Lookup, Metadata, Recording};
use proptest::prelude::*;

pub(crate) const PAGE: u64 = 4096;

/// Recorded runs: an extent that one or two of them used is seldom used.
const RUNS: u32 = 5;

fn extent() -> impl Strategy<Value = Extent> {
    (0..400_000u64, 0..60_000u64, 0..1000u64, 1..=RUNS, prop::option::of(0..1_000_000u64)).prop_map(
        |(offset_bytes, length_bytes, first_use_us, runs, physical_bytes)| Extent {
            offset_bytes,
            length_bytes,
            first_use_us,
            runs,
            physical_bytes,
            warm_use: None,
        },
    )
}

pub(crate) fn profile() -> impl Strategy<Value = Profile> {
    let file = (prop::collection::vec(extent(), 0..12), 0..450_000u64, prop::bool::weighted(0.1))
        .prop_map(|(extents, size_bytes, deleted)| File { extents, size_bytes, deleted, ..File::default() });
    let metadata = prop::collection::vec(extent(), 0..12).prop_map(|mut extents| {
        extents.iter_mut().for_each(|extent| extent.physical_bytes = Some(extent.offset_bytes));
        Metadata { extents, ..Metadata::default() }
    });
    let lookups = prop::collection::vec((0..50u64, 0..1000u64), 0..20).prop_map(|lookups| {
        let lookup = |(inode, first_use_us)| Lookup { inode, first_use_us, ..Lookup::default() };
        lookups.into_iter().map(lookup).collect()
    });
    (prop::collection::vec(file, 0..5), prop::collection::vec(metadata, 0..2), lookups).prop_map(
        |(files, metadata, lookups)| {
            let recording = Recording { runs: RUNS, ..Recording::default() };
            Profile { recording, files, metadata, lookups, ..Profile::default() }
        },
    )
}

pub(crate) fn lookups_of(profile: &Profile) -> Vec<LookUp> {
    let lookup = |(index, l): (usize, &Lookup)| LookUp {
        path: Path::Lookup(index),
        inode: l.inode,
        first_use_us: l.first_use_us,
    };
    profile.lookups.iter().enumerate().map(lookup).collect()
}

/// A network volume that lets few requests through.
const VOLUME: DeviceDescription = DeviceDescription {
    access_ns: 1_000_000,
    request_ns: 333_333,
    bandwidth_bytes_per_s: 125e6,
    ..DeviceDescription::FLASH
};

pub(crate) fn device() -> impl Strategy<Value = DeviceDescription> {
    prop::sample::select(vec![DeviceDescription::ROTATING, DeviceDescription::FLASH, VOLUME])
}

fn compute_us() -> impl Strategy<Value = Option<f64>> {
    prop::sample::select(vec![None, Some(0.0), Some(1e5), Some(1e9)])
}

fn spans(steps: &[Step]) -> Vec<&Span> {
    let spans = steps.iter().filter_map(|step| match step {
        Step::Fetch(span) => Some(span),
        Step::LookUp(_) | Step::Open(_) | Step::ReadInodes(_) => None,
    });
    spans.collect()
}

/// The pages of ranges, with their source.
fn pages<'a>(ranges: impl Iterator<Item = (Source, &'a Range<u64>)>) -> Vec<(Source, u64)> {
    let pages =
        ranges.flat_map(|(source, range)| (range.start / PAGE..range.end.div_ceil(PAGE)).map(move |p| (source, p)));
    pages.collect()
}

proptest! {
    #[test]
    fn every_used_page_is_planned_once_and_nothing_else(profile in profile(), device in device(), compute_us in compute_us()) {
        let mut wanted: Vec<(Source, u64)> = Vec::new();
        let cut = |extent: &Extent, size: u64| {
            let end = (extent.offset_bytes + extent.length_bytes).next_multiple_of(PAGE).min(size);
            extent.offset_bytes / PAGE * PAGE..if extent.length_bytes == 0 { 0 } else { end }
        };
        for (index, file) in profile.files.iter().enumerate().filter(|(_, file)| !file.deleted) {
            let ranges: Vec<_> = file.extents.iter().map(|e| cut(e, file.size_bytes)).filter(|r| !r.is_empty()).collect();
            wanted.extend(pages(ranges.iter().map(|range| (Source::File(index), range))));
        }
        for (index, metadata) in profile.metadata.iter().enumerate() {
            let ranges: Vec<_> = metadata.extents.iter().map(|e| cut(e, u64::MAX)).filter(|r| !r.is_empty()).collect();
            wanted.extend(pages(ranges.iter().map(|range| (Source::Metadata(index), range))));
        }
        wanted.sort_unstable();
        wanted.dedup();
        let plan = plan(pieces(&profile, PAGE), lookups_of(&profile), &device, compute_us, u64::MAX);
        let mut planned = pages(spans(&plan.steps).iter().flat_map(|s| s.used.iter().map(|range| (s.source, range))));
        planned.sort_unstable();
        prop_assert_eq!(planned, wanted);
        prop_assert_eq!(plan.over_budget_bytes, 0);
    }

    #[test]
    fn nothing_reaches_beyond_its_file(profile in profile(), device in device()) {
        let plan = plan(pieces(&profile, PAGE), Vec::new(), &device, None, u64::MAX);
        for span in spans(&plan.steps) {
            if let Source::File(index) = span.source {
                prop_assert!(span.whole().end <= profile.files[index].size_bytes);
            }
            prop_assert!(span.used.windows(2).all(|pair| pair[0].end < pair[1].start));
        }
    }

    #[test]
    fn gaps_stay_within_their_share(profile in profile(), device in device(), compute_us in compute_us()) {
        let plan = plan(pieces(&profile, PAGE), Vec::new(), &device, compute_us, u64::MAX);
        let fetched: u64 = spans(&plan.steps).iter().map(|span| span.whole().end - span.whole().start).sum();
        let used: u64 = spans(&plan.steps).iter().map(|span| span.used_bytes()).sum();
        let mut all = pieces(&profile, PAGE);
        all.sort_by_key(|piece| (piece.source, piece.range.start));
        let bridging = bridging::Bridging::of(&device, &all);
        prop_assert_eq!(used, plan.planned_bytes);
        prop_assert!((fetched - used) as f64 <= bridging.max_share * fetched as f64 + 1.0);
        for span in spans(&plan.steps) {
            prop_assert!(span.used.windows(2).all(|pair| pair[1].start - pair[0].end <= bridging.max_gap_bytes));
        }
    }

    #[test]
    fn the_budget_is_kept_and_what_most_runs_used_first_is_kept(profile in profile(), device in device(), budget in 0..2_000_000u64) {
        let all = pieces(&profile, PAGE);
        let total: u64 = all.iter().map(Piece::bytes).sum();
        let plan = plan(all.clone(), Vec::new(), &device, None, budget);
        prop_assert!(plan.planned_bytes <= budget);
        prop_assert_eq!(plan.planned_bytes + plan.over_budget_bytes, total);
        let is_planned = |piece: &Piece| spans(&plan.steps).iter().any(|span| {
            span.source == piece.source && span.used.iter().any(|range| range.contains(&piece.range.start))
        });
        let last_kept = all.iter().filter(|piece| is_planned(piece)).map(|piece| (piece.late, piece.first_use_us)).max();
        let first_left = all.iter().filter(|piece| !is_planned(piece)).map(|piece| (piece.late, piece.first_use_us)).min();
        prop_assert!(last_kept.is_none_or(|kept| first_left.is_none_or(|left| kept <= left)));
    }

    #[test]
    fn every_lookup_comes_once(profile in profile(), device in device(), compute_us in compute_us()) {
        let plan = plan(pieces(&profile, PAGE), lookups_of(&profile), &device, compute_us, u64::MAX);
        let mut seen: Vec<usize> = plan.steps.iter().filter_map(|step| match step {
            Step::LookUp(index) => Some(*index),
            Step::Fetch(_) | Step::Open(_) | Step::ReadInodes(_) => None,
        }).collect();
        if device.seeks() {
            prop_assert!(seen.windows(2).all(|pair| profile.lookups[pair[0]].inode <= profile.lookups[pair[1]].inode));
        }
        seen.sort_unstable();
        prop_assert_eq!(seen, (0..profile.lookups.len()).collect::<Vec<_>>());
    }

    #[test]
    fn a_rotating_disk_is_swept_upwards_metadata_first(profile in profile()) {
        let all = pieces(&profile, PAGE);
        let plan = plan(all, lookups_of(&profile), &DeviceDescription::ROTATING, Some(0.0), u64::MAX);
        let (usual, late) = plan.steps.split_at(plan.usual_steps);
        let (metadata, data) = usual.split_at(plan.metadata_steps);
        let brings_data = |step: &Step| step.brings_data();
        let (late_metadata, late_data) = late.split_at(late.partition_point(|step| !brings_data(step)));
        for (steps, is_metadata) in [(metadata, true), (data, false), (late_metadata, true), (late_data, false)] {
            let positions: Vec<u64> = steps.iter().filter_map(|step| match step {
                Step::Fetch(span) => {
                    assert_eq!(span.source.is_metadata(), is_metadata);
                    Some(span.physical_bytes.unwrap_or(u64::MAX))
                }
                Step::LookUp(_) | Step::Open(_) | Step::ReadInodes(_) => { assert!(is_metadata); None }
            }).collect();
            prop_assert!(positions.is_sorted());
        }
    }

    #[test]
    fn plan_for_a_disk_without_seeks_follows_first_use(profile in profile()) {
        let all = pieces(&profile, PAGE);
        let plan = plan(all, lookups_of(&profile), &DeviceDescription::FLASH, None, u64::MAX);
        for steps in [&plan.steps[..plan.usual_steps], &plan.steps[plan.usual_steps..]] {
            let spans = spans(steps);
            for is_metadata in [true, false] {
                let spans: Vec<&&Span> = spans.iter().filter(|s| s.source.is_metadata() == is_metadata).collect();
                prop_assert!(spans.windows(2).all(|pair| pair[0].first_use_us <= pair[1].first_use_us));
            }
        }
    }

    #[test]
    fn low_memory_follows_first_use_on_every_disk_and_reads_no_gap(
        profile in profile(), device in device(), budget in 0..4_000_000u64
    ) {
        let all = pieces(&profile, PAGE);
        let total: u64 = all.iter().map(Piece::bytes).sum();
        let plan = plan_for_low_memory(all, lookups_of(&profile), &device, budget);
        prop_assert!(plan.planned_bytes <= budget);
        prop_assert_eq!(plan.planned_bytes + plan.over_budget_bytes, total);
        prop_assert_eq!((plan.head_start_steps, plan.metadata_steps), (0, 0));
        prop_assert_eq!(plan.steps.iter().filter(|step| step.span().is_none()).count(), profile.lookups.len());
        for steps in [&plan.steps[..plan.usual_steps], &plan.steps[plan.usual_steps..]] {
            for is_metadata in [true, false] {
                let spans = spans(steps).into_iter().filter(|span| span.source.is_metadata() == is_metadata);
                let first_uses: Vec<u64> = spans.map(|span| span.first_use_us).collect();
                prop_assert!(first_uses.is_sorted());
            }
        }
        for span in spans(&plan.steps) {
            prop_assert_eq!(span.used.len(), 1);
        }
        prop_assert_eq!(spans(&plan.steps).iter().map(|span| span.used_bytes()).sum::<u64>(), plan.planned_bytes);
    }

    /// Regression: pieces that few runs used were in the sweep of a rotating disk, and on other disks between pieces that every run
    /// used.
    #[test]
    fn seldom_used_pieces_come_after_all_others(
        profile in profile(), device in device(), compute_us in compute_us()
    ) {
        let all = pieces(&profile, PAGE);
        let plan = plan(all.clone(), lookups_of(&profile), &device, compute_us, u64::MAX);
        let (usual, late) = plan.steps.split_at(plan.usual_steps);
        let holds = |steps: &[Step], piece: &Piece| spans(steps).iter().any(|span| {
            span.source == piece.source && span.used.iter().any(|range| range.contains(&piece.range.start))
        });
        prop_assert!(all.iter().all(|piece| holds(usual, piece) || piece.late && holds(late, piece)));
        // A piece that few runs used is among the usual steps only within one of their ranges, never as a separate step.
        for span in spans(usual) {
            let of_span = |piece: &&Piece| piece.source == span.source && span.whole().contains(&piece.range.start);
            prop_assert!(!all.iter().find(of_span).unwrap().late);
            prop_assert!(!all.iter().rfind(of_span).unwrap().late);
        }
        prop_assert!(late.iter().all(|step| matches!(step, Step::Fetch(_))));
        prop_assert!(plan.head_start_steps <= plan.usual_steps);
    }
}

fn piece(start: u64, end: u64, first_use_us: u64) -> Piece {
    Piece { source: Source::File(0), range: start..end, late: false, first_use_us, physical_bytes: Some(start) }
}

#[test]
fn piece_within_a_span_joins_it_though_used_later() {
    let all = vec![piece(0, 40_960, 1), piece(45_056, 90_112, 2), piece(40_960, 45_056, 9_000_000)];
    let plan = plan(all, Vec::new(), &DeviceDescription::ROTATING, Some(1e9), u64::MAX);
    let joined = 0..90_112;
    assert_eq!(spans(&plan.steps).iter().flat_map(|span| span.used.clone()).collect::<Vec<_>>(), vec![joined]);
}

/// A file that the program reads for minutes is not read whole with its first page.
#[test]
fn low_memory_window_ends_a_span() {
    let half = LOW_MEMORY_WINDOW_BYTES / 2;
    let all: Vec<Piece> = (0..6).map(|index| piece(index * half, (index + 1) * half, index)).collect();
    let lengths = |device| -> Vec<u64> {
        let plan = plan_for_low_memory(all.clone(), Vec::new(), &device, u64::MAX);
        spans(&plan.steps).iter().map(|span| span.used_bytes()).collect()
    };
    assert_eq!(lengths(DeviceDescription::ROTATING), [LOW_MEMORY_WINDOW_BYTES; 3]);
    // Flash: spans of that length already are.
    assert_eq!(lengths(DeviceDescription::FLASH), [half; 6]);
}

#[test]
fn pieces_that_lie_apart_on_a_rotating_disk_stay_apart() {
    let mut far = piece(4096, 8192, 2);
    far.physical_bytes = Some(1 << 30);
    let all = vec![piece(0, 4096, 1), far];
    assert_eq!(plan(all.clone(), Vec::new(), &DeviceDescription::ROTATING, Some(0.0), u64::MAX).steps.len(), 2);
    assert_eq!(plan(all, Vec::new(), &DeviceDescription::FLASH, None, u64::MAX).steps.len(), 1);
}

#[test]
fn hostile_extents_neither_panic_nor_reach_beyond() {
    let hostile = [(u64::MAX, u64::MAX), (u64::MAX - 1, 1), (1 << 63, 1 << 63), (0, u64::MAX), (5, 0)];
    let extents: Vec<Extent> = hostile
        .iter()
        .map(|&(offset_bytes, length_bytes)| Extent {
            offset_bytes,
            length_bytes,
            first_use_us: u64::MAX,
            runs: 0,
            physical_bytes: Some(u64::MAX),
            warm_use: None,
        })
        .collect();
    let file = File { size_bytes: 10_000, extents: extents.clone(), ..File::default() };
    let metadata = Metadata { extents, ..Metadata::default() };
    let profile = Profile { files: vec![file], metadata: vec![metadata], ..Profile::default() };
    let all = pieces(&profile, PAGE);
    for device in [DeviceDescription::ROTATING, DeviceDescription::FLASH] {
        let plan = plan(all.clone(), Vec::new(), &device, None, u64::MAX);
        let of_file: Vec<_> =
            spans(&plan.steps).iter().filter(|s| !s.source.is_metadata()).map(|s| s.whole()).collect();
        let whole = 0..10_000;
        assert_eq!(of_file, vec![whole]);
    }
}
