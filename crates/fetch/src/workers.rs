//! Threads for calls that may block on a device: a limited number, and none while there is nothing to do.
//!
//! ```text
//!     run ──▶ lane of the device ──▶ workers: few for one device, a limited number for all ──▶ perform(job)
//!                                       ╰── ends after five seconds without work
//! ```
//!
//! A device that does not answer keeps the workers of its lane; the others serve the other devices. The threads are detached, because a worker that
//! waits for such a device cannot be ended. One whose job panics goes on.

use crate::lanes::Lanes;
use ahead_model::DeviceNumber;
use ahead_sys::background;
use ahead_sys::fork_count::PerProcess;
use ahead_sys::locks::IgnorePoison;
#[cfg(all(test, feature = "shuttle"))]
use shuttle::sync::{Condvar, Mutex, MutexGuard};
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
#[cfg(not(all(test, feature = "shuttle")))]
use std::sync::{Condvar, Mutex, MutexGuard};
use std::time::Duration;

/// Threads of a process for its readers: two for each of 16 devices that are at work, or do not answer.
const THREADS: usize = 32;

/// How long a worker waits for work before it ends. Readers pause for less while a program computes.
const IDLE: Duration = Duration::from_secs(5);

/// Work of any kind.
pub type Job = Box<dyn FnOnce() + Send>;

/// Starts a thread. Tests replace it by a function that refuses.
pub(crate) type Start = fn(&'static str, Job) -> io::Result<()>;

struct State<J, K> {
    lanes: Lanes<J, K>,
    threads: usize,
    most_threads: usize,
    /// Callers that wait for the end of jobs.
    watchers: usize,
    has_ended: bool,
}

/// A limited number of workers for all devices. `K`: what a device is known by.
pub struct Workers<J, K = DeviceNumber> {
    name: &'static str,
    start: Start,
    perform: Box<dyn Fn(J) + Send + Sync>,
    state: Mutex<State<J, K>>,
    work: Condvar,
    /// A job has ended, for [`Workers::wait_while`].
    ended: Condvar,
}

impl Workers<Job> {
    /// The workers of this process for its readers, made again in a child of fork(2).
    pub fn global() -> &'static Arc<Workers<Job>> {
        static GLOBAL: PerProcess<Arc<Workers<Job>>> = PerProcess::new();
        GLOBAL.get(|| Workers::new("ahead-io", THREADS, |job: Job| job()))
    }
}

impl<J: Send + 'static, K: Copy + Eq + Send + 'static> Workers<J, K> {
    /// No worker yet. `name`: of each thread; `perform`: does the work.
    pub fn new(
        name: &'static str,
        most_threads: usize,
        perform: impl Fn(J) + Send + Sync + 'static,
    ) -> Arc<Workers<J, K>> {
        Workers::with_start(name, most_threads, background::spawn, perform)
    }

    pub(crate) fn with_start(
        name: &'static str,
        most_threads: usize,
        start: Start,
        perform: impl Fn(J) + Send + Sync + 'static,
    ) -> Arc<Workers<J, K>> {
        let state = State { lanes: Lanes::default(), threads: 0, most_threads, watchers: 0, has_ended: false };
        let (state, perform) = (Mutex::new(state), Box::new(perform));
        Arc::new(Workers { name, start, perform, state, work: Condvar::new(), ended: Condvar::new() })
    }

