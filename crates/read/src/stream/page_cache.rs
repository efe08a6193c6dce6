//! Reads through the page cache, with read-ahead by requests to the kernel.
//!
//! ```text
//!     read ─▶ preadv2(RWF_NOWAIT) ─ all bytes ──▶ return            cached data costs one call and a few comparisons: in the rest of
//!                  │                                                32 KiB a plain pread
//!                  │ a page is missing
//!                  ▼
//!             request: the missing piece from this thread, the next pieces by `ahead_fetch`
//!                  ▼
//!             pread waits for the page; if the piece was requested before, it came too late: the distance doubles
//! ```
//!
//! The kernel's own read-ahead is off for the descriptor (FADV_RANDOM), so that the two do not add up: after a first miss the kernel would
//! otherwise start its own window, and continue it at each of its marks.

use crate::stream::counters::Counters;
use crate::stream::options::ReaderOptions;
use ahead_fetch::{Budget, Requests, Share, Turn};
use ahead_model::DeviceNumber;
use ahead_policy::pattern::Pattern;
use ahead_policy::reading::{Extent, Host, Reading, Refused, Release};
use ahead_sys::fork_count::fork_count;
use ahead_sys::{cache, fiemap, machine};
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::MetadataExt;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A part of a read that is timed, bytes.
const TIMED_BYTES: usize = 128 << 10;

/// A call that takes longer has waited for a device. To copy [`TIMED_BYTES`] takes a third of it; an access to a flash device rarely takes less.
const WAIT: Duration = Duration::from_micros(100);

/// The reads of one reader.
#[derive(Debug)]
pub(crate) struct PageCache {
    reading: Reading<()>,
    pages: Pages,
    /// The open file is shared with the caller, who gets the kernel's read-ahead back.
    is_shared: bool,
    /// The process that has turned the kernel's read-ahead off.
    exact_since: Option<u32>,
}

/// The pages and requests of one reader.
#[derive(Debug)]
struct Pages {
    file: Arc<File>,
    device: DeviceNumber,
    page_bytes: u64,
    budget: Budget,
    /// From the first miss on, until all is cached or read.
    share: Option<Share>,
    /// The file system can read without waiting.
    has_nowait: bool,
    /// This user may know which pages are cached.
    has_residency: bool,
    counters: Counters,
}

impl PageCache {
    pub fn new(file: Arc<File>, options: &ReaderOptions, is_shared: bool) -> io::Result<PageCache> {
        let metadata = file.metadata()?;
        let extent = Extent { size_bytes: metadata.len(), page_bytes: machine::page_size() };
        let pages = Pages {
            device: DeviceNumber::from_stat(metadata.dev()),
            page_bytes: extent.page_bytes,
            file,
            budget: options.budget.clone(),
            share: None,
            has_nowait: true,
            has_residency: true,
            counters: Counters::default(),
        };
        let reading = Reading::new(options.pattern, options.largest_distance_bytes, extent);
        Ok(PageCache { reading, pages, is_shared, exact_since: None })
    }

    pub fn counters(&self) -> Counters {
        Counters { distance_bytes: self.reading.distance.bytes(), ..self.pages.counters }
    }

    /// Reads until the buffer is full or the file ends. Bytes before an error are delivered; the next read reports the error.
    ///
    /// Inlined into the program: where the kernel's returns are protected against speculation (Safe RET), a return after a system call costs a
    /// tenth of a read of 4 KiB.
    #[inline(always)]
    pub fn read(&mut self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let range = offset..offset.saturating_add(buffer.len() as u64);
        if let Some(continues) = self.reading.note(&range) {
            self.before(&range, continues);
        }
        let pages = &mut self.pages;
        pages.counters.reads += 1;
        if !pages.has_nowait {
            return self.read_rest(buffer, offset, Ok(None));
        }
        let read = match self.reading.is_looked_at(&range) {
            true => cache::read_waiting(&*pages.file, buffer, offset).map(Some),
            false => cache::read_now(&*pages.file, buffer, offset),
        };
        match read {
            Ok(Some(read)) if read == buffer.len() => {
                self.reading.found_all(&range);
                pages.counters.bytes += read as u64;
                Ok(read)
            }
            read => self.read_rest(buffer, offset, read),
        }
    }

    /// Reads on after the first bytes: the next page is absent, or the file ends.
    #[cold]
    fn read_rest(&mut self, buffer: &mut [u8], offset: u64, first: io::Result<Option<usize>>) -> io::Result<usize> {
        let mut done = self.pages.note(first).unwrap_or(0);
        let mut is_missing = done == 0;
        while done < buffer.len() {
            let at = offset + done as u64;
            let read = match self.step(&mut buffer[done..], at, is_missing) {
                Ok(0) => {
                    self.reading.end_of_file(at, &mut self.pages);
                    break;
                }
                Err(error) if done == 0 => return Err(error),
                Err(_) => break,
                Ok(read) => read,
            };
            done += read;
            is_missing = false;
            if done < buffer.len() {
                let rest = offset + done as u64..offset.saturating_add(buffer.len() as u64);
                self.reading.go_on(&rest, &mut self.pages);
            }
        }
        self.pages.counters.bytes += done as u64;
        Ok(done)
    }

