//! A limited number of threads for any number of devices. A device that does not answer cannot take the threads of the others.
//!
//! ```text
//!     waiting   d7 d8 d9 …                        a thread for each device in turn
//!     at work   d1 ████  d2 █  d3 █  d4 ▒▒▒▒      the remaining threads help devices with more work
//!                                    ╰── d4 has not answered for 2 s: other threads replace these
//!                                        30 s: given up, its bytes are skipped
//! ```
//!
//! The kernel does not end a thread that waits for a device. So the pool does not wait for the threads of a device that does not
//! answer: the same number of new threads replaces them, up to a limit. If the device answers later, its threads continue,
//! unless the device was given up.
//!
//! If the system refuses a thread (`ulimit -u`, a control group), there is one worker less. If there is no thread at all, the
//! calling thread does the work. A caller may limit the threads of the process; then no thread is replaced, and at a limit of two the
//! calling thread does all the work.

#[cfg(test)]
mod tests;

use crate::workers::Job;
use ahead_sys::tasks;
use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::{Duration, Instant};

/// Maximum number of threads: as many as two devices use for lookups.
const MOST_THREADS: usize = 32;

/// Number of threads below which the system's limits are not read. Reading them takes 60 us, for which the program would have to
/// wait even if its pages are resident.
const FEW: usize = 4;

/// The pool uses one in this number of the threads that the system still permits: the program may fork, too.
const SHARE_OF_ROOM: u64 = 4;

/// The program does not wait for a device whose threads have made no progress for this time. A worker that waits for room in the
/// queue of a rotating disk makes progress after each request, 8 ms. A whole queue (`nr_requests` is 256 by default) takes about
/// this time.
pub const LONGEST_STILL: Duration = Duration::from_secs(2);

/// A device is given up if its threads have made no progress for this time: the kernel's timeout of a disk command
/// (`SD_TIMEOUT` in drivers/scsi/sd.h). A disk that has to spin up takes 5 to 15 seconds.
pub const NOT_ANSWERING: Duration = Duration::from_secs(30);

/// Interval between checks of the machine, by the caller of [`WorkerPool::run`]: long enough for a meaningful share of waiting, short compared with
/// a deadline.
pub const LOOK_INTERVAL: Duration = Duration::from_millis(50);

/// Threads of a limited process that are no workers: that of the caller, which watches, and that of the prefetch.
const OTHER_THREADS: usize = 2;

/// The work on a device, which is given by its index.
type Work = Arc<dyn Fn(usize) + Send + Sync>;

/// Starts a thread. Tests replace it by a function that refuses some.
type Start = fn(Job) -> io::Result<()>;

fn start(work: Job) -> io::Result<()> {
    std::thread::Builder::new().name("ahead-worker".into()).spawn(work).map(drop)
}

/// For a limit that leaves no thread for workers.
fn refuse(_work: Job) -> io::Result<()> {
    Err(io::ErrorKind::QuotaExceeded.into())
}

/// The threads of a prefetch, and the state of its devices, which are indices here.
#[derive(Debug)]
pub struct WorkerPool {
    devices: Vec<Device>,
    /// Number of devices for which the program still waits.
    holding: AtomicUsize,
    began: Instant,
    state: Mutex<State>,
    changed: Condvar,
    /// Maximum number of workers.
    most: usize,
    /// Maximum number of workers of a device.
    most_of_device: usize,
    /// Whether other threads may replace those of a device that does not answer.
    replaces: bool,
    start: Start,
}

#[derive(Debug)]
struct Device {
    /// When one of its threads last made progress, microseconds since the pool began.
    seen_us: AtomicU64,
    given_up: AtomicBool,
    /// The program waits for its head start.
    holds: AtomicBool,
}

impl Device {
    fn give_up(&self) {
        self.given_up.store(true, Ordering::Release);
    }
}