    fn lock(&self) -> MutexGuard<'_, State<J, K>> {
        self.state.lock().ignore_poison()
    }

    /// Whether this many jobs can be queued for a device ([`Lanes::has_room`]).
    pub fn has_room(&self, device: K, count: usize) -> bool {
        self.lock().lanes.has_room(device, count)
    }

    /// Jobs of this kind that wait for a device.
    pub fn waiting(&self, device: K, counts: impl Fn(&J) -> bool) -> usize {
        self.lock().lanes.waiting(device, counts)
    }

    /// Queues a job for a device, which begins when less than `most_running` run for it. `Err`: no thread can be started, and none exists.
    pub fn run(self: &Arc<Self>, device: K, most_running: usize, job: J) -> Result<(), J> {
        let mut state = self.lock();
        state.lanes.push(device, most_running, job);
        let ready = self.start_workers(&mut state);
        if state.threads == 0
            && let Some(job) = state.lanes.take_back(device)
        {
            return Err(job);
        }
        drop(state);
        self.wake_workers(ready);
        Ok(())
    }

    /// As [`Workers::run`]; without a thread, the caller's thread performs the job.
    pub fn run_or_perform(self: &Arc<Self>, device: K, most_running: usize, job: J) {
        if let Err(job) = self.run(device, most_running, job) {
            (self.perform)(job);
        }
    }

    /// As [`Workers::run`]; without a thread, the job waits for another one, for [`Workers::call`] or [`Workers::perform_here`].
    pub fn run_or_wait(self: &Arc<Self>, jobs: impl IntoIterator<Item = (K, usize, J)>) {
        let mut state = self.lock();
        jobs.into_iter().for_each(|(device, most_running, job)| state.lanes.push(device, most_running, job));
        let ready = self.start_workers(&mut state);
        drop(state);
        self.wake_workers(ready);
    }

    /// Starts or wakes workers if jobs wait for one. Returns how many exist.
    pub fn call(self: &Arc<Self>) -> usize {
        let mut state = self.lock();
        let (ready, threads) = (self.start_workers(&mut state), state.threads);
        drop(state);
        self.wake_workers(ready);
        threads
    }

    /// Performs a job that waits in the caller's thread. `false`: there is none.
    pub fn perform_here(&self) -> bool {
        self.perform_next(self.lock()).1
    }

    /// Whether jobs wait, or a worker exists.
    pub fn is_active(&self) -> bool {
        let state = self.lock();
        state.threads > 0 || !state.lanes.are_empty()
    }

    /// A view of what waits and runs, and the number of workers.
    pub(crate) fn look<R>(&self, at: impl FnOnce(&Lanes<J, K>, usize) -> R) -> R {
        let state = self.lock();
        at(&state.lanes, state.threads)
    }

    /// Waits for the end of jobs while this holds, or until [`Workers::wake`] or for `longest`.
    pub(crate) fn wait_while(&self, longest: Duration, mut holds: impl FnMut(&Lanes<J, K>, usize) -> bool) {
        let mut state = self.lock();
        state.watchers += 1;
        let waited = self.ended.wait_timeout_while(state, longest, |state| holds(&state.lanes, state.threads));
        (state, _) = waited.ignore_poison();
        state.watchers -= 1;
    }

    /// Has [`Workers::wait_while`] look again.
    pub fn wake(&self) {
        let _state = self.lock();
        self.ended.notify_all();
    }

    /// Sets the largest number of workers. Those that exist stay.
    pub fn limit(&self, most_threads: usize) {
        self.lock().most_threads = most_threads;
    }

    /// Drops the jobs that wait and are not kept.
    pub fn retain(&self, keeps: impl Fn(K, &J) -> bool) {
        self.lock().lanes.retain(keeps);
    }

    /// Workers end when no job waits that is kept. Waits for none.
    pub fn end(&self, keeps: impl Fn(&J) -> bool) {
        let mut state = self.lock();
        state.has_ended = true;
        state.lanes.retain(|_, job| keeps(job));
        drop(state);
        self.work.notify_all();
    }

    /// Has all jobs performed, ends the workers, and waits for their end.
    pub fn finish(&self) {
        self.end(|_| true);
        self.wait_while(Duration::MAX, |_, threads| threads > 0);
    }

    /// Starts workers if fewer are free than jobs could run. The lock is held, so that each caller knows whether there is a worker. Returns how
    /// many jobs could run.
    fn start_workers(self: &Arc<Self>, state: &mut State<J, K>) -> usize {
        let ready = state.lanes.ready();
        loop {
            // Workers that were started or woken and have not taken their job yet are free, too. A job may run in a caller's thread.
            let free = state.threads.saturating_sub(state.lanes.running());
            if free >= ready || state.threads >= state.most_threads {
                break;
            }
            let workers = self.clone();
            match (self.start)(self.name, Box::new(move || workers.serve())) {
                Ok(()) => state.threads += 1,
                Err(error) => {
                    tracing::debug!("no thread for read-ahead: {error}");
                    break;
                }
            }
        }
        ready
    }

    fn wake_workers(&self, ready: usize) {
        match ready {
            0 => {}
            1 => self.work.notify_one(),
            _ => self.work.notify_all(),
        }
    }

    /// Performs the next job, if there is one.
    fn perform_next<'a>(&'a self, mut state: MutexGuard<'a, State<J, K>>) -> (MutexGuard<'a, State<J, K>>, bool) {
        let Some((device, job)) = state.lanes.take() else { return (state, false) };
        drop(state);
        // The panic has printed its message.
        let _ = catch_unwind(AssertUnwindSafe(|| (self.perform)(job)));
        let mut state = self.lock();
        state.lanes.done(device);
        self.note_end(&state);
        (state, true)
    }

    fn note_end(&self, state: &State<J, K>) {
        if state.watchers > 0 {
            self.ended.notify_all();
        }
    }

    fn serve(&self) {
        let (mut state, mut has_waited) = (self.lock(), false);
        loop {
            let (next, has_performed) = self.perform_next(state);
            state = next;
            if has_performed {
                has_waited = false;
            } else if has_waited || state.has_ended {
                state.threads -= 1;
                self.note_end(&state);
                return;
            } else {
                let (next, waited) = self.work.wait_timeout(state, IDLE).ignore_poison();
                (state, has_waited) = (next, waited.timed_out());
            }
        }
    }
}

