//! Several runs of the same command into one profile.
//!
//! ```text
//!     run 1   ├──── 0..64K at 5 ms ────┤        ├─ at 90 ms ─┤
//!     run 2   ├─ 0..16K at 6 ms ─┤
//!     run 3   ├──── 0..64K at 7 ms ────┤
//!             ───────────────────────────────────────────────
//!     merged  ├─ 3 runs, 6 ms ─┤├─ 2 ──┤        ├─ 1 run, last ─┤
//! ```
//!
//! Each byte keeps how many runs used it, and the median of the times at which they did. What only a minority of the
//! runs used sorts behind everything else: with the smallest timestamp instead, a page that one run in a hundred
//! happened to need early would be fetched before what every run needs.
//!
//! What it must never do: count a byte twice, invent one, or hide a loss.

mod ranges;

use crate::model::{
    Extent, File, Lookup, Metadata, Milestone, MilestoneKind, PathBytes, Precision, Profile, Recording,
};
use ranges::Seen;
use std::collections::{BTreeMap, HashMap};

/// Merges profiles of the same command, each of one run or more.
///
/// Of a file whose size or modification time changed between runs, only what the latest version's runs used is kept.
/// One profile alone is tidied: extents become disjoint, neighbours are joined, everything is in order of first use.
/// Without any profile the result is empty (and has no run).
pub fn merge(mut profiles: Vec<Profile>) -> Profile {
    // Stable: recordings within one second stay in the order they came in.
    profiles.sort_by_key(|profile| profile.recording.created_unix_s);
    let Some(latest) = profiles.last() else { return Profile::default() };
    let recording = merge_recordings(&profiles, &latest.recording);
    let total_runs = recording.runs;
    Profile {
        files: merge_files(&profiles, total_runs),
        metadata: merge_metadata(&profiles, total_runs),
        lookups: merge_lookups(&profiles),
        milestones: merge_milestones(&profiles, total_runs),
        recording,
    }
}

/// One extent of a profile, by the positions of its file and itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Position {
    /// Index into `files`.
    pub file: usize,
    /// Index into the file's `extents`.
    pub extent: usize,
}

impl Profile {
    /// Every extent of every file: first what most runs used, by first use; then the rest, by first use. This is the order
    /// in which to fetch from a disk that does not seek.
    pub fn in_order(&self) -> Vec<Position> {
        let mut order: Vec<Position> = Vec::new();
        for (index, file) in self.files.iter().enumerate() {
            order.extend((0..file.extents.len()).map(|extent| Position { file: index, extent }));
        }
        order.sort_by_cached_key(|at| turn(&self.files[at.file].extents[at.extent], self.recording.runs));
        order
    }
}

/// Sorts extents into the order in which to fetch them.
fn turn(extent: &Extent, total_runs: u32) -> (bool, u64) {
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
fn seen(profile: usize, extents: &[Extent]) -> impl Iterator<Item = Seen> {
    extents.iter().map(move |extent| Seen { profile, extent: *extent })
}

fn in_turn(mut extents: Vec<Extent>, total_runs: u32) -> Vec<Extent> {
    extents.sort_by_key(|extent| (turn(extent, total_runs), extent.offset_bytes));
    extents
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
            let (_, latest) = *all.last().expect("a path is noted with a file");
            let same = |file: &File| (file.size_bytes, file.mtime_ns) == (latest.size_bytes, latest.mtime_ns);
            let input = all.iter().filter(|(_, file)| same(file)).flat_map(|(index, file)| seen(*index, &file.extents));
            let extents = in_turn(ranges::union(input.collect()), total_runs);
            File { extents, ..describe(latest) }
        })
        .collect();
    // What was opened and never read has no time: last. The map gave the files in order of their paths, which decides
    // between equal times.
    files.sort_by_key(|file| file.extents.first().map_or((true, u64::MAX), |extent| turn(extent, total_runs)));
    files
}

/// All of a file but its extents, which may be many.
fn describe(file: &File) -> File {
    File {
        path: file.path.clone(),
        seen_path: file.seen_path.clone(),
        fs_path: file.fs_path.clone(),
        fs_type: file.fs_type.clone(),
        extents: Vec::new(),
        ..*file
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
        let (_, latest) = *all.last().expect("a device is noted with its blocks");
        let input = all.iter().flat_map(|(index, metadata)| seen(*index, &metadata.extents));
        Metadata { extents: in_turn(ranges::union(input.collect()), total_runs), ..latest.clone() }
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
            let (_, latest) = *all.last().expect("a path is noted with a lookup");
            let times = all.iter().map(|(runs, lookup)| (lookup.first_use_us, *runs)).collect();
            Lookup {
                first_use_us: ranges::median(times),
                listed: all.iter().any(|(_, lookup)| lookup.listed),
                ..latest.clone()
            }
        })
        .collect();
    lookups.sort_by_key(|lookup| lookup.first_use_us);
    lookups
}

/// The n-th occurrence of a milestone is the same event in every run. Those that only a minority of the runs saw
/// (temporary names, mostly) tell nothing about the next run.
fn merge_milestones(profiles: &[Profile], total_runs: u32) -> Vec<Milestone> {
    /// When the runs saw it, and how many runs each of those times stands for.
    type Times = Vec<(u64, u32)>;
    let mut events: BTreeMap<(&PathBytes, MilestoneKind, u32), Times> = BTreeMap::new();
    for profile in profiles {
        let mut occurrences: HashMap<(&PathBytes, MilestoneKind), u32> = HashMap::new();
        for milestone in &profile.milestones {
            let nth = occurrences.entry((&milestone.path, milestone.kind)).or_default();
            let times = events.entry((&milestone.path, milestone.kind, *nth)).or_default();
            times.push((milestone.time_us, profile.recording.runs));
            *nth += 1;
        }
    }
    let mut milestones: Vec<Milestone> = events
        .into_iter()
        .filter(|(_, times)| times.iter().map(|(_, runs)| u64::from(*runs)).sum::<u64>() * 2 >= u64::from(total_runs))
        .map(|((path, kind, _), times)| Milestone { time_us: ranges::median(times), kind, path: path.clone() })
        .collect();
    milestones.sort_by_key(|milestone| milestone.time_us);
    milestones
}
