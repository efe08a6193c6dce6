//! What one reader of a file requests ahead, from all of its reads. Pure: reads and waits come in, requests go out to a [`Host`].
//!
//! ```text
//!     read ─▶ Detector    which way?     sequential, backward, stride, random
//!             Distance    how far?       the size of a request doubles with each one that was used, the distance only with real waits
//!             Account     may it?        one limit for all readers, shared fairly; each reader always makes progress
//!             Pieces      what next?     the requests between the reader and the edge
//!
//!     a page is missing ─▶ its piece is requested, and the next ones; if the piece was requested before, it came too late: the distance doubles
//!     a read at the trigger ─▶ a piece of room: the next piece is requested, unless it is cached; after four cached pieces none until a miss
//! ```
//!
//! The host is the library for programs (`ahead_read`), or the policy [`reader`](crate::policies::reader) on the simulator's machine.

mod account;
mod distance;
mod pieces;

pub use account::{Account, BUDGET_BYTES, MEMORY_SHARE, UNIT_BYTES};
pub use distance::{Distance, FIRST_PIECE_BYTES, LARGEST_PIECE_BYTES};
pub use pieces::{Extent, Pieces};

use crate::pattern::{Detector, Pattern};
use std::ops::Range;

/// Default for the largest distance, bytes: the product of bandwidth and latency of 1.6 GB/s and 10 ms, more than cloud disks have.
pub const LARGEST_DISTANCE_BYTES: u64 = 16 << 20;

/// A read waits for at most this much at once, bytes, so that a long read keeps requesting ahead of itself.
const WAIT_BYTES: u64 = 128 << 10;

/// After a read without waiting, further reads in this part of a file are plain ones, bytes: `preadv2(RWF_NOWAIT)` takes longer than
/// `pread` (part b of bench/library: 4 KiB reads took 1.12 times those of `File` before this, 1.01 times with it). A power of two. If a page is missing in such a part after all, the plain read waits for this page alone, at most seven times.
const LOOKED_AT_BYTES: u64 = 32 << 10;

/// Why a request was not submitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// The share is used up: until the reader has passed a piece.
    Budget,
    /// The queue of the device is full: until the next read.
    Queue,
}

/// Why a piece is given up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Release {
    /// The reader has passed it.
    Passed,
    /// The reader went elsewhere, or the file ends before it.
    Abandoned,
}

/// The surroundings of a reader: its share of the budget, the cache, and the device. `T`: what a request is known by.
pub trait Host<T> {
    /// How much the reader may hold, bytes; `None`: it has no share.
    fn limit_bytes(&self) -> Option<u64>;

    /// The reader gets a share, if it has none.
    fn register(&mut self);

    /// The reader holds nothing any more.
    fn unregister(&mut self);

    /// Whether all pages of a piece are cached, or in flight.
    fn is_cached(&mut self, piece: &Range<u64>) -> bool;

    /// Requests a piece within the share. `is_needed`: the read needs a part of it now.
    ///
    /// Errors: there is no room.
    fn request(&mut self, piece: &Range<u64>, is_needed: bool) -> Result<T, Refused>;

    /// Takes a requested piece back.
    fn release(&mut self, piece: &Range<u64>, request: T, why: Release);

    /// Length of the file, bytes; `None`: not known now.
    fn size_bytes(&mut self) -> Option<u64>;
}

/// The decisions for one reader.
#[derive(Debug)]
pub struct Reading<T> {
    detector: Detector,
    largest_bytes: u64,
    /// How far ahead requests end.
    pub distance: Distance,
    /// What was requested.
    pub pieces: Pieces<T>,
    /// The file.
    pub extent: Extent,
    /// The offset of a read from which on there is room for a request.
    trigger: u64,
    /// The part of the file, in units of [`LOOKED_AT_BYTES`], in which the last read without waiting has found its pages.
    looked_at: u64,
}

