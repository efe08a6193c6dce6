//! The threads that carry a plan out.
//!
//! ```text
//!     steps   ├ s0 ┼ s1 ┼ s2 ┼ s3 ┼ s4 ┼ …          each worker takes the next one
//!                              ▲ cursor
//!     step    open? ▸ still as recorded? ▸ resident? ▸ cut ▸ read_ahead, read_ahead …  ▸ counted
//! ```
//!
//! Reads are submitted, not waited for: the kernel's queue is the only one there is, and a submission blocks while it is
//! full. One worker keeps the order that a rotating disk wants. Several keep each other's openings from holding up the
//! rest where metadata must be waited for.

use crate::prefetch::account::{Account, Issued, Reason};
use crate::prefetch::brake::Brake;
use crate::prefetch::description_check::TimedRead;
use crate::prefetch::fetch::{Fetch, Job};
use crate::prefetch::shared::Shared;
use crate::prefetch::sources::{Closed, Readable, Sources};
use ahead_model::RangeSet;
use ahead_plan::cut::{self, Request};
use ahead_plan::pacing::MOST_WAITING;
use ahead_plan::{Source, Span, Step};
use ahead_profile::Profile;
use ahead_sys::{cache, openat, xfs};
use std::collections::VecDeque;
use std::ffi::OsStr;
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

/// Entries of a directory that are read at most: some ten thousand blocks of metadata.
const MAX_ENTRIES: usize = 1 << 20;

/// One of the threads that work on a device.
pub struct Worker<'a> {
    fetch: &'a Fetch,
    job: &'a Job,
    profile: &'a Profile,
    sources: &'a Sources,
    brake: &'a Brake,
    /// Whether every range is to be kept.
    keep_ranges: bool,
}

