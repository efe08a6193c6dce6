//! One region: what the program's threads and the helper thread share. Only atomic numbers, so that no thread waits for another.

use crate::advise::Counters;
use ahead_fetch::calls::{self, pieces};
use ahead_model::DeviceNumber;
use ahead_sys::advice;
use ahead_sys::maps::Area;
use ahead_sys::{Result, machine};
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};
use std::thread::Thread;
use std::time::Duration;

/// No progress was reported.
const NOTHING: usize = usize::MAX;

/// What the helper thread has done for a region.
#[derive(Debug, Default)]
struct Counts {
    groups: AtomicU64,
    cached_groups: AtomicU64,
    requested_bytes: AtomicU64,
    retried: AtomicU64,
    waits: AtomicU64,
    waited_us: AtomicU64,
    looks: AtomicU64,
    distance_bytes: AtomicU64,
}

/// A region with read-ahead.
#[derive(Debug)]
pub struct Region {
    /// Whole pages.
    pub addresses: Range<usize>,
    /// The device that it is read from.
    pub device: DeviceNumber,
    /// Largest request of one call, bytes.
    cap_bytes: usize,
    /// mincore reports the truth.
    pub reports_residency: bool,
    /// Page size, bytes.
    pub page: usize,
    is_stopped: AtomicBool,
    reported: AtomicUsize,
    /// Number of the group that progress was reported in, and the bytes of a group.
    reported_group: AtomicUsize,
    group_bytes: AtomicUsize,
    was_reported: AtomicBool,
    helper: OnceLock<Arc<OnceLock<Thread>>>,
    counts: Counts,
}

impl Region {
    /// A region that is mapped by these areas.
    pub fn new(addresses: Range<usize>, areas: &[Area]) -> Region {
        let device = areas.first().map_or(DeviceNumber::new(0, 0), |area| area.device);
        Region {
            addresses,
            device,
            cap_bytes: calls::cap_bytes(device) as usize,
            reports_residency: areas.iter().all(Area::reports_residency),
            page: machine::page_size() as usize,
            is_stopped: AtomicBool::new(false),
            reported: AtomicUsize::new(NOTHING),
            reported_group: AtomicUsize::new(NOTHING),
            group_bytes: AtomicUsize::new(1),
            was_reported: AtomicBool::new(false),
            helper: OnceLock::new(),
            counts: Counts::default(),
        }
    }

    /// Pages of the region.
    pub fn pages(&self) -> u64 {
        ((self.addresses.end - self.addresses.start) / self.page) as u64
    }

    /// The thread that looks after the region.
    pub fn set_helper(&self, thread: Arc<OnceLock<Thread>>) {
        let _ = self.helper.set(thread);
    }

    /// Ends the read-ahead.
    pub fn stop(&self) {
        self.is_stopped.store(true, Relaxed);
        self.wake();
    }

    /// Whether it has ended.
    pub fn is_stopped(&self) -> bool {
        self.is_stopped.load(Relaxed)
    }

    /// Ends the sleep of the helper thread. One that has not begun its first look needs no waking.
    pub fn wake(&self) {
        if let Some(thread) = self.helper.get().and_then(|thread| thread.get()) {
            thread.unpark();
        }
    }

    /// The program has come to a byte of the region. Wakes the helper thread when it is in another group than before.
    pub fn report(&self, offset_bytes: usize) {
        let offset = offset_bytes.min(self.addresses.end - self.addresses.start - 1);
        self.reported.store(offset, Relaxed);
        let group = offset / self.group_bytes.load(Relaxed);
        if self.reported_group.load(Relaxed) != group {
            self.reported_group.store(group, Relaxed);
            self.was_reported.store(true, Relaxed);
            self.wake();
        }
    }

    /// Where the program says it is; `None`: it has said nothing.
    pub fn reported(&self) -> Option<u64> {
        let offset = self.reported.load(Relaxed);
        (offset != NOTHING).then_some(offset as u64)
    }

    /// Whether another group was reported since the last call.
    pub fn take_reported(&self) -> bool {
        self.was_reported.swap(false, Relaxed)
    }

