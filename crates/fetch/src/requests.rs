//! Requests of read-ahead into the page cache, which never block the caller.
//!
//! ```text
//!     readers ── will_need ──▶ queue of each device ──▶ one thread with an io_uring ──▶ threads of the kernel ──▶ FADV_WILLNEED
//!                full: false          (bounded)    ╰──▶ at most eight threads of this process, where io_uring is forbidden
//! ```
//!
//! FADV_WILLNEED waits while the queue of the device is full, and reads the file's metadata. So it is called by another thread, and a device that
//! hangs holds only its own places. A process that never reads ahead has no thread, ring or descriptor for it.

use crate::calls::{self, pieces};
use crate::lanes::{Lanes, RUNNING, RUNNING_ROTATING};
use crate::turns::{Turn, Turns};
use crate::workers::{Job, Workers};
use ahead_model::DeviceNumber;
use ahead_sys::background;
use ahead_sys::block;
use ahead_sys::direct::AlignedBuffer;
use ahead_sys::fork_count::PerProcess;
use ahead_sys::locks::IgnorePoison;
use ahead_sys::ring::Ring;
use rustix::event::{EventfdFlags, eventfd};
use std::fs::File;
use std::io::Write;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard};

/// Requests in the ring, with the one that wakes its thread. The kernel executes at most four for each processor at the same time.
const RING_DEPTH: u32 = 32;

/// Token of the read from the eventfd that wakes the thread. Other tokens are keys of device numbers, which are smaller.
const WAKE: u64 = u64::MAX - 1;

/// Devices whose properties are remembered: more file systems are rarely read at the same time.
const DEVICES: usize = 64;

/// A request, at most as long as the device's cap.
struct Request {
    file: Arc<File>,
    range: Range<u64>,
}

/// Calls the kernel. Errors are ignored: the reader that waits for the pages reads them itself, and gets the error.
fn read_ahead(file: &File, range: &Range<u64>) {
    if let Err(error) = calls::read_ahead(file, range) {
        tracing::debug!("{error}");
    }
}

/// How requests are executed.
enum Backend {
    NotStarted,
    Ring(Arc<RingQueue>),
    /// No io_uring: the workers.
    Threads,
}

/// The requests for the thread with the ring.
struct RingQueue {
    lanes: Mutex<Lanes<Request>>,
    /// Wakes the thread.
    wake: Arc<File>,
}

/// The requests of this process.
pub struct Requests {
    backend: Mutex<Backend>,
    workers: Arc<Workers<Job>>,
    devices: Mutex<Vec<Device>>,
}

/// What is known of a device.
#[derive(Clone)]
struct Device {
    number: DeviceNumber,
    cap_bytes: u64,
    /// `None`: the device does not seek.
    turns: Option<Arc<Turns>>,
}

impl Device {
    fn look_up(number: DeviceNumber) -> Device {
        let is_rotating = block::disk_setting(number, "rotational").is_some_and(|setting| setting == "1");
        let turns = is_rotating.then(|| Arc::new(Turns::default()));
        Device { number, cap_bytes: calls::cap_bytes(number), turns }
    }

    fn most_running(&self) -> usize {
        if self.turns.is_some() { RUNNING_ROTATING } else { RUNNING }
    }
}

impl Requests {
    /// The requests of this process, made again in a child of fork(2).
    pub fn global() -> &'static Requests {
        static GLOBAL: PerProcess<Requests> = PerProcess::new();
        GLOBAL.get(|| Requests::new(Backend::NotStarted, Workers::global().clone()))
    }

    fn new(backend: Backend, workers: Arc<Workers<Job>>) -> Requests {
        Requests { backend: Mutex::new(backend), workers, devices: Mutex::new(Vec::new()) }
    }

    /// Splits a range at the device's cap ([`Requests::cap_bytes`]) and queues it. `false`: the queue of the device is full, and nothing was
    /// queued; the caller asks again later.
    ///
    /// If no thread can be started, the caller's thread submits the requests.
    pub fn will_need(&self, file: &Arc<File>, device: DeviceNumber, range: Range<u64>) -> bool {
        let known = self.device(device);
        let (cap, most_running) = (known.cap_bytes, known.most_running());
        let count = range.end.saturating_sub(range.start).div_ceil(cap) as usize;
        let requests = pieces(&range, cap).map(|range| Request { file: file.clone(), range });
        match self.ring() {
            Some(ring) => ring.push(device, most_running, requests, count),
            None => {
                let has_room = self.workers.has_room(device, count);
                if has_room {
                    requests.for_each(|Request { file, range }| {
                        let job = Box::new(move || read_ahead(&file, &range));
                        self.workers.run_or_perform(device, most_running, job);
                    });
                }
                has_room
            }
        }
    }

    /// Calls the kernel in the caller's thread, which waits while the queue of the device is full. For pages that it needs at once.
    pub fn need_now(&self, file: &File, device: DeviceNumber, range: &Range<u64>) {
        pieces(range, self.cap_bytes(device)).for_each(|piece| read_ahead(file, &piece));
    }

    /// The longest range that the kernel reads ahead in one call on this device, bytes ([`calls::cap_bytes`]). Looked up once.
    pub fn cap_bytes(&self, device: DeviceNumber) -> u64 {
        self.device(device).cap_bytes
    }

    /// Whether an access of the device costs more the farther its head moves. Looked up once.
    pub fn is_rotating(&self, device: DeviceNumber) -> bool {
        self.device(device).turns.is_some()
    }

    /// Waits for the reader's turn on a device that seeks; `None`: it does not. A reader that misses a page holds its turn until the page has come.
    /// `position`: where the page lies on the device.
    pub fn turn(&self, device: DeviceNumber, position: impl FnOnce() -> u64) -> Option<Turn> {
        self.device(device).turns.as_ref().map(|turns| Turns::take(turns, position()))
    }

    fn device(&self, number: DeviceNumber) -> Device {
        let find = |known: &Vec<Device>| known.iter().find(|device| device.number == number).cloned();
        let known = || self.devices.lock().ignore_poison();
        if let Some(device) = find(&known()) {
            return device;
        }
        let device = Device::look_up(number);
        let mut known = known();
        // Another thread may have looked it up meanwhile: its turns count.
        if let Some(device) = find(&known) {
            return device;
        }
        if known.len() >= DEVICES {
            known.clear();
        }
        known.push(device.clone());
        device
    }

    /// The ring, which is set up at the first call; `None`: there is none.
    fn ring(&self) -> Option<Arc<RingQueue>> {
        let mut backend = self.backend.lock().ignore_poison();
        if matches!(*backend, Backend::NotStarted) {
            *backend = RingQueue::start().map_or(Backend::Threads, Backend::Ring);
        }
        match &*backend {
            Backend::Ring(ring) if Arc::strong_count(ring) > 1 => Some(ring.clone()),
            Backend::Ring(_) => {
                // The thread has ended because the kernel refused its ring.
                *backend = Backend::Threads;
                None
            }
            _ => None,
        }
    }
}