impl Worker<'_> {
    /// For this job.
    pub fn new<'a>(fetch: &'a Fetch, job: &'a Job) -> Worker<'a> {
        let Shared { profile, sources, brake, options, .. } = &*fetch.shared;
        Worker { fetch, job, profile, sources, brake, keep_ranges: options.keep_ranges || options.wait }
    }

    fn check(&self) -> Result<(), Reason> {
        self.fetch.pool.check(self.job.device, self.brake)
    }

    /// Each request is noted when it is made: a reader of the account then misses only the requests of workers that wait for a device
    /// that does not answer.
    fn note(&self, what: impl FnOnce(&mut Account)) {
        self.fetch.note(self.job.device, what);
    }

    /// Works until all steps up to `end` are taken.
    pub fn take_steps(&self, end: usize) {
        self.take_queued_steps(end, &mut Queue::new(self.job.queue_us));
    }

    fn take_queued_steps(&self, end: usize, queue: &mut Queue) {
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

    /// Takes the steps up to `end`, which are fetches far from one another, this many at a time, and gives the ratios of their measured and
    /// expected times. A step of which it is not known whether it was resident gives none.
    pub fn time_steps(&self, end: usize, at_a_time: usize) -> Vec<f64> {
        let mut ratios = Vec::new();
        while self.job.cursor.load(Ordering::Relaxed) < end {
            let mut queue = Queue { timed: Some(Vec::new()), ..Queue::new(f64::INFINITY) };
            let last = (self.job.cursor.load(Ordering::Relaxed) + at_a_time).min(end);
            self.take_queued_steps(last, &mut queue);
            let reads = queue.timed.unwrap_or_default();
            for (before, read) in reads.iter().enumerate() {
                if self.check().is_err() {
                    return ratios;
                }
                ratios.push(read.ratio(&self.job.description, before));
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
        // Nothing depends on the answer; a path that is gone is nothing to report.
        match lookup.listed {
            // A large directory takes long, and answers all the time.
            true => drop(openat::list(path, |entries| entries < MAX_ENTRIES && self.check().is_ok())),
            false => drop(openat::look_up(path)),
        }
        self.note(|account| account.lookups += 1);
    }

    fn open(&self, index: usize) {
        if self.check().is_ok() {
            // What came of it is kept, and counted with its data.
            drop(self.sources.get(Source::File(index)));
            self.note(|account| account.lookups += 1);
        }
    }

    fn read_inodes(&self, index: usize) {
        let (Ok(()), Some(file_system)) = (self.check(), &self.job.inodes.file_system) else { return };
        let range = &self.job.inodes.ranges[index];
        match xfs::read_inodes(file_system, range.numbers.clone(), range.at_a_time) {
            Ok(_) => self.note(|account| account.lookups += range.lookups),
            // An inode that cannot be read is the program's to find out.
            Err(error) => tracing::debug!("{error}"),
        }
    }

    fn fetch(&self, span: &Span, queue: &mut Queue) {
        if let Err(reason) = self.check() {
            return self.note(|account| account.skip(reason, span.used_bytes()));
        }
        let opened = self.sources.get(span.source);
        let opened = match opened {
            Err(closed) if closed.is_passing() => {
                // Each request that is waited for keeps a file open.
                queue.clear();
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
        self.note(|account| match &resident {
            Ok(resident) => account.already_resident_bytes += used.count_common(resident),
            Err(_) => account.residency_unknown_bytes += used.count(),
        });
        for request in cut::requests(&used, &resident.unwrap_or_default(), readable.cap_bytes) {
            let range = request.range.clone();
            let (last, bytes, issued) = (range.end - 1, range.end - range.start, Instant::now());
            if self.issue(span.source, &readable, &used, request) {
                if let Some(timed) = queue.timed.as_mut().filter(|_| is_known) {
                    timed.push(TimedRead::new(&readable, range, issued));
                }
                let most = (self.sources.most_open() / LONGEST_QUEUES).clamp(1, MOST_WAITING);
                queue.push(&readable, last, self.job.description.step_us(bytes), most, || self.check().is_ok());
            }
        }
    }

    fn stale(&self, span: &Span) {
        let mut stale = self.fetch.stale.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let first = matches!(span.source, Source::File(index) if stale.insert(index));
        self.note(|account| {
            account.stale_bytes += span.used_bytes();
            account.stale_files += u64::from(first);
        });
    }

    /// Whether it was issued.
    fn issue(&self, source: Source, from: &Readable, used: &RangeSet, request: Request) -> bool {
        let length = request.range.end - request.range.start;
        let wanted = length - request.bridged_bytes;
        if let Err(reason) = self.check() {
            self.note(|account| account.skip(reason, wanted));
            return false;
        }
        if !self.brake.take(length) {
            self.note(|account| account.skip(Reason::OverBudget, wanted));
            return false;
        }
        if let Err(error) = cache::read_ahead(from, request.range.start, length) {
            self.note(|account| account.fail(wanted, error));
            return false;
        }
        let kept = if self.keep_ranges { cut::by_use(&request.range, used) } else { Vec::new() };
        self.note(|account| {
            account.requests += 1;
            account.issued_bytes += length;
            account.bridged_bytes += request.bridged_bytes;
            if source.is_metadata() {
                account.metadata_bytes += length;
            }
            account.ranges.extend(kept.into_iter().map(|(range, bridged)| Issued { source, range, bridged }));
        });
        true
    }
}

/// What a worker has issued and not yet seen arrive.
///
/// The kernel's queue is first in, first out, and as long as we make it: a page that the program asks for and that we
/// have not, or not yet, asked for waits behind all of it. So each worker waits, before it goes on, until what it issued
/// a while ago has arrived.
struct Queue {
    waiting: VecDeque<(Arc<Readable>, u64, f64)>,
    queued_us: f64,
    most_us: f64,
    /// What is to be timed, if anything is.
    timed: Option<Vec<TimedRead>>,
}

/// Where few files may be open, each worker's queue holds this part of them at most.
const LONGEST_QUEUES: usize = 16;

impl Queue {
    fn new(most_us: f64) -> Queue {
        Queue { waiting: VecDeque::new(), queued_us: 0.0, most_us, timed: None }
    }

    /// Waits for nothing any more.
    fn clear(&mut self) {
        self.waiting.clear();
        self.queued_us = 0.0;
    }

    /// Adds a request that ends at byte `last`, and waits for the oldest ones until the rest is short enough, and no more than
    /// `most` files.
    fn push(&mut self, readable: &Arc<Readable>, last: u64, takes_us: f64, most: usize, goes_on: impl Fn() -> bool) {
        if self.most_us.is_infinite() {
            return;
        }
        self.waiting.push_back((readable.clone(), last, takes_us));
        self.queued_us += takes_us;
        while (self.queued_us > self.most_us || self.waiting.len() > most) && self.waiting.len() > 1 {
            let Some((readable, last, takes_us)) = self.waiting.pop_front() else { break };
            if !goes_on() {
                return;
            }
            // A page that is gone again is not read with its neighbours; one that failed is the program's to find out.
            drop(cache::exact_reads(&*readable));
            drop(cache::wait_for(&*readable, last));
            self.queued_us -= takes_us;
        }
    }
}

/// The ranges as far as they lie below `size_bytes`: a device may be smaller than it was.
fn within(ranges: &[Range<u64>], size_bytes: u64) -> RangeSet {
    ranges.iter().map(|range| range.start..range.end.min(size_bytes)).collect()
}
