//! Threads for calls that may block on a device: a limited number, and none while there is nothing to do.
//!
//! ```text
//!     run ──▶ lane of the device ──▶ workers: few for one device, a limited number for all ──▶ perform(job)
//!                                       ╰── ends after five seconds without work
//! ```
//!
//! A device that does not answer keeps the workers of its lane; the others serve the other devices. The threads are detached, because a worker that
//! waits for such a device cannot be ended.

use crate::lanes::Lanes;
use ahead_model::DeviceNumber;
use ahead_sys::background;
use ahead_sys::fork_count::PerProcess;
#[cfg(all(test, feature = "shuttle"))]
use shuttle::sync::{Condvar, Mutex, MutexGuard};
use std::io;
use std::sync::{Arc, PoisonError};
#[cfg(not(all(test, feature = "shuttle")))]
use std::sync::{Condvar, Mutex, MutexGuard};
use std::time::Duration;

/// Threads of a process for its readers: two for each of four devices at work.
const THREADS: usize = 8;

/// How long a worker waits for work before it ends. Readers pause for less while a program computes.
const IDLE: Duration = Duration::from_secs(5);

/// Work of any kind.
pub type Job = Box<dyn FnOnce() + Send>;

/// Starts a thread. Tests replace it by a function that refuses.
type Start = fn(&'static str, Job) -> io::Result<()>;

struct State<J> {
    lanes: Lanes<J>,
    threads: usize,
    has_ended: bool,
}

/// A limited number of workers for all devices.
pub struct Workers<J> {
    name: &'static str,
    most_threads: usize,
    start: Start,
    perform: Box<dyn Fn(J) + Send + Sync>,
    state: Mutex<State<J>>,
    work: Condvar,
}

impl Workers<Job> {
    /// The workers of this process for its readers, made again in a child of fork(2).
    pub fn global() -> &'static Arc<Workers<Job>> {
        static GLOBAL: PerProcess<Arc<Workers<Job>>> = PerProcess::new();
        GLOBAL.get(|| Workers::new("ahead-io", THREADS, |job: Job| job()))
    }
}