impl<J, K> std::fmt::Debug for Workers<J, K> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Workers").field("name", &self.name).finish_non_exhaustive()
    }
}

#[cfg(all(test, not(feature = "shuttle")))]
mod tests {
    use super::*;
    use crate::lanes::RUNNING;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::sync::mpsc;

    const ONE: DeviceNumber = DeviceNumber::new(1, 1);
    const OTHER: DeviceNumber = DeviceNumber::new(2, 2);

    #[test]
    fn each_job_runs_once_beside_a_device_that_hangs() {
        let workers = Workers::new("test", THREADS, |job: Job| job());
        let (release, hung) = mpsc::channel::<()>();
        let hung = Arc::new(Mutex::new(hung));
        for _ in 0..10 {
            let hung = hung.clone();
            let wait = move || assert!(hung.lock().unwrap().recv().is_err());
            workers.run_or_perform(ONE, RUNNING, Box::new(wait));
        }
        let (sender, receiver) = mpsc::channel();
        for number in 0..100 {
            let sender = sender.clone();
            workers.run_or_perform(OTHER, RUNNING, Box::new(move || sender.send(number).unwrap()));
        }
        let mut numbers: Vec<i32> = (0..100).map(|_| receiver.recv().unwrap()).collect();
        numbers.sort_unstable();
        assert_eq!(numbers, (0..100).collect::<Vec<_>>());
        assert!(workers.lock().threads <= 2 * RUNNING);
        drop(release);
    }

