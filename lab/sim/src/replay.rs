//! The planner in the simulator: the run of `ahead replay --wait` with a profile on a disk model.
//!
//! ```text
//!     profile ──pieces, plan, pacing (the same code as in the real prefetch)──▶ steps
//!                                                                               │ workers take them in order
//!     worker   ├ open ┤├ call ┤├ call ┤········ queue full, or enough queued: waits ····├ call ┤
//!                         ╰─▶ requests, cut and merged ─▶ scheduler ─▶ disk model ─▶ arrived
//! ```
//!
//! Each device of the profile is a separate disk; the disks work at the same time. No page is cached at the beginning.
//! [`ReplayCosts`] has the other costs of the page cache, the block layer and the processor. Lookups of paths (where
//! metadata is not fetched as blocks: XFS, btrfs) cost only their processor time. A profile does not have the places of
//! their blocks.

mod workers;

use crate::queue::Served;
use ahead_device::Model;
use ahead_model::{DeviceDescription, PAGE_BYTES, RangeSet};
use ahead_plan::pacing::{MOST_WORKERS, Pacing, TIMED_READS};
use ahead_plan::{LookUp, Path, Piece, Plan, Source, Step, cut};
use ahead_profile::Profile;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use workers::{Run, Workers};

/// The processor time of a replay, nanoseconds. Except for the start, these are estimates of the order of a system call
/// on a 3 GHz processor.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ReplayCosts {
    /// From the beginning to the first step: the sample of resident pages, the plan, and the threads. Measured: 0.9 to
    /// 2.7 ms for seven programs whose profiles have 80 to 1300 spans.
    pub start_ns: u64,
    /// Opening a file, with the check that the file is as recorded.
    pub open_ns: u64,
    /// Looking a path up.
    pub look_up_ns: u64,
    /// Querying the resident pages of a range, and a read-ahead call.
    pub call_ns: u64,
    /// Adding a page to the page cache, within such a call.
    pub page_ns: u64,
    /// Detecting that a page has arrived.
    pub see_ns: u64,
    /// From a request's end to the run of the waiting thread.
    pub wake_ns: u64,
}

impl Default for ReplayCosts {
    fn default() -> Self {
        ReplayCosts {
            start_ns: 2_000_000,
            open_ns: 15_000,
            look_up_ns: 10_000,
            call_ns: 5_000,
            page_ns: 300,
            see_ns: 400,
            wake_ns: 20_000,
        }
    }
}

/// The settings of a replay.
#[derive(Clone, Debug)]
pub struct ReplaySettings {
    /// The disk.
    pub model: Model,
    /// The size of the disk, bytes; `None`: twice the end of the profile. Seeks of a rotating disk depend on the size.
    pub capacity_bytes: Option<u64>,
    /// The description that the planner gets; `None`: that of the model.
    pub description: Option<DeviceDescription>,
    /// Whether the first reads are timed, as those of a described device are.
    pub is_described: bool,
    /// Whether other programs have priority (`--priority idle`).
    pub is_background: bool,
    /// The limit on used bytes.
    pub budget_bytes: u64,
    /// The processor time of the steps.
    pub costs: ReplayCosts,
}

impl ReplaySettings {
    /// The settings of `ahead replay --wait --device MODEL`.
    pub fn new(model: Model) -> ReplaySettings {
        ReplaySettings {
            model,
            capacity_bytes: None,
            description: None,
            is_described: true,
            is_background: true,
            budget_bytes: u64::MAX,
            costs: ReplayCosts::default(),
        }
    }
}

/// The result of a replay.
#[derive(Clone, Copy, Debug, Default, PartialEq, serde::Serialize)]
pub struct Replayed {
    /// When all pages had arrived and the workers had detected them, nanoseconds.
    pub arrived_ns: u64,
    /// When all requests were submitted, nanoseconds.
    pub submitted_ns: u64,
    /// Read-ahead calls.
    pub requests: u64,
    /// Requested bytes, bridged bytes included.
    pub issued_bytes: u64,
    /// Bytes read only to join two used ranges, included in `issued_bytes`.
    pub bridged_bytes: u64,
    /// Paths looked up.
    pub lookups: u64,
    /// Used bytes beyond the budget.
    pub over_budget_bytes: u64,
    /// The work of the disks.
    pub device: Served,
}

/// Replays a profile. Returns the result for each of its devices, by number ([`ahead_model::DeviceNumber::key`]).
pub fn replay(profile: &Profile, settings: &ReplaySettings) -> Vec<(u64, Replayed)> {
    replay_observed(profile, settings, &mut |_, _| {})
}

