//! Fetches pages for readers whose pattern the kernel does not know, in worker threads.
//!
//! ```text
//!     fetch ─▶ lane of the device: queue (bounded) ─▶ workers (few) ─▶ own descriptor, opened once ─▶ readahead in pieces ─▶ page cache
//!                     │ full: dropped                     │ a file system that does not answer stops these, and no other lane
//!                     └────────────────────────────────── own descriptors are closed after a second without use
//! ```
//!
//! Everything that may wait for a disk is done here: opening a file, requesting pages, closing. Our own descriptor is another open file of the same
//! inode: what it requests fills the page cache for every reader. It is opened only if the process's descriptor leads to the file of the decision:
//! its numbers are compared before.

mod lane;

use crate::times::Times;
use crate::world::{NotDone, Target};
use ahead_model::DeviceNumber;
pub(crate) use lane::pieces;
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
        let (lanes, devices) = Default::default();
        Fetcher { expires, lanes, devices, report: Arc::default() }
    }

    /// Requests pages of a file; returns at once. `piece_pages`: the kernel cuts a larger request.
    pub(crate) fn fetch(
        &mut self,
        target: &Target,
        ranges: &[Range<u64>],
        piece_pages: u64,
        decided_ns: u64,
    ) -> Result<(), NotDone> {
        let descriptor = target.descriptor().ok_or(NotDone::Impossible(crate::counts::reason::NO_DESCRIPTOR))?;
        let source = Source { descriptor, expected: target.expected() };
        let work = Work::Read { open: target.open, source, ranges: ranges.to_vec(), piece_pages, decided_ns };
        self.lane(target.device).ok_or(NotDone::Busy)?.put(work).map_err(|_| NotDone::Busy)?;
        self.devices.insert(target.open, target.device);
        Ok(())
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
    }
}

/// An own descriptor is closed after this time without use, so that its mount is not kept busy.
const IDLE: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::os::fd::AsRawFd;

    const PAGE: u64 = 4096;

    /// A file on a disk without cached pages. `None`: its file system keeps them.
    fn cold_file(pages: u64) -> Option<File> {
        ahead_tests::rig::cold::cold_file(&vec![7; (pages * PAGE) as usize]).map(tempfile::NamedTempFile::into_file)
    }

    fn target(file: &File) -> Target {
        let (pid, stat) = (std::process::id(), rustix::fs::fstat(file).unwrap());
        Target {
            pid,
            tid: pid,
            descriptor: Some(file.as_raw_fd() as u32),
            open: 1,
            inode_number: stat.st_ino,
            device: DeviceNumber::from_stat(stat.st_dev),
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
        let ended = Target { pid: (1 << 22) + 1, tid: (1 << 22) + 1, ..target(&file) };
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
}
