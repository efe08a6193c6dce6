//! Fetches pages for readers whose pattern the kernel does not know, in worker threads.
//!
//! ```text
//!     fetch ─▶ lane of the device: queue (bounded) ─▶ workers (few) ─▶ own descriptor, opened once ─▶ readahead in pieces ─▶ page cache
//!                     │ full: dropped                     │ a file system that does not answer stops these, and no other lane
//!                     └────────────────────────────────── own descriptors are closed after a second without use
//! ```
//!
//! Everything that may wait for a disk or a daemon is done here: opening a file, requesting pages, closing. Our own descriptor is another open
//! file of the same inode: what it requests fills the page cache for every reader. A descriptor taken from a process never enters a queue.

mod closers;
mod lane;

use crate::times::Times;
use crate::world::{NotDone, Target};
use ahead_model::DeviceNumber;
pub(crate) use closers::Closer;
use closers::Closers;
use lane::{Lane, Source, Work};
use rustc_hash::FxHashMap;
use std::io;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Largest number of devices with a lane: more than any machine reads from at a time.
const MOST_LANES: usize = 64;

/// Threads of all devices.
const MOST_THREADS: usize = 16;

/// A request that waited longer is dropped: its reader has read the pages itself.
const EXPIRES: Duration = Duration::from_millis(500);

/// What the workers report.
#[derive(Debug, Default)]
struct Report {
    /// Number of all workers.
    threads: AtomicUsize,
    /// Number of own descriptors.
    descriptors: AtomicUsize,
    /// Requests that waited too long to be useful.
    expired: AtomicU64,
    failures: Mutex<Vec<(u64, NotDone)>>,
    /// Time from a decision to the end of its requests.
    latency: Mutex<Times>,
    /// Time for which a taken descriptor was held until a worker closed it.
    held: Mutex<Times>,
}

impl Report {
    /// Starts a thread, if the limit permits it. The thread reduces `threads` when it ends.
    fn start_thread(&self, start: impl FnOnce() -> io::Result<()>) -> bool {
        if self.threads.fetch_add(1, Ordering::Relaxed) < MOST_THREADS {
            match start() {
                Ok(()) => return true,
                Err(error) => tracing::debug!("no worker: {error}"),
            }
        }
        self.threads.fetch_sub(1, Ordering::Relaxed);
        false
    }
}

/// The lanes of all devices.
#[derive(Debug)]
pub(crate) struct Fetcher {
    /// Longest time from a decision to its requests.
    expires: Duration,
    lanes: FxHashMap<DeviceNumber, Arc<Lane>>,
    /// For devices where a close may wait.
    closers: FxHashMap<DeviceNumber, Arc<Closers>>,
    /// The device of each open file with fetches.
    devices: FxHashMap<u64, DeviceNumber>,
    report: Arc<Report>,
}

/// A lock whose holder cannot panic with half a change.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Default for Fetcher {
    fn default() -> Fetcher {
        Fetcher::new(EXPIRES)
    }
}

impl Fetcher {
    /// `expires`: a request that waited longer is dropped.
    fn new(expires: Duration) -> Fetcher {
        let (lanes, closers, devices) = Default::default();
        Fetcher { expires, lanes, closers, devices, report: Arc::default() }
    }

    /// Requests pages of a file; returns at once. `piece_pages`: the kernel cuts a larger request.
    pub(crate) fn fetch(
        &mut self,
        target: &Target,
        ranges: &[Range<u64>],
        piece_pages: u64,
        decided_ns: u64,
    ) -> Result<(), NotDone> {
        let source = match (target.descriptor, target.mapping) {
            (Some(number), _) => Source::Descriptor { pid: target.pid, number, inode_number: target.inode_number },
            (None, Some(mapping)) => Source::Memory { pid: target.pid, mapping },
            (None, None) => return Err(NotDone::Impossible(crate::counts::reason::NO_DESCRIPTOR)),
        };
        let work = Work::Read { open: target.open, source, ranges: ranges.to_vec(), piece_pages, decided_ns };
        self.lane(target.device).ok_or(NotDone::Busy)?.put(work).map_err(|_| NotDone::Busy)?;
        self.devices.insert(target.open, target.device);
        Ok(())
    }

