//! From a profile to a running fetch: what the devices are, whether there is anything to do, how many work on it.

use crate::account::{Account, Reason};
use crate::brake::{self, Brake};
use crate::confirm;
use crate::gate::Gate;
use crate::plan::{self, LookUp, Path, Piece, Plan, Source, Step};
use crate::sources::Sources;
use crate::traits::{self, DeviceTraits, Order};
use crate::worker::Shift;
use crate::{HeadStart, Options, warm};
use ahead_kernel::{machine, priority};
use ahead_profile::{Precision, Profile};
use std::collections::{BTreeMap, HashSet};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// A fetch under way.
#[derive(Debug)]
pub struct Running {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<Account>>,
}

#[derive(Debug)]
struct Shared {
    profile: Arc<Profile>,
    options: Options,
    sources: Sources,
    brake: Brake,
    gate: Gate,
    began: Instant,
}

/// Starts to fetch what the profile says and returns at once.
///
/// Errors: no thread or pipe could be had. The caller goes on without a fetch then.
pub fn start(profile: Arc<Profile>, options: Options) -> io::Result<Running> {
    let began = Instant::now();
    let deadline = options.deadline.map(|deadline| began + deadline);
    let shared = Arc::new(Shared {
        sources: Sources::new(profile.clone()),
        brake: Brake::new(brake::budget_bytes(options.budget_bytes), deadline),
        gate: Gate::new()?,
        profile,
        options,
        began,
    });
    let own = shared.clone();
    let thread = std::thread::Builder::new().name("ahead-fetch".into()).spawn(move || {
        let _opened = OpenAtEnd(&own.gate);
        own.fetch()
    })?;
    Ok(Running { shared, thread: Some(thread) })
}

/// Whatever happens to the fetch, a bug of ours included: the program does not wait for it any longer.
struct OpenAtEnd<'a>(&'a Gate);

impl Drop for OpenAtEnd<'_> {
    fn drop(&mut self) {
        self.0.open();
    }
}

impl Running {
    /// Becomes readable when the program may start.
    pub fn head_start(&self) -> BorrowedFd<'_> {
        self.shared.gate.as_fd()
    }

    /// Nobody should wait longer than this for the head start: three quarters of what the recorded run took. Cold and
    /// without us it would be on its way by then.
    pub fn longest_head_start(&self) -> Duration {
        match self.shared.profile.recording.duration_us {
            0 => UNKNOWN_HEAD_START,
            duration_us => Duration::from_micros(duration_us / 4 * 3),
        }
    }

    /// Waits until the program may start.
    pub fn wait_head_start(&self) {
        self.shared.gate.wait(self.longest_head_start());
    }

    /// Stops it; what was submitted arrives nevertheless.
    pub fn cancel(&self) {
        self.stopper().stop();
    }

    /// Something that stops it from another thread.
    pub fn stopper(&self) -> Stopper {
        Stopper(self.shared.clone())
    }

    /// Waits until everything is submitted (or has arrived, with [`Options::wait`]) and tells what was done.
    pub fn finish(mut self) -> Account {
        match self.thread.take().map(JoinHandle::join) {
            Some(Ok(account)) => account,
            // The panic has printed itself; it must not become the program's end, too.
            Some(Err(_)) | None => Account { first_failure: Some("the fetch broke off".into()), ..Account::default() },
        }
    }
}