impl<J: Send + 'static> Workers<J> {
    /// No worker yet. `name`: of each thread; `perform`: does the work.
    pub fn new(
        name: &'static str,
        most_threads: usize,
        perform: impl Fn(J) + Send + Sync + 'static,
    ) -> Arc<Workers<J>> {
        Workers::with_start(name, most_threads, background::spawn, perform)
    }

    fn with_start(
        name: &'static str,
        most_threads: usize,
        start: Start,
        perform: impl Fn(J) + Send + Sync + 'static,
    ) -> Arc<Workers<J>> {
        let state = State { lanes: Lanes::default(), threads: 0, has_ended: false };
        let (state, perform, work) = (Mutex::new(state), Box::new(perform), Condvar::new());
        Arc::new(Workers { name, most_threads, start, perform, state, work })
    }

    fn lock(&self) -> MutexGuard<'_, State<J>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether this many jobs can be queued for a device ([`Lanes::has_room`]).
    pub fn has_room(&self, device: DeviceNumber, count: usize) -> bool {
        self.lock().lanes.has_room(device, count)
    }

    /// Jobs of this kind that wait for a device.
    pub fn waiting(&self, device: DeviceNumber, counts: impl Fn(&J) -> bool) -> usize {
        self.lock().lanes.waiting(device, counts)
    }

    /// Queues a job for a device, of which at most `most_running` run at the same time. `Err`: no thread can be started, and none exists.
    pub fn run(self: &Arc<Workers<J>>, device: DeviceNumber, most_running: usize, job: J) -> Result<(), J> {
        let mut state = self.lock();
        state.lanes.push(device, most_running, job);
        self.start_worker(&mut state);
        if state.threads == 0
            && let Some(job) = state.lanes.take_back(device)
        {
            return Err(job);
        }
        drop(state);
        self.work.notify_one();
        Ok(())
    }

    /// As [`Workers::run`]; without a thread, the caller's thread performs the job.
    pub fn run_or_perform(self: &Arc<Workers<J>>, device: DeviceNumber, most_running: usize, job: J) {
        if let Err(job) = self.run(device, most_running, job) {
            (self.perform)(job);
        }
    }

    /// As [`Workers::run`]; without a thread, the job waits for another one, or for [`Workers::call`].
    pub fn run_or_wait(self: &Arc<Workers<J>>, device: DeviceNumber, most_running: usize, job: J) {
        self.lock().lanes.push(device, most_running, job);
        self.call();
    }

    /// Starts or wakes a worker if jobs wait for one.
    pub fn call(self: &Arc<Workers<J>>) {
        self.start_worker(&mut self.lock());
        self.work.notify_one();
    }

    /// Whether jobs wait, or a worker exists.
    pub fn is_active(&self) -> bool {
        let state = self.lock();
        state.threads > 0 || !state.lanes.are_empty()
    }

    /// Drops the jobs that wait and are not kept.
    pub fn retain(&self, keeps: impl Fn(&J) -> bool) {
        self.lock().lanes.retain(keeps);
    }

    /// Workers end when no job waits that is kept. Waits for none.
    pub fn end(&self, keeps: impl Fn(&J) -> bool) {
        let mut state = self.lock();
        state.has_ended = true;
        state.lanes.retain(keeps);
        drop(state);
        self.work.notify_all();
    }

    /// Starts a worker if fewer are free than jobs could run. The lock is held, so that each caller knows whether there is a worker.
    fn start_worker(self: &Arc<Workers<J>>, state: &mut State<J>) {
        // Workers that were started or woken and have not taken their job yet are free, too.
        let free = state.threads - state.lanes.running();
        if free >= state.lanes.ready() || state.threads >= self.most_threads {
            return;
        }
        let workers = self.clone();
        match (self.start)(self.name, Box::new(move || workers.serve())) {
            Ok(()) => state.threads += 1,
            Err(error) => tracing::debug!("no thread for read-ahead: {error}"),
        }
    }

    fn serve(&self) {
        let (mut state, mut has_waited) = (self.lock(), false);
        loop {
            if let Some((device, job)) = state.lanes.take() {
                drop(state);
                let performing = Performing { workers: self, device };
                (self.perform)(job);
                drop(performing);
                state = self.lock();
                state.lanes.done(device);
                has_waited = false;
            } else if has_waited || state.has_ended {
                state.threads -= 1;
                return;
            } else {
                let (next, waited) = self.work.wait_timeout(state, IDLE).unwrap_or_else(PoisonError::into_inner);
                (state, has_waited) = (next, waited.timed_out());
            }
        }
    }
}

impl<J> std::fmt::Debug for Workers<J> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Workers").field("name", &self.name).finish_non_exhaustive()
    }
}

/// A worker at work. One that panics ends, and its place is free again.
struct Performing<'a, J: Send + 'static> {
    workers: &'a Workers<J>,
    device: DeviceNumber,
}

impl<J: Send + 'static> Drop for Performing<'_, J> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let mut state = self.workers.lock();
            state.threads -= 1;
            state.lanes.done(self.device);
        }
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
        workers.run_or_wait(ONE, RUNNING, 3);
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
    fn worker_that_panics_leaves_its_place_to_another() {
        let (sender, receiver) = mpsc::channel();
        let perform = move |job: u32| if job == 0 { panic!("for the test") } else { sender.send(job).unwrap() };
        let workers = Workers::new("test", 1, perform);
        workers.run(ONE, 1, 0).unwrap();
        while workers.lock().threads > 0 {
            std::thread::yield_now();
        }
        workers.run(ONE, 1, 7).unwrap();
        assert_eq!(receiver.recv(), Ok(7));
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