    /// Reserves a thread that closes a descriptor of a device where that may wait, before the descriptor is taken.
    pub(crate) fn reserve_closer(&mut self, device: DeviceNumber) -> Result<Closer, NotDone> {
        if !self.closers.contains_key(&device) && self.closers.len() >= MOST_LANES {
            self.closers.retain(|_, closers| closers.is_active());
            if self.closers.len() >= MOST_LANES {
                return Err(NotDone::Busy);
            }
        }
        let closers = self.closers.entry(device).or_insert_with(|| Arc::new(Closers::new(self.report.clone())));
        closers.reserve().ok_or(NotDone::Busy)
    }

    /// Gives up the own descriptor of an open file, and what waits to be fetched for it.
    pub(crate) fn stop(&mut self, open: u64) {
        let device = self.devices.remove(&open);
        if let Some(lane) = device.and_then(|device| self.lanes.get(&device)) {
            lane.stop(open);
        }
    }

    /// Closes own descriptors that were not used for a second, and lanes without any.
    pub(crate) fn close_idle(&mut self) {
        let now = Instant::now();
        self.lanes.retain(|_, lane| lane.close_idle(now));
        let lanes = &self.lanes;
        self.devices.retain(|_, device| lanes.contains_key(device));
    }

    /// Whether [`Self::close_idle`] has something to do.
    pub(crate) fn is_active(&self) -> bool {
        !self.lanes.is_empty()
    }

    /// Fetches that have failed since the last call.
    pub(crate) fn take_failures(&self) -> Vec<(u64, NotDone)> {
        std::mem::take(&mut *locked(&self.report.failures))
    }

    /// Requests that were dropped because they had waited too long.
    pub(crate) fn expired(&self) -> u64 {
        self.report.expired.load(Ordering::Relaxed)
    }

    /// Times from a decision to the end of its requests.
    pub(crate) fn latency(&self) -> Times {
        locked(&self.report.latency).clone()
    }

    /// Times for which taken descriptors were held until a worker closed them.
    pub(crate) fn held(&self) -> Times {
        locked(&self.report.held).clone()
    }

    /// Own descriptors that are open.
    pub(crate) fn descriptors(&self) -> usize {
        self.report.descriptors.load(Ordering::Relaxed)
    }

    fn lane(&mut self, device: DeviceNumber) -> Option<&Arc<Lane>> {
        if !self.lanes.contains_key(&device) && self.lanes.len() >= MOST_LANES {
            return None;
        }
        Some(self.lanes.entry(device).or_insert_with(|| Arc::new(Lane::new(self.report.clone(), self.expires))))
    }
}

impl Drop for Fetcher {
    /// Workers end after the work that they do. One that waits for a disk is not waited for.
    fn drop(&mut self) {
        self.lanes.values().for_each(|lane| lane.end());
        self.closers.values().for_each(|closers| closers.end());
    }
}

