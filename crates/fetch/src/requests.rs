//! Requests of read-ahead into the page cache, which never block the caller.
//!
//! ```text
//!     readers ── will_need ──▶ lane of the device ──▶ workers ──▶ FADV_WILLNEED
//!                full: false        (bounded)          two for each device
//! ```
//!
//! FADV_WILLNEED waits while the queue of the device is full, and reads the file's metadata. So it is called by another thread, and a device that
//! hangs holds only its own places. A process that never reads ahead has no thread for it.

use crate::before_request;
use crate::calls::{self, pieces};
use crate::lanes::{RUNNING, RUNNING_ROTATING};
use crate::turns::{Turn, Turns};
use crate::workers::{Job, Workers};
use ahead_model::DeviceNumber;
use ahead_sys::fork_count::PerProcess;
use ahead_sys::locks::IgnorePoison;
use ahead_sys::{Result, block};
use std::fs::File;
use std::ops::Range;
use std::sync::{Arc, Mutex};

/// Devices whose properties are remembered: more file systems are rarely read at the same time.
const DEVICES: usize = 64;

/// Errors of a call are ignored: the reader that waits for the pages reads them itself, and gets the error.
fn note(called: Result<()>) {
    if let Err(error) = called {
        tracing::debug!("{error}");
    }
}

/// The requests of this process.
#[derive(Debug)]
pub struct Requests {
    workers: Arc<Workers<Job>>,
    devices: Mutex<Vec<Device>>,
}

/// What is known of a device.
#[derive(Clone, Debug)]
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
        GLOBAL.get(|| Requests { workers: Workers::global().clone(), devices: Mutex::default() })
    }

    /// Splits a range at the device's cap ([`Requests::cap_bytes`]) and queues it. `false`: the queue of the device is full, or others go first;
    /// nothing was queued, and the caller asks again later.
    ///
    /// If no thread can be started, the caller's thread submits the requests.
    pub fn will_need(&self, file: &Arc<File>, device: DeviceNumber, range: Range<u64>) -> bool {
        let known = self.device(device);
        let count = range.end.saturating_sub(range.start).div_ceil(known.cap_bytes) as usize;
        if before_request::is_paused(device) || !self.workers.has_room(device, count) {
            return false;
        }
        for piece in pieces(&range, known.cap_bytes) {
            let file = file.clone();
            let job = Box::new(move || note(calls::read_ahead(device, &*file, &piece)));
            self.workers.run_or_perform(device, known.most_running(), job);
        }
        true
    }

    /// Calls the kernel in the caller's thread, which waits while the queue of the device is full. For pages that it needs at once.
    pub fn need_now(&self, file: &File, device: DeviceNumber, range: &Range<u64>) {
        pieces(range, self.cap_bytes(device)).for_each(|piece| note(calls::read_now(file, &piece)));
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
}

#[cfg(all(test, not(feature = "shuttle")))]
mod tests {
    use super::*;
    use ahead_sys::cache;
    use ahead_tests::rig::cold::cold_file;
    use std::os::unix::fs::MetadataExt;
    use std::time::{Duration, Instant};

    #[test]
    fn requested_ranges_become_resident() {
        let Some(file) = cold_file(&[7; 8 << 20]) else { return };
        let file = Arc::new(file.reopen().unwrap());
        let device = DeviceNumber::from_stat(file.metadata().unwrap().dev());
        let ranges = [0..4096, 1 << 20..3 << 20, (8 << 20) - 4096..8 << 20];
        for range in &ranges {
            while !Requests::global().will_need(&file, device, range.clone()) {
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
    fn need_now_requests_all_of_a_long_range() {
        let Some(file) = cold_file(&[7; 8 << 20]) else { return };
        let file = file.reopen().unwrap();
        Requests::global().need_now(&file, DeviceNumber::from_stat(file.metadata().unwrap().dev()), &(0..8 << 20));
        assert_eq!(cache::resident_bytes(&file, 0, 8 << 20).unwrap(), 8 << 20);
    }
}
