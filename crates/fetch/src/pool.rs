//! The threads of a prefetch, which waits for its work, but for no device that does not answer.
//!
//! ```text
//!     waiting   d7 d8 d9 …                        a thread for each device first
//!     at work   d1 ████  d2 █  d3 █  d4 ▒▒▒▒      the remaining threads help devices with more work
//!                                    ╰── d4 has not answered for 2 s: the program does not wait for it
//!                                        30 s: given up, its bytes are skipped
//! ```
//!
//! The kernel does not end a thread that waits for a device: such a thread is left behind, and its device has a limited number of them. If the
//! device answers later, its threads continue, unless the device was given up. If all threads are left behind, the other devices are given up, too.
//!
//! If the system refuses a thread (`ulimit -u`, a control group), there is one worker less. If there is no thread at all, the
//! calling thread does the work. A caller may limit the threads of the process; at a limit of two the calling thread does all the work.

#[cfg(all(test, feature = "shuttle"))]
mod schedules;
#[cfg(all(test, not(feature = "shuttle")))]
mod tests;

use crate::before_request;
use crate::brake::{Brake, LOOK_INTERVAL, Stop};
use crate::workers::{Job, Start, Workers};
use ahead_model::DeviceNumber;
use ahead_sys::tasks;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
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

/// Time between two looks whether others still go first.
const PAUSED_LOOK: Duration = Duration::from_millis(2);

/// Threads of a limited process that are no workers: that of the caller, which watches, and that of the prefetch.
const OTHER_THREADS: usize = 2;

/// The work on a device, which is given by its index.
type Work = Arc<dyn Fn(usize) + Send + Sync>;

fn start(name: &'static str, work: Job) -> io::Result<()> {
    std::thread::Builder::new().name(name.into()).spawn(work).map(drop)
}

/// For a limit that leaves no thread for workers.
fn refuse(_name: &'static str, _work: Job) -> io::Result<()> {
    Err(io::ErrorKind::QuotaExceeded.into())
}

/// The threads of a prefetch, and the state of its devices, which are indices here.
#[derive(Debug)]
pub struct WorkerPool {
    devices: Vec<Device>,
    began: Instant,
    workers: Arc<Workers<Job, usize>>,
    brake: Arc<Brake>,
    /// Maximum number of workers.
    most: usize,
    /// Maximum number of workers of a device.
    most_of_device: usize,
    has_panicked: AtomicBool,
}

#[derive(Debug)]
struct Device {
    /// `None`: unknown.
    number: Option<DeviceNumber>,
    /// When one of its threads last made progress, microseconds since the pool began.
    seen_us: AtomicU64,
    given_up: AtomicBool,
    /// The program waits for its head start.
    holds: AtomicBool,
}

impl Drop for WorkerPool {
    fn drop(&mut self) {
        self.workers.end(|_| false);
    }
}

/// Work on a device, until it is dropped: at its end, also by a panic.
struct AtWork<'a> {
    pool: &'a WorkerPool,
    device: usize,
}

impl Drop for AtWork<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.pool.has_panicked.store(true, Ordering::Release);
            self.pool.release(self.device);
        }
    }
}

impl WorkerPool {
    /// A pool for devices with these numbers, as far as known. The program waits for all of them, since `began`. `most_of_device`: threads that one
    /// device gets; `threads`: the maximum for the process.
    pub fn new(
        devices: impl IntoIterator<Item = Option<DeviceNumber>>,
        began: Instant,
        most_of_device: usize,
        threads: Option<usize>,
        brake: Arc<Brake>,
    ) -> WorkerPool {
        let workers = threads.map_or(MOST_THREADS, |threads| threads.saturating_sub(OTHER_THREADS).min(MOST_THREADS));
        let start = if workers == 0 { refuse } else { start };
        let pool = WorkerPool::with_start(devices, began, most_of_device, workers, brake, start);
        if pool.devices.len() > FEW {
            pool.look_at_limits();
        }
        pool
    }

    fn with_start(
        devices: impl IntoIterator<Item = Option<DeviceNumber>>,
        began: Instant,
        most_of_device: usize,
        workers: usize,
        brake: Arc<Brake>,
        start: Start,
    ) -> WorkerPool {
        // At least one: the calling thread, if it does the work.
        let most = workers.max(1);
        let device = |number| Device { number, seen_us: 0.into(), given_up: false.into(), holds: true.into() };
        let devices = devices.into_iter().map(device).collect();
        let workers = Workers::with_start("ahead-worker", most.min(FEW), start, |job: Job| job());
        WorkerPool { devices, began, workers, brake, most, most_of_device, has_panicked: false.into() }
    }

