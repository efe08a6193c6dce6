//! Worker threads of one prefetcher, and the schedule that they share with it.
//!
//! ```text
//!     program ──hand_over()──▶ Mutex<State>: Schedule, Share of the budget ◀──next work, results── workers
//!             ──taken()─────▶ atomic count
//!     program ◀── next hand-over at which count? ── atomic
//! ```
//!
//! No system call is made while the lock is held, so that the program waits for a disk only if it wants to. The threads are those of
//! [`ahead_fetch::Workers`]: a job takes work from the schedule until there is none. One that waits for a server that does not answer ends when it is
//! answered.

use crate::prefetcher::{Item, lookup};
use ahead_fetch::{Budget, Share, Workers};
use ahead_policy::schedule::{Found, Limits, Outcomes, Schedule, Start, Work};
use ahead_sys::locks::IgnorePoison;
use ahead_sys::{fork_count, machine, reserve};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::Duration;

/// Workers, if the program gives no number. A worker waits for metadata, not for data: eight look up as many cold files in the same time as 16
/// threads of a data loader, which wait for both.
const DEFAULT_WORKERS: usize = 8;

/// Longest time without a request in which the program waits for the sweep of a rotating disk: a full queue (NCQ, 31 requests of about 8 ms) takes
/// a quarter of it. After that the disk, or a worker, is thought to hang.
const LONGEST_WAIT: Duration = Duration::from_secs(1);

/// Workers and schedule.
pub(crate) struct Pool {
    state: Mutex<State>,
    /// A job holds the pool. They all have one lane: the schedule knows the devices.
    workers: Arc<Workers<Arc<Pool>, ()>>,
    /// An item was requested.
    requested: Condvar,
    taken: AtomicU64,
    hand_over_at: AtomicU64,
    /// Items wait for their turn on a rotating disk.
    has_sweep: AtomicBool,
    /// [`fork_count::fork_count`] of the process that the threads belong to.
    process: u32,
    largest_workers: usize,
}

struct State {
    schedule: Schedule<Arc<Item>>,
    /// `None` before the first hand-over and after the end.
    share: Option<Share>,
    /// Jobs that take work, or will.
    jobs: usize,
    /// The most of them so far: as many are worth it again.
    most_jobs: usize,
    /// Jobs that may be waiting for a disk or a server.
    blocked: usize,
    /// The program waits for an item of a sweep.
    is_waited_for: bool,
    /// Requests so far.
    requests: u64,
    /// A sweep has made no progress while the program waited: it waits for none any more.
    has_hung: bool,
    is_closed: bool,
}

impl Pool {
    /// A pool for items from index `taken` on, without threads.
    pub(crate) fn new(taken: u64, threads: usize) -> Arc<Pool> {
        let state = State {
            schedule: Schedule::new(taken, machine::page_size()),
            share: None,
            jobs: 0,
            most_jobs: 0,
            blocked: 0,
            is_waited_for: false,
            requests: 0,
            has_hung: false,
            is_closed: false,
        };
        let largest_workers = if threads == 0 { DEFAULT_WORKERS } else { threads };
        Arc::new(Pool {
            state: Mutex::new(state),
            workers: Workers::new("ahead-prefetch", largest_workers, |pool: Arc<Pool>| pool.run()),
            requested: Condvar::new(),
            has_sweep: AtomicBool::new(false),
            taken: AtomicU64::new(taken),
            hand_over_at: AtomicU64::new(0),
            process: fork_count::fork_count(),
            largest_workers,
        })
    }

    /// Whether the threads belong to this process, and not to its parent.
    pub(crate) fn is_of_this_process(&self) -> bool {
        self.process == fork_count::fork_count()
    }

    /// The program has taken this number of items. Returns whether items are to be handed over.
    pub(crate) fn set_taken(&self, taken: u64) -> bool {
        self.taken.store(taken, Ordering::SeqCst);
        taken >= self.hand_over_at.load(Ordering::SeqCst)
    }

    /// Whether items wait for their turn on a rotating disk that answers.
    pub(crate) fn has_sweep(&self) -> bool {
        self.has_sweep.load(Ordering::Relaxed)
    }

    /// Whether this item waits for its turn on a rotating disk, or is being read there.
    pub(crate) fn is_in_sweep(&self, index: u64) -> bool {
        self.lock().schedule.is_in_sweep(index)
    }

