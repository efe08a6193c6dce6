//! Workers for single starts: one prefetches, or one looks what is absent. Each has the identity of the user of its start.
//!
//! ```text
//!     fork ─▶ reads the profile, as root ─▶ becomes the user ─┬─▶ Replay ─▶ the exec goes on ─▶ Account ─┬─▶ PrefetchOutcome
//!                                                             ╰─▶ looks ································╯
//! ```
//!
//! A worker that waits for a file system that does not answer is left to it. Its user gets no other one until it has ended.

use crate::hold::HeldExec;
use ahead::device_store::Descriptions;
use ahead::prefetch::{Options, Order, Priority, Stopper};
use ahead::{Account, Profile, Replay};
use ahead_apps::{AppKey, AppStore};
use ahead_fetch::YieldToReaders;
use ahead_observe::StartId;
use ahead_process::{CancelToken, ResultPipe, Worker};
use ahead_sys::exec::Identity;
use ahead_sys::root::Root;
use ahead_sys::user::{self, KeptRights};
use ahead_sys::{cache, openat, priority};
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::ffi::OsStr;
use std::io::Write;
use std::os::fd::BorrowedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Workers at the same time, and those of one user: more would compete for the same disk.
const MOST_WORKERS: usize = 8;
const MOST_OF_USER: usize = 4;
/// Workers that wait without end, in all. Then nothing is prefetched any more.
const MOST_STUCK: usize = 32;
/// A worker that runs for longer waits for a file system, and is left to it.
const STUCK_AFTER: Duration = Duration::from_secs(30);
/// A program that was found resident is not looked at again for this time.
const RESIDENT_FOR: Duration = Duration::from_secs(10);
/// Programs that were found resident.
const MOST_RESIDENT: usize = 256;
/// Ranges that are looked at to see what is absent: a tenth more or less of it changes nothing.
const SAMPLES: usize = 64;

/// A worker sends it when the exec that waits may go on.
const STARTED: &[u8] = b"s";

/// What became of a prefetch, or what a look has shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PrefetchOutcome {
    /// The share of the profile that was absent; `None`: unknown.
    pub absent_percent: Option<u8>,
    pub requests: u64,
    pub issued_bytes: u64,
    /// Bridged bytes, and those that the recordings did not use at each start: an estimate.
    pub wasted_bytes: u64,
    pub stale_percent: u8,
    /// A device of the profile seeks.
    #[serde(default)]
    pub seeks: bool,
}

/// What a worker is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WorkFor {
    Start(StartId),
    /// An exec of this process that waits. It becomes a start.
    Held(u32),
    /// What is started next on this machine.
    Idle,
}

/// What a worker does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WorkKind {
    /// It prefetches.
    Prefetch,
    /// It looks what is absent.
    Look,
}

/// The task of a worker.
#[derive(Clone, Debug)]
pub struct PrefetchTask {
    pub kind: WorkKind,
    pub work_for: WorkFor,
    pub key: AppKey,
    pub identity: Identity,
    pub since: Instant,
    /// The most bytes; `None`: half of the available memory.
    pub budget_bytes: Option<u64>,
}

/// The workers.
#[derive(Debug)]
pub struct PrefetchWorkers {
    /// The directory of the store.
    home: PathBuf,
    workers: Vec<RunningWorker>,
    resident: HashMap<(u32, AppKey), Instant>,
}

#[derive(Debug)]
struct RunningWorker {
    task: PrefetchTask,
    worker: Worker,
    /// Waits for the head start.
    held: Option<HeldExec>,
    is_reported: bool,
}

impl RunningWorker {
    fn is_stuck(&self, now: Instant) -> bool {
        now.duration_since(self.task.since) > STUCK_AFTER
    }
}

impl PrefetchWorkers {
    /// No worker yet.
    pub fn new(home: &Path) -> PrefetchWorkers {
        PrefetchWorkers { home: home.into(), workers: Vec::new(), resident: HashMap::new() }
    }

    /// Whether the program was found resident a moment ago.
    pub fn is_resident(&self, uid: u32, key: &AppKey, now: Instant) -> bool {
        let found = (!self.resident.is_empty()).then(|| self.resident.get(&(uid, key.clone()))).flatten();
        found.is_some_and(|at| now.duration_since(*at) < RESIDENT_FOR)
    }

    /// Starts a worker. Returns whether there is one: `false` if there are too many.
    pub fn begin(&mut self, task: PrefetchTask, held: Option<HeldExec>) -> bool {
        let stuck = self.workers.iter().filter(|worker| worker.is_stuck(task.since)).count();
        let of_user = self.workers.iter().filter(|worker| worker.task.identity.uid == task.identity.uid);
        let (of_user, is_stuck) = (of_user.clone().count(), { of_user }.any(|worker| worker.is_stuck(task.since)));
        if is_stuck || of_user >= MOST_OF_USER || self.workers.len() - stuck >= MOST_WORKERS || stuck >= MOST_STUCK {
            return false;
        }
        let started = Worker::fork(|results, cancelled| work(&self.home, &task, results, cancelled));
        let started = started.inspect_err(|error| tracing::warn!("no prefetch: {error}"));
        let is_started = started.is_ok();
        self.workers.extend(started.ok().map(|worker| RunningWorker { task, worker, held, is_reported: false }));
        is_started
    }