    /// Reads the next bytes: cached ones at once, otherwise requests and waits.
    fn step(&mut self, rest: &mut [u8], at: u64, is_missing: bool) -> io::Result<usize> {
        let range = at..at.saturating_add(rest.len() as u64);
        if self.pages.has_nowait && !is_missing {
            let read = cache::read_now(&*self.pages.file, rest, at);
            if let Some(read) = self.pages.note(read) {
                return Ok(read);
            }
        }
        if !self.pages.has_nowait {
            let part = rest.len().min(TIMED_BYTES);
            return self.timed(&mut rest[..part], at);
        }
        let began = Instant::now();
        let is_predicted = self.reading.pattern() != Pattern::Random;
        let (requests, pages) = (Requests::global(), &self.pages);
        let turn = is_predicted.then(|| requests.turn(pages.device, || pages.position(at))).flatten();
        if turn.as_ref().is_some_and(|turn| turn.has_waited) {
            self.reading.distance.returned();
        }
        let submission = turn.as_ref().map(Turn::submission);
        let end = self.reading.miss(&range, &mut self.pages);
        drop(submission);
        let read = cache::read_waiting(&*self.pages.file, &mut rest[..(end - at) as usize], at);
        if read.as_ref().is_ok_and(|read| *read > 0) {
            self.pages.count_wait(began.elapsed());
        }
        read
    }

    /// Reads in a file system that has no reads without waiting (RWF_NOWAIT): a long call has waited.
    fn timed(&mut self, part: &mut [u8], at: u64) -> io::Result<usize> {
        let began = Instant::now();
        let read = cache::read_waiting(&*self.pages.file, part, at)?;
        let took = began.elapsed();
        if took > WAIT && read > 0 {
            self.pages.count_wait(took);
            self.reading.miss(&(at..at + read as u64), &mut self.pages);
        }
        Ok(read)
    }

    /// Before the first read, one that leaves the pattern, or one at the trigger.
    #[cold]
    fn before(&mut self, range: &Range<u64>, continues: bool) {
        if self.exact_since.is_none() {
            // Not on the hot path of cached reads: it matters only for absent pages.
            self.exact_since = Some(fork_count());
            if let Err(error) = cache::exact_reads(&*self.pages.file) {
                tracing::debug!("{error}");
            }
        }
        self.reading.begin(range, continues, &mut self.pages);
    }
}

impl Pages {
    /// The bytes of a read without waiting. `None`: a page is missing, or pread(2) will report the error.
    fn note(&mut self, read: io::Result<Option<usize>>) -> Option<usize> {
        self.has_nowait &= !read.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::Unsupported);
        read.ok().flatten()
    }

    fn count_wait(&mut self, took: Duration) {
        self.counters.waits += 1;
        self.counters.waited_us += took.as_micros() as u64;
    }

    /// Where a byte of the file lies on its device. 0 if the file system does not say: all such readers have their turns as they come.
    fn position(&self, at: u64) -> u64 {
        let extents = fiemap::extents(&*self.file, at, self.page_bytes).unwrap_or_default();
        extents.iter().find(|extent| extent.is_placed()).map_or(0, |extent| extent.physical_bytes)
    }

    /// Whether all pages of a piece are cached, or in flight.
    fn is_resident(&mut self, piece: &Range<u64>) -> bool {
        if self.has_residency {
            match cache::resident_bytes(&*self.file, piece.start, piece.end - piece.start) {
                Ok(bytes) => return bytes >= piece.end - piece.start,
                Err(_) => self.has_residency = false,
            }
        }
        // Another user's file: its first page stands for the piece.
        self.has_nowait && cache::probe(&*self.file, piece.start).unwrap_or(false)
    }
}

impl Host<()> for Pages {
    fn limit_bytes(&self) -> Option<u64> {
        self.share.as_ref().map(Share::limit_bytes)
    }

    fn register(&mut self) {
        self.share.get_or_insert_with(|| self.budget.register());
    }

    fn unregister(&mut self) {
        self.share = None;
    }

    fn is_cached(&mut self, piece: &Range<u64>) -> bool {
        let is_cached = self.is_resident(piece);
        self.counters.cached_requests += u64::from(is_cached);
        is_cached
    }

    fn request(&mut self, piece: &Range<u64>, is_needed: bool) -> Result<(), Refused> {
        let bytes = piece.end - piece.start;
        let share = self.share.as_mut().ok_or(Refused::Budget)?;
        if !share.take(bytes) {
            return Err(Refused::Budget);
        }
        let requests = Requests::global();
        if is_needed {
            requests.need_now(&self.file, self.device, piece);
        } else if !requests.will_need(&self.file, self.device, piece.clone()) {
            share.give_back(bytes);
            return Err(Refused::Queue);
        }
        tracing::trace!(target: "ahead_read::requests", start = piece.start, end = piece.end);
        self.counters.requests += 1;
        self.counters.requested_bytes += bytes;
        Ok(())
    }

    fn release(&mut self, piece: &Range<u64>, (): (), why: Release) {
        let bytes = piece.end - piece.start;
        if let Some(share) = self.share.as_mut() {
            share.give_back(bytes);
        }
        self.counters.abandoned_bytes += if why == Release::Abandoned { bytes } else { 0 };
    }

    fn size_bytes(&mut self) -> Option<u64> {
        self.file.metadata().ok().map(|metadata| metadata.len())
    }
}

impl Drop for PageCache {
    fn drop(&mut self) {
        // A child of fork(2) shares the open file with its parent, which still reads.
        if self.is_shared && self.exact_since == Some(fork_count()) {
            let _ = cache::normal_reads(&*self.pages.file);
        }
    }
}