    /// Waits until an item of a sweep was requested, if it is in one: a read out of turn would interrupt the sweep twice.
    pub(crate) fn wait_for(&self, index: u64) {
        let mut state = self.lock();
        while !state.is_closed && !state.has_hung && state.schedule.is_in_sweep(index) {
            let before = state.requests;
            state.is_waited_for = true;
            let (woken, timeout) = self.requested.wait_timeout(state, LONGEST_WAIT).ignore_poison();
            state = woken;
            state.has_hung = timeout.timed_out() && state.requests == before;
        }
        if state.has_hung {
            self.has_sweep.store(false, Ordering::Relaxed);
        }
        state.is_waited_for = false;
    }

    /// Hands the items before index `end` over that were not. Returns how many are worth handing over next time.
    pub(crate) fn hand_over<'a>(
        self: &Arc<Self>,
        budget: &Budget,
        limits: Limits,
        end: u64,
        item_at: impl Fn(u64) -> Option<&'a Item>,
    ) -> u64 {
        let mut state = self.lock();
        if state.is_closed {
            return 0;
        }
        let State { schedule, share, .. } = &mut *state;
        let share = share.get_or_insert_with(|| budget.register());
        schedule.take(self.taken.load(Ordering::SeqCst), share);
        schedule.set_limits(Limits { bytes: limits.bytes.min(share.limit_bytes()), ..limits });
        // Without memory for its path an item is not read ahead.
        let path_of = |index| {
            let item = item_at(index).filter(|_| !reserve::is_low())?;
            Item::try_new(&item.path, item.range.clone()).ok().map(Arc::new)
        };
        schedule.hand_over(end, path_of);
        let has_more = schedule.has_more(share);
        let look_ahead = schedule.look_ahead();
        self.hand_over_at.store(schedule.next_hand_over(), Ordering::SeqCst);
        if has_more && (state.jobs < state.most_jobs || state.blocked == state.jobs) {
            self.call_worker(state);
        }
        look_ahead
    }

    /// Outcomes of the items so far.
    pub(crate) fn outcomes(&self) -> Outcomes {
        let mut state = self.lock();
        self.count_taken(&mut state);
        state.schedule.outcomes()
    }

    /// Ends the workers and gives the budget back, without waiting for either.
    pub(crate) fn close(&self) {
        // A thread of the parent may have held the lock during the fork. In the child the share holds nothing of the budget.
        if !self.is_of_this_process() {
            return;
        }
        let mut state = self.lock();
        state.is_closed = true;
        self.count_taken(&mut state);
        let share = state.share.take();
        drop(state);
        drop(share);
        self.workers.end(|_| false);
    }

    fn count_taken(&self, state: &mut State) {
        let State { schedule, share, .. } = state;
        if let Some(share) = share {
            schedule.take(self.taken.load(Ordering::SeqCst), share);
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().ignore_poison()
    }

    /// Has another worker take work.
    fn call_worker(self: &Arc<Self>, mut state: MutexGuard<'_, State>) {
        if state.jobs >= self.largest_workers {
            return;
        }
        state.jobs += 1;
        state.most_jobs = state.most_jobs.max(state.jobs);
        drop(state);
        if self.workers.run((), self.largest_workers, Arc::clone(self)).is_err() {
            // Without threads nothing is read ahead; the program reads its items itself.
            self.lock().jobs -= 1;
        }
    }

    /// A job: takes work until there is none.
    fn run(self: Arc<Self>) {
        let mut state = self.lock();
        while !state.is_closed
            && let Some(start) = self.next_work(&mut state)
        {
            drop(state);
            let result = self.perform(&start);
            state = self.lock();
            state.blocked -= usize::from(result.was_blocked());
            match result {
                Done::LookedUp { found, .. } => state.schedule.looked_up(start.index, found),
                Done::Requested(bytes) => {
                    state.schedule.requested(start.index, bytes);
                    state.requests += 1;
                    if state.is_waited_for {
                        self.requested.notify_one();
                    }
                }
            }
        }
        state.jobs -= 1;
    }

    fn next_work(&self, state: &mut State) -> Option<Start<Arc<Item>>> {
        let State { schedule, share, has_hung, .. } = state;
        let share = share.as_mut()?;
        let mut taken = self.taken.load(Ordering::SeqCst);
        loop {
            schedule.take(taken, share);
            let start = schedule.next(share);
            self.has_sweep.store(schedule.has_sweep() && !*has_hung, Ordering::Relaxed);
            let hand_over_at = schedule.next_hand_over();
            self.hand_over_at.store(hand_over_at, Ordering::SeqCst);
            // Either the program sees the new count for its next hand-over, or this thread sees the items that the program has taken since.
            let before = std::mem::replace(&mut taken, self.taken.load(Ordering::SeqCst));
            if start.is_some() || taken == before || taken < hand_over_at {
                return start;
            }
        }
    }

    fn perform(self: &Arc<Self>, start: &Start<Arc<Item>>) -> Done {
        match start.work {
            Work::LookUp => {
                let mut was_blocked = false;
                let found = lookup::look_up(&start.path, || {
                    was_blocked = true;
                    self.about_to_block();
                });
                Done::LookedUp { found, was_blocked }
            }
            Work::ReadAhead { bytes } => {
                self.about_to_block();
                // The item in use is still worth it, a consumed one is not.
                let goes_on = || self.taken.load(Ordering::SeqCst) <= start.index + 1;
                Done::Requested(lookup::read_ahead(&start.path, bytes, goes_on))
            }
        }
    }

    /// The calling worker may wait: another one takes over if there is more to do.
    fn about_to_block(self: &Arc<Self>) {
        let mut state = self.lock();
        state.blocked += 1;
        let State { schedule, share, .. } = &mut *state;
        if share.as_mut().is_some_and(|share| schedule.has_more(share)) {
            self.call_worker(state);
        }
    }
}

