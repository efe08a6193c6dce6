//! Threads for any number of devices: a bounded number of them, and none that one device could keep from the others.
//!
//! ```text
//!     waiting   d7 d8 d9 …                        a thread for each device in turn
//!     at work   d1 ████  d2 █  d3 █  d4 ▒▒▒▒      the others help where there is more to do
//!                                    ╰── d4 has not answered for 2 s: others get threads in place of these
//!                                        30 s: given up, its bytes are skipped
//! ```
//!
//! The kernel ends no thread that waits for a device. So a device that does not answer keeps the threads that wait for it,
//! and the pool does not wait for these threads: the same number of other threads replaces them, up to a limit. If the device
//! answers after all, its threads go on, unless it was given up.
//!
//! A thread that the system refuses (`ulimit -u`, a control group) is one worker less. Where there is none at all the calling
//! thread does the work.

use crate::prefetch::account::Reason;
use crate::prefetch::brake::{self, Brake};
use ahead_plan::pacing::MOST_WORKERS;
use ahead_sys::tasks;
use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::{Duration, Instant};

/// Threads in all: as many as two devices use where paths are looked up.
const MOST_THREADS: usize = 32;

/// Up to this number of threads the system's limits are not looked at: that takes 60 us, which a program that is in memory
/// would have to wait.
const FEW: usize = 4;

/// The pool takes one in this number of the threads that the system still allows: the program may fork, too.
const SHARE_OF_ROOM: u64 = 4;

/// A device is not waited for any longer if none of its threads was seen for this time. A worker that waits for a place in
/// the queue of a rotating disk is seen after each request, 8 ms; for a whole queue (`nr_requests` is 256 by
/// default) it takes about this time.
pub const LONGEST_STILL: Duration = Duration::from_secs(2);

/// A device is given up if none of its threads was seen for this time: the kernel's own time for one command to a disk
/// (`SD_TIMEOUT` of drivers/scsi/sd.h). A disk that has to spin up takes 5 to 15 seconds.
pub const NOT_ANSWERING: Duration = Duration::from_secs(30);

/// What is done on a device, by its index.
type Work = Arc<dyn Fn(usize) + Send + Sync>;

/// Starts a thread. Tests refuse some.
type Start = fn(Box<dyn FnOnce() + Send>) -> io::Result<()>;

fn start(work: Box<dyn FnOnce() + Send>) -> io::Result<()> {
    std::thread::Builder::new().name("ahead-worker".into()).spawn(work).map(drop)
}

/// The threads of a fetch, and what is known of its devices, which are indices here.
#[derive(Debug)]
pub struct WorkerPool {
    devices: Vec<Device>,
    /// How many devices the program still waits for.
    holding: AtomicUsize,
    began: Instant,
    state: Mutex<State>,
    changed: Condvar,
    start: Start,
}

#[derive(Debug)]
struct Device {
    /// When one of its threads was seen last, microseconds since the pool began.
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
    /// Threads that may still be started in place of such as do not answer.
    replacements: usize,
    waiting: VecDeque<usize>,
    /// What is done with those that wait.
    work: Option<Work>,
    at_work: BTreeMap<usize, AtWork>,
    /// The last thread that was asked for was refused, and none has ended since.
    refused: bool,
    panicked: bool,
}

/// A device that has threads.
#[derive(Default)]
struct AtWork {
    threads: usize,
    /// Of these: others have taken their place.
    replaced: usize,
    helpers: usize,
    help: Option<Work>,
    /// Its next turn has come, though threads of the last one are still at work.
    waits: bool,
}

impl std::fmt::Debug for State {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} free threads, {} devices at work", self.free, self.at_work.len())
    }
}