impl<T> Reading<T> {
    /// `pattern`: that which the program has announced. `largest_bytes`: the largest distance.
    pub fn new(pattern: Option<Pattern>, largest_bytes: u64, extent: Extent) -> Reading<T> {
        let largest_bytes = extent.floor(largest_bytes).max(extent.page_bytes);
        Reading {
            detector: pattern.map_or_else(Detector::default, Detector::given),
            largest_bytes,
            distance: Distance::new(largest_bytes),
            pieces: Pieces::default(),
            extent,
            trigger: 0,
            looked_at: u64::MAX,
        }
    }

    /// The pattern of the reads so far.
    pub fn pattern(&self) -> Pattern {
        self.detector.pattern()
    }

    /// Notes a read. `None`: nothing is due. Otherwise whether the read continues the pattern, for [`Reading::begin`].
    #[inline]
    pub fn note(&mut self, range: &Range<u64>) -> Option<bool> {
        let continues = self.detector.read(range.clone());
        (!continues || self.is_due(range.start)).then_some(continues)
    }

    /// Whether there is room for a request when the reader has come to this offset.
    #[inline]
    pub fn is_due(&self, offset: u64) -> bool {
        offset >= self.trigger
    }

    /// Whether the pages of a read, or their neighbours, were found cached by the read before.
    #[inline]
    pub fn is_looked_at(&self, range: &Range<u64>) -> bool {
        range.start / LOOKED_AT_BYTES == self.looked_at && (range.end - 1) / LOOKED_AT_BYTES == self.looked_at
    }

    /// A read has found all of its pages.
    #[inline]
    pub fn found_all(&mut self, range: &Range<u64>) {
        self.looked_at = (range.end - 1) / LOOKED_AT_BYTES;
    }

    /// Before the first read, one that leaves the pattern, or one at the trigger.
    pub fn begin(&mut self, range: &Range<u64>, continues: bool, host: &mut impl Host<T>) {
        if continues && !self.is_elsewhere(range) {
            self.fill(range, true, host);
        } else {
            self.abandon(host);
        }
    }

    /// Whether the prediction that led to the requests does not fit this read.
    fn is_elsewhere(&mut self, range: &Range<u64>) -> bool {
        match self.pattern() {
            Pattern::Random => true,
            Pattern::Sequential => {
                self.pieces.edge().is_some_and(|edge| range.start > edge) && self.pieces.find(range.start).is_none()
            }
            Pattern::Backward | Pattern::Stride(_) => false,
        }
    }

    /// A read that has waited continues at the beginning of this range.
    pub fn go_on(&mut self, rest: &Range<u64>, host: &mut impl Host<T>) {
        if self.is_due(rest.start) {
            self.fill(rest, true, host);
        }
    }

    /// The first page of this rest of a read is missing. Returns how far the reader waits for the kernel at once: a part of a piece, or the
    /// whole rest, which the kernel reads in requests as long as the call.
    pub fn miss(&mut self, rest: &Range<u64>, host: &mut impl Host<T>) -> u64 {
        self.request_missing(rest, host);
        let is_requested = self.pieces.find(rest.start).is_some();
        if is_requested { rest.end.min(rest.start.saturating_add(WAIT_BYTES)) } else { rest.end }
    }

    fn request_missing(&mut self, rest: &Range<u64>, host: &mut impl Host<T>) {
        if self.pattern() == Pattern::Random {
            return;
        }
        if self.pieces.find(rest.start).is_some() {
            self.distance.waited();
        } else {
            self.abandon(host);
            self.distance.missed();
        }
        if rest.end > self.extent.size_bytes {
            // The file may have grown.
            self.extent.size_bytes = host.size_bytes().unwrap_or(self.extent.size_bytes);
        }
        host.register();
        self.fill(rest, false, host);
    }

    /// Gives back what the reader has passed.
    pub fn pass(&mut self, read: &Range<u64>, host: &mut impl Host<T>) {
        let pattern = self.pattern();
        while let Some((passed, request)) = self.pieces.pop_passed(pattern, read) {
            host.release(&passed, request, Release::Passed);
            if matches!(pattern, Pattern::Sequential | Pattern::Backward) {
                self.distance.passed();
            }
        }
    }

