//! The stages of a prefetch: test a sample for residency, read ahead, wait for arrival. Each stage runs on all devices in parallel.
//!
//! ```text
//!     this thread      devices of the profile ▸ ······ checks time limits, memory, devices that do not answer ······▸ account
//!     device 1         sample ▸   ┊ lookups ▸ plan ▸ head start ▸ the rest       ▸ ┊ wait for arrival
//!     device 2         sample ▸   ┊ lookups ▸ plan ▸ the rest ▸                    ┊ …
//!     device 3         sample ·············································(given up)
//! ```
//!
//! This thread does no I/O, because a device that does not answer would block it. Exception: no other thread can be started.

mod following;

use crate::prefetch::account::Reason;
use crate::prefetch::description_check::contradiction;
use crate::prefetch::devices::{Device, Devices};
use crate::prefetch::fetch::{Fetch, Inodes, Job};
use crate::prefetch::follower::{self, FOLLOWS, Follower};
use crate::prefetch::large_folios::LargeFolios;
use crate::prefetch::shared::{Shared, as_us};
use crate::prefetch::warm::Sample;
use crate::prefetch::worker::Worker;
use crate::prefetch::{HeadStart, Priority, confirm, warm};
use ahead_fetch::WorkerPool;
use ahead_model::{DeviceDescription, RangeSet};
use ahead_plan::inodes;
use ahead_plan::pacing::{MOST_WORKERS, Pacing, TIMED_READS};
use ahead_plan::{LookUp, Path, Piece, Plan, Source, Span, Step};
use ahead_profile::{Lookup, Profile};
use ahead_sys::root::Root;
use ahead_sys::{machine, priority, xfs};
use std::collections::{HashMap, HashSet};
use std::ffi::OsStr;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

/// Prefetches the pages of the profile. Runs in the thread of the prefetch.
pub fn fetch(shared: &Arc<Shared>) {
    if shared.options.priority == Priority::Idle
        && let Err(error) = priority::yield_disk()
    {
        tracing::debug!("{error}");
    }
    let mut pieces = ahead_plan::pieces(&shared.profile, machine::page_size());
    pieces.sort_by_key(|piece| piece.first_use_us);
    for file in shared.profile.files.iter().filter(|file| file.deleted) {
        shared.ledger.open().skip(Reason::Deleted, file.used_bytes());
    }
    let beyond_bytes = ahead_plan::bytes_beyond_ends(&shared.profile);
    if beyond_bytes > 0 {
        shared.ledger.open().skip(Reason::Missing, beyond_bytes);
    }
    let chosen = warm::chosen(&pieces);
    let window = Follower::sizes(shared, &pieces).map(|sizes| (sizes, pieces.clone()));
    let devices = Devices::new(
        &shared.profile,
        pieces,
        &shared.root,
        &shared.descriptions,
        shared.options.low_memory,
        shared.brake.budget_bytes(),
    );
    let follower = window.and_then(|(sizes, ordered)| {
        Follower::new(shared, sizes, &ordered, |source| devices.of(&shared.profile, source)).map(Arc::new)
    });
    if follower.is_some() {
        shared.brake.limit_by_window();
    }
    if devices.are_by_first_use() || shared.options.head_start == HeadStart::None {
        shared.gate.open();
    }
    shared.ledger.open().devices = devices.used().collect();
    let pool = Arc::new(WorkerPool::new(
        devices.numbers(),
        shared.since,
        MOST_WORKERS,
        shared.options.threads,
        shared.brake.clone(),
    ));
    let sample = Sample::new(chosen, |source| devices.of(&shared.profile, source));
    let (stale, looked_warm) = (Mutex::default(), AtomicBool::new(false));
    let compute_us = compute_us(&shared.profile);
    let fetch = Arc::new(Fetch { shared: shared.clone(), devices, pool, stale, compute_us, looked_warm });
    fetch.stages(sample, follower);
    if fetch.pool.has_panicked() {
        // The panic has printed its message. Bytes that are not in the account are counted at the end.
        shared.has_panicked.store(true, Ordering::Release);
    }
    if fetch.pool.is_incomplete() {
        shared.is_left.store(true, Ordering::Release);
    }
}