#[derive(Default)]
struct State {
    /// Threads that may still be started.
    free: usize,
    /// Threads that may still be started to replace threads of devices that do not answer.
    replacements: usize,
    waiting: VecDeque<usize>,
    /// The work on the waiting devices.
    work: Option<Work>,
    at_work: BTreeMap<usize, AtWork>,
    /// The system refused the last thread, and no thread has ended since.
    refused: bool,
    panicked: bool,
}

/// A device that has threads.
#[derive(Default)]
struct AtWork {
    threads: usize,
    /// Whether other threads have replaced these.
    replaced: usize,
    helpers: usize,
    help: Option<Work>,
    /// Its next stage has begun, although threads of the last stage still work.
    waits: bool,
}

impl std::fmt::Debug for State {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} free threads, {} devices at work", self.free, self.at_work.len())
    }
}

/// A thread of a device. Dropped when the thread ends, also by a panic.
struct RunningWorker {
    pool: Arc<WorkerPool>,
    device: usize,
}

impl Drop for RunningWorker {
    fn drop(&mut self) {
        let mut state = self.pool.lock();
        if std::thread::panicking() {
            state.panicked = true;
            self.pool.release(self.device);
        }
        state.refused = false;
        let at_work = state.at_work.entry(self.device).or_default();
        at_work.threads -= 1;
        let (is_over, waits) = (at_work.threads == 0, at_work.waits);
        match at_work.replaced.checked_sub(1) {
            Some(replaced) => {
                at_work.replaced = replaced;
                state.replacements += 1;
            }
            None => state.free += 1,
        }
        if is_over {
            state.at_work.remove(&self.device);
            if waits {
                state.waiting.push_back(self.device);
            }
        }
        self.pool.start_workers(&mut state);
        self.pool.changed.notify_all();
    }
}

impl WorkerPool {
    /// A pool for this number of devices. The program waits for all of them, since `began`. `most_of_device`: threads that one device gets;
    /// `threads`: the maximum for the process.
    pub fn new(devices: usize, began: Instant, most_of_device: usize, threads: Option<usize>) -> WorkerPool {
        let workers = threads.map_or(MOST_THREADS, |threads| threads.saturating_sub(OTHER_THREADS).min(MOST_THREADS));
        // At least one: the calling thread, if it does the work.
        let (most, replaces) = (workers.max(1), threads.is_none());
        let start: Start = if workers == 0 { refuse } else { start };
        let few = FEW.min(most);
        let state = State { free: few, replacements: if replaces { few } else { 0 }, ..State::default() };
        let device = || Device { seen_us: AtomicU64::new(0), given_up: false.into(), holds: true.into() };
        let pool = WorkerPool {
            devices: (0..devices).map(|_| device()).collect(),
            holding: AtomicUsize::new(devices),
            began,
            state: Mutex::new(state),
            changed: Condvar::new(),
            most,
            most_of_device,
            replaces,
            start,
        };
        if devices > FEW {
            pool.look_at_limits();
        }
        pool
    }

    /// Reads the system's limits of threads.
    pub fn look_at_limits(&self) {
        let most = (tasks::room() / SHARE_OF_ROOM).clamp(1, self.most as u64) as usize;
        let most_replacements = if self.replaces { most } else { 0 };
        let mut state = self.lock();
        // Threads of a device that does not answer may exist already.
        let replaced: usize = state.at_work.values().map(|at_work| at_work.replaced).sum();
        let others = state.at_work.values().map(|at_work| at_work.threads).sum::<usize>() - replaced;
        state.free = most.saturating_sub(others);
        state.replacements = most_replacements.saturating_sub(replaced);
    }

    /// The state is always consistent, also after a panic of a thread that held the lock.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Maximum number of threads of a device.
    pub fn most_workers(&self) -> usize {
        self.most.min(self.most_of_device)
    }

    /// Records that a thread of the device makes progress.
    pub fn see(&self, device: usize) {
        self.devices[device].seen_us.store(self.began.elapsed().as_micros() as u64, Ordering::Relaxed);
    }

    fn still(&self, device: usize) -> Duration {
        let seen_us = self.devices[device].seen_us.load(Ordering::Relaxed);
        self.began.elapsed().saturating_sub(Duration::from_micros(seen_us))
    }

