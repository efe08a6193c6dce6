//! How to see what the kernel has read ahead: by asking it, or by timing alone.
//!
//! ```text
//!     cachestat   counts cached pages; asking changes nothing: one run sees every step
//!     timing      a page that is there is read in about a microsecond, one that is not takes the disk's time. To look at an
//!                 absent page brings it (and it alone): each question asks a fresh run
//! ```
//!
//! Reads by which is looked go through an opening of their own with exact reads, so that the kernel's picture of the reader
//! who is watched does not change. Still a look leaves traces: an absent page is cached afterwards, and a page that carries a mark,
//! which nobody can see, makes the kernel read on. So what is looked at first is expected to be absent, and after a page was there
//! the whole run is made anew.

use crate::error::Result;
use crate::statistics::{parting, quantile};
use crate::subject::{PAGE_BYTES, Subject};
use ahead_kernel::cache;
use ahead_kernel::mapping::Mapping;
use std::fs::File;
use std::time::Duration;

/// How the cache is looked at.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Eyes {
    /// By cachestat.
    Asking,
    /// By the times of reads.
    Timing(Clock),
}

/// What times tell on this disk.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Clock {
    /// A read of a page that took longer was one of the disk, nanoseconds.
    pub parting_ns: f64,
    /// Of a random page, nanoseconds: the slowest of nearly all.
    pub access_ns: f64,
    /// How long the transfer of a page takes, nanoseconds.
    pub page_ns: f64,
}

/// Reads by which times are learned.
const HITS: u64 = 400;
/// So many random pages are read: most of these go to the disk itself.
const MISSES: u64 = 40;
/// Pages in a row that are read exactly: a drive that reads on by itself serves them out of its buffer, the quickest that a read of
/// the disk can be.
const NEAR_MISSES: u64 = 100;
/// Pages of the long read by which a page's transfer is learned: 4 MiB.
const LONG_PAGES: u64 = 1024;
/// At least so much is waited for before a question: 1 MiB, more than the first windows of any kernel.
const LEAST_SETTLED_PAGES: u64 = 256;
/// What is under way has arrived after so many times the slowest access and the transfer.
const SETTLE: f64 = 2.0;

impl Eyes {
    /// Asks the kernel if it answers, and unless timing alone is wanted.
    ///
    /// `Err` as text: neither can be done, and why.
    pub fn open(subject: &Subject, timing_only: bool) -> Result<std::result::Result<Eyes, String>> {
        if !timing_only && is_told_the_truth(subject)? {
            return Ok(Ok(Eyes::Asking));
        }
        if subject.is_served()? {
            let why = "timing: a FUSE server may have a cache of its own, which evicting does not reach, and the kernel cuts \
                       read-ahead at what the server takes at once: times tell nothing for certain";
            return Ok(Err(why.to_owned()));
        }
        Ok(Clock::learn(subject)?.map(Eyes::Timing))
    }

