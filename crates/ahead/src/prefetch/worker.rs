//! The threads that execute a plan.
//!
//! ```text
//!     steps   ├ s0 ┼ s1 ┼ s2 ┼ s3 ┼ s4 ┼ …          each worker takes the next step
//!                              ▲ cursor
//!     step    open ▸ unchanged since the recording? ▸ resident, or a hole? ▸ cut ▸ read_ahead, read_ahead … ▸ account
//! ```
//!
//! Workers submit reads and do not wait for them: the only queue is that of the kernel, and a submission blocks while it is full.
//! A single worker keeps the order of a rotating disk. With several workers, an open(2) that waits for metadata does not delay
//! the other steps.

mod block;

use crate::prefetch::account::{Account, Issued, Reason};
use crate::prefetch::description_check::TimedRead;
use crate::prefetch::fetch::{Fetch, Job};
use crate::prefetch::follower::{FOLLOWS, Follower};
use crate::prefetch::shared::{Shared, as_us};
use crate::prefetch::sources::{Closed, Readable, Sources};
use ahead_fetch::{Brake, calls};
use ahead_model::RangeSet;
use ahead_plan::cut;
use ahead_plan::pacing::{MOST_WAITING, Queued};
use ahead_plan::{Source, Span, Step};
use ahead_profile::Profile;
use ahead_sys::locks::IgnorePoison;
use ahead_sys::root::Root;
use ahead_sys::{cache, sparse, xfs};
use std::ffi::OsStr;
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

/// Maximum number of entries read of a directory: about ten thousand blocks of metadata.
const MAX_ENTRIES: usize = 1 << 20;

/// One of the threads that work on a device.
pub struct Worker<'a> {
    fetch: &'a Fetch,
    job: &'a Job,
    profile: &'a Profile,
    sources: &'a Sources,
    brake: &'a Brake,
    root: &'a Root,
    /// Whether to keep every range for the account.
    keep_ranges: bool,
}