    /// Whether the device was given up.
    pub fn is_given_up(&self, device: usize) -> bool {
        self.devices[device].given_up.load(Ordering::Acquire)
    }

    /// Whether any device was given up, or still has threads at work.
    pub fn is_incomplete(&self) -> bool {
        self.devices.iter().any(|device| device.given_up.load(Ordering::Acquire)) || !self.lock().at_work.is_empty()
    }

    /// Whether a thread has panicked.
    pub fn has_panicked(&self) -> bool {
        self.lock().panicked
    }

    /// Records that the program does not wait for this device any more.
    pub fn release(&self, device: usize) {
        if self.devices[device].holds.swap(false, Ordering::AcqRel) {
            self.holding.fetch_sub(1, Ordering::AcqRel);
        }
    }

    /// Whether the program waits for any device.
    pub fn holds(&self) -> bool {
        self.holding.load(Ordering::Acquire) > 0
    }

    /// Does this work on each of these devices, each in a separate thread. Returns when it has ended on all devices that answer.
    /// `enough` is called a few times per second, and whenever a device ends. If it returns true, this returns early: devices at
    /// work continue, and no other device begins.
    pub fn run(
        self: &Arc<WorkerPool>,
        devices: impl IntoIterator<Item = usize>,
        work: Work,
        mut enough: impl FnMut() -> bool,
    ) {
        let mut state = self.lock();
        state.work = Some(work.clone());
        for device in devices {
            match state.at_work.get_mut(&device) {
                Some(at_work) => at_work.waits = true,
                None => state.waiting.push_back(device),
            }
        }
        self.start_workers(&mut state);
        loop {
            drop(state);
            let is_enough = enough();
            state = self.lock();
            if is_enough {
                break;
            }
            let is_alone = state.at_work.is_empty();
            if state.at_work.keys().all(|device| self.is_given_up(*device)) {
                if state.waiting.is_empty() {
                    break;
                }
                if !is_alone && (state.free == 0 || state.refused) {
                    // There is no thread for these devices, and there will be none.
                    state.waiting.iter().for_each(|device| self.devices[*device].give_up());
                    break;
                }
            }
            if state.refused && is_alone {
                state = self.work_here(state, &work);
                continue;
            }
            let waited = self.changed.wait_timeout(state, LOOK_INTERVAL);
            (state, _) = waited.unwrap_or_else(|poisoned| poisoned.into_inner());
        }
        state.work = None;
        state.waiting.clear();
        state.at_work.values_mut().for_each(|at_work| at_work.waits = false);
    }

    /// Whether any device waits for a thread, or has one that made progress recently.
    pub fn is_at_work(&self) -> bool {
        let state = self.lock();
        !state.waiting.is_empty() || state.at_work.keys().any(|device| self.still(*device) < LONGEST_STILL)
    }

