//! Requests of read-ahead into the page cache, which never block the caller.
//!
//! ```text
//!     readers ── will_need ──▶ queue of each device ──▶ one thread with an io_uring ──▶ threads of the kernel ──▶ FADV_WILLNEED
//!                full: false          (bounded)    ╰──▶ at most eight threads of this process, where io_uring is forbidden
//! ```
//!
//! FADV_WILLNEED waits while the queue of the device is full, and reads the file's metadata. So it is called by another thread, and a device that
//! hangs holds only its own places. A process that never reads ahead has no thread, ring or descriptor for it.

use crate::stream::device_queues::DeviceQueues;
use crate::stream::pool::Pool;
use crate::stream::turns::{Turn, Turns};
use ahead_model::DeviceNumber;
use ahead_sys::background;
use ahead_sys::block;
use ahead_sys::cache;
use ahead_sys::direct::AlignedBuffer;
use ahead_sys::fork_count::PerProcess;
use ahead_sys::ring::Ring;
use rustix::event::{EventfdFlags, eventfd};
use std::fs::File;
use std::io::Write;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

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
    if let Err(error) = cache::read_ahead(file, range.start, range.end - range.start) {
        tracing::debug!("{error}");
    }
}

/// How requests are executed.
enum Backend {
    NotStarted,
    Ring(Arc<RingQueue>),
    /// No io_uring: the pool of threads.
    Threads,
}

/// The requests for the thread with the ring.
struct RingQueue {
    queues: Mutex<DeviceQueues<Request>>,
    /// Wakes the thread.
    wake: Arc<File>,
}

/// The requests of this process.
pub struct Requests {
    backend: Mutex<Backend>,
    pool: Arc<Pool>,
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
        Device { number, cap_bytes: cache::read_ahead_cap_bytes(number), turns }
    }
}

/// The requests of this process, made again in a child of fork(2).
pub fn global() -> Arc<Requests> {
    static GLOBAL: PerProcess<Arc<Requests>> = PerProcess::new();
    GLOBAL.get(|| Arc::new(Requests::new(Backend::NotStarted, Pool::global().clone()))).clone()
}

impl Requests {
    fn new(backend: Backend, pool: Arc<Pool>) -> Requests {
        Requests { backend: Mutex::new(backend), pool, devices: Mutex::new(Vec::new()) }
    }

    /// Requests by threads only, as where io_uring is forbidden. For tests.
    #[doc(hidden)]
    pub fn without_io_uring() -> Arc<Requests> {
        Arc::new(Requests::new(Backend::Threads, Arc::new(Pool::new())))
    }

    /// Splits a range at the device's cap ([`Requests::cap_bytes`]) and queues it. `false`: the queue of the device is full, and nothing was
    /// queued; the caller asks again later.
    ///
    /// If no thread can be started, the caller's thread submits the requests.
    pub fn will_need(&self, file: &Arc<File>, device: DeviceNumber, range: Range<u64>) -> bool {
        let Device { cap_bytes: cap, turns, .. } = self.device(device);
        let is_rotating = turns.is_some();
        let parts = range.end.saturating_sub(range.start).div_ceil(cap);
        let starts = (0..parts).map(|part| range.start + part * cap);
        let requests = starts.map(|start| Request { file: file.clone(), range: start..(start + cap).min(range.end) });
        match self.ring() {
            Some(ring) => ring.push(device, is_rotating, requests, parts as usize),
            None => {
                let has_room = self.pool.has_room(device, parts as usize);
                if has_room {
                    requests.for_each(|request| {
                        self.pool.run(device, is_rotating, Box::new(move || read_ahead(&request.file, &request.range)));
                    });
                }
                has_room
            }
        }
    }

    /// Calls the kernel in the caller's thread, which waits while the queue of the device is full. For pages that it needs at once.
    pub fn need_now(&self, file: &File, device: DeviceNumber, range: &Range<u64>) {
        let cap = self.cap_bytes(device);
        let mut start = range.start;
        while start < range.end {
            let end = start.saturating_add(cap).min(range.end);
            read_ahead(file, &(start..end));
            start = end;
        }
    }

    /// The longest range that the kernel reads ahead in one call on this device, bytes ([`cache::read_ahead_cap_bytes`]). Looked up once.
    pub fn cap_bytes(&self, device: DeviceNumber) -> u64 {
        self.device(device).cap_bytes
    }

    /// Waits for the reader's turn on a device that seeks; `None`: it does not. A reader that misses a page holds its turn until the page has come.
    /// `position`: where the page lies on the device.
    pub(crate) fn turn(&self, device: DeviceNumber, position: impl FnOnce() -> u64) -> Option<Turn> {
        self.device(device).turns.as_ref().map(|turns| Turns::take(turns, position()))
    }

    fn device(&self, number: DeviceNumber) -> Device {
        let find = |known: &Vec<Device>| known.iter().find(|device| device.number == number).cloned();
        let known = || self.devices.lock().unwrap_or_else(PoisonError::into_inner);
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
        let mut backend = self.backend.lock().unwrap_or_else(PoisonError::into_inner);
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
        let queue = Arc::new(RingQueue { queues: Mutex::new(DeviceQueues::new()), wake: Arc::new(File::from(wake)) });
        let served = queue.clone();
        background::spawn("ahead-requests", move || served.serve(ring)).inspect_err(|error| refused(error)).ok()?;
        Some(queue)
    }

    fn lock(&self) -> MutexGuard<'_, DeviceQueues<Request>> {
        self.queues.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn push(
        &self,
        device: DeviceNumber,
        is_rotating: bool,
        requests: impl Iterator<Item = Request>,
        count: usize,
    ) -> bool {
        let mut queues = self.lock();
        let has_room = queues.has_room(device, count);
        if has_room {
            requests.for_each(|request| queues.push(device, is_rotating, request));
        }
        drop(queues);
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
    use crate::stream::testing::{DirectoryFile, cold_file};
    use std::os::unix::fs::MetadataExt;
    use std::time::{Duration, Instant};

    fn check(requests: &Requests) {
        let Some(DirectoryFile { file, .. }) = cold_file(8 << 20) else { return };
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
        check(&global());
    }

    #[test]
    fn requested_ranges_become_resident_without_io_uring() {
        check(&Requests::without_io_uring());
    }

    #[test]
    fn need_now_requests_all_of_a_long_range() {
        let Some(DirectoryFile { file, .. }) = cold_file(8 << 20) else { return };
        let file = file.reopen().unwrap();
        global().need_now(&file, DeviceNumber::from_stat(file.metadata().unwrap().dev()), &(0..8 << 20));
        assert_eq!(cache::resident_bytes(&file, 0, 8 << 20).unwrap(), 8 << 20);
    }
}