    /// Sets the bytes of a group, after which the helper thread is woken.
    pub fn set_group_bytes(&self, bytes: u64) {
        self.group_bytes.store((bytes as usize).max(1), Relaxed);
    }

    /// Addresses of pages.
    pub fn addresses_of(&self, pages: &Range<u64>) -> Range<usize> {
        let address = |page: u64| self.addresses.start + page as usize * self.page;
        address(pages.start)..address(pages.end)
    }

    /// The absent ones of some pages. Empty if mincore does not report them.
    ///
    /// Errors: the region is not mapped any more.
    pub fn absent(&self, pages: &Range<u64>) -> Result<Vec<Range<u64>>> {
        if !self.reports_residency || pages.is_empty() {
            return Ok(Vec::new());
        }
        let page = |address: usize| ((address - self.addresses.start) / self.page) as u64;
        let absent = advice::absent(&self.addresses_of(pages))?;
        Ok(absent.into_iter().map(|range| page(range.start)..page(range.end)).collect())
    }

    /// Whether a page is absent. `false` if mincore does not report it.
    ///
    /// Errors: the region is not mapped any more.
    pub fn is_absent(&self, page: u64) -> Result<bool> {
        self.absent(&(page..page + 1)).map(|absent| !absent.is_empty())
    }

    /// Requests pages, in pieces that the kernel does not shorten; the last one first for a reader that descends.
    ///
    /// Errors: the region is not mapped any more.
    pub fn request(&self, pages: &Range<u64>, is_descending: bool) -> Result<()> {
        let Range { start, end } = self.addresses_of(pages);
        let cap = (self.cap_bytes / self.page).max(1) * self.page;
        let mut pieces = pieces(&(start as u64..end as u64), cap as u64);
        let request = |piece: Range<u64>| {
            let piece = piece.start as usize..piece.end as usize;
            if self.is_stopped() {
                return Ok(());
            }
            self.count_requested(piece.len());
            match calls::read_ahead_mapped(self.device, &piece) {
                // The kernel may also lack memory, or be interrupted: the check of the reader's group requests the pages again. mincore
                // fails only if the region is gone.
                Err(_) => advice::absent(&(piece.start..piece.start + self.page)).map(drop),
                Ok(()) => Ok(()),
            }
        };
        if is_descending { pieces.rev().try_for_each(request) } else { pieces.try_for_each(request) }
    }

    fn count_requested(&self, bytes: usize) {
        self.counts.requested_bytes.fetch_add(bytes as u64, Relaxed);
    }

    /// Counts a group that was requested, or that was cached.
    pub fn count_group(&self, was_cached: bool) {
        let counter = if was_cached { &self.counts.cached_groups } else { &self.counts.groups };
        counter.fetch_add(1, Relaxed);
    }

    /// Counts a range that was requested again.
    pub fn count_retry(&self) {
        self.counts.retried.fetch_add(1, Relaxed);
    }

    /// Counts a wait.
    pub fn count_wait(&self) {
        self.counts.waits.fetch_add(1, Relaxed);
    }

    /// Counts the time of a wait.
    pub fn count_waited(&self, time: Duration) {
        self.counts.waited_us.fetch_add(time.as_micros() as u64, Relaxed);
    }

    /// Counts a look.
    pub fn count_look(&self, distance_bytes: u64) {
        self.counts.looks.fetch_add(1, Relaxed);
        self.counts.distance_bytes.store(distance_bytes, Relaxed);
    }

    /// The counters so far.
    pub fn counters(&self) -> Counters {
        let of = |counter: &AtomicU64| counter.load(Relaxed);
        let counts = &self.counts;
        Counters {
            groups: of(&counts.groups),
            cached_groups: of(&counts.cached_groups),
            requested_bytes: of(&counts.requested_bytes),
            retried: of(&counts.retried),
            waits: of(&counts.waits),
            waited_us: of(&counts.waited_us),
            looks: of(&counts.looks),
            distance_bytes: of(&counts.distance_bytes),
        }
    }
}