impl Fetch {
    fn stages(self: &Arc<Fetch>, sample: Sample, follower: Option<Arc<Follower>>) {
        let shared = &self.shared;
        let sample = Arc::new(sample);
        let looked_warm = self.looks_warm(sample.clone());
        shared.ledger.open().looked_warm = looked_warm;
        if looked_warm {
            shared.gate.open();
            self.looked_warm.store(true, Ordering::Release);
            // The remaining work is to check the other pages, beside a program that runs at full speed.
            yield_processor();
        }
        // The time limit may have passed before the work begins.
        shared.brake.look_at_clock();
        self.pool.look_at_limits();
        if let Some(follower) = follower.as_ref().filter(|_| FOLLOWS) {
            follower::start_watching(follower, shared);
            if !self.devices.are_by_first_use() {
                follower.answered_after(sample.longest());
            }
            follower.tick(shared);
            follower.publish(shared);
        }
        let (own, following) = (self.clone(), follower.clone());
        self.run(
            0..self.devices.count(),
            move |device| match &following {
                Some(follower) if FOLLOWS => own.follow(device, follower),
                _ => own.carry_out(device),
            },
            || {
                self.look();
                false
            },
        );
        shared.gate.open();
        follower.iter().filter(|_| FOLLOWS).for_each(|follower| follower.publish(shared));
        {
            let mut account = shared.ledger.open();
            account.head_start_us = as_us(shared.gate.opened_after());
            account.submitted_us = as_us(shared.began.elapsed());
            if self.pool.is_incomplete() {
                shared.skip_the_rest(&mut account, Reason::NotAnswering);
            }
        }
        if shared.options.wait && self.has_arrived() {
            shared.ledger.open().arrived_us = Some(as_us(shared.began.elapsed()));
        }
    }

    fn run(
        &self,
        devices: impl IntoIterator<Item = usize>,
        work: impl Fn(usize) + Send + Sync + 'static,
        enough: impl FnMut() -> bool,
    ) {
        self.pool.run(devices, Arc::new(work), enough);
    }

    /// Checks limits a few times per second, while the workers run.
    fn look(&self) {
        let Shared { brake, gate, ledger, .. } = &*self.shared;
        if brake.look() {
            // The prefetch waits for memory: the program must not wait for the prefetch.
            gate.open();
        }
        for device in self.pool.look() {
            // With the ledger open: from now on no thread of this device changes the account.
            let _account = ledger.open();
            self.pool.give_up(device);
        }
        if !self.pool.holds() {
            gate.open();
        }
    }

    fn looks_warm(self: &Arc<Fetch>, sample: Arc<Sample>) -> bool {
        let (own, asked) = (self.clone(), sample.clone());
        let ask = move |device| {
            let Shared { sources, brake, gate, .. } = &*own.shared;
            asked.ask(device, sources, || own.check(device).is_ok());
            // The last answer lets the program start at once.
            if asked.is_over() && asked.looks_warm() && brake.stopped().is_none() {
                gate.open();
            }
        };
        let devices: Vec<usize> = sample.devices().collect();
        self.run(devices, ask, || {
            self.look();
            sample.is_over() || !self.pool.is_at_work()
        });
        sample.looks_warm() && self.shared.brake.stopped().is_none()
    }

    /// Does the work on one device, in a thread of that device.
    fn carry_out(self: &Arc<Fetch>, device: usize) {
        if self.looked_warm.load(Ordering::Acquire) {
            yield_processor();
        }
        let mut job = self.job(device);
        if job.head_start_steps == 0 {
            self.release(device);
        }
        self.check_description(&mut job);
        self.carry_out_steps(&Arc::new(job));
        self.release(device);
    }