impl std::fmt::Debug for Requests {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Requests").finish_non_exhaustive()
    }
}

impl RingQueue {
    /// Sets up a ring and its thread. `None`: io_uring is forbidden, or descriptors or threads are exhausted.
    fn start() -> Option<Arc<RingQueue>> {
        let refused = |error: &dyn std::fmt::Display| tracing::debug!("no io_uring for read-ahead: {error}");
        let ring = Ring::new(RING_DEPTH).inspect_err(|error| refused(error)).ok()?;
        let wake = eventfd(0, EventfdFlags::CLOEXEC).inspect_err(|error| refused(error)).ok()?;
        let queue = Arc::new(RingQueue { lanes: Mutex::default(), wake: Arc::new(File::from(wake)) });
        let served = queue.clone();
        background::spawn("ahead-requests", move || served.serve(ring)).inspect_err(|error| refused(error)).ok()?;
        Some(queue)
    }

    fn lock(&self) -> MutexGuard<'_, Lanes<Request>> {
        self.lanes.lock().ignore_poison()
    }

    fn push(
        &self,
        device: DeviceNumber,
        most_running: usize,
        requests: impl Iterator<Item = Request>,
        count: usize,
    ) -> bool {
        let mut lanes = self.lock();
        let has_room = lanes.has_room(device, count);
        if has_room {
            requests.for_each(|request| lanes.push(device, most_running, request));
        }
        drop(lanes);
        if has_room {
            // Its counter cannot overflow: the thread resets it.
            let _ = (&*self.wake).write_all(&1u64.to_ne_bytes());
        }
        has_room
    }

    /// Submits requests until the kernel refuses.
    fn serve(&self, mut ring: Ring) {
        let mut bell = Some(AlignedBuffer::new(size_of::<u64>()));
        loop {
            if let Some(buffer) = bell.take()
                && ring.read(&self.wake, 0, size_of::<u64>(), buffer, WAKE).is_err()
            {
                break;
            }
            while ring.has_room() {
                let Some((device, request)) = self.lock().take() else { break };
                let (start, length) = (request.range.start, request.range.end - request.range.start);
                let is_submitted = ring.read_ahead(&request.file, start, length, device.key());
                if !matches!(is_submitted, Ok(true)) {
                    self.lock().done(device);
                }
            }
            let Ok(completed) = ring.wait() else { break };
            for done in completed {
                if done.token == WAKE {
                    bell = done.buffer;
                } else {
                    self.lock().done(DeviceNumber::from_key(done.token));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ahead_sys::cache;
    use ahead_tests::rig::cold::cold_file;
    use std::os::unix::fs::MetadataExt;
    use std::time::{Duration, Instant};

    fn check(requests: &Requests) {
        let Some(file) = cold_file(&[7; 8 << 20]) else { return };
        let file = Arc::new(file.reopen().unwrap());
        let device = DeviceNumber::from_stat(file.metadata().unwrap().dev());
        let ranges = [0..4096, 1 << 20..3 << 20, (8 << 20) - 4096..8 << 20];
        for range in &ranges {
            while !requests.will_need(&file, device, range.clone()) {
                std::thread::yield_now();
            }
        }
        let began = Instant::now();
        while cache::resident(&*file, 0, 8 << 20).unwrap() != ranges {
            assert!(began.elapsed() < Duration::from_secs(60), "{:?}", cache::resident(&*file, 0, 8 << 20));
            std::thread::yield_now();
        }
    }

    #[test]
    fn requested_ranges_become_resident() {
        check(Requests::global());
    }

    #[test]
    fn requested_ranges_become_resident_without_io_uring() {
        check(&Requests::new(Backend::Threads, Workers::global().clone()));
    }

    #[test]
    fn need_now_requests_all_of_a_long_range() {
        let Some(file) = cold_file(&[7; 8 << 20]) else { return };
        let file = file.reopen().unwrap();
        Requests::global().need_now(&file, DeviceNumber::from_stat(file.metadata().unwrap().dev()), &(0..8 << 20));
        assert_eq!(cache::resident_bytes(&file, 0, 8 << 20).unwrap(), 8 << 20);
    }
}