    /// Gives back what the reader has passed, and requests the next pieces as far as there is room. `looks`: not if they are cached.
    pub fn fill(&mut self, read: &Range<u64>, looks: bool, host: &mut impl Host<T>) {
        self.pass(read, host);
        if self.limit(host).is_none() {
            self.trigger = u64::MAX;
            return;
        }
        let pattern = self.pattern();
        let mut refused = None;
        while !self.distance.is_cached()
            && refused.is_none()
            && let Some(next) = self.pieces.next(pattern, read, &self.distance, self.extent)
        {
            if looks && host.is_cached(&next.piece) {
                self.distance.found_cached();
                self.pieces.skip(&next);
                continue;
            }
            let is_needed = next.piece.start < read.end && read.start < next.piece.end;
            match host.request(&next.piece, is_needed) {
                Ok(request) => {
                    self.pieces.push(next, request);
                    self.distance.missed();
                }
                Err(reason) => refused = Some(reason),
            }
        }
        self.set_trigger(refused, host);
    }

    /// Applies the limit of the reader's share, and returns it.
    fn limit(&mut self, host: &impl Host<T>) -> Option<u64> {
        let limit = host.limit_bytes()?;
        self.distance.limit(self.largest_bytes.min(limit));
        Some(limit)
    }

    fn set_trigger(&mut self, refused: Option<Refused>, host: &mut impl Host<T>) {
        let first_end = self.pieces.first_end();
        if self.distance.is_cached() && first_end.is_none() {
            // All is cached: until a miss, nothing is held and nothing is done.
            host.unregister();
            self.trigger = u64::MAX;
            return;
        }
        let is_waiting_for_room = self.distance.is_cached() || refused == Some(Refused::Budget);
        self.trigger = match self.pieces.edge() {
            _ if self.pattern() != Pattern::Sequential || refused == Some(Refused::Queue) => 0,
            Some(edge) if edge < self.extent.size_bytes && !is_waiting_for_room => {
                edge.saturating_add(self.distance.piece_bytes()).saturating_sub(self.distance.bytes())
            }
            _ => first_end.unwrap_or(u64::MAX),
        };
    }

    /// The piece that a reader requests which reads into own memory, and whose next bytes are in no piece. The host has registered it.
    /// `is_ahead`: more than the read needs may be read.
    pub fn own_piece(&mut self, read: &Range<u64>, is_ahead: bool, host: &impl Host<T>) -> Range<u64> {
        let limit = self.limit(host).unwrap_or(self.extent.page_bytes);
        let start = self.extent.floor(read.start);
        let bytes = match self.pattern() {
            Pattern::Sequential if is_ahead => self.distance.piece_bytes(),
            _ => (self.extent.ceil(read.end) - start).min(LARGEST_PIECE_BYTES).min(limit),
        };
        start..(start + bytes).min(self.extent.ceil(self.extent.size_bytes))
    }

    /// The piece of [`Reading::own_piece`] was requested.
    pub fn push_own(&mut self, piece: Range<u64>, request: T) {
        self.pieces.push_own(self.detector.pattern(), piece, request);
    }

    /// Forgets the learned distance.
    pub fn reset_distance(&mut self) {
        self.distance = Distance::new(self.largest_bytes);
    }

    /// Gives up what was requested: the program went elsewhere.
    pub fn abandon(&mut self, host: &mut impl Host<T>) {
        while let Some((piece, request)) = self.pieces.pop() {
            host.release(&piece, request, Release::Abandoned);
        }
        self.trigger = u64::MAX;
    }

    /// A read has found the end of the file at this offset: nothing is held there.
    pub fn end_of_file(&mut self, at: u64, host: &mut impl Host<T>) {
        self.extent.size_bytes = host.size_bytes().unwrap_or(self.extent.size_bytes);
        while let Some((piece, request)) = self.pieces.pop() {
            let unread = at.max(piece.start)..piece.end.min(self.extent.size_bytes);
            host.release(&(unread.start..unread.end.max(unread.start)), request, Release::Abandoned);
        }
        host.unregister();
        self.trigger = u64::MAX;
    }
}