    /// Works in the calling thread, because there is no other.
    fn work_here<'a>(
        self: &'a Arc<WorkerPool>,
        mut state: MutexGuard<'a, State>,
        work: &Work,
    ) -> MutexGuard<'a, State> {
        if let Some(device) = state.waiting.pop_front() {
            self.count_in(&mut state, device);
            let running = RunningWorker { pool: self.clone(), device };
            drop(state);
            work(device);
            drop(running);
            state = self.lock();
        }
        state
    }

    /// Lets up to `helpers` other threads do this work on a device when they are free, while the device's thread works.
    pub fn help(self: &Arc<WorkerPool>, device: usize, helpers: usize, work: Work) {
        let mut state = self.lock();
        let at_work = state.at_work.entry(device).or_default();
        (at_work.helpers, at_work.help) = (helpers, Some(work));
        self.start_workers(&mut state);
    }

    /// Waits, in the device's own thread, until no other thread works on the device, or the device was given up.
    pub fn join(&self, device: usize) {
        let mut state = self.lock();
        loop {
            let Some(at_work) = state.at_work.get_mut(&device) else { return };
            (at_work.helpers, at_work.help) = (0, None);
            if at_work.threads <= 1 || self.is_given_up(device) {
                return;
            }
            state = self.changed.wait(state).unwrap_or_else(|poisoned| poisoned.into_inner());
        }
    }

    /// Checks for devices that do not answer: the program no longer waits for them, and other threads replace theirs. Returns the
    /// devices to give up ([`Self::give_up`]).
    pub fn look(self: &Arc<WorkerPool>) -> Vec<usize> {
        let mut state = self.lock();
        let still: Vec<(usize, Duration)> = state.at_work.keys().map(|device| (*device, self.still(*device))).collect();
        let still = still.into_iter().filter(|(device, still)| *still >= LONGEST_STILL && !self.is_given_up(*device));
        let mut silent = Vec::new();
        for (device, still) in still {
            self.release(device);
            let replacements = state.replacements;
            let Some(at_work) = state.at_work.get_mut(&device) else { continue };
            let replaced = (at_work.threads - at_work.replaced).min(replacements);
            at_work.replaced += replaced;
            state.replacements -= replaced;
            state.free += replaced;
            if still >= NOT_ANSWERING {
                silent.push(device);
            }
        }
        if self.began.elapsed() >= LONGEST_STILL && self.holds() {
            state.waiting.iter().for_each(|device| self.release(*device));
        }
        self.start_workers(&mut state);
        silent
    }

    /// Restarts the timeouts of all devices, because paused threads make no progress.
    pub fn see_all(&self) {
        let at_work: Vec<usize> = self.lock().at_work.keys().copied().collect();
        at_work.into_iter().for_each(|device| self.see(device));
    }

    /// Gives up a device: no further work is done on it, and its threads end when it answers.
    pub fn give_up(&self, device: usize) {
        // Threads that wait for a change read this only while they hold the lock.
        let _state = self.lock();
        self.devices[device].give_up();
        self.changed.notify_all();
    }

    /// Starts threads up to the limit: first for waiting devices, then to help others.
    fn start_workers(self: &Arc<WorkerPool>, state: &mut State) {
        while let Some(work) = state.work.clone()
            && let Some(device) = state.waiting.pop_front()
        {
            if !self.start_worker(state, device, work) {
                return state.waiting.push_front(device);
            }
        }
        let answering = state.at_work.values().filter(|at_work| at_work.threads > at_work.replaced).count();
        let share = (MOST_THREADS / answering.max(1)).clamp(1, self.most_of_device);
        let wanted: Vec<usize> =
            state.at_work.iter().filter(|(_, at_work)| at_work.helpers > 0).map(|(device, _)| *device).collect();
        for device in wanted {
            while let Some(at_work) = state.at_work.get_mut(&device)
                && at_work.helpers > 0
                && at_work.threads < share
                && let Some(help) = at_work.help.clone()
            {
                at_work.helpers -= 1;
                if !self.start_worker(state, device, help) {
                    let at_work = state.at_work.entry(device).or_default();
                    at_work.helpers += 1;
                    return;
                }
            }
        }
    }

    /// Returns whether a thread was started.
    fn start_worker(self: &Arc<WorkerPool>, state: &mut State, device: usize, work: Work) -> bool {
        if state.free == 0 || state.refused {
            return false;
        }
        self.count_in(state, device);
        let pool = self.clone();
        let started = (self.start)(Box::new(move || {
            let _running = RunningWorker { pool, device };
            work(device);
        }));
        if let Err(error) = started {
            tracing::debug!("a thread was refused: {error}");
            state.refused = true;
            state.free += 1;
            let at_work = state.at_work.entry(device).or_default();
            at_work.threads -= 1;
            if at_work.threads == 0 {
                state.at_work.remove(&device);
            }
            return false;
        }
        true
    }

    /// Counts a new thread of the device.
    fn count_in(&self, state: &mut State, device: usize) {
        self.see(device);
        state.free = state.free.saturating_sub(1);
        state.at_work.entry(device).or_default().threads += 1;
    }
}