    /// Cuts the pieces of a device at the blocks that are read as large folios.
    fn cut_at_blocks(&self, device: &Device, pieces: Vec<Piece>) -> (Option<LargeFolios>, Vec<Piece>) {
        let Shared { profile, options, .. } = &*self.shared;
        // `ahead-replay` has too few workers for blocks: without the observer, they are left out of the program.
        if !FOLLOWS {
            return (None, pieces);
        }
        LargeFolios::cut(profile, options, (&device.description, device.number()), self.most_workers(), pieces)
    }

    fn most_workers(&self) -> usize {
        if self.looked_warm.load(Ordering::Acquire) { 1 } else { self.pool.most_workers() }
    }

    fn carry_out_steps(self: &Arc<Fetch>, job: &Arc<Job>) {
        let (steps, workers) = (job.plan.steps.len(), self.pacing(job).workers);
        if job.description.seeks() {
            self.side_by_side(job, job.plan.metadata_steps, workers);
            self.side_by_side(job, steps, 1);
        } else {
            self.side_by_side(job, steps, workers);
        }
    }

    fn pacing(&self, job: &Job) -> Pacing {
        let looks_up = job.plan.steps.iter().any(|step| !matches!(step, Step::Fetch(_)));
        let is_background = self.shared.options.priority == Priority::Idle;
        // A long queue of a rotating disk has requests that were submitted before memory became short.
        let is_short = is_background || self.shared.options.low_memory;
        let blocks_in_flight = job.large_folios.as_ref().map_or(0, LargeFolios::in_flight);
        Pacing::new(&job.description, looks_up, is_short, self.most_workers()).with_blocks(blocks_in_flight)
    }

    /// Executes all steps before `end` with `workers` threads, including the calling one.
    fn side_by_side(self: &Arc<Fetch>, job: &Arc<Job>, end: usize, workers: usize) {
        if workers > 1 {
            let (fetch, shared_job) = (self.clone(), job.clone());
            let help = move |_| Worker::new(&fetch, &shared_job).take_steps(end);
            self.pool.help(job.device, workers - 1, Arc::new(help));
        }
        Worker::new(self, job).take_steps(end);
        self.pool.join(job.device);
    }

    /// Times the first reads of a device that has a saved or given description. If they contradict it, plans the remaining steps
    /// again without it.
    fn check_description(&self, job: &mut Job) {
        let device = self.devices.get(job.device);
        let looked_warm = self.looked_warm.load(Ordering::Acquire);
        if !device.is_described()
            || looked_warm
            || !job.plan.bring_samples_forward(TIMED_READS, job.description.seeks())
        {
            return;
        }
        if job.head_start_steps > 0 {
            job.head_start_steps = job.plan.head_start_steps;
        }
        let at_a_time = if job.description.seeks() { 1 } else { job.description.parallelism as usize };
        let mut ratios = Worker::new(self, job).time_steps(TIMED_READS, at_a_time);
        if let Some(why) = contradiction(&mut ratios) {
            self.note(job.device, |account| account.devices[job.device] = device.used_without_description(why));
            self.replan_rest(job, device.fallback());
        }
    }

    /// Plans the remaining steps of a job again, with this description of the device.
    fn replan_rest(&self, job: &mut Job, description: DeviceDescription) {
        let left = job.plan.steps.split_off(job.cursor.load(Ordering::Relaxed));
        let (mut pieces, mut lookups) = (Vec::new(), Vec::new());
        let planned: Vec<&Span> = left.iter().filter_map(Step::span).collect();
        let mut is_left: HashMap<Source, RangeSet> = HashMap::new();
        for span in &planned {
            let ranges = is_left.entry(span.source).or_default();
            span.used.iter().for_each(|range| ranges.insert(range.clone()));
        }
        for piece in job.pieces.drain(..) {
            let ranges = is_left.get(&piece.source);
            if ranges.is_some_and(|ranges| ranges.count_within(&piece.range) > 0) {
                pieces.push(piece);
            }
        }
        lookups.append(&mut job.lookups);
        let was_held = job.head_start_steps > 0;
        job.plan = self.plan(pieces, lookups, &description, u64::MAX);
        self.announce(&job.plan);
        planned.iter().for_each(|span| self.shared.sources.done(span.source));
        job.description = description;
        // The number of blocks in flight was that of the other description.
        job.large_folios = None;
        job.cursor = AtomicUsize::new(0);
        // If the program has started already, there is no head start.
        job.head_start_steps = if was_held { job.plan.head_start_steps } else { 0 };
        job.queue_us = self.pacing(job).queue_us;
        if job.head_start_steps == 0 {
            self.release(job.device);
        }
    }

