//! From a profile to a running fetch: what the devices are, whether there is anything to do, how many work on it.

#[cfg(test)]
mod tests;

use crate::account::{Account, Ledger, Reason};
use crate::brake::{self, Brake};
use crate::confirm;
use crate::gate::Gate;
use crate::plan::inodes::{self, InodeRange};
use crate::plan::{self, LookUp, Path, Piece, Plan, Source, Step};
use crate::sources::Sources;
use crate::traits::{self, DeviceTraits, Order};
use crate::worker::Shift;
use crate::{HeadStart, Options, today, warm};
use ahead_kernel::bdi::DeviceNumber;
use ahead_kernel::{machine, mounts, openat, priority, xfs};
use ahead_profile::{Lookup, Precision, Profile};
use std::collections::{BTreeMap, HashSet};
use std::ffi::OsStr;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// A fetch under way.
#[derive(Debug)]
pub struct Running {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
    /// Disconnected when the thread is over.
    over: Receiver<()>,
}

#[derive(Debug)]
struct Shared {
    profile: Arc<Profile>,
    options: Options,
    sources: Sources,
    brake: Brake,
    gate: Gate,
    ledger: Ledger,
    began: Instant,
}

/// Starts to fetch what the profile says and returns at once.
///
/// Errors: no thread could be had. The caller goes on without a fetch then.
pub fn start(profile: Arc<Profile>, options: Options) -> io::Result<Running> {
    let began = Instant::now();
    let deadline = options.deadline.map(|deadline| began + deadline);
    let shared = Arc::new(Shared {
        sources: Sources::new(profile.clone()),
        brake: Brake::new(brake::budget_bytes(options.budget_bytes), deadline),
        gate: Gate::new(),
        profile,
        options,
        ledger: Ledger::default(),
        began,
    });
    let own = shared.clone();
    let (at_end, over) = mpsc::channel();
    let thread = std::thread::Builder::new().name("ahead-fetch".into()).spawn(move || {
        let _at_end = at_end;
        let _opened = OpenAtEnd(&own.gate);
        own.fetch();
    })?;
    Ok(Running { shared, thread: Some(thread), over })
}

/// Whatever happens to the fetch, a bug of ours included: the program does not wait for it any longer.
struct OpenAtEnd<'a>(&'a Gate);

impl Drop for OpenAtEnd<'_> {
    fn drop(&mut self) {
        self.0.open();
    }
}

impl Running {
    /// Returns when the program should start, and is taken to do so: the head start is over, or lasts too long.
    pub fn hold(&self) {
        let shared = &self.shared;
        while shared.gate.is_closed() {
            let (began, last_seen) = (shared.began, shared.brake.last_seen());
            let until = held_until(shared.profile.recording.duration_us, began, last_seen);
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                shared.gate.open();
            }
            shared.gate.wait(left);
        }
    }

    /// Something that stops it from another thread.
    pub fn stopper(&self) -> Stopper {
        Stopper(self.shared.clone())
    }

    /// Waits until everything is submitted (or has arrived, with [`Options::wait`]) and tells what was done.
    ///
    /// Once the fetch is stopped it waits no longer than a moment: a device that does not answer holds our threads, but
    /// not the caller.
    pub fn finish(mut self) -> Account {
        let over = self.wait_for_end();
        // The panic has printed itself; it must not become the program's end, too.
        let broke_off = self.thread.take().is_some_and(|thread| over && thread.join().is_err());
        let mut account = self.shared.ledger.open().clone();
        if broke_off {
            account.first_failure = Some("the fetch broke off".into());
        }
        if !over || broke_off {
            self.shared.give_up(&mut account);
        }
        if !self.shared.options.keep_ranges {
            account.ranges = Vec::new();
        }
        account
    }

    /// Whether it has ended, and not only was stopped.
    fn wait_for_end(&self) -> bool {
        loop {
            if let Err(RecvTimeoutError::Disconnected) = self.over.recv_timeout(brake::INTERVAL) {
                return true;
            }
            self.shared.brake.look_at_clock();
            if self.shared.brake.stopped().is_some_and(|(_, since)| since.elapsed() > LAST_WORD) {
                return false;
            }
        }
    }
}

/// Three quarters of what the recorded run took are a head start at most: cold and without us it would be on its way by
/// then. But a profile is only somebody's word, and a device may not answer.
fn held_until(recorded_us: u64, began: Instant, last_seen: Instant) -> Instant {
    let recorded = match recorded_us {
        0 => UNKNOWN_HEAD_START,
        recorded_us => Duration::from_micros(recorded_us / 4 * 3),
    };
    (began + recorded.min(LONGEST_HEAD_START)).min(last_seen + LONGEST_STILL)
}