impl Worker<'_> {
    /// A worker for this job.
    pub fn new<'a>(fetch: &'a Fetch, job: &'a Job) -> Worker<'a> {
        let Shared { profile, sources, brake, root, options, .. } = &*fetch.shared;
        let keep_ranges = options.keep_ranges || options.wait;
        Worker { fetch, job, profile, sources, brake, root, keep_ranges }
    }

    fn check(&self) -> Result<(), Reason> {
        self.fetch.check(self.job.device)
    }

    /// Each request is in the account as soon as it is submitted. So an early reader of the account misses only the requests of
    /// workers that wait for a device that does not answer.
    fn note(&self, what: impl FnOnce(&mut Account)) {
        self.fetch.note(self.job.device, what);
    }

    /// Executes steps until all before `end` are taken.
    pub fn take_steps(&self, end: usize) {
        self.take_queued_steps(end, &mut WorkerQueue::new(self.job.queue_us));
    }

    fn take_queued_steps(&self, end: usize, queue: &mut WorkerQueue) {
        loop {
            let next = |at: usize| (at < end).then_some(at + 1);
            let taken = self.job.cursor.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next);
            let Ok(index) = taken else { return };
            match &self.job.plan.steps[index] {
                Step::Fetch(span) => {
                    self.fetch(span, queue);
                    self.sources.done(span.source);
                }
                Step::LookUp(lookup) => self.look_up(*lookup),
                Step::Open(file) => self.open(*file),
                Step::ReadInodes(range) => self.read_inodes(*range),
            }
            if index + 1 == self.job.head_start_steps {
                self.fetch.release(self.job.device);
            }
        }
    }

    /// Executes the steps before `end`, which are reads far apart, this many at a time. Returns the ratios of their measured and
    /// expected times. A step whose residency is unknown gives no ratio.
    pub fn time_steps(&self, end: usize, at_a_time: usize) -> Vec<f64> {
        let mut ratios = Vec::new();
        while self.job.cursor.load(Ordering::Relaxed) < end {
            let began = Instant::now();
            let mut queue = WorkerQueue { timed: Some(Vec::new()), ..WorkerQueue::new(f64::INFINITY) };
            let last = (self.job.cursor.load(Ordering::Relaxed) + at_a_time).min(end);
            self.take_queued_steps(last, &mut queue);
            let reads = queue.timed.unwrap_or_default();
            for (before, read) in reads.iter().enumerate() {
                if self.check().is_err() {
                    return ratios;
                }
                ratios.push(read.ratio(&self.job.description, before));
            }
            if at_a_time == 1 {
                self.job.longest_step_us.fetch_max(as_us(began.elapsed()), Ordering::Relaxed);
            }
        }
        ratios
    }

    fn look_up(&self, index: usize) {
        if self.check().is_err() {
            return;
        }
        let lookup = &self.profile.lookups[index];
        let path = Path::new(OsStr::from_bytes(&lookup.path));
        // The result is ignored: no step depends on it, and a missing path is no error.
        match lookup.listed {
            // A large directory takes long, and each read of it is progress.
            true => drop(self.root.list(path, |entries| entries < MAX_ENTRIES && self.check().is_ok())),
            false => drop(self.root.look_up(path)),
        }
        self.note(|account| account.lookups += 1);
    }

    fn open(&self, index: usize) {
        if self.check().is_ok() {
            // The result is kept, and counted with the file's data.
            drop(self.sources.get(Source::File(index)));
            self.note(|account| account.lookups += 1);
        }
    }

    fn read_inodes(&self, index: usize) {
        let (Ok(()), Some(file_system)) = (self.check(), &self.job.inodes.file_system) else { return };
        let range = &self.job.inodes.ranges[index];
        match xfs::read_inodes(file_system, range.numbers.clone(), range.at_a_time) {
            Ok(_) => self.note(|account| account.lookups += range.lookups),
            // The program gets the error of an inode that cannot be read.
            Err(error) => tracing::debug!("{error}"),
        }
    }

    /// Whether a window follows the program, and the program has passed this span.
    fn has_passed(&self, span: &Span) -> bool {
        let passes = |follower: &Arc<Follower>| span.used.iter().all(|range| follower.has_passed(span.source, range));
        FOLLOWS && self.job.follower.as_ref().is_some_and(passes)
    }

    fn fetch(&self, span: &Span, queue: &mut WorkerQueue) {
        let reason = self.check().err().or_else(|| self.has_passed(span).then_some(Reason::Passed));
        if let Some(reason) = reason {
            return self.note(|account| account.skip(reason, span.used_bytes()));
        }
        let opened = self.sources.get(span.source);
        let opened = match opened {
            Err(closed) if closed.is_passing() => {
                // Each pending request holds a file open.
                queue.queued.clear();
                self.sources.get(span.source)
            }
            opened => opened,
        };
        let readable = match opened {
            Ok(readable) => readable,
            Err(Closed::Skipped(reason)) => return self.note(|account| account.skip(reason, span.used_bytes())),
            Err(Closed::Stale) => return self.stale(span),
            Err(Closed::Failed(number)) => {
                let why = format!("open: {}", std::io::Error::from_raw_os_error(number));
                return self.note(|account| account.fail(span.used_bytes(), why));
            }
        };
        let used = within(&span.used, readable.size_bytes);
        let beyond = span.used_bytes() - used.count();
        if beyond > 0 {
            self.note(|account| account.skip(Reason::Missing, beyond));
        }
        let Some(whole) = used.span() else { return };
        let resident = cache::resident(&*readable, whole.start, whole.end - whole.start);
        let resident = resident.map(RangeSet::from_iter);
        let is_known = resident.is_ok();
        if resident.as_ref().is_ok_and(|resident| used.count_common(resident) == used.count()) {
            let mut known = self.job.resident.lock().ignore_poison();
            known.push((span.source, whole.clone()));
        }
        // Their pages cost memory and no read: they are cut out as resident ones are.
        let holes = if readable.may_have_holes { sparse::holes(&*readable, whole) } else { RangeSet::new() };
        let mut there = resident.as_ref().ok().cloned().unwrap_or_default();
        let resident_bytes = used.count_common(&there);
        holes.iter().for_each(|hole| there.insert(hole.clone()));
        let holes_bytes = used.count_common(&there) - resident_bytes;
        self.note(|account| {
            if self.job.is_refetch {
                return;
            }
            account.holes_bytes += holes_bytes;
            match &resident {
                Ok(_) => account.already_resident_bytes += resident_bytes,
                Err(_) => account.residency_unknown_bytes += used.count() - holes_bytes,
            }
        });
        let resident = there;
        if self.fetch_block(span, &readable, &resident) {
            return;
        }
        for range in cut::requests(&used, &resident, readable.cap_bytes) {
            let (last, bytes, issued) = (range.end - 1, range.end - range.start, Instant::now());
            if self.issue(span.source, &readable, &used, &range) {
                if let Some(timed) = queue.timed.as_mut().filter(|_| is_known) {
                    timed.push(TimedRead::new(&readable, range, issued));
                }
                let most = (self.sources.most_open() / LONGEST_QUEUES).clamp(1, MOST_WAITING);
                queue.push(&readable, last, self.job.description.step_us(bytes), most, || self.check().is_ok());
            }
        }
    }

    fn stale(&self, span: &Span) {
        let mut stale = self.fetch.stale.lock().ignore_poison();
        let first = matches!(span.source, Source::File(index) if stale.insert(index));
        self.note(|account| {
            account.stale_bytes += span.used_bytes();
            account.stale_files += u64::from(first);
        });
    }

    /// Returns whether the range was issued.
    fn issue(&self, source: Source, from: &Readable, used: &RangeSet, range: &Range<u64>) -> bool {
        let length = range.end - range.start;
        let wanted = used.count_within(range);
        if let Err(reason) = self.check() {
            self.note(|account| account.skip(reason, wanted));
            return false;
        }
        if !self.brake.take(length) {
            self.note(|account| account.skip(Reason::OverBudget, wanted));
            return false;
        }
        if let Err(error) = calls::read_ahead(from.device, from, range) {
            self.note(|account| account.fail(wanted, error));
            return false;
        }
        let kept = if self.keep_ranges { cut::by_use(range, used) } else { Vec::new() };
        self.note(|account| {
            account.requests += 1;
            account.issued_bytes += length;
            account.bridged_bytes += length - wanted;
            if self.job.is_refetch {
                account.window.get_or_insert_default().refetched_bytes += wanted;
            }
            if source.is_metadata() {
                account.metadata_bytes += length;
            }
            account.ranges.extend(kept.into_iter().map(|(range, bridged)| Issued { source, range, bridged }));
        });
        true
    }
}