    /// The plan of the rule for the device. Where memory is scarce, that for little memory.
    fn plan(
        &self,
        pieces: Vec<Piece>,
        lookups: Vec<LookUp>,
        description: &DeviceDescription,
        budget_bytes: u64,
    ) -> Plan {
        match self.shared.options.low_memory {
            true => ahead_plan::plan_for_low_memory(pieces, lookups, description, budget_bytes),
            false => ahead_plan::plan(pieces, lookups, description, self.compute_us, budget_bytes),
        }
    }

    /// Tells the sources how often each of them will be used.
    fn announce(&self, plan: &Plan) {
        plan.steps.iter().filter_map(Step::span).for_each(|span| self.shared.sources.need(span.source));
    }

    fn job(&self, index: usize) -> Job {
        let (shared, device) = (&self.shared, self.devices.get(index));
        let may_ask = self.check(index).is_ok();
        let (inodes, lookups) = if may_ask { self.names_needed(device) } else { Default::default() };
        let pieces = std::mem::take(&mut *device.pieces());
        let (large_folios, pieces) = self.cut_at_blocks(device, pieces);
        // Kept because they may have to be planned again.
        let kept = if device.is_described() { (pieces.clone(), lookups.clone()) } else { Default::default() };
        let plan = self.plan(pieces, lookups, &device.description, device.budget_bytes);
        if plan.over_budget_bytes > 0 {
            self.note(index, |account| account.skip(Reason::OverBudget, plan.over_budget_bytes));
        }
        self.announce(&plan);
        let head_start_steps = match shared.options.head_start {
            HeadStart::None => 0,
            HeadStart::AsPlanned => plan.head_start_steps,
        };
        let job = Job::new(index, device.description, plan, Arc::new(inodes), kept);
        let mut job = Job { head_start_steps, large_folios, ..job };
        job.queue_us = self.pacing(&job).queue_us;
        job
    }

    /// The lookups on a device: of paths, or of ranges of inodes if the file system supports them.
    fn names_needed(&self, device: &Device) -> (Inodes, Vec<LookUp>) {
        let profile = &self.shared.profile;
        let lookups = self.lookups_needed(device);
        let first = lookups.iter().find_map(|lookup| match lookup.path {
            Path::Lookup(index) if lookup.inode != 0 => Some(&profile.lookups[index]),
            _ => None,
        });
        let Some(file_system) = first.and_then(|lookup| with_inode_numbers(lookup, &self.shared.root)) else {
            return (Inodes::default(), lookups);
        };
        let (ranges, lookups) = inodes::gather(profile, lookups);
        (Inodes { file_system: Some(file_system), ranges }, lookups)
    }

    /// The paths to look up on a device; none if its metadata can be read from its block device.
    fn lookups_needed(&self, device: &Device) -> Vec<LookUp> {
        let Shared { profile, sources, .. } = &*self.shared;
        let mut metadata = device.metadata.iter().map(|index| sources.get(Source::Metadata(*index)).is_ok());
        if !device.metadata.is_empty() && metadata.all(|readable| readable) {
            return Vec::new();
        }
        let recorded = device.lookups.iter().map(|index| (*index, &profile.lookups[*index]));
        let mut lookups: Vec<LookUp> = recorded
            .map(|(index, l)| LookUp { path: Path::Lookup(index), inode: l.inode, first_use_us: l.first_use_us })
            .collect();
        let known: HashSet<u64> = lookups.iter().map(|lookup| lookup.inode).collect();
        let files = device.files.iter().map(|index| (*index, &profile.files[*index]));
        let files = files.filter(|(_, file)| !file.deleted && !known.contains(&file.inode));
        lookups.extend(files.filter_map(|(index, file)| {
            let first_use_us = file.extents.iter().map(|extent| extent.first_use_us).min()?;
            Some(LookUp { path: Path::File(index), inode: file.inode, first_use_us })
        }));
        lookups
    }