impl Drop for Running {
    /// A fetch that nobody waits for is stopped; its thread ends by itself.
    fn drop(&mut self) {
        if self.thread.is_some() {
            self.stopper().stop();
        }
    }
}

/// Stops a fetch.
#[derive(Clone, Debug)]
pub struct Stopper(Arc<Shared>);

impl Stopper {
    /// Stops it; what was submitted arrives nevertheless.
    pub fn stop(&self) {
        self.0.brake.stop(Reason::Cancelled);
        self.0.gate.open();
    }
}

/// What is to be done on one device.
struct Job {
    traits: DeviceTraits,
    plan: Plan,
    inodes: Inodes,
}

/// What is read by inode numbers instead of looked up.
#[derive(Debug, Default)]
pub struct Inodes {
    /// Through what; `None`: there are no ranges.
    pub file_system: Option<OwnedFd>,
    /// Which.
    pub ranges: Vec<InodeRange>,
}

impl Shared {
    fn fetch(&self) {
        let mut pieces = plan::pieces(&self.profile, machine::page_size());
        pieces.sort_by_key(|piece| piece.first_use_us);
        for file in self.profile.files.iter().filter(|file| file.deleted) {
            self.ledger.open().skip(Reason::Deleted, file.used_bytes());
        }
        let beyond_bytes = plan::bytes_beyond_ends(&self.profile);
        if beyond_bytes > 0 {
            self.ledger.open().skip(Reason::Missing, beyond_bytes);
        }
        let devices = self.devices(&pieces);
        if devices.values().all(|traits| traits.order == Order::ByFirstUse)
            || self.options.head_start == HeadStart::None
        {
            self.gate.open();
        }
        let looked_warm = warm::looks_warm(&self.sources, &pieces, &self.brake);
        self.ledger.open().looked_warm = looked_warm;
        if looked_warm {
            self.gate.open();
            // What is left is to check the rest, beside a program that runs at full speed.
            if let Err(error) = priority::yield_processor() {
                tracing::debug!("{error}");
            }
        }
        let jobs = self.jobs(pieces, devices);
        self.ledger.open().devices = jobs.iter().map(|job| job.traits).collect();
        // It may be over before there was anything to do.
        self.brake.look_at_clock();
        self.carry_out(&jobs, looked_warm);
        {
            let mut account = self.ledger.open();
            account.head_start_us = as_us(self.gate.opened_after());
            account.submitted_us = as_us(self.began.elapsed());
        }
        if self.options.wait && confirm::wait(&self.sources, &self.brake, &self.ledger) {
            self.ledger.open().arrived_us = Some(as_us(self.began.elapsed()));
        }
    }

    /// Accounts for what will not be done any more.
    fn give_up(&self, account: &mut Account) {
        let pieces = plan::pieces(&self.profile, machine::page_size());
        let deleted = self.profile.files.iter().filter(|file| file.deleted).map(ahead_profile::File::used_bytes);
        let beyond = plan::bytes_beyond_ends(&self.profile);
        let used_bytes = pieces.iter().map(Piece::bytes).chain(deleted).chain([beyond]).fold(0u64, u64::saturating_add);
        let left_bytes = used_bytes.saturating_sub(account.accounted_bytes());
        if left_bytes > 0 {
            account.skip(self.brake.stopped().map_or(Reason::Cancelled, |(reason, _)| reason), left_bytes);
        }
        if account.submitted_us == 0 {
            account.head_start_us = as_us(self.gate.opened_after());
            account.submitted_us = as_us(self.began.elapsed());
        }
    }

    /// The devices of the profile, by their recorded numbers, and what they are like.
    fn devices(&self, pieces: &[Piece]) -> BTreeMap<u64, DeviceTraits> {
        let today = mounts::own().map(|mounts| today::numbers(&self.profile, &mounts)).unwrap_or_default();
        let mut devices: BTreeMap<u64, DeviceTraits> = BTreeMap::new();
        let of_pieces = pieces.iter().map(|piece| self.device_of(piece.source));
        for device in of_pieces.chain(self.profile.lookups.iter().map(|lookup| lookup.device)) {
            devices.entry(device).or_insert_with(|| self.traits_of(device, today.get(&device)));
        }
        devices
    }

    fn device_of(&self, source: Source) -> u64 {
        match source {
            Source::Metadata(index) => self.profile.metadata[index].device,
            Source::File(index) => self.profile.files[index].device,
        }
    }

    /// `today`: the number that the device has now.
    fn traits_of(&self, device: u64, today: Option<&DeviceNumber>) -> DeviceTraits {
        let rotates = today.and_then(|number| traits::rotates(*number));
        let measured = self.options.traits.or_else(|| traits::from_recording(&self.profile, device, rotates));
        measured.unwrap_or(if rotates == Some(true) { DeviceTraits::ROTATING } else { DeviceTraits::FLASH })
    }

