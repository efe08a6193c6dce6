//! Never make it worse: what may still be fetched, and when to pause or stop.
//!
//! Workers ask before each request and pay with a look at the clock, which tells them when the time is over. Who looks at
//! the machine's memory, and at the clock for workers that wait, is the thread that waits for them, a few times per second.

use crate::account::Reason;
use ahead_kernel::memory;
use ahead_kernel::pressure::{self, Resource};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard};
use std::time::{Duration, Instant};

/// Share of the available memory that a fetch fills unless told otherwise. Half: the program needs some for itself, and
/// the pages that it reads beyond its profile too.
const DEFAULT_SHARE: f64 = 0.5;

/// Tasks waited for memory for more than this share of the last interval: pause. Reclaim of clean cache, which our own
/// fetch may cause, shows no pressure; 10 % is what users feel (systemd-oomd acts at 60 %).
const PAUSE_SHARE: f64 = 0.1;

/// How often the machine is looked at. Long enough that a share of it means something, short against a deadline.
pub const INTERVAL: Duration = Duration::from_millis(50);

/// The bytes that may be fetched: what was asked for, or a share of what memory is available.
pub fn budget_bytes(asked: Option<u64>) -> u64 {
    let share = |bytes: u64| (bytes as f64 * DEFAULT_SHARE) as u64;
    asked.unwrap_or_else(|| memory::available_bytes().map_or(u64::MAX, share))
}

/// Shared by the workers and whoever stops them.
#[derive(Debug)]
pub struct Brake {
    /// Whether workers must look at `state` before they go on.
    held: AtomicBool,
    state: Mutex<State>,
    changed: Condvar,
    left_bytes: AtomicU64,
    deadline: Option<Instant>,
    began: Instant,
    /// When a worker was seen last, microseconds since `began`.
    seen_us: AtomicU64,
    /// How long tasks have waited for memory since boot, where the kernel tells. Tests have their own.
    stalled: fn() -> Option<Duration>,
}

#[derive(Debug, Default)]
struct State {
    stopped: Option<(Reason, Instant)>,
    paused: bool,
    working: usize,
}

/// Tells the brake when a worker has ended, however it ends.
#[derive(Debug)]
pub struct Working<'a>(&'a Brake);

impl Drop for Working<'_> {
    fn drop(&mut self) {
        self.0.lock().working -= 1;
        self.0.changed.notify_all();
    }
}

impl Brake {
    /// Off, with this much to spend.
    pub fn new(budget_bytes: u64, deadline: Option<Instant>) -> Brake {
        Brake {
            held: AtomicBool::new(false),
            state: Mutex::default(),
            changed: Condvar::new(),
            left_bytes: AtomicU64::new(budget_bytes),
            deadline,
            began: Instant::now(),
            seen_us: AtomicU64::new(0),
            stalled: stalled_by_memory,
        }
    }

    /// No state is ever left half changed: what a panicking thread leaves can be used.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// For workers, before each piece of work: returns at once, or when a pause is over, or with the reason to stop.
    pub fn check(&self) -> Result<(), Reason> {
        let now = Instant::now();
        self.seen_us.store((now - self.began).as_micros() as u64, Ordering::Relaxed);
        if self.deadline.is_some_and(|deadline| now >= deadline) {
            self.stop(Reason::Deadline);
        }
        if !self.held.load(Ordering::Acquire) {
            return Ok(());
        }
        let mut state = self.lock();
        while state.paused && state.stopped.is_none() {
            state = self.changed.wait(state).unwrap_or_else(|poisoned| poisoned.into_inner());
        }
        state.stopped.map_or(Ok(()), |(reason, _)| Err(reason))
    }

    /// When a worker last came by, or the fetch began.
    pub fn last_seen(&self) -> Instant {
        self.began + Duration::from_micros(self.seen_us.load(Ordering::Relaxed))
    }

    /// Why and when it was stopped, if it was.
    pub fn stopped(&self) -> Option<(Reason, Instant)> {
        // Asked for every page that is waited for.
        self.held.load(Ordering::Acquire).then(|| self.lock().stopped).flatten()
    }