    /// Waits until the issued ranges have arrived. Returns whether all of them were seen to arrive.
    fn has_arrived(self: &Arc<Fetch>) -> bool {
        let ranges = {
            let mut account = self.shared.ledger.open();
            if self.shared.options.keep_ranges { account.ranges.clone() } else { std::mem::take(&mut account.ranges) }
        };
        let mut by_device = vec![Vec::new(); self.devices.count()];
        for issued in ranges {
            by_device[self.devices.of(&self.shared.profile, issued.source)].push(issued);
        }
        let asked: Vec<usize> = (0..by_device.len()).filter(|device| !by_device[*device].is_empty()).collect();
        let (own, left) = (self.clone(), Arc::new(AtomicUsize::new(asked.len())));
        let left_here = left.clone();
        let wait = move |device: usize| {
            let Shared { sources, ledger, .. } = &*own.shared;
            let goes_on = || {
                own.pool.see(device);
                own.shared.waits_on() && !own.pool.is_given_up(device)
            };
            if confirm::wait(&by_device[device], sources, ledger, goes_on) {
                left_here.fetch_sub(1, Ordering::AcqRel);
            }
        };
        self.run(asked, wait, || {
            self.look();
            false
        });
        left.load(Ordering::Acquire) == 0 && self.shared.brake.stopped().is_none()
    }
}

/// The program's processor time according to the recording, microseconds. A cold recording without read-ahead reads page by page; the
/// processor time of these reads is subtracted.
fn compute_us(profile: &Profile) -> Option<f64> {
    let recording = &profile.recording;
    let reading_us = reading_us(profile) * (profile.data_bytes() / machine::page_size()) as f64;
    (recording.cpu_us > 0).then(|| (recording.cpu_us as f64 - reading_us).max(0.0))
}

/// The processor time of reading one page in the recording, microseconds.
fn reading_us(profile: &Profile) -> f64 {
    match (
        profile.recording.is_without_read_ahead(),
        profile.timeline.as_ref().map_or(0, |timeline| timeline.reading_ns),
    ) {
        (false, _) => 0.0,
        (true, 0) => READ_CPU_US,
        (true, measured_ns) => measured_ns as f64 / 1e3,
    }
}

fn yield_processor() {
    if let Err(error) = priority::yield_processor() {
        tracing::debug!("{error}");
    }
}

/// Processor time of reading one page from a disk by a separate fault or read call, where the recording has none, microseconds. Measured as the difference
/// between the timeline of a precise recording and a warm run, divided by the pages; includes the events of the recording. The median of six
/// programs of bench/coldstart (17 to 47) on an emulated network volume, Linux 6.18.
const READ_CPU_US: f64 = 28.0;

/// Opens a looked-up path if its file system supports reading inodes by number (XFS), and if it is the recorded inode. On
/// another file system, the recorded numbers belong to other files.
fn with_inode_numbers(lookup: &Lookup, root: &Root) -> Option<OwnedFd> {
    let handle = root.handle(std::path::Path::new(OsStr::from_bytes(&lookup.path))).ok()?;
    let now = handle.identity();
    if (now.device, now.inode) != (lookup.device, lookup.inode) || handle.file_system().ok()?.name != "xfs" {
        return None;
    }
    let opened = handle.reopen_directory().or_else(|_| handle.reopen()).ok()?;
    xfs::may_read_inodes(&opened).then_some(opened)
}