    fn jobs(&self, pieces: Vec<Piece>, devices: BTreeMap<u64, DeviceTraits>) -> Vec<Job> {
        let mut by_device: BTreeMap<u64, Vec<Piece>> = devices.keys().map(|device| (*device, Vec::new())).collect();
        for piece in pieces {
            by_device.entry(self.device_of(piece.source)).or_default().push(piece);
        }
        let mut budget_bytes = brake::budget_bytes(self.options.budget_bytes);
        let jobs = by_device.into_iter().map(|(device, pieces)| {
            let traits = devices[&device];
            let (inodes, lookups) = self.names_needed(device);
            let plan = plan::plan(pieces, lookups, &traits, self.compute_us(), budget_bytes);
            budget_bytes = budget_bytes.saturating_sub(plan.planned_bytes);
            if plan.over_budget_bytes > 0 {
                self.ledger.open().skip(Reason::OverBudget, plan.over_budget_bytes);
            }
            for step in &plan.steps {
                if let Step::Fetch(span) = step {
                    self.sources.need(span.source);
                }
            }
            Job { traits, plan, inodes }
        });
        jobs.collect()
    }

    /// How long the program computes, as far as the recording tells. Its processor time holds that of reading page by
    /// page, too, if it was recorded so.
    fn compute_us(&self) -> Option<f64> {
        let recording = &self.profile.recording;
        let reading_us = match recording.precision {
            Precision::Precise => READ_CPU_US * (self.profile.data_bytes() / machine::page_size()) as f64,
            Precision::UpperBound => 0.0,
        };
        (recording.cpu_us > 0).then(|| (recording.cpu_us as f64 - reading_us).max(0.0))
    }

    /// What has to be looked up on a device, path by path or, where that is possible, by ranges of inodes.
    fn names_needed(&self, device: u64) -> (Inodes, Vec<LookUp>) {
        let lookups = self.lookups_needed(device);
        let first = lookups.iter().find_map(|lookup| match lookup.path {
            Path::Lookup(index) if lookup.inode != 0 => Some(&self.profile.lookups[index]),
            _ => None,
        });
        let Some(file_system) = first.and_then(with_inode_numbers) else {
            return (Inodes::default(), lookups);
        };
        let (ranges, lookups) = inodes::gather(&self.profile, lookups);
        (Inodes { file_system: Some(file_system), ranges }, lookups)
    }

    /// The paths to look up on a device: none where its metadata can be read from its block device.
    fn lookups_needed(&self, device: u64) -> Vec<LookUp> {
        let metadata = self.profile.metadata.iter().enumerate().filter(|(_, metadata)| metadata.device == device);
        let mut readable = metadata.map(|(index, _)| self.sources.get(Source::Metadata(index)).is_ok()).peekable();
        if readable.peek().is_some() && readable.all(|readable| readable) {
            return Vec::new();
        }
        let recorded = self.profile.lookups.iter().enumerate().filter(|(_, lookup)| lookup.device == device);
        let mut lookups: Vec<LookUp> = recorded
            .map(|(index, l)| LookUp { path: Path::Lookup(index), inode: l.inode, first_use_us: l.first_use_us })
            .collect();
        let known: HashSet<u64> = lookups.iter().map(|lookup| lookup.inode).collect();
        let files = self.profile.files.iter().enumerate();
        let files = files.filter(|(_, f)| f.device == device && !f.deleted && !known.contains(&f.inode));
        lookups.extend(files.filter_map(|(index, file)| {
            let first_use_us = file.extents.iter().map(|extent| extent.first_use_us).min()?;
            Some(LookUp { path: Path::File(index), inode: file.inode, first_use_us })
        }));
        lookups
    }

    fn carry_out(&self, jobs: &[Job], looked_warm: bool) {
        let stale = Mutex::new(HashSet::new());
        let holding = AtomicUsize::new(jobs.iter().filter(|job| self.head_start_steps(&job.plan) > 0).count());
        // The program waits for every device's head start.
        let head_start_over = || {
            if holding.fetch_sub(1, Ordering::AcqRel) == 1 {
                self.gate.open();
            }
        };
        if holding.load(Ordering::Acquire) == 0 {
            self.gate.open();
        }
        std::thread::scope(|scope| {
            for job in jobs {
                let (working, stale, head_start_over) = (self.brake.working(), &stale, &head_start_over);
                scope.spawn(move || {
                    let _working = working;
                    if looked_warm {
                        drop(priority::yield_processor());
                    }
                    self.carry_out_one(job, stale, head_start_over, if looked_warm { 1 } else { LOOKUP_WORKERS });
                });
            }
            // A program that waits for a fetch that waits for memory would wait for no use.
            self.brake.watch(|| self.gate.open());
        });
    }

