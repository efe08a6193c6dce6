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

use crate::refusal::Refusal;
use crate::times::Times;
use crate::world::{descriptor_of, file_of};
use ahead_fetch::calls::{self, pieces};
use ahead_fetch::{RUNNING, Workers};
use ahead_model::{DeviceNumber, PAGE_BYTES};
use ahead_policy::steering::Target;
use ahead_sys::Error;
use ahead_sys::locks::IgnorePoison;
use ahead_sys::other_process::{self, Descriptor, Expected};
use rustc_hash::FxHashMap;
use rustix::io::Errno;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

/// Threads of all devices.
const MOST_THREADS: usize = 16;

/// Requests that wait for the workers of a device. They are useless later than a reader comes.
const MOST_WAITING: usize = 64;

/// Own descriptors of all devices: far below the usual limit of 1024.
const MOST_DESCRIPTORS: usize = 512;

/// A request that waited longer is dropped: its reader has read the pages itself.
const EXPIRES: Duration = Duration::from_millis(500);

/// An own descriptor is closed after this time without use, so that its mount is not kept busy.
const IDLE: Duration = Duration::from_secs(1);

/// What a worker does.
#[derive(Debug)]
enum Work {
    Read(Read),
    /// Closes an own descriptor.
    Close(OwnedFd),
}

/// Ranges of a file to request, through an own descriptor.
#[derive(Debug)]
struct Read {
    open: u64,
    device: DeviceNumber,
    descriptor: Descriptor,
    expected: Expected,
    ranges: Vec<Range<u64>>,
    piece_pages: u64,
    decided_ns: u64,
}

/// An own descriptor.
#[derive(Debug)]
struct Opened {
    descriptor: Arc<OwnedFd>,
    device: DeviceNumber,
    used: Instant,
}

/// What the workers share.
#[derive(Debug, Default)]
struct Shared {
    opened: Mutex<FxHashMap<u64, Opened>>,
    /// Requests that waited too long to be useful.
    expired: AtomicU64,
    failures: Mutex<Vec<(u64, Refusal)>>,
    /// Time from a decision to the end of its requests.
    latency: Mutex<Times>,
}

/// The requests of all devices.
#[derive(Debug)]
pub(crate) struct Fetcher {
    workers: Arc<Workers<Work>>,
    shared: Arc<Shared>,
}

/// A lock whose holder cannot panic with half a change.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().ignore_poison()
}

fn is_read(work: &Work) -> bool {
    matches!(work, Work::Read(_))
}

impl Default for Fetcher {
    fn default() -> Fetcher {
        Fetcher::new(EXPIRES)
    }
}

impl Fetcher {
    /// `expires`: a request that waited longer is dropped.
    fn new(expires: Duration) -> Fetcher {
        let shared = Arc::new(Shared::default());
        let theirs = shared.clone();
        let perform = move |work| match work {
            Work::Close(descriptor) => drop(descriptor),
            Work::Read(read) => theirs.read(&read, expires),
        };
        Fetcher { workers: Workers::new("ahead-fetch", MOST_THREADS, perform), shared }
    }

    /// Requests pages of a file; returns at once. `piece_pages`: the kernel cuts a larger request.
    pub(crate) fn fetch(
        &mut self,
        target: &Target,
        ranges: &[Range<u64>],
        piece_pages: u64,
        decided_ns: u64,
    ) -> Result<(), Refusal> {
        let descriptor = descriptor_of(target).ok_or(Refusal::NoDescriptor)?;
        let (open, device, expected, ranges) = (target.open, target.device, file_of(target), ranges.to_vec());
        let read = Read { open, device, descriptor, expected, ranges, piece_pages, decided_ns };
        if ahead_fetch::is_paused(device) || self.workers.waiting(device, is_read) >= MOST_WAITING {
            return Err(Refusal::Queue);
        }
        self.workers.run(device, RUNNING, Work::Read(read)).map_err(|_| Refusal::Queue)
    }

    /// Gives up the own descriptor of an open file, and what waits to be fetched for it.
    pub(crate) fn stop(&mut self, open: u64) {
        self.workers.retain(|_, work| !matches!(work, Work::Read(read) if read.open == open));
        let opened = locked(&self.shared.opened).remove(&open);
        opened.into_iter().for_each(|opened| self.close(opened));
    }

    /// Closes own descriptors that were not used for a second.
    pub(crate) fn close_idle(&mut self) {
        let now = Instant::now();
        let is_idle = |_: &u64, opened: &mut Opened| now.saturating_duration_since(opened.used) > IDLE;
        let idle: Vec<(u64, Opened)> = locked(&self.shared.opened).extract_if(is_idle).collect();
        idle.into_iter().for_each(|(_, opened)| self.close(opened));
        // Closes may wait because no worker could be started.
        self.workers.call();
    }

    /// A worker closes it, because a close may wait for a daemon: never the caller, also without a worker.
    fn close(&self, opened: Opened) {
        // A worker that uses it at this moment closes it.
        if let Some(descriptor) = Arc::into_inner(opened.descriptor) {
            self.workers.run_or_wait([(opened.device, RUNNING, Work::Close(descriptor))]);
        }
    }

    /// Whether [`Self::close_idle`] has something to do.
    pub(crate) fn is_active(&self) -> bool {
        self.descriptors() > 0 || self.workers.is_active()
    }

    /// Fetches that have failed since the last call.
    pub(crate) fn take_failures(&self) -> Vec<(u64, Refusal)> {
        std::mem::take(&mut *locked(&self.shared.failures))
    }

