//! A file: the patterns in it, and what was asked for in it.

use super::stream::{Follows, Stream};
use super::whole::Whole;
use crate::{Access, By, DeviceDescription, Page};

/// Patterns that are followed in one file: more interleaved readers than this are seldom.
const MOST_STREAMS: usize = 64;

/// Largest number of failures that a file remembers. Each of them asks one repetition more of a pattern.
pub(super) const MOST_FAILURES: u32 = 3;
/// A pattern that has hardly shown is abandoned if this number of accesses to the file did not follow it.
const GIVEN_UP: u64 = 16;
/// A pattern that was followed so often makes up for a failure.
const SUCCESS: u32 = 8;

/// If this number of runs in a row had the same length or more, the next run is read at once.
pub(super) const RUNS: usize = 4;

/// What is known of a file.
#[derive(Clone, Debug, Default)]
pub(super) struct File {
    pub streams: Vec<Stream>,
    /// The reading of all of it, where no pattern shows.
    pub whole: Whole,
    /// Patterns that were abandoned with pages unread.
    pub failures: u32,
    /// How often it was read around a fault.
    pub arounds: u32,
    accesses: u64,
    /// The stream that was begun last, and how long those before it went without a gap, pages.
    begun: usize,
    runs: [u64; RUNS],
    /// As it went into the sum over all files.
    pub counted: Pending,
}

/// What was asked for and is unread.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Pending {
    /// Pages that patterns have foretold.
    pub ahead: u64,
    /// Pages of what is read without a pattern, those included that will be.
    pub guessed: u64,
    /// How many files have any ahead.
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
    /// The stream that an access follows, and how.
    fn find(&self, page: Page, length: u64, mapped: bool) -> Option<(usize, Follows)> {
        let following = self.streams.iter().enumerate().filter_map(|(index, stream)| {
            let how = stream.follows(page, length, mapped)?;
            Some((how, stream.distance_to(page), std::cmp::Reverse(stream.used_at), index))
        });
        following.min().map(|(how, _, _, index)| (index, how))
    }

    /// A stream of which this access may be a jump: the nearest one, or, since a single reader may take wide steps, the
    /// last one that was used.
    fn parent(&self, page: Page) -> Option<&Stream> {
        let near = self.streams.iter().filter(|stream| stream.is_near(page));
        let nearest = near.min_by_key(|stream| (stream.distance_to(page), std::cmp::Reverse(stream.used_at)));
        nearest.or_else(|| self.streams.iter().max_by_key(|stream| stream.used_at))
    }

    /// Begins a stream; the one that was not used for longest makes room.
    fn begin(&mut self, fresh: Stream) -> usize {
        for stream in &mut self.streams {
            if stream.is_weak() && stream.ahead > 0 && stream.used_at + GIVEN_UP < self.accesses {
                self.failures = broken(self.failures, std::mem::take(&mut stream.ahead));
            }
        }
        self.begin_beside(fresh, MOST_STREAMS)
    }

    /// Begins a stream in the place of any but this one.
    fn begin_beside(&mut self, fresh: Stream, other: usize) -> usize {
        if self.streams.len() < MOST_STREAMS {
            self.streams.push(fresh);
            return self.streams.len() - 1;
        }
        let others = (0..self.streams.len()).filter(|index| *index != other);
        let oldest = others.min_by_key(|index| self.streams[*index].used_at).unwrap_or(0);
        let gone = std::mem::replace(&mut self.streams[oldest], fresh);
        self.failures = broken(self.failures, gone.ahead);
        oldest
    }

    /// How many pages each of the last runs had at least, as far as they take no longer to transfer than an access
    /// takes.
    fn usual_run(&self, device: &DeviceDescription) -> u64 {
        self.runs.iter().copied().min().unwrap_or(0).min(device.pages_per_access())
    }

    /// Takes an access for the next one of a stream, or for the first one of a new one. Gives the stream, how many
    /// pages of the pattern that uses up, and whether the access was foretold.
    pub fn follow(&mut self, access: &Access, device: &DeviceDescription) -> (usize, u64, bool) {
        let (page, length) = (access.page, access.wanted);
        self.accesses += 1;
        let found = self.find(page, length, access.by != By::Read);
        let (index, moved) = match found {
            Some((index, how)) => {
                if how == Follows::Guess && self.streams[index].is_wide() {
                    // The steps may be those from one reader to the next: this one's place is remembered.
                    let stays = self.streams[index].stay();
                    self.begin_beside(stays, index);
                }
                (index, self.streams[index].advance(page, length, how, device))
            }
            None => {
                if let Some(last) = self.streams.get(self.begun) {
                    self.runs.rotate_left(1);
                    self.runs[RUNS - 1] = last.run_pages();
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
        if self.streams[index].repeated == SUCCESS {
            self.failures = self.failures.saturating_sub(1);
        }
        (index, moved, found.is_some())
    }

    /// Pages that its streams have ahead, without this stream and without those that no reader seems to follow any more.
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

/// The failures of a file after a pattern was abandoned with `unread` pages unread.
fn broken(failures: u32, unread: u64) -> u32 {
    (failures + u32::from(unread > 0)).min(MOST_FAILURES)
}