    fn carry_out_one(
        &self,
        job: &Job,
        stale: &Mutex<HashSet<usize>>,
        head_start_over: &(dyn Fn() + Sync),
        most_workers: usize,
    ) {
        let (plan, steps) = (&job.plan, job.plan.steps.len());
        let workers = |wanted: usize| wanted.min(most_workers);
        let looks_up = plan.steps.iter().any(|step| !matches!(step, Step::Fetch(_)));
        let side_by_side = if looks_up { LOOKUP_WORKERS } else { WORKERS };
        let shift = Shift {
            profile: &self.profile,
            sources: &self.sources,
            brake: &self.brake,
            steps: &plan.steps,
            head_start_steps: self.head_start_steps(plan),
            head_start_over,
            stale,
            ledger: &self.ledger,
            keep_ranges: self.options.keep_ranges || self.options.wait,
            traits: &job.traits,
            queue_us: match job.traits.order {
                // The more is queued, the better the disk's scheduler sorts.
                Order::ByPosition => f64::INFINITY,
                Order::ByFirstUse => QUEUE_US / workers(side_by_side) as f64,
            },
            inodes: &job.inodes,
            cursor: AtomicUsize::new(0),
        };
        match job.traits.order {
            Order::ByFirstUse => shift.work(steps, workers(side_by_side)),
            Order::ByPosition => {
                shift.work(plan.metadata_steps, workers(if looks_up { LOOKUP_WORKERS } else { 1 }));
                shift.work(steps, 1);
            }
        }
    }

    fn head_start_steps(&self, plan: &Plan) -> usize {
        match self.options.head_start {
            HeadStart::None => 0,
            HeadStart::AsPlanned => plan.head_start_steps,
        }
    }
}

/// Processor time of reading one page from a disk by a fault or a read call of its own, microseconds: measured as the
/// difference between a precise recording and a warm run, per page, events included. It is no part of the program's
/// computing.
const READ_CPU_US: f64 = 45.0;

/// The longest head start where the recording does not say how long the program ran.
const UNKNOWN_HEAD_START: Duration = Duration::from_secs(5);

/// The longest head start of all. The longest sweep measured, Chromium's 175 MiB on a 7200 rpm disk, takes half of it; and
/// ten seconds are what a person waits before he turns to something else (Nielsen, Usability Engineering, 1993).
pub const LONGEST_HEAD_START: Duration = Duration::from_secs(10);

/// The program is not held any longer if no worker was seen for this time: what they wait for does not answer. A worker that
/// waits for a place in the queue of a rotating disk is seen after each request, 8 ms; for a whole queue (`nr_requests` is
/// 256 unless told otherwise) it takes about this time.
const LONGEST_STILL: Duration = Duration::from_secs(2);

/// How long a stopped fetch may take to end by itself. Workers that are not stuck look at the brake before each request,
/// and one request waits for 30 ms on a busy rotating disk.
const LAST_WORD: Duration = Duration::from_millis(250);

/// How much of the device's time may be queued where first use is the order, microseconds: what a page that nobody
/// foresaw waits at most. Measured on a modelled network volume and a modelled solid-state disk: from 4 to 16 ms nothing
/// changes; without a limit, `git status` on the volume took a fifth longer, because a few late requests waited for 60 ms.
const QUEUE_US: f64 = 8000.0;

/// Threads where first use is the order and metadata is read by itself: an opening may wait for a block on its way, and
/// the others go on meanwhile.
const WORKERS: usize = 4;

/// Threads where paths are looked up: each lookup is a chain of reads that are waited for, so this is the depth of the
/// device's queue. On a rotating disk it is what the scheduler can sort.
const LOOKUP_WORKERS: usize = 16;

/// What was looked up, open, if its file system reads inodes by their numbers for us, and is the one that was recorded:
/// elsewhere the numbers would be those of other files.
fn with_inode_numbers(lookup: &Lookup) -> Option<OwnedFd> {
    let handle = openat::handle(std::path::Path::new(OsStr::from_bytes(&lookup.path))).ok()?;
    let now = handle.identity();
    if (now.device, now.inode) != (lookup.device, lookup.inode) || handle.file_system_magic().ok()? != XFS_MAGIC {
        return None;
    }
    let opened = handle.reopen_directory().or_else(|_| handle.reopen()).ok()?;
    xfs::may_read_inodes(&opened).then_some(opened)
}

/// Magic number of XFS (linux/magic.h).
const XFS_MAGIC: u64 = 0x5846_5342;

fn as_us(duration: Duration) -> u64 {
    duration.as_micros().try_into().unwrap_or(u64::MAX)
}
