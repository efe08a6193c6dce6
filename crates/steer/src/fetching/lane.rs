//! The queue and the workers of one device.

use super::{IDLE, Report, locked};
use crate::counts::reason;
use crate::times::Times;
use crate::world::NotDone;
use ahead_model::PAGE_BYTES;
use ahead_sys::other_process::{self, Descriptor, Expected};
use ahead_sys::{Error, background, cache};
use rustc_hash::FxHashMap;
use rustix::io::Errno;
use std::collections::VecDeque;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Workers of a device. A request returns when it is submitted, so one worker keeps a disk busy; with the second one, a slow open does not
/// delay other files.
const MOST_WORKERS: usize = 2;

/// Requests that wait for the workers of a device. They are useless later than a reader comes.
const MOST_WAITING: usize = 64;

/// Own descriptors of all devices: far below the usual limit of 1024.
const MOST_DESCRIPTORS: usize = 512;

/// A worker without work ends after this time.
const WORKER_IDLE: Duration = Duration::from_secs(5);

/// The file whose pages are requested, through an own descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Source {
    pub descriptor: Descriptor,
    pub expected: Expected,
}

/// What a worker does.
#[derive(Debug)]
pub(super) enum Work {
    Read {
        open: u64,
        source: Source,
        ranges: Vec<Range<u64>>,
        piece_pages: u64,
        decided_ns: u64,
    },
    /// Closes an own descriptor.
    Close(OwnedFd),
}

/// An own descriptor.
#[derive(Debug)]
struct Opened {
    descriptor: Arc<OwnedFd>,
    used: Instant,
}

#[derive(Debug, Default)]
struct State {
    waiting: VecDeque<Work>,
    workers: usize,
    idle_workers: usize,
    has_ended: bool,
    opened: FxHashMap<u64, Opened>,
}

/// The queue and the workers of one device.
#[derive(Debug)]
pub(super) struct Lane {
    state: Mutex<State>,
    wake: Condvar,
    report: Arc<Report>,
    /// A request that waited longer is dropped.
    expires: Duration,
}

impl Lane {
    pub(super) fn new(report: Arc<Report>, expires: Duration) -> Lane {
        Lane { state: Mutex::default(), wake: Condvar::new(), report, expires }
    }

    /// Queues work. `Err`: the queue is full, or there is no worker, and the work is given back. A close is never refused, because the caller
    /// must not close: without a worker it waits until one can be started.
    pub(super) fn put(self: &Arc<Lane>, work: Work) -> Result<(), Work> {
        let mut state = locked(&self.state);
        let is_read = |work: &&Work| matches!(work, Work::Read { .. });
        if is_read(&&work) && state.waiting.iter().filter(is_read).count() >= MOST_WAITING {
            return Err(work);
        }
        if state.idle_workers <= state.waiting.len() {
            self.start_worker(&mut state);
        }
        if is_read(&&work) && state.workers == 0 {
            return Err(work);
        }
        state.waiting.push_back(work);
        self.wake.notify_one();
        Ok(())
    }

    fn start_worker(self: &Arc<Lane>, state: &mut State) {
        let start = || {
            let lane = self.clone();
            background::spawn("ahead-fetch", move || lane.work())
        };
        if state.workers < MOST_WORKERS && self.report.start_thread(start) {
            state.workers += 1;
        }
    }

    /// Drops what waits for an open file, and its descriptor.
    pub(super) fn stop(self: &Arc<Lane>, open: u64) {
        let mut state = locked(&self.state);
        state.waiting.retain(|work| !matches!(work, Work::Read { open: other, .. } if *other == open));
        let opened = state.opened.remove(&open);
        drop(state);
        opened.into_iter().for_each(|opened| self.give_up(opened));
    }