    /// Takes bytes from the budget; `false`: there are not that many left.
    pub fn take(&self, bytes: u64) -> bool {
        let less = |left: u64| left.checked_sub(bytes);
        self.left_bytes.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less).is_ok()
    }

    /// Stops all workers for good. The first reason stays.
    pub fn stop(&self, reason: Reason) {
        self.lock().stopped.get_or_insert((reason, Instant::now()));
        self.held.store(true, Ordering::Release);
        self.changed.notify_all();
    }

    /// Stops all workers if the time is over.
    pub fn look_at_clock(&self) {
        if self.deadline.is_some_and(|deadline| Instant::now() >= deadline) {
            self.stop(Reason::Deadline);
        }
    }

    /// Holds the workers, or lets them go on.
    pub fn pause(&self, paused: bool) {
        let mut state = self.lock();
        if state.paused != paused {
            state.paused = paused;
            self.held.store(paused || state.stopped.is_some(), Ordering::Release);
            self.changed.notify_all();
        }
    }

    /// To be called for each worker before it is started; the worker keeps what this gives until it ends.
    pub fn working(&self) -> Working<'_> {
        self.lock().working += 1;
        Working(self)
    }

    /// Waits until no worker works, and meanwhile looks at the clock and at the machine's memory. `paused` is called when a
    /// pause lasts: at the second look, and the later ones, in a row that find the machine short of memory.
    pub fn watch(&self, paused: impl Fn()) {
        let mut was_short = false;
        let mut before = (Instant::now(), (self.stalled)());
        let mut state = self.lock();
        while state.working > 0 {
            let (next, timeout) =
                self.changed.wait_timeout(state, INTERVAL).unwrap_or_else(|poisoned| poisoned.into_inner());
            state = next;
            if !timeout.timed_out() {
                continue;
            }
            drop(state);
            self.look_at_clock();
            let now = (Instant::now(), (self.stalled)());
            if let (Some(then), Some(stalled)) = (before.1, now.1) {
                let share = stalled.saturating_sub(then).as_secs_f64() / (now.0 - before.0).as_secs_f64();
                let is_short = share > PAUSE_SHARE;
                self.pause(is_short);
                if is_short && was_short {
                    paused();
                }
                was_short = is_short;
            }
            before = now;
            state = self.lock();
        }
    }
}

/// How long tasks have waited for memory, where the kernel tells.
fn stalled_by_memory() -> Option<Duration> {
    pressure::some(Resource::Memory).ok().map(|pressure| pressure.total)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_budget_is_never_overdrawn() {
        let brake = Brake::new(10_000, None);
        assert!(brake.take(6000));
        assert!(!brake.take(6000));
        assert!(brake.take(4000));
        assert!(!brake.take(1));
        assert!(brake.take(0));
    }

    #[test]
    fn a_stop_reaches_workers_that_are_paused_and_keeps_its_first_reason() {
        let brake = Brake::new(0, None);
        brake.pause(true);
        std::thread::scope(|scope| {
            let worker = scope.spawn(|| brake.check());
            brake.stop(Reason::Cancelled);
            brake.stop(Reason::Deadline);
            assert_eq!(worker.join().unwrap(), Err(Reason::Cancelled));
        });
        brake.pause(false);
        assert_eq!(brake.check(), Err(Reason::Cancelled));
    }

    #[test]
    fn a_worker_hears_of_the_deadline_from_its_own_look() {
        assert_eq!(Brake::new(0, Some(Instant::now())).check(), Err(Reason::Deadline));
        assert_eq!(Brake::new(0, Some(Instant::now() + Duration::from_secs(3600))).check(), Ok(()));
    }

    /// Regression: the worker of this test looked at the clock itself, and it passed without a look of who watches.
    #[test]
    fn who_watches_stops_a_worker_that_does_not_look_at_the_clock() {
        let brake = Brake::new(0, Some(Instant::now()));
        std::thread::scope(|scope| {
            let working = brake.working();
            scope.spawn(|| {
                let _working = working;
                let patience = Instant::now() + INTERVAL * 200;
                while brake.stopped().is_none() && Instant::now() < patience {
                    std::thread::yield_now();
                }
            });
            brake.watch(|| ());
        });
        assert_eq!(brake.stopped().map(|(reason, _)| reason), Some(Reason::Deadline));
    }

    /// Regression: the program waited for its head start until the machine had memory again.
    #[test]
    fn whoever_waits_is_told_of_a_pause_and_the_deadline_ends_it() {
        static MEMORY_US: AtomicU64 = AtomicU64::new(0);
        // Each look finds a second more.
        let stalled = || Some(Duration::from_micros(MEMORY_US.fetch_add(1_000_000, Ordering::Relaxed)));
        let brake = Brake { stalled, ..Brake::new(0, Some(Instant::now() + INTERVAL * 3)) };
        let paused = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let working = brake.working();
            let worker = scope.spawn(|| {
                let _working = working;
                let patience = Instant::now() + INTERVAL * 200;
                while !paused.load(Ordering::Relaxed) && Instant::now() < patience {
                    std::thread::yield_now();
                }
                brake.check()
            });
            brake.watch(|| paused.store(true, Ordering::Relaxed));
            assert_eq!(worker.join().unwrap(), Err(Reason::Deadline));
            assert!(paused.load(Ordering::Relaxed));
        });
    }
}