enum Done {
    LookedUp { found: Found, was_blocked: bool },
    Requested(Option<u64>),
}

impl Done {
    fn was_blocked(&self) -> bool {
        match self {
            Done::LookedUp { was_blocked, .. } => *was_blocked,
            Done::Requested(_) => true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread;

    impl Pool {
        /// The pool of a parent process as its child of fork sees it, at worst: a thread that does not exist holds the lock.
        pub(crate) fn of_parent(taken: u64) -> Arc<Pool> {
            let mut pool = Arc::into_inner(Pool::new(taken, 1)).unwrap();
            pool.process = pool.process.wrapping_sub(1);
            std::mem::forget(pool.lock());
            Arc::new(pool)
        }
    }

    #[test]
    fn idle_workers_end_when_the_pool_is_closed() {
        let pool = Pool::new(0, 3);
        let items: Vec<Item> = (0..50).map(|n| format!("/absent/{n}").as_str().into()).collect();
        let limits = Limits { items: 4096, bytes: 1 << 20 };
        pool.set_taken(1);
        pool.hand_over(&Budget::new(1 << 20), limits, 50, |index| items.get(index as usize));
        pool.close();
        assert_eq!(pool.hand_over(&Budget::new(1), limits, 60, |_| None), 0);
        while pool.workers.is_active() {
            thread::yield_now();
        }
    }

    /// A pool whose item 1 is being read on a rotating disk, by a worker that the test plays.
    fn sweeping_pool() -> Arc<Pool> {
        let pool = Pool::new(1, 1);
        let mut state = pool.lock();
        let mut share = Budget::new(1 << 20).register();
        state.schedule.set_limits(Limits { items: 10, bytes: 1 << 20 });
        state.schedule.hand_over(2, |_| Some(Arc::new("/absent".into())));
        assert_eq!(state.schedule.next(&mut share).unwrap().work, Work::LookUp);
        let place = ahead_policy::schedule::Place { device: 1, is_rotating: true, position: 0 };
        state.schedule.looked_up(1, Found::Absent { bytes: 4096, place });
        state.share = Some(share);
        assert_eq!(pool.next_work(&mut state).unwrap().index, 1);
        drop(state);
        assert!(pool.has_sweep() && pool.is_in_sweep(1));
        pool
    }

    #[test]
    fn program_waits_for_its_item_of_a_sweep_and_once_for_a_disk_that_hangs() {
        let pool = sweeping_pool();
        thread::scope(|scope| {
            let program = scope.spawn(|| pool.wait_for(1));
            while !pool.lock().is_waited_for {
                thread::yield_now();
            }
            let mut state = pool.lock();
            state.schedule.requested(1, Some(4096));
            state.requests += 1;
            pool.requested.notify_one();
            drop(state);
            program.join().unwrap();
        });
        assert!(!pool.lock().has_hung && !pool.is_in_sweep(1));
        let pool = sweeping_pool();
        pool.wait_for(1);
        assert!(pool.lock().has_hung && !pool.has_sweep() && pool.is_in_sweep(1));
        assert!(pool.next_work(&mut pool.lock()).is_none() && !pool.has_sweep());
    }
}