/// The same with an observer of the read-ahead calls, in their order.
pub fn replay_observed(
    profile: &Profile,
    settings: &ReplaySettings,
    observer: &mut dyn FnMut(Source, &Range<u64>),
) -> Vec<(u64, Replayed)> {
    let mut each = Vec::new();
    let mut by_device: BTreeMap<u64, Vec<Piece>> = BTreeMap::new();
    for piece in ahead_plan::pieces(profile, PAGE_BYTES) {
        by_device.entry(number_of(profile, piece.source)).or_default().push(piece);
    }
    let looked_up: BTreeSet<u64> = profile.lookups.iter().map(|lookup| lookup.device).collect();
    for device in looked_up {
        by_device.entry(device).or_default();
    }
    let mut budget_bytes = settings.budget_bytes;
    for (device, pieces) in by_device {
        let planned_bytes = ahead_plan::planned_bytes(&pieces, budget_bytes);
        let own =
            replay_device(profile, device, pieces, &ReplaySettings { budget_bytes, ..settings.clone() }, observer);
        budget_bytes = budget_bytes.saturating_sub(planned_bytes);
        each.push((device, own));
    }
    each
}

impl Replayed {
    /// The sum over all devices, which are read at the same time.
    pub fn total(devices: &[(u64, Replayed)]) -> Replayed {
        let mut total = Replayed::default();
        devices.iter().for_each(|(_, own)| total.add(own));
        total
    }

    fn add(&mut self, other: &Replayed) {
        self.arrived_ns = self.arrived_ns.max(other.arrived_ns);
        self.submitted_ns = self.submitted_ns.max(other.submitted_ns);
        self.requests += other.requests;
        self.issued_bytes += other.issued_bytes;
        self.bridged_bytes += other.bridged_bytes;
        self.lookups += other.lookups;
        self.over_budget_bytes = self.over_budget_bytes.saturating_add(other.over_budget_bytes);
        self.device.requests += other.device.requests;
        self.device.bytes += other.device.bytes;
        self.device.busy_ns += other.device.busy_ns;
        self.device.queued_ns += other.device.queued_ns;
        self.device.seeks += other.device.seeks;
    }
}

fn number_of(profile: &Profile, source: Source) -> u64 {
    match source {
        Source::Metadata(index) => profile.metadata[index].device,
        Source::File(index) => profile.files[index].device,
    }
}

fn replay_device(
    profile: &Profile,
    device: u64,
    pieces: Vec<Piece>,
    settings: &ReplaySettings,
    observer: &mut dyn FnMut(Source, &Range<u64>),
) -> Replayed {
    let description = settings.description.unwrap_or_else(|| settings.model.device_description());
    let places = Places::new(&pieces);
    let has_metadata = pieces.iter().any(|piece| piece.source.is_metadata());
    let lookups = if has_metadata { Vec::new() } else { lookups_of(profile, device) };
    let compute_us = (profile.recording.cpu_us > 0).then_some(profile.recording.cpu_us as f64);
    let mut plan = ahead_plan::plan(pieces, lookups, &description, compute_us, settings.budget_bytes);
    let is_timed = settings.is_described && plan.bring_samples_forward(TIMED_READS, description.seeks());
    let looks_up = plan.steps.iter().any(|step| step.span().is_none());
    let pacing = Pacing::new(&description, looks_up, settings.is_background, MOST_WORKERS);
    let capacity_bytes = settings.capacity_bytes.unwrap_or_else(|| places.end_bytes().saturating_mul(2));
    let mut workers = Workers::new(settings, &description, &plan, &places, capacity_bytes, observer);
    for run in runs(&plan, &description, pacing, is_timed) {
        workers.run(&run);
    }
    workers.finish()
}

/// The phases of a plan, which are executed in order.
fn runs(plan: &Plan, description: &DeviceDescription, pacing: Pacing, is_timed: bool) -> Vec<Run> {
    let mut runs = Vec::new();
    let mut from = 0;
    if is_timed {
        let at_a_time = if description.seeks() { 1 } else { description.parallelism as usize };
        while from < TIMED_READS {
            let end = (from + at_a_time).min(TIMED_READS);
            runs.push(Run { end, workers: 1, queue_us: f64::INFINITY, waits: true });
            from = end;
        }
    }
    let run = |end, workers| Run { end, workers, queue_us: pacing.queue_us, waits: false };
    if description.seeks() {
        runs.push(run(plan.metadata_steps, pacing.workers));
        runs.push(run(plan.steps.len(), 1));
    } else {
        runs.push(run(plan.steps.len(), pacing.workers));
    }
    runs
}

fn lookups_of(profile: &Profile, device: u64) -> Vec<LookUp> {
    let recorded = profile.lookups.iter().enumerate().filter(|(_, lookup)| lookup.device == device);
    recorded
        .map(|(index, l)| LookUp { path: Path::Lookup(index), inode: l.inode, first_use_us: l.first_use_us })
        .collect()
}

/// The places of bytes on the disk.
pub(crate) struct Places {
    /// Key: source and offset. Value: the end of the piece, and its place.
    pieces: BTreeMap<(Source, u64), (u64, u64)>,
    end_bytes: u64,
}

