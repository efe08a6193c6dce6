//! Merges several runs of the same command into one profile.
//!
//! ```text
//!     run 1   ├──── 0..64K at 5 ms ────┤        ├─ at 90 ms ─┤
//!     run 2   ├─ 0..16K at 6 ms ─┤
//!     run 3   ├──── 0..64K at 7 ms ────┤
//!             ───────────────────────────────────────────────
//!     merged  ├─ 3 runs, 6 ms ─┤├─ 2 ──┤        ├─ 1 run, last ─┤
//! ```
//!
//! For each byte the profile keeps how many runs used it, and the median of their times. Bytes that only a minority of the runs
//! used sort after all others. The timeline is that of the latest run that has one: threads of different runs are not the same.
//! Otherwise a page that one of a hundred runs needed early would be fetched before the pages that
//! every run needs.
//!
//! Merging must never count a byte twice, add one, or hide a loss.

mod ranges;

use crate::model::{
    Extent, File, Lookup, Metadata, Milestone, MilestoneKind, PathBytes, Precision, Profile, Recording,
};
use ahead_model::sorting;
use std::collections::{BTreeMap, HashMap};

/// Merges profiles of the same command, each of one or more runs.
///
/// For a file that was replaced between runs, or whose size changed, only the extents of the latest version are kept. A file with
/// another modification time, and the same inode and size, is written in place: the extents of all versions are kept. A single profile
/// is normalised: extents become disjoint, neighbours are joined, and everything is in order of first use. Without profiles the result
/// is empty, with 0 runs.
pub fn merge(mut profiles: Vec<Profile>) -> Profile {
    // A stable sort: recordings within one second keep their order.
    sorting::sort_by_key(&mut profiles, |profile| profile.recording.created_unix_s);
    let Some(latest) = profiles.last() else { return Profile::default() };
    let recording = merge_recordings(&profiles, &latest.recording);
    let timeline = profiles.iter().rposition(|profile| profile.timeline.is_some());
    profiles.iter_mut().enumerate().filter(|(at, _)| Some(*at) != timeline).for_each(|(_, p)| p.remove_timeline());
    let total_runs = recording.runs;
    Profile {
        files: merge_files(&profiles, total_runs),
        metadata: merge_metadata(&profiles, total_runs),
        lookups: merge_lookups(&profiles),
        milestones: merge_milestones(&profiles, total_runs),
        timeline: profiles.iter().find_map(|profile| profile.timeline.clone()),
        recording,
    }
}

/// The position of an extent in a profile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Position {
    /// Index into `files`.
    pub file: usize,
    /// Index into the file's `extents`.
    pub extent: usize,
}

impl Profile {
    /// All extents of all files: first the extents that most runs used, then the others, each by first use. This is the order
    /// for prefetching from a disk without seeks.
    pub fn in_order(&self) -> Vec<Position> {
        let mut order: Vec<Position> = Vec::new();
        for (index, file) in self.files.iter().enumerate() {
            order.extend((0..file.extents.len()).map(|extent| Position { file: index, extent }));
        }
        order.sort_by_cached_key(|at| sort_key(&self.files[at.file].extents[at.extent], self.recording.runs));
        order
    }
}

/// The sort key of an extent in the order of prefetching.
fn sort_key(extent: &Extent, total_runs: u32) -> (bool, u64) {
    (extent.is_seldom(total_runs), extent.first_use_us)
}

fn merge_recordings(profiles: &[Profile], latest: &Recording) -> Recording {
    let all = || profiles.iter().map(|profile| &profile.recording);
    let precise = all().all(|recording| recording.precision == Precision::Precise);
    Recording {
        precision: if precise { Precision::Precise } else { Precision::UpperBound },
        cold: all().all(|recording| recording.cold),
        metadata_seen: all().any(|recording| recording.metadata_seen),
        lost_events: all().fold(0u64, |sum, recording| sum.saturating_add(recording.lost_events)).min(i64::MAX as u64),
        runs: all().fold(0u32, |sum, recording| sum.saturating_add(recording.runs)),
        read_ahead_kb: all().map(|recording| recording.read_ahead_kb).max().unwrap_or(0),
        ..latest.clone()
    }
}

/// The extents of one profile as input for [`ranges::union`].
fn seen(profile: usize, extents: &[Extent]) -> impl Iterator<Item = (usize, Extent)> {
    extents.iter().map(move |extent| (profile, *extent))
}

fn sorted(mut extents: Vec<Extent>, total_runs: u32) -> Vec<Extent> {
    sorting::sort_by_key(&mut extents, |extent| (sort_key(extent, total_runs), extent.offset_bytes));
    extents
}

/// The extents of one file from two entries of a profile of this many runs: each byte once, at its first use.
pub fn join_extents(one: &[Extent], other: &[Extent], total_runs: u32) -> Vec<Extent> {
    sorted(ranges::union(seen(0, one).chain(seen(0, other)).collect()), total_runs)
}