    /// Regression: without a worker, the caller closed a descriptor of another program, which may wait for a file system.
    #[test]
    fn without_a_thread_the_caller_performs_the_job_or_it_waits_for_one() {
        static REFUSES: AtomicBool = AtomicBool::new(true);
        let start: Start = |name, work| match REFUSES.load(Ordering::Relaxed) {
            true => Err(io::ErrorKind::QuotaExceeded.into()),
            false => background::spawn(name, work),
        };
        let (sender, receiver) = mpsc::channel();
        let workers = Workers::with_start("test", THREADS, start, move |job| sender.send(job).unwrap());
        assert_eq!(workers.run(ONE, RUNNING, 1), Err(1));
        workers.run_or_perform(ONE, RUNNING, 2);
        workers.run_or_wait([(ONE, RUNNING, 3)]);
        workers.call();
        assert_eq!((receiver.try_iter().collect::<Vec<_>>(), workers.waiting(ONE, |job| *job == 3)), (vec![2], 1));
        assert!(workers.is_active());
        REFUSES.store(false, Ordering::Relaxed);
        workers.call();
        assert_eq!(receiver.recv(), Ok(3));
        workers.end(|_| false);
        while workers.is_active() {
            std::thread::yield_now();
        }
    }

    #[test]
    fn worker_goes_on_after_a_job_that_panics() {
        let (sender, receiver) = mpsc::channel();
        let perform = move |job: u32| if job == 0 { panic!("for the test") } else { sender.send(job).unwrap() };
        let workers = Workers::new("test", 1, perform);
        workers.run(ONE, 1, 0).unwrap();
        workers.run(ONE, 1, 7).unwrap();
        assert_eq!(receiver.recv(), Ok(7));
        assert_eq!(workers.lock().threads, 1);
    }
}

/// Run with `cargo test -p ahead-fetch --features shuttle`.
#[cfg(all(test, feature = "shuttle"))]
mod schedules {
    use super::*;
    use shuttle::sync::mpsc::channel;

    const SCHEDULES: usize = 2000;
    const SILENT: DeviceNumber = DeviceNumber::new(1, 1);
    const OTHER: DeviceNumber = DeviceNumber::new(2, 2);

    fn start(_name: &'static str, work: Job) -> io::Result<()> {
        shuttle::thread::spawn(work);
        Ok(())
    }

    /// Jobs for a device that does not answer before the jobs of the other one are done: it must not hold them up.
    fn run_beside_a_silent_device() {
        let (sender, done) = channel();
        let (answer, silent) = channel::<()>();
        let silent = Mutex::new(silent);
        let perform = move |job: u32| {
            if job == 0 {
                assert!(silent.lock().unwrap().recv().is_err());
            }
            sender.send(job).unwrap();
        };
        let workers = Workers::with_start("test", 3, start, perform);
        [0, 0].into_iter().for_each(|job| workers.run(SILENT, 1, job).unwrap());
        let another = workers.clone();
        let thread = shuttle::thread::spawn(move || another.run(OTHER, 2, 1).unwrap());
        [2, 3].into_iter().for_each(|job| workers.run(OTHER, 2, job).unwrap());
        let mut jobs: Vec<u32> = (0..3).map(|_| done.recv().unwrap()).collect();
        jobs.sort_unstable();
        assert_eq!(jobs, [1, 2, 3]);
        thread.join().unwrap();
        drop(answer);
        assert_eq!([done.recv(), done.recv()], [Ok(0), Ok(0)]);
        workers.end(|_| true);
    }

    /// The job that is kept is performed, and each worker ends: otherwise the checker reports a deadlock.
    fn end_with_a_job_that_is_kept() {
        let (sender, done) = channel();
        let workers = Workers::with_start("test", 2, start, move |job: u32| sender.send(job).unwrap());
        [1, 2].into_iter().for_each(|job| workers.run(OTHER, 1, job).unwrap());
        workers.end(|job| *job == 2);
        while done.recv().unwrap() != 2 {}
    }

    #[test]
    fn silent_device_holds_up_no_other_one_under_each_schedule() {
        shuttle::check_random(run_beside_a_silent_device, SCHEDULES);
        shuttle::check_pct(run_beside_a_silent_device, SCHEDULES, 3);
    }

    #[test]
    fn workers_end_after_what_is_kept_under_each_schedule() {
        shuttle::check_random(end_with_a_job_that_is_kept, SCHEDULES);
        shuttle::check_pct(end_with_a_job_that_is_kept, SCHEDULES, 3);
    }
}
