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
//!
//!     a read at the trigger ─▶ a piece of room: request the next piece, unless it is cached; after four cached pieces stop until a miss
//! ```
//!
//! The kernel's own read-ahead is off for the descriptor (FADV_RANDOM), so that the two do not add up: after a first miss the kernel would
//! otherwise start its own window, and continue it at each of its marks.

use crate::stream::ahead::{Ahead, Extent};
use crate::stream::budget::{Budget, Share};
use crate::stream::counters::Counters;
use crate::stream::distance::Distance;
use crate::stream::options::ReaderOptions;
use ahead_fetch::{Requests, Turn};
use ahead_model::DeviceNumber;
use ahead_policy::pattern::{Detector, Pattern};
use ahead_sys::fork_count::fork_count;
use ahead_sys::{cache, fiemap, machine};
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::MetadataExt;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A read waits for at most this much at once, bytes, so that a long read keeps requesting ahead of itself.
const WAIT_BYTES: usize = 128 << 10;

/// A call that takes longer has waited for a device. To copy [`WAIT_BYTES`] takes a third of it; an access to a flash device rarely takes less.
const WAIT: Duration = Duration::from_micros(100);

/// After a read without waiting, further reads in this part of a file are plain ones, bytes: `preadv2(RWF_NOWAIT)` takes longer than
/// `pread` (part b of bench/library: 4 KiB reads took 1.12 times those of `File` before this, 1.01 times with it). A power of two. If a page is missing in such a part after all, the plain read waits for this page alone, at most seven times.
const LOOKED_AT_BYTES: u64 = 32 << 10;

/// Why a request was not submitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Refused {
    /// The share is used up: until the reader has passed a piece.
    Budget,
    /// The queue of the device is full: until the next read.
    Queue,
}

/// The pages and requests of one reader.
#[derive(Debug)]
pub(crate) struct PageCache {
    file: Arc<File>,
    device: DeviceNumber,
    extent: Extent,
    budget: Budget,
    largest_bytes: u64,
    detector: Detector,
    distance: Distance,
    /// From the first miss on, until all is cached or read.
    share: Option<Share>,
    ahead: Ahead<()>,
    /// The offset of a read from which on there is room for a request.
    trigger: u64,
    /// The part of the file, in units of [`LOOKED_AT_BYTES`], in which the last read without waiting has found its pages.
    looked_at: u64,
    /// The file system can read without waiting.
    has_nowait: bool,
    /// This user may know which pages are cached.
    has_residency: bool,
    /// The open file is shared with the caller, who gets the kernel's read-ahead back.
    is_shared: bool,
    /// The process that has turned the kernel's read-ahead off.
    exact_since: Option<u32>,
    counters: Counters,
}

impl PageCache {
    pub fn new(file: Arc<File>, options: &ReaderOptions, is_shared: bool) -> io::Result<PageCache> {
        let metadata = file.metadata()?;
        let (page_bytes, largest_bytes) = (machine::page_size(), options.largest_distance_bytes);
        let largest_bytes = (largest_bytes - largest_bytes % page_bytes).max(page_bytes);
        Ok(PageCache {
            device: DeviceNumber::from_stat(metadata.dev()),
            extent: Extent { size_bytes: metadata.len(), page_bytes },
            file,
            budget: options.budget.clone(),
            largest_bytes,
            detector: options.pattern.map_or_else(Detector::default, Detector::given),
            distance: Distance::new(largest_bytes),
            share: None,
            ahead: Ahead::new(),
            trigger: 0,
            looked_at: u64::MAX,
            has_nowait: true,
            has_residency: true,
            is_shared,
            exact_since: None,
            counters: Counters::default(),
        })
    }

    pub fn counters(&self) -> Counters {
        Counters { distance_bytes: self.distance.bytes(), ..self.counters }
    }

    /// Reads until the buffer is full or the file ends. Bytes before an error are delivered; the next read reports the error.
    ///
    /// Inlined into the program: where the kernel's returns are protected against speculation (Safe RET), a return after a system call costs a
    /// tenth of a read of 4 KiB.
    #[inline(always)]
    pub fn read(&mut self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let range = offset..offset.saturating_add(buffer.len() as u64);
        let continues = self.detector.read(range.clone());
        if !continues || offset >= self.trigger {
            self.before(&range, continues);
        }
        self.counters.reads += 1;
        if !self.has_nowait {
            return self.read_rest(buffer, offset, Ok(None));
        }
        let is_looked_at =
            offset / LOOKED_AT_BYTES == self.looked_at && (range.end - 1) / LOOKED_AT_BYTES == self.looked_at;
        let read = match is_looked_at {
            true => cache::read_waiting(&*self.file, buffer, offset).map(Some),
            false => cache::read_now(&*self.file, buffer, offset),
        };
        match read {
            Ok(Some(read)) if read == buffer.len() => {
                self.looked_at = (range.end - 1) / LOOKED_AT_BYTES;
                self.counters.bytes += read as u64;
                Ok(read)
            }
            read => self.read_rest(buffer, offset, read),
        }
    }