    /// Reads the system's limits of threads.
    pub fn look_at_limits(&self) {
        self.workers.limit((tasks::room() / SHARE_OF_ROOM).clamp(1, self.most as u64) as usize);
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

    /// To be called by its threads before each request of a device. Returns at once, after a pause, or with the reason to stop.
    pub fn check(&self, device: usize) -> Result<(), Stop> {
        self.see(device);
        if self.is_given_up(device) {
            return Err(Stop::NotAnswering);
        }
        // Before the request asks: this pause ends when the prefetch is stopped.
        while self.devices[device].number.is_some_and(before_request::is_paused) {
            self.brake.rest(PAUSED_LOOK)?;
            self.see(device);
        }
        self.brake.check()
    }

    /// Whether the device was given up.
    pub fn is_given_up(&self, device: usize) -> bool {
        self.devices[device].given_up.load(Ordering::Acquire)
    }

    /// Whether any device was given up, or still has threads at work.
    pub fn is_incomplete(&self) -> bool {
        (0..self.devices.len()).any(|device| self.is_given_up(device)) || !self.at_work().is_empty()
    }

    /// Whether a thread has panicked.
    pub fn has_panicked(&self) -> bool {
        self.has_panicked.load(Ordering::Acquire)
    }

    /// Records that the program does not wait for this device any more.
    pub fn release(&self, device: usize) {
        self.devices[device].holds.store(false, Ordering::Release);
    }

    /// Whether the program waits for any device.
    pub fn holds(&self) -> bool {
        self.devices.iter().any(|device| device.holds.load(Ordering::Acquire))
    }

    fn job(self: &Arc<WorkerPool>, device: usize, work: &Work) -> Job {
        let (pool, work) = (self.clone(), work.clone());
        Box::new(move || {
            pool.see(device);
            let _at_work = AtWork { pool: &pool, device };
            work(device);
        })
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
        // After the work of the last stage on this device.
        self.workers.run_or_wait(devices.into_iter().map(|device| (device, 1, self.job(device, &work))));
        while !enough() {
            let threads = self.workers.call();
            let (ended, ready, running, is_answered) = self.workers.look(|lanes, _| {
                let is_answered = lanes.at_work().any(|device| !self.is_given_up(device));
                (lanes.ended(), lanes.ready(), lanes.running(), is_answered)
            });
            if !is_answered {
                if ready == 0 {
                    break;
                }
                if running == 0 && threads == 0 {
                    self.workers.perform_here();
                    continue;
                }
                if running >= threads {
                    // There is no thread for these devices, and there will be none.
                    self.waiting().into_iter().for_each(|device| self.give_up(device));
                    break;
                }
            }
            self.workers.wait_while(LOOK_INTERVAL, |lanes, _| lanes.ended() == ended);
        }
        self.workers.retain(|_, _| false);
    }

    /// The devices of which no thread works yet.
    fn waiting(&self) -> Vec<usize> {
        self.workers.look(|lanes, _| lanes.idle().collect())
    }

    /// The devices with threads at work.
    fn at_work(&self) -> Vec<usize> {
        self.workers.look(|lanes, _| lanes.at_work().collect())
    }

    /// Whether any device gets a thread, or has one that made progress recently.
    pub fn is_at_work(&self) -> bool {
        self.workers.look(|lanes, threads| {
            let running = lanes.running();
            let gets_thread = lanes.ready() > 0 && (running == 0 || running < threads);
            gets_thread || lanes.at_work().any(|device| self.still(device) < LONGEST_STILL)
        })
    }

    /// Lets up to `helpers` other threads do this work on a device when they are free, while the device's thread works.
    pub fn help(self: &Arc<WorkerPool>, device: usize, helpers: usize, work: Work) {
        self.workers.run_or_wait((0..helpers).map(|_| (device, self.most_of_device, self.job(device, &work))));
    }

    /// Waits, in the device's own thread, until no other thread works on the device, or the device was given up.
    pub fn join(&self, device: usize) {
        self.workers.retain(|of, _| of != device);
        self.workers.wait_while(Duration::MAX, |lanes, _| lanes.running_of(device) > 1 && !self.is_given_up(device));
    }

    /// Checks for devices that do not answer: the program no longer waits for them. Returns the devices to give up ([`Self::give_up`]).
    pub fn look(&self) -> Vec<usize> {
        let is_still = |device: &usize| self.still(*device) >= LONGEST_STILL && !self.is_given_up(*device);
        let mut still = self.at_work();
        for device in &still {
            let lets_others_go = self.devices[*device].number.is_some_and(before_request::is_paused);
            if lets_others_go {
                // The program must not wait for them, too.
                self.release(*device);
            }
            if lets_others_go || self.brake.is_paused() {
                // Paused threads must not count as blocked.
                self.see(*device);
                self.brake.see(Instant::now());
            }
        }
        still.retain(is_still);
        still.iter().for_each(|device| self.release(*device));
        if self.began.elapsed() >= LONGEST_STILL && self.holds() {
            self.waiting().into_iter().for_each(|device| self.release(device));
        }
        still.retain(|device| self.still(*device) >= NOT_ANSWERING);
        still
    }

    /// Ends the threads without work, and waits for their end: the process may be limited in its threads.
    pub fn end(&self) {
        self.workers.end(|_| false);
        self.workers.wait_while(Duration::MAX, |lanes, threads| threads > lanes.running());
    }

    /// Gives up a device: no further work is done on it, and its threads end when it answers.
    pub fn give_up(&self, device: usize) {
        self.devices[device].given_up.store(true, Ordering::Release);
        self.workers.wake();
    }
}

/// For tests: devices without numbers.
#[cfg(test)]
fn unknown(devices: usize) -> impl Iterator<Item = Option<DeviceNumber>> {
    std::iter::repeat_n(None, devices)
}

/// For tests: nothing stops or pauses.
#[cfg(test)]
fn brake() -> Arc<Brake> {
    Arc::new(Brake::new(crate::Limit::default(), None, Instant::now()))
}
