//! Finds the pages that the kernel has read ahead: by queries to the kernel, or by timing alone.
//!
//! ```text
//!     cachestat   counts cached pages without a side effect: one run shows every step
//!     timing      an access to a cached page takes about a microsecond, to an absent page the time of the disk. The access reads
//!                 this absent page (only this one). A second run has to find the page absent again
//! ```
//!
//! The accesses use a separate mapping with the advice for random access (`VM_RAND_READ`). A fault there reads a single page, and
//! ignores the kernel's marks, which trigger read-ahead and are invisible to programs. A read call would trigger read-ahead at
//! such a mark with any advice for the file. The resulting request would take as long as a read from a drive's buffer.

use crate::probe::Run;
use crate::probe::error::Result;
use crate::probe::statistics::{parting, quantile};
use crate::probe::subject::{PAGE_BYTES, Subject};
use ahead_sys::cache;
use ahead_sys::mapping::Mapping;
use std::fs::File;
use std::time::{Duration, Instant};

/// The method of finding cached pages.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Eyes {
    /// With cachestat.
    Asking,
    /// With the times of accesses.
    Timing(Clock),
}

/// The times of this disk.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Clock {
    /// An access that takes longer than this has read from the disk, nanoseconds.
    pub parting_ns: f64,
    /// Time of a random page, nanoseconds: a high percentile.
    pub access_ns: f64,
    /// Time of the transfer of a page, nanoseconds.
    pub page_ns: f64,
}

/// Number of mappings in which the probe learns the times of cached pages, and the distance of these pages. The kernel maps 16 pages
/// around a fault (`fault_around_bytes`), and an access to a mapped page is faster than any other.
const HIT_MAPPINGS: usize = 8;
const HIT_STEP_PAGES: usize = 16;
/// Number of random reads: most of them go to the disk itself.
const MISSES: u64 = 40;
/// Number of adjacent pages that exact reads access. A drive that reads ahead serves them from its buffer: the fastest possible read of a
/// disk.
const NEAR_MISSES: u64 = 100;
/// Pages of the long read from which the probe learns the transfer time of a page: 4 MiB.
const LONG_PAGES: u64 = 1024;
/// Minimum number of pages in flight to wait for: 1 MiB, more than the first windows of any kernel.
const LEAST_SETTLED_PAGES: u64 = 256;
/// Pages in flight have arrived after this multiple of the slowest access and the transfer.
const SETTLE: f64 = 2.0;

impl Eyes {
    /// Selects queries to the kernel if they work, unless the caller requests timing alone.
    ///
    /// `Err` as text: why neither method works.
    pub fn open(run: &Run) -> Result<std::result::Result<Eyes, String>> {
        if run.subject.is_counted() {
            return Ok(Ok(Eyes::Asking));
        }
        Ok(Clock::learn(run)?.map(Eyes::Timing))
    }

    /// The method as text in an answer.
    pub fn name(self) -> &'static str {
        match self {
            Eyes::Asking => "cachestat",
            Eyes::Timing(_) => "timing",
        }
    }

    /// The first absent page of `from..end` after a run, or `end` if all of them are cached. Timing repeats the run as often as
    /// necessary, and waits for pages in flight.
    pub fn end_of_cached(self, subject: &Subject, from: u64, end: u64, run: &Prepare) -> Result<u64> {
        match self {
            Eyes::Asking => {
                let ran = run()?;
                Ok(from + count(&ran.look, from, end)?)
            }
            Eyes::Timing(clock) => Looks::new(clock, subject, run).first_absent(from, end, |page| page),
        }
    }

    /// The number of cached pages right before `end` after a run; at most `end`.
    pub fn cached_before(self, subject: &Subject, end: u64, run: &Prepare) -> Result<u64> {
        match self {
            Eyes::Asking => count(&run()?.look, 0, end),
            Eyes::Timing(clock) => Looks::new(clock, subject, run).first_absent(0, end, |far| end - 1 - far),
        }
    }

    /// Whether the cached pages end exactly before `page` after a run whose last request had `pages` pages.
    pub fn ends_at(self, subject: &Subject, page: u64, pages: u64, run: &Prepare) -> Result<bool> {
        match self {
            Eyes::Asking => Ok(count(&run()?.look, page - 1, page + 1)? == 1),
            Eyes::Timing(clock) => {
                let mut looks = Looks { pages: pages.max(LEAST_SETTLED_PAGES), ..Looks::new(clock, subject, run) };
                Ok(looks.is_there(page - 1)? && !looks.is_there(page)?)
            }
        }
    }

    /// Whether a page is cached, when no process reads it and no read-ahead follows. With timing the function accesses the page, and so
    /// reads an absent page; `there` is a page that is certainly cached.
    pub fn sees(self, subject: &Subject, look: &File, page: u64, there: u64) -> Result<bool> {
        match self {
            Eyes::Asking => Ok(count(look, page, page + 1)? > 0),
            Eyes::Timing(clock) => {
                subject.read_page(look, there)?;
                Ok((subject.read_page(look, page)? as f64) < clock.parting_ns)
            }
        }
    }

    /// Whether this page is cached after a run.
    pub fn is_there(self, subject: &Subject, page: u64, run: &Prepare) -> Result<bool> {
        Ok(self.end_of_cached(subject, page, page + 1, run)? > page)
    }
}

/// The files that have to stay open after a run, and the file through which the probe accesses pages.
pub struct Ran {
    /// The probe's file, opened for exact reads.
    pub look: File,
    /// The reader's file.
    pub _reader: File,
    /// The reader's mapping.
    pub _mapping: Option<Mapping>,
}