    /// The bytes of a read without waiting. `None`: a page is missing, or pread(2) will report the error.
    fn note(&mut self, read: io::Result<Option<usize>>) -> Option<usize> {
        self.has_nowait &= !read.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::Unsupported);
        read.ok().flatten()
    }

    /// Reads on after the first bytes: the next page is absent, or the file ends.
    #[cold]
    fn read_rest(&mut self, buffer: &mut [u8], offset: u64, first: io::Result<Option<usize>>) -> io::Result<usize> {
        let mut done = self.note(first).unwrap_or(0);
        let mut is_missing = done == 0;
        while done < buffer.len() {
            let at = offset + done as u64;
            let read = match self.step(&mut buffer[done..], at, is_missing) {
                Ok(0) => {
                    self.end_of_file(at);
                    break;
                }
                Err(error) if done == 0 => return Err(error),
                Err(_) => break,
                Ok(read) => read,
            };
            done += read;
            is_missing = false;
            let next = offset + done as u64;
            if next >= self.trigger && done < buffer.len() {
                self.fill(&(next..offset.saturating_add(buffer.len() as u64)), true);
            }
        }
        self.counters.bytes += done as u64;
        Ok(done)
    }

    /// Reads the next bytes: cached ones at once, otherwise requests and waits.
    fn step(&mut self, rest: &mut [u8], at: u64, is_missing: bool) -> io::Result<usize> {
        if self.has_nowait && !is_missing {
            let read = cache::read_now(&*self.file, rest, at);
            if let Some(read) = self.note(read) {
                return Ok(read);
            }
        }
        let part = rest.len().min(WAIT_BYTES);
        if !self.has_nowait {
            return self.timed(&mut rest[..part], at);
        }
        let began = Instant::now();
        let is_predicted = self.detector.pattern() != Pattern::Random;
        let turn = is_predicted.then(|| Requests::global().turn(self.device, || self.position(at))).flatten();
        if turn.as_ref().is_some_and(|turn| turn.has_waited) {
            self.distance.returned();
        }
        let submission = turn.as_ref().map(Turn::submission);
        self.miss(&(at..at.saturating_add(rest.len() as u64)));
        drop(submission);
        // What was not requested, the kernel reads in requests as long as the call.
        let room = if self.ahead.find(at).is_some() { part } else { rest.len() };
        let read = cache::read_waiting(&*self.file, &mut rest[..room], at);
        if read.as_ref().is_ok_and(|read| *read > 0) {
            self.count_wait(began.elapsed());
        }
        read
    }

    /// Reads in a file system that has no reads without waiting (RWF_NOWAIT): a long call has waited.
    fn timed(&mut self, part: &mut [u8], at: u64) -> io::Result<usize> {
        let began = Instant::now();
        let read = cache::read_waiting(&*self.file, part, at)?;
        let took = began.elapsed();
        if took > WAIT && read > 0 {
            self.count_wait(took);
            self.miss(&(at..at + read as u64));
        }
        Ok(read)
    }

    fn count_wait(&mut self, took: Duration) {
        self.counters.waits += 1;
        self.counters.waited_us += took.as_micros() as u64;
    }

    /// Before the first read, one that leaves the pattern, or one at the trigger.
    #[cold]
    fn before(&mut self, range: &Range<u64>, continues: bool) {
        if self.exact_since.is_none() {
            // Not on the hot path of cached reads: it matters only for absent pages.
            self.exact_since = Some(fork_count());
            if let Err(error) = cache::exact_reads(&*self.file) {
                tracing::debug!("{error}");
            }
        }
        if continues && !self.is_elsewhere(range) {
            self.fill(range, true);
        } else {
            self.abandon();
        }
    }

    /// Whether the prediction that led to the requests does not fit this read.
    fn is_elsewhere(&mut self, range: &Range<u64>) -> bool {
        match self.detector.pattern() {
            Pattern::Random => true,
            Pattern::Sequential => {
                self.ahead.edge().is_some_and(|edge| range.start > edge) && self.ahead.find(range.start).is_none()
            }
            Pattern::Backward | Pattern::Stride(_) => false,
        }
    }

    /// A page of the read is missing.
    fn miss(&mut self, range: &Range<u64>) {
        if self.detector.pattern() == Pattern::Random {
            return;
        }
        if self.ahead.find(range.start).is_some() {
            self.distance.waited();
        } else {
            self.abandon();
            self.distance.missed();
        }
        if range.end > self.extent.size_bytes {
            self.look_up_size();
        }
        self.share.get_or_insert_with(|| self.budget.register());
        self.fill(range, false);
    }

    /// The file may have grown.
    fn look_up_size(&mut self) {
        if let Ok(metadata) = self.file.metadata() {
            self.extent.size_bytes = metadata.len();
        }
    }

    /// Gives back what the reader has passed, and requests the next pieces as far as there is room. `looks`: not if they are cached.
    fn fill(&mut self, read: &Range<u64>, looks: bool) {
        let pattern = self.detector.pattern();
        while let Some((passed, ())) = self.ahead.pop_passed(pattern, read) {
            self.give_back(&passed);
            if matches!(pattern, Pattern::Sequential | Pattern::Backward) {
                self.distance.passed();
            }
        }
        let Some(limit) = self.share.as_ref().map(Share::limit_bytes) else {
            self.trigger = u64::MAX;
            return;
        };
        self.distance.limit(self.largest_bytes.min(limit));
        let mut refused = None;
        while !self.distance.is_cached()
            && refused.is_none()
            && let Some(next) = self.ahead.next(pattern, read, &self.distance, self.extent)
        {
            if looks && self.is_resident(&next.piece) {
                self.counters.cached_requests += 1;
                self.distance.found_cached();
                self.ahead.skip(&next);
                continue;
            }
            match self.request(&next.piece, read) {
                Ok(()) => {
                    self.ahead.push(next, ());
                    self.distance.missed();
                }
                Err(reason) => refused = Some(reason),
            }
        }
        self.set_trigger(pattern, refused);
    }

    fn set_trigger(&mut self, pattern: Pattern, refused: Option<Refused>) {
        let first_end = self.ahead.first_end();
        if self.distance.is_cached() && first_end.is_none() {
            // All is cached: until a miss, nothing is held and nothing is done.
            self.share = None;
            self.trigger = u64::MAX;
            return;
        }
        let is_waiting_for_room = self.distance.is_cached() || refused == Some(Refused::Budget);
        self.trigger = match self.ahead.edge() {
            _ if pattern != Pattern::Sequential || refused == Some(Refused::Queue) => 0,
            Some(edge) if edge < self.extent.size_bytes && !is_waiting_for_room => {
                edge.saturating_add(self.distance.piece_bytes()).saturating_sub(self.distance.bytes())
            }
            _ => first_end.unwrap_or(u64::MAX),
        };
    }

    /// Submits a request.
    fn request(&mut self, piece: &Range<u64>, read: &Range<u64>) -> Result<(), Refused> {
        let bytes = piece.end - piece.start;
        let share = self.share.as_mut().ok_or(Refused::Budget)?;
        if !share.take(bytes) {
            return Err(Refused::Budget);
        }
        let requests = Requests::global();
        if piece.start < read.end && read.start < piece.end {
            requests.need_now(&self.file, self.device, piece);
        } else if !requests.will_need(&self.file, self.device, piece.clone()) {
            share.give_back(bytes);
            return Err(Refused::Queue);
        }
        self.counters.requests += 1;
        self.counters.requested_bytes += bytes;
        Ok(())
    }

    /// Where a byte of the file lies on its device. 0 if the file system does not say: all such readers have their turns as they come.
    fn position(&self, at: u64) -> u64 {
        let extents = fiemap::extents(&*self.file, at, self.extent.page_bytes).unwrap_or_default();
        extents.iter().find(|extent| extent.is_placed()).map_or(0, |extent| extent.physical_bytes)
    }

    /// Whether all pages of a piece are cached, or on their way.
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

    fn give_back(&mut self, piece: &Range<u64>) {
        if let Some(share) = self.share.as_mut() {
            share.give_back(piece.end - piece.start);
        }
    }

    /// Gives up what was requested: the program went elsewhere.
    fn abandon(&mut self) {
        while let Some((piece, ())) = self.ahead.pop() {
            self.counters.abandoned_bytes += piece.end - piece.start;
            self.give_back(&piece);
        }
        self.trigger = u64::MAX;
    }

    /// A read has found the end of the file: nothing is held there.
    fn end_of_file(&mut self, at: u64) {
        self.look_up_size();
        while let Some((piece, ())) = self.ahead.pop() {
            self.counters.abandoned_bytes += piece.end.min(self.extent.size_bytes).saturating_sub(at.max(piece.start));
        }
        self.share = None;
        self.trigger = u64::MAX;
    }
}

impl Drop for PageCache {
    fn drop(&mut self) {
        // A child of fork(2) shares the open file with its parent, which still reads.
        if self.is_shared && self.exact_since == Some(fork_count()) {
            let _ = cache::normal_reads(&*self.file);
        }
    }
}