    /// Requests that were dropped because they had waited too long.
    pub(crate) fn expired(&self) -> u64 {
        self.shared.expired.load(Ordering::Relaxed)
    }

    /// Times from a decision to the end of its requests.
    pub(crate) fn latency(&self) -> Times {
        locked(&self.shared.latency).clone()
    }

    /// Own descriptors that are open.
    pub(crate) fn descriptors(&self) -> usize {
        locked(&self.shared.opened).len()
    }
}

impl Drop for Fetcher {
    /// Workers end after the work that they do, and the closes. One that waits for a disk is not waited for.
    fn drop(&mut self) {
        self.workers.end(|work| !is_read(work));
    }
}

impl Shared {
    fn read(&self, read: &Read, expires: Duration) {
        let age = || Duration::from_nanos(ahead_observe::now_ns().saturating_sub(read.decided_ns));
        if age() > expires {
            self.expired.fetch_add(1, Ordering::Relaxed);
            return;
        }
        match self.descriptor(read).and_then(|descriptor| request(&descriptor, read)) {
            Ok(()) => locked::<Times>(&self.latency).add(age()),
            Err(why) => locked(&self.failures).push((read.open, why)),
        }
    }

    /// The own descriptor of a file, opened if there is none.
    fn descriptor(&self, read: &Read) -> Result<Arc<OwnedFd>, Refusal> {
        let mut all = locked(&self.opened);
        if let Some(opened) = all.get_mut(&read.open) {
            opened.used = Instant::now();
            return Ok(opened.descriptor.clone());
        }
        if all.len() >= MOST_DESCRIPTORS {
            return Err(Refusal::Queue);
        }
        drop(all);
        // Not another file: the process may have replaced the descriptor, or another process has its number.
        let descriptor = other_process::reopen_descriptor(&read.descriptor, &read.expected).map_err(not_opened)?;
        let descriptor = Arc::new(descriptor);
        let opened = Opened { descriptor: descriptor.clone(), device: read.device, used: Instant::now() };
        // Another worker may have opened it, too: that descriptor is closed here, outside of the lock.
        let replaced = locked(&self.opened).insert(read.open, opened);
        drop(replaced);
        Ok(descriptor)
    }
}

fn not_opened(error: Error) -> Refusal {
    match error.raw_os_error().map(Errno::from_raw_os_error) {
        // No such process or descriptor any more, or the descriptor is something else now.
        Some(Errno::NOENT | Errno::SRCH | Errno::NXIO | Errno::STALE) => Refusal::Gone,
        Some(Errno::PERM | Errno::ACCESS) => Refusal::NotOpened,
        _ => Refusal::Failed(error.to_string()),
    }
}

/// Requests ranges of a file, in pieces that the kernel does not cut.
fn request(descriptor: &OwnedFd, read: &Read) -> Result<(), Refusal> {
    for piece in read.ranges.iter().flat_map(|range| pieces(range, read.piece_pages)) {
        let bytes = piece.start * PAGE_BYTES..piece.end * PAGE_BYTES;
        calls::read_ahead(read.device, descriptor, &bytes).map_err(|error| Refusal::Failed(error.to_string()))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::os::fd::AsRawFd;
    use std::sync::mpsc;

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
        until(|| fetcher.take_failures() == [(1, Refusal::Gone)]);
        let ended = Target { pid: (1 << 22) + 1, tid: (1 << 22) + 1, ..target(&file) };
        fetcher.fetch(&ended, &[0..1], 32, ahead_observe::now_ns()).unwrap();
        until(|| fetcher.take_failures() == [(1, Refusal::Gone)]);
        assert_eq!(fetcher.descriptors(), 0);
    }

    #[test]
    fn late_requests_are_dropped_and_counted() {
        let Some(file) = cold_file(16) else { return };
        let mut fetcher = Fetcher::new(EXPIRES);
        fetcher.fetch(&target(&file), &[0..1], 32, 1).unwrap();
        until(|| fetcher.expired() == 1);
    }

    /// A device that does not answer: its queue fills, and the caller never waits.
    #[test]
    fn full_queue_refuses_reads_and_accepts_closes() {
        let (answer, silent) = mpsc::channel::<()>();
        let silent = Mutex::new(silent);
        let perform = move |work| drop((locked(&silent).recv(), work));
        let mut fetcher = Fetcher { workers: Workers::new("test", MOST_THREADS, perform), shared: Arc::default() };
        let file = tempfile::tempfile().unwrap();
        let fetch = |fetcher: &mut Fetcher, open| fetcher.fetch(&Target { open, ..target(&file) }, &[0..1], 1, 0);
        let device = target(&file).device;
        for open in 0..RUNNING as u64 {
            fetch(&mut fetcher, open).unwrap();
        }
        until(|| fetcher.workers.waiting(device, is_read) == 0);
        for open in 0..MOST_WAITING as u64 {
            fetch(&mut fetcher, open).unwrap();
        }
        assert_eq!(fetch(&mut fetcher, 99), Err(Refusal::Queue));
        let descriptor = Arc::new(OwnedFd::from(File::open("/").unwrap()));
        fetcher.close(Opened { descriptor, device, used: Instant::now() });
        fetcher.stop(5);
        fetch(&mut fetcher, 99).unwrap();
        let workers = fetcher.workers.clone();
        drop(fetcher);
        assert_eq!(workers.waiting(device, |_| true), 1);
        drop(answer);
        until(|| !workers.is_active());
    }
}