    /// Closes descriptors without use. `false`: the lane has nothing to do any more.
    pub(super) fn close_idle(self: &Arc<Lane>, now: Instant) -> bool {
        let mut state = locked(&self.state);
        let idle =
            |(open, opened): (&u64, &Opened)| (now.saturating_duration_since(opened.used) > IDLE).then_some(*open);
        let idle: Vec<u64> = state.opened.iter().filter_map(idle).collect();
        let closed: Vec<Opened> = idle.iter().filter_map(|open| state.opened.remove(open)).collect();
        let is_needed =
            !state.opened.is_empty() || !state.waiting.is_empty() || state.workers > 0 || !closed.is_empty();
        // Closes that wait because no worker could be started.
        if state.workers == 0 && !state.waiting.is_empty() {
            self.start_worker(&mut state);
        }
        drop(state);
        closed.into_iter().for_each(|opened| self.give_up(opened));
        is_needed
    }

    /// A worker closes it, because a close may wait for a daemon.
    fn give_up(self: &Arc<Lane>, opened: Opened) {
        self.report.descriptors.fetch_sub(1, Ordering::Relaxed);
        // A worker that uses it at this moment closes it.
        if let Some(descriptor) = Arc::into_inner(opened.descriptor) {
            drop(self.put(Work::Close(descriptor)));
        }
    }

    pub(super) fn end(&self) {
        let mut state = locked(&self.state);
        state.has_ended = true;
        state.waiting.retain(|work| matches!(work, Work::Close(_)));
        self.wake.notify_all();
    }

    /// A worker's life.
    fn work(&self) {
        while let Some(work) = self.next() {
            match work {
                Work::Close(descriptor) => drop(descriptor),
                Work::Read { open, source, ranges, piece_pages, decided_ns } => {
                    self.read(open, source, &ranges, piece_pages, decided_ns);
                }
            }
        }
        self.report.threads.fetch_sub(1, Ordering::Relaxed);
    }

    /// `None`: the worker ends.
    fn next(&self) -> Option<Work> {
        let mut state = locked(&self.state);
        loop {
            if let Some(work) = state.waiting.pop_front() {
                return Some(work);
            }
            if state.has_ended {
                state.workers -= 1;
                return None;
            }
            state.idle_workers += 1;
            let waited = self.wake.wait_timeout(state, WORKER_IDLE);
            let (guard, timeout) = waited.unwrap_or_else(PoisonError::into_inner);
            state = guard;
            state.idle_workers -= 1;
            if timeout.timed_out() && state.waiting.is_empty() {
                state.workers -= 1;
                return None;
            }
        }
    }

    fn read(&self, open: u64, source: Source, ranges: &[Range<u64>], piece_pages: u64, decided_ns: u64) {
        let age = || Duration::from_nanos(ahead_observe::now_ns().saturating_sub(decided_ns));
        if age() > self.expires {
            self.report.expired.fetch_add(1, Ordering::Relaxed);
            return;
        }
        let done = self.descriptor(open, &source).and_then(|descriptor| request(&descriptor, ranges, piece_pages));
        match done {
            Ok(()) => locked::<Times>(&self.report.latency).add(age()),
            Err(why) => locked(&self.report.failures).push((open, why)),
        }
    }

    /// The own descriptor of a file, opened if there is none.
    fn descriptor(&self, open: u64, source: &Source) -> Result<Arc<OwnedFd>, NotDone> {
        if let Some(opened) = locked(&self.state).opened.get_mut(&open) {
            opened.used = Instant::now();
            return Ok(opened.descriptor.clone());
        }
        if self.report.descriptors.load(Ordering::Relaxed) >= MOST_DESCRIPTORS {
            return Err(NotDone::Busy);
        }
        // Not another file: the process may have replaced the descriptor, or another process has its number.
        let descriptor = other_process::reopen_descriptor(&source.descriptor, &source.expected).map_err(not_opened)?;
        let descriptor = Arc::new(descriptor);
        let opened = Opened { descriptor: descriptor.clone(), used: Instant::now() };
        if locked(&self.state).opened.insert(open, opened).is_none() {
            self.report.descriptors.fetch_add(1, Ordering::Relaxed);
        }
        Ok(descriptor)
    }
}