/// A thread of a device, until it ends, however it ends.
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
    /// A pool for this number of devices, all of which hold the program. `began`: since when it is held.
    pub fn new(devices: usize, began: Instant) -> WorkerPool {
        let device = || Device { seen_us: AtomicU64::new(0), given_up: false.into(), holds: true.into() };
        let pool = WorkerPool {
            devices: (0..devices).map(|_| device()).collect(),
            holding: AtomicUsize::new(devices),
            began,
            state: Mutex::new(State { free: FEW, replacements: FEW, ..State::default() }),
            changed: Condvar::new(),
            start,
        };
        if devices > FEW {
            pool.look_at_limits();
        }
        pool
    }

    /// Finds out how many threads there may be.
    pub fn look_at_limits(&self) {
        let most = (tasks::room() / SHARE_OF_ROOM).clamp(1, MOST_THREADS as u64) as usize;
        let mut state = self.lock();
        // Threads of a device that does not answer may be at work already.
        let replaced: usize = state.at_work.values().map(|at_work| at_work.replaced).sum();
        let others = state.at_work.values().map(|at_work| at_work.threads).sum::<usize>() - replaced;
        (state.free, state.replacements) = (most.saturating_sub(others), most.saturating_sub(replaced));
    }

    /// No state is ever left half changed: what a panicking thread leaves can be used.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// For workers, before each piece of work on a device: returns at once, or when a pause is over, or with the reason to stop.
    pub fn check(&self, device: usize, brake: &Brake) -> Result<(), Reason> {
        self.see(device);
        if self.is_given_up(device) {
            return Err(Reason::NotAnswering);
        }
        brake.check()
    }

    /// A thread of the device goes on.
    pub fn see(&self, device: usize) {
        self.devices[device].seen_us.store(self.began.elapsed().as_micros() as u64, Ordering::Relaxed);
    }

    fn still(&self, device: usize) -> Duration {
        let seen_us = self.devices[device].seen_us.load(Ordering::Relaxed);
        self.began.elapsed().saturating_sub(Duration::from_micros(seen_us))
    }

    /// Whether it does not answer, for good.
    pub fn is_given_up(&self, device: usize) -> bool {
        self.devices[device].given_up.load(Ordering::Acquire)
    }

    /// Whether any device is given up, or has threads at work still.
    pub fn is_incomplete(&self) -> bool {
        self.devices.iter().any(|device| device.given_up.load(Ordering::Acquire)) || !self.lock().at_work.is_empty()
    }

    /// Whether a thread has panicked.
    pub fn has_panicked(&self) -> bool {
        self.lock().panicked
    }

    /// The program does not wait for this device any more.
    pub fn release(&self, device: usize) {
        if self.devices[device].holds.swap(false, Ordering::AcqRel) {
            self.holding.fetch_sub(1, Ordering::AcqRel);
        }
    }

    /// Whether the program waits for any device.
    pub fn holds(&self) -> bool {
        self.holding.load(Ordering::Acquire) > 0
    }

    /// Does this work on each of these devices, each in a separate thread, and returns when the work is over on all devices that
    /// answer. `enough`, called a few times per second and after each end, returns true to end it before: devices that are at work
    /// then go on, and no other device begins.
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
                    // No thread is left for these, and none will be.
                    state.waiting.iter().for_each(|device| self.devices[*device].give_up());
                    break;
                }
            }
            if state.refused && is_alone {
                state = self.work_here(state, &work);
                continue;
            }
            let waited = self.changed.wait_timeout(state, brake::INTERVAL);
            (state, _) = waited.unwrap_or_else(|poisoned| poisoned.into_inner());
        }
        state.work = None;
        state.waiting.clear();
        state.at_work.values_mut().for_each(|at_work| at_work.waits = false);
    }

    /// Whether any device waits for a thread, or has one that was seen lately.
    pub fn is_at_work(&self) -> bool {
        let state = self.lock();
        !state.waiting.is_empty() || state.at_work.keys().any(|device| self.still(*device) < LONGEST_STILL)
    }

    /// In the calling thread, since there is no other.
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

    /// Lets up to `helpers` other threads do this work on a device, as they become free, while the device's thread is at work.
    pub fn help(self: &Arc<WorkerPool>, device: usize, helpers: usize, work: Work) {
        let mut state = self.lock();
        let at_work = state.at_work.entry(device).or_default();
        (at_work.helpers, at_work.help) = (helpers, Some(work));
        self.start_workers(&mut state);
    }

    /// Waits, in the device's own thread, until no other is at work on the device, or it is given up.
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

    /// Looks for devices that do not answer: lets the program start without them, and others have their threads. Gives those that
    /// should be given up ([`Self::give_up`]).
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

    /// The time until now does not count: no thread could be seen.
    pub fn see_all(&self) {
        let at_work: Vec<usize> = self.lock().at_work.keys().copied().collect();
        at_work.into_iter().for_each(|device| self.see(device));
    }

    /// Nothing more is done on this device. Its threads end when it answers.
    pub fn give_up(&self, device: usize) {
        // A thread that waits for a change reads this only while it holds the lock.
        let _state = self.lock();
        self.devices[device].give_up();
        self.changed.notify_all();
    }

    /// Starts threads, as they are free: for devices that wait first, then to help.
    fn start_workers(self: &Arc<WorkerPool>, state: &mut State) {
        while let Some(work) = state.work.clone()
            && let Some(device) = state.waiting.pop_front()
        {
            if !self.start_worker(state, device, work) {
                return state.waiting.push_front(device);
            }
        }
        let answering = state.at_work.values().filter(|at_work| at_work.threads > at_work.replaced).count();
        let share = (MOST_THREADS / answering.max(1)).clamp(1, MOST_WORKERS);
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

    /// Whether there was a thread.
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

    /// A thread of the device begins.
    fn count_in(&self, state: &mut State, device: usize) {
        self.see(device);
        state.free = state.free.saturating_sub(1);
        state.at_work.entry(device).or_default().threads += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;
    use std::sync::mpsc;

    fn pool(devices: usize, most: usize) -> Arc<WorkerPool> {
        with(devices, most, start)
    }

    fn with(devices: usize, most: usize, start: Start) -> Arc<WorkerPool> {
        let pool = WorkerPool { start, ..WorkerPool::new(devices, Instant::now()) };
        (pool.lock().free, pool.lock().replacements) = (most, most);
        Arc::new(pool)
    }

    /// Counts how many do something at a time.
    #[derive(Default)]
    struct Count {
        now: AtomicUsize,
        most: AtomicUsize,
        done: Mutex<Vec<usize>>,
    }

    impl Count {
        fn work(&self, device: usize) {
            let now = self.now.fetch_add(1, Ordering::AcqRel) + 1;
            self.most.fetch_max(now, Ordering::AcqRel);
            std::thread::yield_now();
            self.done.lock().unwrap().push(device);
            self.now.fetch_sub(1, Ordering::AcqRel);
        }
    }

    /// Regression: each device had a thread, and 15 that helped it.
    #[test]
    fn there_are_never_more_threads_than_the_limit_and_every_device_has_its_turn() {
        let (pool, count) = (pool(100, 8), Arc::new(Count::default()));
        let (own, counted) = (pool.clone(), count.clone());
        let work = move |device: usize| {
            let helped = counted.clone();
            own.help(device, 15, Arc::new(move |device| helped.work(device)));
            counted.work(device);
            own.join(device);
        };
        pool.run(0..100, Arc::new(work), || false);
        assert!(count.most.load(Ordering::Acquire) <= 8);
        let done: HashSet<usize> = count.done.lock().unwrap().iter().copied().collect();
        assert_eq!(done.len(), 100);
        assert!(!pool.is_incomplete() && pool.lock().free == 8);
    }

    /// Regression: `std::thread::scope` panics where the system refuses a thread.
    #[test]
    fn refused_threads_are_fewer_workers_and_without_any_the_calling_one_works() {
        static STARTED: AtomicUsize = AtomicUsize::new(0);
        let none: Start = |_| Err(io::ErrorKind::WouldBlock.into());
        let every_third: Start = |work| match STARTED.fetch_add(1, Ordering::Relaxed) % 3 {
            0 => start(work),
            _ => Err(io::ErrorKind::WouldBlock.into()),
        };
        for start in [none, every_third] {
            let (pool, count) = (with(100, 8, start), Arc::new(Count::default()));
            let (own, counted) = (pool.clone(), count.clone());
            let here = std::thread::current().id();
            let work = move |device: usize| {
                assert!(start as usize != none as usize || std::thread::current().id() == here);
                own.help(device, 3, Arc::new(|_| ()));
                counted.work(device);
                own.join(device);
            };
            pool.run(0..100, Arc::new(work), || false);
            let mut done = count.done.lock().unwrap().clone();
            done.sort_unstable();
            assert_eq!(done, (0..100).collect::<Vec<_>>());
            assert!(!pool.is_incomplete() && pool.lock().free == 8);
        }
    }

    /// A panic on one device must not keep the program from starting, nor the other devices from being fetched.
    #[test]
    fn a_thread_that_panics_is_known_and_holds_nothing() {
        let (pool, count) = (pool(10, 2), Arc::new(Count::default()));
        let (own, counted) = (pool.clone(), count.clone());
        let work = move |device: usize| {
            // Without the text that a panic prints.
            if device == 4 {
                std::panic::resume_unwind(Box::new("a bug"));
            }
            counted.work(device);
            own.release(device);
        };
        pool.run(0..10, Arc::new(work), || false);
        assert!(pool.has_panicked() && !pool.holds());
        assert_eq!(count.done.lock().unwrap().len(), 9);
    }

    /// Regression: a device that did not answer kept the threads of all other devices.
    #[test]
    fn device_that_does_not_answer_holds_neither_the_program_nor_other_devices() {
        let (pool, (answer, silence)) = (pool(6, 2), mpsc::channel::<()>());
        let silence = Mutex::new(silence);
        let done = Arc::new(Mutex::new(Vec::new()));
        let (own, by) = (pool.clone(), done.clone());
        let work = move |device: usize| {
            if device < 3 {
                // Until the test is over.
                let _ = silence.lock().unwrap().recv();
            } else {
                own.release(device);
                by.lock().unwrap().push(device);
            }
        };
        let (watched, others) = (pool.clone(), done.clone());
        let patience = Instant::now() + Duration::from_secs(60);
        pool.run(0..6, Arc::new(work), || {
            assert!(Instant::now() < patience, "the others wait");
            watched.look().into_iter().for_each(|device| watched.give_up(device));
            others.lock().unwrap().len() == 3 && !watched.holds()
        });
        let mut done = done.lock().unwrap().clone();
        done.sort_unstable();
        assert_eq!((done, pool.is_incomplete()), (vec![3, 4, 5], true));
        drop(answer);
    }
}