    /// As a method in an answer.
    pub fn name(self) -> &'static str {
        match self {
            Eyes::Asking => "cachestat",
            Eyes::Timing(_) => "timing",
        }
    }

    /// The first page from `from` on that is not there after a run, where all before it are; at most `end`. A guess is tried
    /// first. Timing makes runs as often as it has to, and waits for what is under way.
    pub fn end_of_cached(self, subject: &Subject, from: u64, guess: u64, end: u64, run: &Prepare) -> Result<u64> {
        match self {
            Eyes::Asking => {
                let ran = run()?;
                Ok(from + count(&ran.look, from, end)?)
            }
            Eyes::Timing(clock) => {
                let mut looks = Looks::new(clock, subject, guess.saturating_sub(from), run);
                search(from, guess.clamp(from, end), end, |page| looks.is_there(page))
            }
        }
    }

    /// How many pages right before `end` are there after a run; at most `end`. A guess is tried first.
    pub fn cached_before(self, subject: &Subject, end: u64, guess: u64, run: &Prepare) -> Result<u64> {
        match self {
            Eyes::Asking => count(&run()?.look, 0, end),
            Eyes::Timing(clock) => {
                let mut looks = Looks::new(clock, subject, guess, run);
                search(0, guess.min(end), end, |far| looks.is_there(end - 1 - far))
            }
        }
    }

    /// Whether exactly the pages before this one are there after a run in which so many were asked for last.
    pub fn ends_at(self, subject: &Subject, page: u64, pages: u64, run: &Prepare) -> Result<bool> {
        match self {
            Eyes::Asking => Ok(count(&run()?.look, page - 1, page + 1)? == 1),
            Eyes::Timing(clock) => {
                let mut looks = Looks::new(clock, subject, pages, run);
                Ok(!looks.is_there(page)? && looks.is_there(page - 1)?)
            }
        }
    }

    /// Whether a page is there that nobody reads at the moment. By timing it is used, and read if it was not there; `there` is a page
    /// that surely is.
    pub fn sees(self, subject: &Subject, look: &File, page: u64, there: u64) -> Result<bool> {
        match self {
            Eyes::Asking => Ok(count(look, page, page + 1)? > 0),
            Eyes::Timing(clock) => Ok(look_at(subject, look, page, there)? < clock.parting_ns),
        }
    }

    /// Whether this page is there after a run.
    pub fn is_there(self, subject: &Subject, page: u64, run: &Prepare) -> Result<bool> {
        Ok(self.end_of_cached(subject, page, page, page + 1, run)? > page)
    }
}

/// Whether the kernel tells what is cached: it may refuse, and of a file of overlayfs, whose pages belong to a file of another file
/// system, it sees none.
fn is_told_the_truth(subject: &Subject) -> Result<bool> {
    let look = subject.open_exact()?;
    subject.read_page(&look, 0)?;
    Ok(cache::cachestat(subject.held(), 0, PAGE_BYTES).is_ok_and(|stat| stat.cached_pages > 0))
}

/// What has to stay open after a run, and the opening to look through.
pub struct Ran {
    /// With exact reads.
    pub look: File,
    /// The reader's.
    pub _reader: File,
    /// The reader's.
    pub _mapping: Option<Mapping>,
}

/// Makes a run: from a cold cache to where it is looked.
pub type Prepare<'a> = dyn Fn() -> Result<Ran> + 'a;

/// Pages that are cached between two.
pub fn count(look: &File, from: u64, end: u64) -> Result<u64> {
    Ok(cache::cachestat(look, from * PAGE_BYTES, end.saturating_sub(from) * PAGE_BYTES)?.cached_pages)
}

/// Nanoseconds of a read of this page. After a sleep or a wait for the disk the first read is slow, whatever it finds: the processor
/// has slept, its caches hold something else. So a page that is there is read before.
fn look_at(subject: &Subject, look: &File, page: u64, there: u64) -> Result<f64> {
    subject.read_page(look, there)?;
    Ok(subject.read_page(look, page)? as f64)
}

/// Looks by timing, with fresh runs.
struct Looks<'a> {
    clock: Clock,
    subject: &'a Subject,
    run: &'a Prepare<'a>,
    /// So many pages may be under way.
    pages: u64,
    /// The run, while nothing but absent pages were looked at.
    ran: Option<Ran>,
}