    /// A start begins whose exec has waited for a worker. Returns whether there is one.
    pub fn adopt(&mut self, start: StartId, key: &AppKey) -> bool {
        let is_it = |running: &&mut RunningWorker| {
            running.task.work_for == WorkFor::Held(start.pid) && running.task.key == *key && !running.is_reported
        };
        let found = self.workers.iter_mut().find(is_it);
        found.map(|running| running.task.work_for = WorkFor::Start(start)).is_some()
    }

    /// The start is over: the rest is not needed any more.
    pub fn cancel(&mut self, start: StartId) {
        self.workers
            .iter_mut()
            .filter(|running| running.task.work_for == WorkFor::Start(start))
            .for_each(|it| it.worker.cancel());
    }

    /// Stops all of them.
    pub fn cancel_all(&mut self) {
        self.workers.iter_mut().for_each(|running| running.worker.cancel());
    }

    /// Whether a prefetch of an idle moment runs.
    pub fn is_idle_work_running(&self) -> bool {
        self.workers.iter().any(|running| running.task.work_for == WorkFor::Idle)
    }

    /// Something is started: the prefetch of an idle moment ends.
    pub fn cancel_idle_work(&mut self) {
        let idle = self.workers.iter_mut().filter(|running| running.task.work_for == WorkFor::Idle);
        idle.for_each(|running| running.worker.cancel());
    }

    /// When the next one counts as stuck.
    pub fn next_look(&self, now: Instant) -> Option<Instant> {
        let running = self.workers.iter().filter(|running| !running.is_stuck(now));
        running.map(|running| running.task.since + STUCK_AFTER).min()
    }

    /// Their pipes, for poll(2).
    pub fn streams(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.workers.iter().flat_map(|running| running.worker.streams())
    }

    /// Reads what they have sent. Returns those that are done; `None`: it failed, or was given up.
    pub fn receive(&mut self, now: Instant) -> Vec<(PrefetchTask, Option<PrefetchOutcome>)> {
        let mut done = Vec::new();
        for running in &mut self.workers {
            running.worker.receive();
            let is_over = running.worker.is_complete() || running.is_stuck(now);
            if is_over || running.worker.received().starts_with(STARTED) {
                running.held = None;
            }
            // A start whose exec has waited may not be known yet.
            let waits_for_start = matches!(running.task.work_for, WorkFor::Held(_)) && !running.is_stuck(now);
            if running.is_reported || waits_for_start || !is_over {
                continue;
            }
            running.is_reported = true;
            let received = running.worker.received();
            let outcome = serde_json::from_slice(received.strip_prefix(STARTED).unwrap_or(received)).ok();
            done.push((running.task.clone(), outcome));
        }
        self.workers.retain(|running| !(running.is_reported && running.worker.has_ended()));
        for (task, outcome) in &done {
            if outcome.is_some_and(|outcome: PrefetchOutcome| outcome.absent_percent == Some(0)) {
                self.note_resident(task, now);
            }
        }
        done
    }

    fn note_resident(&mut self, task: &PrefetchTask, now: Instant) {
        if self.resident.len() >= MOST_RESIDENT {
            self.resident.retain(|_, at| now.duration_since(*at) < RESIDENT_FOR);
        }
        if self.resident.len() < MOST_RESIDENT {
            self.resident.insert((task.identity.uid, task.key.clone()), now);
        }
    }
}

fn work(home: &Path, task: &PrefetchTask, mut results: ResultPipe, cancelled: CancelToken) {
    let outcome = carry_out(home, task, &mut results, cancelled);
    let outcome = outcome.and_then(|outcome| Ok(results.write_all(&serde_json::to_vec(&outcome)?)?));
    if let Err(error) = outcome {
        tracing::info!("{}: not prefetched: {error:#}", task.key);
    }
}

fn carry_out(
    home: &Path,
    task: &PrefetchTask,
    results: &mut ResultPipe,
    cancelled: CancelToken,
) -> anyhow::Result<PrefetchOutcome> {
    ahead_process::end_by_signals();
    let found = AppStore::open(home)?.map(|store| store.user(task.identity.uid)).transpose()?.flatten();
    let profile = found.and_then(|user| user.profile(&user.load(&task.key)?));
    let Some(profile) = profile else { return Ok(PrefetchOutcome::default()) };
    // From here on, every path is that of the user. What is cached is seen as root sees it: most programs are files of root.
    user::become_user(&task.identity, KeptRights::Residency)?;
    if task.kind == WorkKind::Look {
        return Ok(PrefetchOutcome { absent_percent: absent_percent(&profile), ..PrefetchOutcome::default() });
    }
    let is_idle = task.work_for == WorkFor::Idle;
    if is_idle {
        ahead_fetch::set_before_request(YieldToReaders::default());
        priority::yield_processor()?;
    }
    let options = Options::default().priority(if is_idle { Priority::Idle } else { Priority::Normal });
    let options = options.since(Some(task.since)).budget_bytes(task.budget_bytes);
    let descriptions = Descriptions::saved(&profile, &Root::default());
    let replay = Replay::new(profile.clone()).descriptions(descriptions).options(options);
    replay.reserve_descriptors();
    let running = replay.start()?;
    stop_when_cancelled(running.stopper(), cancelled);
    if matches!(task.work_for, WorkFor::Held(_)) {
        running.hold();
        results.write_all(STARTED)?;
    }
    Ok(outcome(&profile, &running.finish()))
}