impl Drop for Running {
    /// A fetch that nobody waits for is stopped; its thread ends by itself.
    fn drop(&mut self) {
        if self.thread.is_some() {
            self.cancel();
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
}

impl Shared {
    fn fetch(&self) -> Account {
        let mut pieces = plan::pieces(&self.profile, machine::page_size());
        pieces.sort_by_key(|piece| piece.first_use_us);
        let mut account = Account::default();
        for file in self.profile.files.iter().filter(|file| file.deleted) {
            account.skip(Reason::Deleted, file.used_bytes());
        }
        let devices = self.devices(&pieces);
        if devices.values().all(|traits| traits.order == Order::ByFirstUse)
            || self.options.head_start == HeadStart::None
        {
            self.gate.open();
        }
        account.looked_warm = warm::looks_warm(&self.sources, &pieces);
        if account.looked_warm {
            self.gate.open();
            // What is left is to check the rest, beside a program that runs at full speed.
            if let Err(error) = priority::yield_processor() {
                tracing::debug!("{error}");
            }
        }
        let jobs = self.jobs(pieces, devices, &mut account);
        account.devices = jobs.iter().map(|job| job.traits).collect();
        account.add(self.carry_out(&jobs, account.looked_warm));
        account.head_start_us = as_us(self.gate.opened_after());
        account.submitted_us = as_us(self.began.elapsed());
        if self.options.wait {
            confirm::wait(&self.sources, &self.brake, &mut account);
            account.arrived_us = Some(as_us(self.began.elapsed()));
        }
        if !self.options.keep_ranges {
            account.ranges = Vec::new();
        }
        account
    }

    /// The devices of the profile and what they are like.
    fn devices(&self, pieces: &[Piece]) -> BTreeMap<u64, DeviceTraits> {
        let mut devices: BTreeMap<u64, DeviceTraits> = BTreeMap::new();
        let of_pieces = pieces.iter().map(|piece| self.device_of(piece.source));
        for device in of_pieces.chain(self.profile.lookups.iter().map(|lookup| lookup.device)) {
            devices.entry(device).or_insert_with(|| self.traits_of(device));
        }
        devices
    }

    fn device_of(&self, source: Source) -> u64 {
        match source {
            Source::Metadata(index) => self.profile.metadata[index].device,
            Source::File(index) => self.profile.files[index].device,
        }
    }

    fn traits_of(&self, device: u64) -> DeviceTraits {
        let rotates = traits::rotates(device);
        let measured = self.options.traits.or_else(|| traits::from_recording(&self.profile, device, rotates));
        measured.unwrap_or(if rotates == Some(true) { DeviceTraits::ROTATING } else { DeviceTraits::FLASH })
    }

    fn jobs(&self, pieces: Vec<Piece>, devices: BTreeMap<u64, DeviceTraits>, account: &mut Account) -> Vec<Job> {
        let mut by_device: BTreeMap<u64, Vec<Piece>> = devices.keys().map(|device| (*device, Vec::new())).collect();
        for piece in pieces {
            by_device.entry(self.device_of(piece.source)).or_default().push(piece);
        }
        let mut budget_bytes = brake::budget_bytes(self.options.budget_bytes);
        let jobs = by_device.into_iter().map(|(device, pieces)| {
            let traits = devices[&device];
            let plan = plan::plan(pieces, self.lookups_needed(device), &traits, self.compute_us(), budget_bytes);
            budget_bytes = budget_bytes.saturating_sub(plan.planned_bytes);
            if plan.over_budget_bytes > 0 {
                account.skip(Reason::OverBudget, plan.over_budget_bytes);
            }
            for step in &plan.steps {
                if let Step::Fetch(span) = step {
                    self.sources.need(span.source);
                }
            }
            Job { traits, plan }
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

    fn carry_out(&self, jobs: &[Job], looked_warm: bool) -> Account {
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
            let threads: Vec<_> = jobs
                .iter()
                .map(|job| {
                    let (working, stale, head_start_over) = (self.brake.working(), &stale, &head_start_over);
                    scope.spawn(move || {
                        let _working = working;
                        if looked_warm {
                            drop(priority::yield_processor());
                        }
                        self.carry_out_one(job, stale, head_start_over, if looked_warm { 1 } else { LOOKUP_WORKERS })
                    })
                })
                .collect();
            self.brake.watch();
            let mut account = Account::default();
            for thread in threads {
                match thread.join() {
                    Ok(more) => account.add(more),
                    Err(panic) => std::panic::resume_unwind(panic),
                }
            }
            account
        })
    }

    fn carry_out_one(
        &self,
        job: &Job,
        stale: &Mutex<HashSet<usize>>,
        head_start_over: &(dyn Fn() + Sync),
        most_workers: usize,
    ) -> Account {
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
            keep_ranges: self.options.keep_ranges || self.options.wait,
            traits: &job.traits,
            queue_us: match job.traits.order {
                // The more is queued, the better the disk's scheduler sorts.
                Order::ByPosition => f64::INFINITY,
                Order::ByFirstUse => QUEUE_US / workers(side_by_side) as f64,
            },
            cursor: AtomicUsize::new(0),
        };
        match job.traits.order {
            Order::ByFirstUse => shift.work(steps, workers(side_by_side)),
            Order::ByPosition => {
                let mut account = shift.work(plan.metadata_steps, workers(if looks_up { LOOKUP_WORKERS } else { 1 }));
                account.add(shift.work(steps, 1));
                account
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

fn as_us(duration: Duration) -> u64 {
    duration.as_micros().try_into().unwrap_or(u64::MAX)
}