/// The requests of a worker that have not arrived yet: the file, and the last byte.
struct WorkerQueue {
    queued: Queued<(Arc<Readable>, u64)>,
    /// The timer of a read, if it is timed.
    timed: Option<Vec<TimedRead>>,
}

/// If few files may be open, the queue of each worker holds at most this part of them.
const LONGEST_QUEUES: usize = 16;

impl WorkerQueue {
    fn new(most_us: f64) -> WorkerQueue {
        WorkerQueue { queued: Queued::new(most_us), timed: None }
    }

    /// Adds a request that ends at byte `last`. Waits for the oldest requests until the others are short enough and hold at most
    /// `most` files.
    fn push(&mut self, readable: &Arc<Readable>, last: u64, takes_us: f64, most: usize, goes_on: impl Fn() -> bool) {
        self.queued.push((readable.clone(), last), takes_us);
        while self.queued.overdue(most).is_some() && goes_on() {
            let Some((readable, last)) = self.queued.pop() else { break };
            // A page that was evicted again is not read with its neighbours. The program gets the error of a failed page.
            drop(cache::exact_reads(&*readable));
            drop(cache::wait_for(&*readable, last));
        }
    }
}

/// The parts of the ranges below `size_bytes`: a device may be smaller than at the recording.
fn within(ranges: &[Range<u64>], size_bytes: u64) -> RangeSet {
    ranges.iter().map(|range| range.start..range.end.min(size_bytes)).collect()
}