fn stop_when_cancelled(stopper: Stopper, cancelled: CancelToken) {
    let wait = move || {
        cancelled.wait(|_| ());
        stopper.stop();
    };
    if let Err(error) = std::thread::Builder::new().name("ahead-cancelled".into()).spawn(wait) {
        tracing::debug!("no thread for cancelling: {error}");
    }
}

fn percent(part: u64, whole: u64) -> Option<u8> {
    (whole > 0).then(|| (u128::from(part) * 100).div_ceil(u128::from(whole)).min(100) as u8)
}

fn outcome(profile: &Profile, account: &Account) -> PrefetchOutcome {
    let (prefetched, resident) = (account.prefetched_bytes(), account.already_resident_bytes);
    // A page that one of eight recorded starts used is used by one of eight.
    let extents = profile.files.iter().flat_map(|file| &file.extents);
    let runs = u64::from(profile.recording.runs.max(1));
    let (bytes, uses) = extents.fold((0u64, 0u64), |(bytes, uses), extent| {
        let length = extent.length_bytes;
        (bytes.saturating_add(length), uses.saturating_add(length / runs * u64::from(extent.runs.max(1)).min(runs)))
    });
    let unused = u128::from(prefetched) * u128::from(bytes.saturating_sub(uses)) / u128::from(bytes.max(1));
    // Where it is unknown what was resident, a warm start would look like a cold one.
    let is_known = account.residency_unknown_bytes <= prefetched / 2;
    PrefetchOutcome {
        absent_percent: percent(prefetched, prefetched.saturating_add(resident)).filter(|_| is_known),
        requests: account.requests,
        issued_bytes: account.issued_bytes,
        wasted_bytes: account.bridged_bytes.saturating_add(unused as u64),
        stale_percent: percent(account.stale_bytes, profile.data_bytes()).unwrap_or(0),
        seeks: account.devices.iter().any(|device| device.order == Order::ByPosition),
    }
}

/// The share of a sample that is absent, without a read: a file that the kernel does not know has no cached page. `None`: the profile is empty.
fn absent_percent(profile: &Profile) -> Option<u8> {
    let extents = profile.files.iter().flat_map(|file| file.extents.iter().map(move |extent| (file, extent)));
    let every = extents.clone().count().div_ceil(SAMPLES).max(1);
    let (mut absent, mut all) = (0, 0);
    for (file, extent) in extents.step_by(every) {
        all += extent.length_bytes;
        let handle = openat::handle_if_cached(Path::new(OsStr::from_bytes(&file.path)));
        let open = handle.and_then(|handle| handle.reopen().ok());
        let resident =
            open.map_or(0, |open| cache::resident_bytes(&open, extent.offset_bytes, extent.length_bytes).unwrap_or(0));
        absent += extent.length_bytes.saturating_sub(resident);
    }
    percent(absent, all)
}

#[cfg(test)]
mod tests {
    use super::*;
    use ahead_profile::{Extent, File, Recording};

    #[test]
    fn outcome_estimates_waste_by_the_support_of_pages() {
        let extent = |length_bytes, runs| Extent { length_bytes, runs, ..Extent::default() };
        let file = File { extents: vec![extent(8000, 4), extent(8000, 1)], ..File::default() };
        let recording = Recording { runs: 4, ..Recording::default() };
        let profile = Profile { recording, files: vec![file], ..Profile::default() };
        let account = r#"{"issued_bytes": 9000, "bridged_bytes": 1000, "already_resident_bytes": 2000}"#;
        let account: Account = serde_json::from_str(account).unwrap();
        let outcome = outcome(&profile, &account);
        assert_eq!((outcome.absent_percent, outcome.issued_bytes, outcome.wasted_bytes), (Some(80), 9000, 1000 + 3000));
        let account = r#"{"issued_bytes": 9000, "residency_unknown_bytes": 9000}"#;
        assert_eq!(super::outcome(&profile, &serde_json::from_str(account).unwrap()).absent_percent, None);
    }

    #[test]
    fn look_finds_what_is_absent() {
        let own = std::env::current_exe().unwrap().into_os_string().into_encoded_bytes();
        let file = |path: &[u8]| {
            let extents = vec![Extent { length_bytes: 4096, ..Extent::default() }];
            File { path: path.to_vec(), extents, ..File::default() }
        };
        let profile = Profile { files: vec![file(&own), file(b"/missing")], ..Profile::default() };
        assert_eq!(absent_percent(&profile), Some(50));
        assert_eq!(absent_percent(&Profile::default()), None);
    }
}
