//! Limits a prefetch: bytes that it may still read, and when to pause or stop.
//!
//! Workers check the brake before each request: they read the clock, and stop at the deadline. A few times per second, the threads
//! that wait for the workers check the machine's memory, and the clock on behalf of blocked workers.
//!
//! ```text
//!     budget    ├──── spent ────┼──────── left ────────┤         at first: half of the available memory, or a quarter
//!               ├──── spent ────┼── left ──┤                     later: another program has taken memory
//! ```
//!
//! Prefetched pages count as available memory, because they can be evicted at once. So available memory always gives the total that
//! may be prefetched.

use ahead_sys::locks::IgnorePoison;
use ahead_sys::memory;
use ahead_sys::pressure::{self, Resource};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard};
use std::time::{Duration, Instant};

/// Interval between checks of the machine, by the caller of [`crate::WorkerPool::run`]: long enough for a meaningful share of waiting, short compared with
/// a deadline.
pub const LOOK_INTERVAL: Duration = Duration::from_millis(50);

/// Share of the available memory for a prefetch without a given budget. Half: the program needs memory itself, and for pages that
/// are not in its profile.
const DEFAULT_SHARE: f64 = 0.5;

/// Share of the available memory for a prefetch on a machine with little memory, also with a given budget. Below 1 GiB the kernel keeps
/// half of the file pages on the inactive list and evicts from there (`inactive_is_low` in mm/vmscan.c). An unread page survives until as
/// many other pages have entered the list. With a quarter of the memory, half of the list stays for these other pages.
const LOW_MEMORY_SHARE: f64 = 0.25;

/// Pause if tasks waited for memory for more than this share of the last interval. Reclaim of clean cache, which the prefetch
/// itself may cause, shows no pressure. Users notice 10 % (systemd-oomd acts at 60 %).
const PAUSE_SHARE: f64 = 0.1;

/// Why requests stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// The caller stopped them.
    Cancelled,
    /// The deadline had passed.
    Deadline,
    /// The device did not answer in time.
    NotAnswering,
}

/// The state shared by the workers and the thread that stops them.
#[derive(Debug)]
pub struct Brake {
    /// Whether workers must check `state` before they continue.
    held: AtomicBool,
    state: Mutex<BrakeState>,
    changed: Condvar,
    limit: Limit,
    /// The total that may be prefetched according to the last check of memory, bytes.
    budget_bytes: AtomicU64,
    spent_bytes: AtomicU64,
    deadline: Option<Instant>,
    began: Instant,
    /// When a worker last made progress, microseconds since `began`.
    seen_us: AtomicU64,
    memory: Memory,
    /// Available memory at the last check, bytes; `u64::MAX`: unknown.
    available_bytes: AtomicU64,
    /// A window limits what is fetched ahead, so that the total may be larger than memory.
    has_window: AtomicBool,
    last: Mutex<Look>,
}

/// How many bytes may be prefetched.
#[derive(Clone, Copy, Debug, Default)]
pub struct Limit {
    /// The given limit, independent of memory, bytes.
    pub asked_bytes: Option<u64>,
    /// Pages must not be evicted before they are used, although there is little memory.
    pub low_memory: bool,
}

/// The memory of the machine as the kernel reports it. Tests have another implementation.
#[derive(Clone, Copy, Debug)]
struct Memory {
    /// How long tasks have waited for memory since boot.
    stalled: fn() -> Option<Duration>,
    /// Memory that is available without evicting pages of other programs, bytes.
    available: fn() -> Option<u64>,
}

#[derive(Debug, Default)]
struct BrakeState {
    stopped: Option<(Stop, Instant)>,
    paused: bool,
}

/// The result of the last check ([`Brake::look`]).
#[derive(Debug)]
struct Look {
    at: Instant,
    stalled: Option<Duration>,
    was_short: bool,
}

impl Brake {
    /// A released brake. `began`: since when the program waits.
    pub fn new(limit: Limit, deadline: Option<Instant>, began: Instant) -> Brake {
        Brake::with(limit, deadline, began, Memory { stalled: stalled_by_memory, available: available_bytes })
    }