/// Makes a run: from a cold cache to the state under test.
pub type Prepare<'a> = dyn Fn() -> Result<Ran> + 'a;

/// Number of cached pages in `from..end`.
pub fn count(look: &File, from: u64, end: u64) -> Result<u64> {
    Ok(cache::cachestat(look, from * PAGE_BYTES, end.saturating_sub(from) * PAGE_BYTES)?.cached_pages)
}

/// Nanoseconds that an access to this page takes. After a sleep or a wait for the disk the first access is slow for any page. The
/// processor has slept, and its caches hold other data. So the function accesses the cached page `there` first.
fn look_at(mapping: &Mapping, page: u64, there: u64) -> Result<f64> {
    mapping.fault((there * PAGE_BYTES) as usize)?;
    let began = Instant::now();
    mapping.fault((page * PAGE_BYTES) as usize)?;
    Ok(began.elapsed().as_nanos() as f64)
}

/// Finds cached pages by timing, with a new run for each test.
struct Looks<'a> {
    clock: Clock,
    subject: &'a Subject,
    run: &'a Prepare<'a>,
    /// Maximum number of pages in flight.
    pages: u64,
    ran: Option<(Ran, Mapping)>,
}

impl<'a> Looks<'a> {
    fn new(clock: Clock, subject: &'a Subject, run: &'a Prepare<'a>) -> Looks<'a> {
        Looks { clock, subject, run, pages: LEAST_SETTLED_PAGES, ran: None }
    }

    /// The first absent page of `from..end`, in the order of `page_of`. An access to a cached page costs almost nothing. Other load can
    /// make an access slow, but never fast. So a page counts as absent on two conditions. The next page is absent. A separate run, with
    /// more time for pages in flight, finds the page absent again.
    fn first_absent(&mut self, from: u64, end: u64, page_of: impl Fn(u64) -> u64) -> Result<u64> {
        let mut at = from;
        while at < end {
            if self.is_there(page_of(at))? || at + 1 < end && self.is_there(page_of(at + 1))? {
                at += 1;
                continue;
            }
            self.ran = None;
            self.pages = self.pages.max(2 * (at - from));
            if !self.is_there(page_of(at))? {
                break;
            }
            at += 1;
        }
        Ok(at)
    }

    fn is_there(&mut self, page: u64) -> Result<bool> {
        let (ran, mapping) = match self.ran.take() {
            Some(ran) => ran,
            None => {
                let ran = (self.run)()?;
                self.clock.settle(self.subject, &ran.look, self.pages)?;
                let mapping = self.subject.map_exact(&ran.look)?;
                (ran, mapping)
            }
        };
        // The last page of the file is cached: `settle` has read it.
        let looked_ns = look_at(&mapping, page, self.subject.pages() - 1)?;
        self.ran = Some((ran, mapping));
        Ok(looked_ns < self.clock.parting_ns)
    }
}

impl Clock {
    /// Measures the times of cached and absent pages.
    fn learn(run: &Run) -> Result<std::result::Result<Clock, String>> {
        let subject = run.subject;
        if let Some(why) = subject.missing() {
            return Ok(Err(why.to_owned()));
        }
        subject.make_cold(run.watcher)?;
        let look = subject.open_exact()?;
        let pages = subject.pages();
        let (mut misses, mut near, mut hits) = (Vec::new(), Vec::new(), Vec::new());
        subject.read_page(&look, 0)?;
        let Ok(mapping) = subject.map_exact(&look) else {
            return Ok(Err("times are those of faults, and this file cannot be mapped".to_owned()));
        };
        for count in 1..=MISSES.min(pages / 8) {
            // Golden section: spreads any number of places evenly.
            let page = (count as f64 * 0.618_033_988_75).fract() * (pages - 1) as f64;
            misses.push(look_at(&mapping, page as u64, 0)?);
        }
        let first = pages / 2;
        for page in first..(first + NEAR_MISSES).min(pages) {
            near.push(look_at(&mapping, page, 0)?);
        }
        drop(mapping);
        subject.make_cold(run.watcher)?;
        let long = LONG_PAGES.min(pages / 2);
        let long_ns = subject.read(&look, 0, (long * PAGE_BYTES) as usize)? as f64;
        for _ in 0..HIT_MAPPINGS {
            let mapping = subject.map_exact(&look)?;
            for page in (1..long).step_by(HIT_STEP_PAGES) {
                hits.push(look_at(&mapping, page, 0)?);
            }
        }
        let slow: Vec<f64> = near[1..].iter().chain(&misses).copied().collect();
        let Some(parting_ns) = parting(&hits, &slow) else {
            let [hit, miss] = [quantile(&hits, 0.99), quantile(&slow, 0.01)].map(|ns| ns / 1e3);
            return Ok(Err(format!(
                "times do not tell what is cached: pages that are take up to {hit:.0} us, others from {miss:.0} us on"
            )));
        };
        Ok(Ok(Clock { parting_ns, access_ns: quantile(&misses, 0.95), page_ns: long_ns / long as f64 }))
    }

    /// Waits until the requested `pages` pages have arrived. Without queries to the kernel there is only one way. The function requests
    /// another page, at the file's end. Then it waits for a time that is enough for all of these pages.
    fn settle(self, subject: &Subject, look: &File, pages: u64) -> Result<()> {
        subject.read_page(look, subject.pages() - 1)?;
        let takes = Duration::from_nanos((SETTLE * (self.access_ns + pages as f64 * self.page_ns)) as u64);
        std::thread::sleep(takes);
        subject.has_settled(takes);
        Ok(())
    }
}