/// An own descriptor is closed after this time without use, so that its mount is not kept busy.
const IDLE: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::world::Mapped;
    use std::fs::File;
    use std::io::Write;
    use std::os::fd::AsRawFd;

    const PAGE: u64 = 4096;

    /// A file on a disk without cached pages. `None`: its file system keeps them.
    fn cold_file(pages: u64) -> Option<File> {
        let mut file = tempfile::tempfile_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        file.write_all(&vec![7; (pages * PAGE) as usize]).unwrap();
        file.sync_all().unwrap();
        ahead_sys::evict::file(&file).unwrap();
        if ahead_sys::cache::resident(&file, 0, pages * PAGE).unwrap().is_empty() {
            return Some(file);
        }
        eprintln!("skipped: the file system keeps pages after POSIX_FADV_DONTNEED");
        None
    }

    fn target(file: &File) -> Target {
        Target {
            pid: std::process::id(),
            descriptor: Some(file.as_raw_fd() as u32),
            open: 1,
            inode_number: ahead_sys::other_process::inode_number(file).unwrap(),
            ..Target::default()
        }
    }

    /// Requests that never expire: a machine under load may start a worker late.
    fn patient() -> Fetcher {
        Fetcher::new(Duration::MAX)
    }

    fn until(mut is_done: impl FnMut() -> bool) {
        let began = Instant::now();
        while !is_done() {
            assert!(began.elapsed() < Duration::from_secs(60));
            std::thread::yield_now();
        }
    }

    #[test]
    fn requested_ranges_become_resident_and_the_descriptor_is_closed_after_a_second() {
        let Some(file) = cold_file(256) else { return };
        let mut fetcher = patient();
        fetcher.fetch(&target(&file), &[8..16, 100..180], 32, ahead_observe::now_ns()).unwrap();
        until(|| fetcher.latency().count() == 1);
        assert_eq!(
            ahead_sys::cache::resident(&file, 0, 256 * PAGE).unwrap(),
            [8 * PAGE..16 * PAGE, 100 * PAGE..180 * PAGE]
        );
        assert_eq!((fetcher.descriptors(), fetcher.expired()), (1, 0));
        until(|| {
            fetcher.close_idle();
            fetcher.descriptors() == 0
        });
        assert!(fetcher.take_failures().is_empty());
    }

    #[test]
    fn stopped_file_loses_its_descriptor_at_once() {
        let Some(file) = cold_file(16) else { return };
        let mut fetcher = patient();
        fetcher.fetch(&target(&file), &[0..1], 32, ahead_observe::now_ns()).unwrap();
        until(|| fetcher.descriptors() == 1);
        fetcher.stop(1);
        until(|| fetcher.descriptors() == 0);
    }

    #[test]
    fn replaced_descriptor_and_ended_process_are_failures() {
        let Some(file) = cold_file(16) else { return };
        let mut fetcher = patient();
        let other = Target { inode_number: 1, ..target(&file) };
        fetcher.fetch(&other, &[0..1], 32, ahead_observe::now_ns()).unwrap();
        until(|| fetcher.take_failures() == [(1, NotDone::Gone)]);
        let ended = Target { pid: (1 << 22) + 1, ..target(&file) };
        fetcher.fetch(&ended, &[0..1], 32, ahead_observe::now_ns()).unwrap();
        until(|| fetcher.take_failures() == [(1, NotDone::Gone)]);
        assert_eq!(fetcher.descriptors(), 0);
    }

    #[test]
    fn late_requests_are_dropped_and_counted() {
        let Some(file) = cold_file(16) else { return };
        let mut fetcher = Fetcher::new(EXPIRES);
        fetcher.fetch(&target(&file), &[0..1], 32, 1).unwrap();
        until(|| fetcher.expired() == 1);
    }

    #[test]
    fn pages_of_a_mapping_are_requested() {
        let Some(file) = cold_file(64) else { return };
        let mapping = ahead_sys::mapping::Mapping::new(&file, (64 * PAGE) as usize).unwrap();
        let mapped = Mapped { first_page: 0, end_page: 64, address: mapping.addresses().start as u64 };
        let mut fetcher = patient();
        let target = Target { descriptor: None, mapping: Some(mapped), ..target(&file) };
        // Pages beyond the mapping are left out.
        fetcher.fetch(&target, &[8..16, 60..90], 4, ahead_observe::now_ns()).unwrap();
        until(|| fetcher.latency().count() == 1 || !fetcher.report.failures.lock().unwrap().is_empty());
        match fetcher.take_failures().pop() {
            Some(failure) => eprintln!("skipped: {failure:?}"),
            None => {
                let found = ahead_sys::cache::resident(&file, 0, 64 * PAGE).unwrap();
                assert_eq!(found, [8 * PAGE..16 * PAGE, 60 * PAGE..64 * PAGE]);
            }
        }
    }
}