fn not_opened(error: Error) -> NotDone {
    match error.raw_os_error().map(Errno::from_raw_os_error) {
        // No such process or descriptor any more, or the descriptor is something else now.
        Some(Errno::NOENT | Errno::SRCH | Errno::NXIO | Errno::STALE) => NotDone::Gone,
        Some(Errno::PERM | Errno::ACCESS) => NotDone::Impossible(reason::NOT_OPENED),
        _ => NotDone::Failed(error.to_string()),
    }
}

/// Requests ranges of a file, in pieces that the kernel does not cut.
fn request(descriptor: &OwnedFd, ranges: &[Range<u64>], piece_pages: u64) -> Result<(), NotDone> {
    for piece in ranges.iter().flat_map(|range| pieces(range, piece_pages)) {
        let (offset, length) = (piece.start * PAGE_BYTES, (piece.end - piece.start) * PAGE_BYTES);
        cache::read_ahead(descriptor, offset, length).map_err(|error| NotDone::Failed(error.to_string()))?;
    }
    Ok(())
}

/// A range in pieces of at most this length; none of an empty range.
pub(crate) fn pieces(range: &Range<u64>, piece_pages: u64) -> impl Iterator<Item = Range<u64>> + use<> {
    let (range, step) = (range.clone(), piece_pages.max(1));
    let mut at = range.start;
    std::iter::from_fn(move || {
        (at < range.end).then(|| {
            let piece = at..at.saturating_add(step).min(range.end);
            at = piece.end;
            piece
        })
    })
}

#[cfg(test)]
mod tests {
    use super::super::{EXPIRES, MOST_THREADS};
    use super::*;
    use ahead_model::DeviceNumber;

    #[test]
    fn range_is_cut_into_pieces() {
        let cut = |range: Range<u64>, step| pieces(&range, step).collect::<Vec<_>>();
        assert_eq!(cut(3..10, 4), [3..7, 7..10]);
        assert_eq!(cut(3..5, 0), [3..4, 4..5]);
        assert!(cut(Range { start: 5, end: 5 }, 4).is_empty() && cut(Range { start: 6, end: 5 }, 4).is_empty());
        assert_eq!(cut(u64::MAX - 1..u64::MAX, 4), [u64::MAX - 1..u64::MAX]);
    }

    /// A device that does not answer: its queue fills, and the caller never waits.
    #[test]
    fn full_queue_refuses_reads_and_accepts_closes() {
        let lane = Arc::new(Lane::new(Arc::default(), EXPIRES));
        // As if both workers waited for the device.
        locked(&lane.state).workers = MOST_WORKERS;
        let expected = Expected { device: DeviceNumber::new(8, 0), inode_number: 1, is_block_device: false };
        let source = Source { descriptor: Descriptor::default(), expected };
        let read = |open| Work::Read { open, source, ranges: vec![0..1], piece_pages: 1, decided_ns: 0 };
        for open in 0..MOST_WAITING as u64 {
            assert!(lane.put(read(open)).is_ok());
        }
        assert!(lane.put(read(99)).is_err());
        let descriptor = OwnedFd::from(std::fs::File::open("/").unwrap());
        assert!(lane.put(Work::Close(descriptor)).is_ok());
        lane.stop(5);
        assert!(lane.put(read(99)).is_ok());
        lane.end();
        assert_eq!(locked(&lane.state).waiting.len(), 1);
    }

    /// Regression: without a worker, the caller closed the descriptor, which may wait for a file system.
    #[test]
    fn close_waits_until_a_worker_can_be_started() {
        let report = Arc::new(Report::default());
        report.threads.store(MOST_THREADS, Ordering::Relaxed);
        let lane = Arc::new(Lane::new(report.clone(), EXPIRES));
        let (mut reader, writer) = std::io::pipe().unwrap();
        assert!(lane.put(Work::Close(writer.into())).is_ok());
        assert!(lane.close_idle(Instant::now()));
        assert_eq!(locked(&lane.state).waiting.len(), 1);
        report.threads.store(0, Ordering::Relaxed);
        assert!(lane.close_idle(Instant::now()));
        assert_eq!(std::io::Read::read(&mut reader, &mut [0]).unwrap(), 0);
        lane.end();
    }
}