    fn with(limit: Limit, deadline: Option<Instant>, began: Instant, memory: Memory) -> Brake {
        let brake = Brake {
            held: AtomicBool::new(false),
            state: Mutex::default(),
            changed: Condvar::new(),
            limit,
            budget_bytes: AtomicU64::new(limit.asked_bytes.unwrap_or(u64::MAX)),
            spent_bytes: AtomicU64::new(0),
            deadline,
            began,
            seen_us: AtomicU64::new(0),
            memory,
            available_bytes: AtomicU64::new(u64::MAX),
            has_window: AtomicBool::new(false),
            last: Mutex::new(Look { at: Instant::now(), stalled: (memory.stalled)(), was_short: false }),
        };
        brake.look_at_memory();
        brake
    }

    /// The state is always consistent, also after a panic of a thread that held the lock.
    fn lock(&self) -> MutexGuard<'_, BrakeState> {
        self.state.lock().ignore_poison()
    }

    /// Records that a worker makes progress.
    pub fn see(&self, now: Instant) {
        self.seen_us.store(now.saturating_duration_since(self.began).as_micros() as u64, Ordering::Relaxed);
    }

    /// When a worker last made progress, or the prefetch began.
    pub fn last_seen(&self) -> Instant {
        self.began + Duration::from_micros(self.seen_us.load(Ordering::Relaxed))
    }

    /// Why and when the prefetch was stopped; `None`: it was not.
    pub fn stopped(&self) -> Option<(Stop, Instant)> {
        // Called for every page that the arrival check waits for.
        self.held.load(Ordering::Acquire).then(|| self.lock().stopped).flatten()
    }

    /// The total that may be prefetched, bytes.
    pub fn budget_bytes(&self) -> u64 {
        self.budget_bytes.load(Ordering::Relaxed)
    }

    /// Takes bytes from the budget; `false`: fewer are left.
    pub fn take(&self, bytes: u64) -> bool {
        let budget_bytes = self.budget_bytes();
        let more = |spent: u64| spent.checked_add(bytes).filter(|spent| bytes == 0 || *spent <= budget_bytes);
        self.spent_bytes.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).is_ok()
    }

    /// Returns bytes to the budget that were taken and not read.
    pub fn give_back(&self, bytes: u64) {
        self.spent_bytes.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// Sets the budget by the available memory. If the kernel does not report it, the budget stays.
    fn look_at_memory(&self) {
        let Some(available_bytes) = (self.memory.available)() else { return };
        self.available_bytes.store(available_bytes, Ordering::Relaxed);
        if self.has_window.load(Ordering::Relaxed) {
            return self.budget_bytes.store(self.limit.asked_bytes.unwrap_or(u64::MAX), Ordering::Relaxed);
        }
        let share = match self.limit {
            Limit { low_memory: true, .. } => LOW_MEMORY_SHARE,
            Limit { asked_bytes: None, .. } => DEFAULT_SHARE,
            // A larger budget would evict pages of other programs.
            Limit { asked_bytes: Some(_), .. } => 1.0,
        };
        let budget_bytes = (available_bytes as f64 * share) as u64;
        self.budget_bytes.store(budget_bytes.min(self.limit.asked_bytes.unwrap_or(u64::MAX)), Ordering::Relaxed);
    }

    /// Available memory at the last check, bytes; `None`: the kernel does not report it.
    pub fn available_bytes(&self) -> Option<u64> {
        Some(self.available_bytes.load(Ordering::Relaxed)).filter(|available| *available < u64::MAX)
    }

    /// Limits the total by a given budget only: a window limits what is fetched ahead.
    pub fn limit_by_window(&self) {
        self.has_window.store(true, Ordering::Relaxed);
        self.look_at_memory();
    }

    /// Stops all workers for good. The first reason stays.
    pub fn stop(&self, reason: Stop) {
        self.lock().stopped.get_or_insert((reason, Instant::now()));
        self.held.store(true, Ordering::Release);
        self.changed.notify_all();
    }

    /// Stops all workers if the deadline has passed.
    pub fn look_at_clock(&self) {
        if self.deadline.is_some_and(|deadline| Instant::now() >= deadline) {
            self.stop(Stop::Deadline);
        }
    }

    /// Pauses or resumes the workers.
    pub fn pause(&self, paused: bool) {
        let mut state = self.lock();
        if state.paused != paused {
            state.paused = paused;
            self.held.store(paused || state.stopped.is_some(), Ordering::Release);
            self.changed.notify_all();
        }
    }

    /// Checks the clock, and the machine's memory if the last check was [`LOOK_INTERVAL`] ago: updates the budget, and pauses the workers
    /// while memory is short. Returns whether a pause continues: memory was short at this check and at the one before.
    ///
    /// Several threads call this, because the one that waits for the workers may have to do their work.
    pub fn look(&self) -> bool {
        self.look_at_clock();
        let now = Instant::now();
        let mut last = self.last.lock().ignore_poison();
        if now.saturating_duration_since(last.at) < LOOK_INTERVAL {
            return false;
        }
        self.look_at_memory();
        let stalled = (self.memory.stalled)();
        let waited = last.stalled.zip(stalled).map_or(Duration::ZERO, |(then, now)| now.saturating_sub(then));
        let is_short = waited.as_secs_f64() > PAUSE_SHARE * (now - last.at).as_secs_f64();
        self.pause(is_short);
        let lasts = is_short && last.was_short;
        if is_short {
            // Paused threads report no progress. They must not count as blocked.
            self.see(now);
        }
        *last = Look { at: now, stalled, was_short: is_short };
        lasts
    }

    /// For workers before each request: returns at once, after a pause, or with the reason to stop.
    pub fn check(&self) -> Result<(), Stop> {
        let now = Instant::now();
        self.see(now);
        if self.deadline.is_some_and(|deadline| now >= deadline) {
            self.stop(Stop::Deadline);
        }
        if !self.held.load(Ordering::Acquire) {
            return Ok(());
        }
        let mut state = self.lock();
        while state.paused && state.stopped.is_none() {
            state = self.changed.wait(state).ignore_poison();
        }
        state.stopped.map_or(Ok(()), |(reason, _)| Err(reason))
    }

    /// For workers that let others go first: returns after this time, or with the reason to stop.
    pub(crate) fn rest(&self, time: Duration) -> Result<(), Stop> {
        self.look_at_clock();
        self.see(Instant::now());
        let state = self.lock();
        let (state, _) = self.changed.wait_timeout_while(state, time, |state| state.stopped.is_none()).ignore_poison();
        state.stopped.map_or(Ok(()), |(reason, _)| Err(reason))
    }

    /// Whether workers that check are held, so that they do not count as blocked.
    pub fn is_paused(&self) -> bool {
        self.held.load(Ordering::Acquire) && self.lock().paused
    }
}