impl Places {
    fn new(pieces: &[Piece]) -> Places {
        let known = pieces.iter().filter_map(|piece| Some(place_of(piece)?.saturating_add(piece.bytes())));
        let mut end_bytes = known.max().unwrap_or(0);
        let mut places = BTreeMap::new();
        for piece in pieces {
            let place = place_of(piece).unwrap_or_else(|| {
                // Pieces at unknown places are placed behind the others.
                let place = end_bytes;
                end_bytes = end_bytes.saturating_add(piece.bytes().next_multiple_of(PAGE_BYTES));
                place
            });
            places.insert((piece.source, piece.range.start), (piece.range.end, place));
        }
        Places { pieces: places, end_bytes }
    }

    fn end_bytes(&self) -> u64 {
        self.end_bytes.max(PAGE_BYTES)
    }

    /// The contiguous parts of the disk that hold a range: place and length. A gap between two pieces is placed behind
    /// the first.
    pub fn stretches(&self, source: Source, range: &Range<u64>) -> Vec<(u64, u64)> {
        let mut stretches: Vec<(u64, u64)> = Vec::new();
        let mut at = range.start;
        while at < range.end {
            let before = self.pieces.range((source, 0)..=(source, at)).next_back();
            let next = self.pieces.range((source, at + 1)..=(source, u64::MAX)).next().map(|((_, start), _)| *start);
            let end = next.unwrap_or(u64::MAX).min(range.end);
            let place = before.map_or(at, |((_, start), (_, place))| place.saturating_add(at - start));
            match stretches.last_mut() {
                Some((start, length)) if *start + *length == place => *length += end - at,
                _ => stretches.push((place, end - at)),
            }
            at = end;
        }
        stretches
    }
}

fn place_of(piece: &Piece) -> Option<u64> {
    // A block device's offset is its place.
    piece.physical_bytes.or_else(|| piece.source.is_metadata().then_some(piece.range.start))
}

/// The read-ahead calls of a step. No page is resident.
pub(crate) fn calls_of(step: &Step, cap_bytes: u64) -> Vec<Range<u64>> {
    let used: RangeSet = step.span().map(|span| span.used.iter().cloned().collect()).unwrap_or_default();
    cut::requests(&used, &RangeSet::new(), cap_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use ahead_profile::{Extent, File, Metadata};

    /// Files of two pages, 8 MiB apart on the disk, used in a random order; metadata at the beginning.
    fn profile(files: u64) -> Profile {
        let extent = |offset_bytes, first_use_us, place| Extent {
            offset_bytes,
            length_bytes: 8192,
            first_use_us,
            runs: 1,
            physical_bytes: Some(place),
            ..Extent::default()
        };
        let file = |index: u64| {
            let place = (index * 37 % files + 1) * (8 << 20);
            File { device: 7, size_bytes: 8192, extents: vec![extent(0, 10 * index, place)], ..File::default() }
        };
        let metadata = Metadata { device: 7, extents: vec![extent(4096, 0, 4096)], ..Metadata::default() };
        let mut profile =
            Profile { files: (0..files).map(file).collect(), metadata: vec![metadata], ..Profile::default() };
        profile.recording.runs = 1;
        profile
    }

    fn on(model: &str, profile: &Profile) -> Replayed {
        Replayed::total(&replay(profile, &ReplaySettings::new(Model::builtin(model).unwrap())))
    }

    #[test]
    fn all_bytes_are_read_once_and_the_model_sets_the_time() {
        let profile = profile(101);
        for model in Model::BUILTIN {
            let replayed = on(model, &profile);
            assert_eq!((replayed.issued_bytes, replayed.device.bytes), (102 * 8192, 102 * 8192), "{model}");
            assert!(replayed.submitted_ns <= replayed.arrived_ns, "{model}");
        }
        let ms = |model| on(model, &profile).arrived_ns as f64 / 1e6;
        // A seek for each file; a third of a millisecond for each beyond the burst; channels for all.
        assert!((300.0..900.0).contains(&ms("hdd")), "{}", ms("hdd"));
        assert!((20.0..40.0).contains(&ms("cloud")), "{}", ms("cloud"));
        assert!((0.3..8.0).contains(&ms("nvme")), "{}", ms("nvme"));
    }

    #[test]
    fn budget_and_lookups_are_counted() {
        let mut profile = profile(50);
        profile.metadata.clear();
        let lookup = ahead_profile::Lookup { device: 7, inode: 3, ..ahead_profile::Lookup::default() };
        profile.lookups = vec![lookup; 4];
        let settings =
            ReplaySettings { budget_bytes: 10 * 8192, ..ReplaySettings::new(Model::builtin("ssd").unwrap()) };
        let replayed = Replayed::total(&replay(&profile, &settings));
        assert_eq!((replayed.lookups, replayed.issued_bytes, replayed.over_budget_bytes), (4, 10 * 8192, 40 * 8192));
    }

    #[test]
    fn empty_profile_takes_no_time() {
        assert_eq!(on("hdd", &Profile::default()), Replayed::default());
    }
}
