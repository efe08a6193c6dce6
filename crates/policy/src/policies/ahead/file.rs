//! The state of a file: its patterns, and its requested pages.

use super::stream::{Follows, Stream};
use super::whole::Whole;
use crate::pattern::{add_stream, find_stream};
use crate::{Access, By, DeviceDescription, Page};
use std::cmp::Reverse;

/// Maximum number of streams of a file: more interleaved readers are rare.
const MOST_STREAMS: usize = 64;

/// Maximum count of failures of a file. Each failure requires one more repetition of a pattern.
pub(super) const MOST_FAILURES: u32 = 3;
/// A pattern with few repetitions is abandoned after this number of accesses to the file that did not follow it.
const GIVEN_UP: u64 = 16;
/// A pattern with this number of repetitions cancels a failure.
const SUCCESS: u32 = 8;

/// If this number of consecutive runs had at least the same length, the next run is requested whole.
pub(super) const RUNS: usize = 4;

/// The state of a file.
#[derive(Clone, Debug, Default)]
pub(super) struct File {
    pub streams: Vec<Stream>,
    /// Reading of the whole file, for accesses without a pattern.
    pub whole: Whole,
    /// Number of patterns that were abandoned with unread pages.
    pub failures: u32,
    /// Number of faults whose neighbouring pages were requested.
    pub arounds: u32,
    accesses: u64,
    /// The newest stream, and the lengths of contiguous runs of earlier ones, pages.
    begun: usize,
    runs: [u64; RUNS],
    /// Its part of the sum over all files.
    pub counted: Pending,
}

/// Requested pages that are unread.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Pending {
    /// Pages predicted by patterns.
    pub ahead: u64,
    /// Pages requested without a pattern, including those that will be.
    pub guessed: u64,
    /// Number of files with unread pages.
    pub files: u64,
}

impl Pending {
    pub fn add(&mut self, other: Pending) {
        (self.ahead, self.guessed) = (self.ahead + other.ahead, self.guessed + other.guessed);
        self.files += other.files;
    }

    pub fn subtract(&mut self, other: Pending) {
        (self.ahead, self.guessed) = (self.ahead - other.ahead, self.guessed - other.guessed);
        self.files -= other.files;
    }
}

impl File {
    /// The stream that an access continues, and how.
    fn find(&self, page: Page, length: u64, mapped: bool) -> Option<(usize, Follows)> {
        let found = find_stream(&self.streams, |stream| {
            let how = stream.follows(page, length, mapped)?;
            Some((how, stream.distance_to(page), Reverse(stream.used_at)))
        });
        found.map(|(index, (how, ..))| (index, how))
    }

    /// The stream whose reader may have jumped to this access: the nearest one, or the last used one, because a single reader may
    /// take wide steps.
    fn parent(&self, page: Page) -> Option<&Stream> {
        let near = self.streams.iter().filter(|stream| stream.is_near(page));
        let nearest = near.min_by_key(|stream| (stream.distance_to(page), Reverse(stream.used_at)));
        nearest.or_else(|| self.streams.iter().max_by_key(|stream| stream.used_at))
    }

    /// Adds a stream. It replaces the least recently used one.
    fn begin(&mut self, fresh: Stream) -> usize {
        for stream in &mut self.streams {
            if stream.is_weak() && stream.ahead > 0 && stream.used_at + GIVEN_UP < self.accesses {
                self.failures = broken(self.failures, std::mem::take(&mut stream.ahead));
            }
        }
        self.begin_beside(fresh, None)
    }

    /// Adds a stream. It replaces the least recently used one except `kept`.
    fn begin_beside(&mut self, fresh: Stream, kept: Option<usize>) -> usize {
        let (index, gone) = add_stream(&mut self.streams, fresh, MOST_STREAMS, kept, |stream| stream.used_at);
        self.failures = broken(self.failures, gone.map_or(0, |gone| gone.ahead));
        index
    }

    /// The minimum length of the last runs, pages; limited to what the disk transfers during an access.
    fn usual_run(&self, device: &DeviceDescription) -> u64 {
        self.runs.iter().copied().min().unwrap_or(0).min(device.pages_per_access())
    }

    /// Assigns an access to a stream, or to a new one. Returns the stream, the number of pages of the pattern that the access uses
    /// up, and whether it was predicted.
    pub fn follow(&mut self, access: &Access, device: &DeviceDescription) -> (usize, u64, bool) {
        let (page, length) = (access.page, access.wanted);
        self.accesses += 1;
        let found = self.find(page, length, access.by != By::Read);
        let (index, moved) = match found {
            Some((index, how)) => {
                if how == Follows::Guess && self.streams[index].is_wide() {
                    // The steps may lead from one reader to another: the place of this reader is stored.
                    let stays = self.streams[index].stay();
                    self.begin_beside(stays, Some(index));
                }
                (index, self.streams[index].advance(page, length, how, device))
            }
            None => {
                if let Some(last) = self.streams.get(self.begun) {
                    self.runs.rotate_left(1);
                    self.runs[RUNS - 1] = last.run.length;
                }
                let parent = self.parent(page);
                let mut fresh =
                    parent.map_or(Stream::begin(page, length), |parent| parent.jumped(page, length, device));
                fresh.expect_run(self.usual_run(device));
                self.begun = self.begin(fresh);
                (self.begun, length)
            }
        };
        self.streams[index].used_at = self.accesses;
        if self.streams[index].at.repeated == SUCCESS {
            self.failures = self.failures.saturating_sub(1);
        }
        (index, moved, found.is_some())
    }

    /// Unread pages of its other streams, except streams that no reader seems to follow any more.
    pub fn ahead_beside(&self, index: usize) -> u64 {
        let followed = |stream: &Stream| stream.used_at + MOST_STREAMS as u64 >= self.accesses;
        let others = self.streams.iter().enumerate().filter(|(at, stream)| *at != index && followed(stream));
        others.map(|(_, stream)| stream.ahead).sum()
    }

    pub fn count(&self) -> Pending {
        let ahead = self.ahead_beside(usize::MAX);
        Pending { ahead, guessed: self.whole.claims(), files: u64::from(ahead > 0) }
    }
}

/// The count of failures after a pattern was abandoned with `unread` unread pages.
fn broken(failures: u32, unread: u64) -> u32 {
    (failures + u32::from(unread > 0)).min(MOST_FAILURES)
}