/// How long tasks have waited for memory, if the kernel reports it.
fn stalled_by_memory() -> Option<Duration> {
    pressure::total(Resource::Memory).ok()
}

/// Bytes that can be prefetched without evicting pages of other programs, if the kernel reports them.
fn available_bytes() -> Option<u64> {
    memory::available_bytes().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A machine with enough memory.
    fn brake(budget_bytes: u64, deadline: Option<Instant>) -> Brake {
        let memory = Memory { stalled: || Some(Duration::ZERO), available: || Some(u64::MAX) };
        Brake::with(asked(budget_bytes), deadline, Instant::now(), memory)
    }

    fn asked(bytes: u64) -> Limit {
        Limit { asked_bytes: Some(bytes), ..Limit::default() }
    }

    #[test]
    fn the_budget_is_never_overdrawn() {
        let brake = brake(10_000, None);
        assert!(brake.take(6000));
        assert!(!brake.take(6000));
        assert!(brake.take(4000));
        assert!(!brake.take(1));
        assert!(brake.take(0));
        brake.give_back(5);
        assert!(!brake.take(6) && brake.take(5));
    }

    #[test]
    fn a_stop_reaches_workers_that_are_paused_and_keeps_its_first_reason() {
        let brake = brake(0, None);
        brake.pause(true);
        std::thread::scope(|scope| {
            let worker = scope.spawn(|| brake.check());
            brake.stop(Stop::Cancelled);
            brake.stop(Stop::Deadline);
            assert_eq!(worker.join().unwrap(), Err(Stop::Cancelled));
        });
        brake.pause(false);
        assert_eq!(brake.check(), Err(Stop::Cancelled));
    }

    #[test]
    fn worker_that_looks_at_the_clock_stops_at_the_deadline() {
        assert_eq!(brake(0, Some(Instant::now())).check(), Err(Stop::Deadline));
        assert_eq!(brake(0, Some(Instant::now() + Duration::from_secs(3600))).check(), Ok(()));
    }

    /// Repeats checks until one has an effect.
    fn looks_until(brake: &Brake, mut is_enough: impl FnMut(bool) -> bool) {
        let patience = Instant::now() + Duration::from_secs(60);
        while !is_enough(brake.look()) {
            assert!(Instant::now() < patience, "nothing came of it");
            std::thread::yield_now();
        }
    }

    /// Regression: the worker of this test checked the clock itself, so that the test passed without a check of the watching thread.
    #[test]
    fn look_at_the_deadline_stops_a_worker_that_does_not_look_at_the_clock() {
        let brake = brake(0, Some(Instant::now()));
        looks_until(&brake, |_| brake.stopped().is_some());
        assert_eq!(brake.stopped().map(|(reason, _)| reason), Some(Stop::Deadline));
    }

    /// Regression: the program waited for its head start until memory was available again.
    #[test]
    fn look_reports_a_lasting_pause_and_the_deadline_ends_it() {
        static MEMORY_US: AtomicU64 = AtomicU64::new(0);
        // Each check finds one more second of waiting.
        let stalled = || Some(Duration::from_micros(MEMORY_US.fetch_add(1_000_000, Ordering::Relaxed)));
        let memory = Memory { stalled, available: || None };
        let brake = Brake::with(Limit::default(), Some(Instant::now() + LOOK_INTERVAL * 20), Instant::now(), memory);
        looks_until(&brake, |lasts| lasts);
        assert!(brake.is_paused());
        std::thread::scope(|scope| {
            let worker = scope.spawn(|| brake.check());
            looks_until(&brake, |_| brake.stopped().is_some());
            assert_eq!(worker.join().unwrap(), Err(Stop::Deadline));
        });
    }

    /// Regression: the budget was computed once, at the beginning, and a given budget was used without regard to memory.
    #[test]
    fn the_budget_follows_the_available_memory() {
        static AVAILABLE: AtomicU64 = AtomicU64::new(10_000);
        let memory = Memory { stalled: || None, available: || Some(AVAILABLE.load(Ordering::Relaxed)) };
        let low_memory = |limit| Limit { low_memory: true, ..limit };
        let limits = [Limit::default(), asked(8000), low_memory(Limit::default()), low_memory(asked(1500))];
        let brakes = limits.map(|limit| Brake::with(limit, None, Instant::now(), memory));
        let [share, asked, small, small_asked] = &brakes;
        assert_eq!(brakes.each_ref().map(Brake::budget_bytes), [5000, 8000, 2500, 1500]);
        assert!(share.take(3000) && asked.take(3000) && small.take(1000) && small_asked.take(1000));
        AVAILABLE.store(5000, Ordering::Relaxed);
        looks_until(small_asked, |_| small_asked.budget_bytes() == 1250);
        AVAILABLE.store(7000, Ordering::Relaxed);
        looks_until(small, |_| small.budget_bytes() == 1750);
        assert!(!small.take(751) && small.take(750) && !small.take(1));
        for (brake, budget_bytes) in [(share, 3500), (asked, 7000)] {
            looks_until(brake, |_| brake.budget_bytes() == budget_bytes);
            assert!(!brake.take(budget_bytes - 2999) && brake.take(budget_bytes - 3000) && !brake.take(1));
        }
        AVAILABLE.store(1000, Ordering::Relaxed);
        looks_until(share, |_| share.budget_bytes() == 500);
        assert!(!share.take(1) && share.take(0));
    }
}