impl<'a> Looks<'a> {
    fn new(clock: Clock, subject: &'a Subject, pages: u64, run: &'a Prepare<'a>) -> Looks<'a> {
        Looks { clock, subject, run, pages, ran: None }
    }

    fn is_there(&mut self, page: u64) -> Result<bool> {
        let ran = match self.ran.take() {
            Some(ran) => ran,
            None => {
                let ran = (self.run)()?;
                self.clock.settle(self.subject, &ran.look, self.pages.max(LEAST_SETTLED_PAGES))?;
                ran
            }
        };
        // The last page: who settles reads it.
        let there = self.subject.pages() - 1;
        let is_there = Eyes::Timing(self.clock).sees(self.subject, &ran.look, page, there)?;
        if !is_there {
            self.ran = Some(ran);
        }
        Ok(is_there)
    }
}

impl Clock {
    /// Learns what the times of cached and absent pages are.
    fn learn(subject: &Subject) -> Result<std::result::Result<Clock, String>> {
        subject.make_cold()?;
        let look = subject.open_exact()?;
        let pages = subject.pages();
        let (mut misses, mut near, mut hits) = (Vec::new(), Vec::new(), Vec::new());
        subject.read_page(&look, 0)?;
        for count in 1..=MISSES.min(pages / 8) {
            // Golden section: places that are spread however many there are.
            let page = (count as f64 * 0.618_033_988_75).fract() * (pages - 1) as f64;
            misses.push(look_at(subject, &look, page as u64, 0)?);
        }
        let first = pages / 2;
        for page in first..(first + NEAR_MISSES).min(pages) {
            near.push(look_at(subject, &look, page, 0)?);
        }
        for count in 0..HITS {
            hits.push(look_at(subject, &look, first + count % 16, 0)?);
        }
        subject.make_cold()?;
        let long = LONG_PAGES.min(pages / 2);
        let long_ns = subject.read(&look, 0, (long * PAGE_BYTES) as usize)? as f64;
        let slow: Vec<f64> = near[1..].iter().chain(&misses).copied().collect();
        let Some(parting_ns) = parting(&hits, &slow) else {
            let [hit, miss] = [quantile(&hits, 0.99), quantile(&slow, 0.01)].map(|ns| ns / 1e3);
            return Ok(Err(format!(
                "times do not tell what is cached: pages that are take up to {hit:.0} us, others from {miss:.0} us on"
            )));
        };
        Ok(Ok(Clock { parting_ns, access_ns: quantile(&misses, 0.95), page_ns: long_ns / long as f64 }))
    }

    /// Waits until so many pages that were asked for have arrived. There is no other way to know without looking: a page at the
    /// file's end is asked for after them, and then time passes that would do for all of them.
    fn settle(self, subject: &Subject, look: &File, pages: u64) -> Result<()> {
        subject.read_page(look, subject.pages() - 1)?;
        let ns = SETTLE * (self.access_ns + pages as f64 * self.page_ns);
        std::thread::sleep(Duration::from_nanos(ns as u64));
        Ok(())
    }
}

/// A range is parted so near its end that an absent page leaves one part in so many less of it. An absent page costs a read of the
/// disk, one that is there a whole run, ten to some hundred times as much: parting in the middle would be three times as long.
const PARTS: u64 = 8;
/// Where nothing is known of the size, an absent page leaves one part in so many: sizes differ by factors.
const COARSE: u64 = 4;

/// The first page from `from` on that is not there, where all before it are; `end` if all are. The guess is tried first, absent
/// before present; then absent pages nearer and nearer: who looks at one can look on.
pub fn search(from: u64, guess: u64, end: u64, mut is_there: impl FnMut(u64) -> Result<bool>) -> Result<u64> {
    let (mut low, mut high) = (from, end);
    if guess < end && !is_there(guess)? {
        high = guess;
        let mut step = 1;
        while low < high {
            let page = high.saturating_sub(step).max(low);
            if is_there(page)? {
                low = page + 1;
                break;
            }
            (high, step) = (page, step * 2);
        }
    } else {
        low = (guess + 1).min(end);
        while low < high {
            let page = low + (high - low - 1) / COARSE;
            if is_there(page)? {
                low = page + 1;
                break;
            }
            high = page;
        }
    }
    while low < high {
        let page = high - 1 - (high - 1 - low) / PARTS;
        if is_there(page)? { low = page + 1 } else { high = page }
    }
    Ok(low)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn the_end_is_found_whatever_was_guessed(from in 0..100u64, cached in 0..5000u64, guess in 0..6000u64) {
            let (first_absent, end) = (from + cached, 10_000);
            let mut asked = 0;
            let found = search(from, guess.clamp(from, end), end, |page| {
                asked += 1;
                Ok(page < first_absent)
            });
            prop_assert_eq!(found.unwrap(), first_absent);
            prop_assert!(asked < 80, "{} questions", asked);
        }
    }
}