fn merge_files(profiles: &[Profile], total_runs: u32) -> Vec<File> {
    let mut versions: BTreeMap<(&PathBytes, bool), Vec<(usize, &File)>> = BTreeMap::new();
    for (index, profile) in profiles.iter().enumerate() {
        for file in &profile.files {
            versions.entry((&file.path, file.deleted)).or_default().push((index, file));
        }
    }
    let mut files: Vec<File> = versions
        .into_values()
        .map(|all| {
            let (_, latest) = *all.last().expect("each path has a file");
            let same = || all.iter().filter(|(_, file)| latest.is_version_of(file));
            let input = same().flat_map(|(index, file)| seen(*index, &file.extents));
            let extents = sorted(ranges::union(input.collect()), total_runs);
            let in_place = same().any(|(_, file)| file.in_place || file.mtime_ns != latest.mtime_ns);
            File { extents, in_place, ..describe(latest) }
        })
        .collect();
    // Files that were opened and never read have no time and come last. The map has sorted by path, which decides between equal
    // times.
    sorting::sort_by_key(&mut files, |file| {
        file.extents.first().map_or((true, u64::MAX), |extent| sort_key(extent, total_runs))
    });
    files
}

/// A copy of a file without its extents and their content.
fn describe(file: &File) -> File {
    File {
        path: file.path.clone(),
        seen_path: file.seen_path.clone(),
        fs_path: file.fs_path.clone(),
        fs_type: file.fs_type.clone(),
        extents: Vec::new(),
        // The merged extents are others.
        content: None,
        device: file.device,
        inode: file.inode,
        size_bytes: file.size_bytes,
        mtime_ns: file.mtime_ns,
        deleted: file.deleted,
        in_place: file.in_place,
    }
}

fn merge_metadata(profiles: &[Profile], total_runs: u32) -> Vec<Metadata> {
    let mut devices: BTreeMap<(&PathBytes, &PathBytes), Vec<(usize, &Metadata)>> = BTreeMap::new();
    for (index, profile) in profiles.iter().enumerate() {
        for metadata in &profile.metadata {
            devices.entry((&metadata.mount_point, &metadata.device_path)).or_default().push((index, metadata));
        }
    }
    let merged = devices.into_values().map(|all| {
        let (_, latest) = *all.last().expect("each device has an entry");
        let input = all.iter().flat_map(|(index, metadata)| seen(*index, &metadata.extents));
        Metadata { extents: sorted(ranges::union(input.collect()), total_runs), ..latest.clone() }
    });
    merged.collect()
}

fn merge_lookups(profiles: &[Profile]) -> Vec<Lookup> {
    let mut paths: BTreeMap<&[u8], Vec<(u32, &Lookup)>> = BTreeMap::new();
    for profile in profiles {
        for lookup in &profile.lookups {
            paths.entry(&lookup.path).or_default().push((profile.recording.runs, lookup));
        }
    }
    let mut lookups: Vec<Lookup> = paths
        .into_values()
        .map(|all| {
            let (_, latest) = *all.last().expect("each path has a lookup");
            let times = all.iter().map(|(runs, lookup)| (lookup.first_use_us, *runs)).collect();
            Lookup {
                first_use_us: ranges::median(times),
                listed: all.iter().any(|(_, lookup)| lookup.listed),
                warm_use_us: all.iter().rev().find_map(|(_, lookup)| lookup.warm_use_us),
                ..latest.clone()
            }
        })
        .collect();
    sorting::sort_by_key(&mut lookups, |lookup| lookup.first_use_us);
    lookups
}

/// The n-th occurrence of a milestone is the same event in every run. Milestones that only a minority of the runs had (mostly with
/// temporary names) say nothing about the next run.
fn merge_milestones(profiles: &[Profile], total_runs: u32) -> Vec<Milestone> {
    /// Times of the event, each with the number of runs.
    type Times = Vec<(u64, u32)>;
    let mut events: BTreeMap<(&PathBytes, MilestoneKind, u32), (Times, Option<u64>)> = BTreeMap::new();
    for profile in profiles {
        let mut occurrences: HashMap<(&PathBytes, MilestoneKind), u32> = HashMap::new();
        for milestone in &profile.milestones {
            let nth = occurrences.entry((&milestone.path, milestone.kind)).or_default();
            let (times, warm_us) = events.entry((&milestone.path, milestone.kind, *nth)).or_default();
            times.push((milestone.time_us, profile.recording.runs));
            *warm_us = milestone.warm_us.or(*warm_us);
            *nth += 1;
        }
    }
    let mut milestones: Vec<Milestone> = events
        .into_iter()
        .filter(|(_, (times, _))| {
            times.iter().map(|(_, runs)| u64::from(*runs)).sum::<u64>() * 2 >= u64::from(total_runs)
        })
        .map(|((path, kind, _), (times, warm_us))| {
            let (time_us, path) = (ranges::median(times), path.clone());
            Milestone { time_us, kind, path, warm_us }
        })
        .collect();
    sorting::sort_by_key(&mut milestones, |milestone| milestone.time_us);
    milestones
}
