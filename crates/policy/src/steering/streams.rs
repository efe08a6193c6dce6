//! The streams of an open file, found from decisions alone: cached reads are not seen.
//!
//! ```text
//!     forwards    ■■■■▶■■■■│■■■■■■■■│        a miss or a marker at the end of the pages read, or in the window after it
//!     backwards   ◀■■■■◀■■■■◀■■■■            a miss that ends where the last one began
//!     stride      ■──▶■──▶■──▶               the same step between the beginnings of two runs, twice
//! ```
//!
//! A jump begins a new stream, because another reader may share the open file. The old one waits for its own next access. One reader that
//! jumps does not come back, or once at random: streams are interleaved if each of them has gone on twice after decisions about others.

use super::decision::Kind;
use crate::Page;
use crate::pattern::{Steps, add_stream, find_stream};

/// Largest number of streams of an open file: 16 interleaved ones, and jumps between them.
const MOST_STREAMS: usize = 48;
/// Largest step of a stride, pages: 64 MiB.
const MOST_STEP_PAGES: u64 = 16_384;
/// Steps of more than this length, 1 MiB, may lead from one reader to another.
const WIDE_PAGES: u64 = 256;
/// Number of repetitions of such a step that confirm it: as many as there may be readers.
const WIDE_REPEATED: u32 = 16;
/// Cached pages between the end of one window and the begin of the next one, at most: 4 MiB.
const MOST_HOLE_PAGES: u64 = 1024;
/// Calls of one reader may reach the kernel in another order; a page this far behind is read again: 4 MiB.
const MOST_BEHIND_PAGES: u64 = 1024;
/// Number of repetitions of any other step that confirm it.
const REPEATED: u32 = 2;
/// A stream without a decision or poll among this number of decisions is not active.
const ACTIVE: u64 = 64;
/// Number of returns to each of several streams that are interleaved.
const RETURNS: u32 = 2;
/// A reader may be at most this number of steps beyond the fetched ones.
const SLACK_STEPS: u64 = 4;

/// How a decision continues a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum How {
    /// At the end of its run, or in the window after it.
    Forward,
    /// Its next step.
    Step,
    /// It begins a stream.
    New,
}

/// The accesses of one reader.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Stream {
    /// The last run and the step that led there, with the length of a run before it: the last one may not be complete.
    pub at: Steps,
    /// The page after the last one of the last run.
    pub end: Page,
    /// Number of decisions that continued a run.
    pub forward: u32,
    /// The last window that the kernel has requested for its run: first page, and the page after its last one. The kernel may leave a hole
    /// before it.
    pub issued_first: Page,
    pub issued_end: Page,
    /// Pages used since its begin.
    pub advanced: u64,
    /// Fetched pages of the pattern that the reader has not reached.
    pub ahead: u64,
    /// How many of these there should be; 0: none are fetched.
    pub distance: u64,
    /// Number of times that its reader went on here after a decision about another stream.
    pub returns: u32,
    /// Number of its last decision.
    pub used_at: u64,
}

impl Stream {
    fn begin(page: Page, end: Page) -> Stream {
        let length = end - page;
        let at = Steps::begin(page, length);
        Stream { at, end, issued_first: end, issued_end: end, advanced: length, ..Stream::default() }
    }

    /// The page after all pages that are read or requested.
    fn reach(&self) -> Page {
        let fetched = if self.is_forward() { self.ahead } else { 0 };
        self.end.saturating_add(fetched).max(self.issued_end)
    }

    /// Whether an access from a page of its run is far behind its reader: the reader, or another one, has begun again.
    fn is_left_behind_by(&self, page: Page, end: Page) -> bool {
        let is_restart = page == 0 && self.end > end;
        is_restart || end.saturating_add(MOST_BEHIND_PAGES) < self.end
    }

    /// Whether the runs follow each other downwards without gaps.
    pub fn is_backward(&self) -> bool {
        !self.is_forward() && self.at.step < 0 && self.at.step.unsigned_abs() <= self.at.length
    }

    /// Whether its reader goes forwards, and not only within a run of a stride.
    pub fn is_forward(&self) -> bool {
        self.forward > 1 || (self.forward == 1 && self.at.repeated < REPEATED)
    }

    /// Whether its pages have no gaps, in either direction.
    pub fn is_contiguous(&self) -> bool {
        self.is_forward() || self.is_backward()
    }

    /// Whether its step has repeated, once more for each failure before.
    pub fn is_confirmed(&self, failures: u32) -> bool {
        let needed = if self.is_wide() { WIDE_REPEATED } else { REPEATED };
        self.at.step != 0 && self.at.repeated >= needed.saturating_add(failures) && !self.is_forward()
    }

    /// Whether its steps may lead from one reader to another.
    fn is_wide(&self) -> bool {
        !self.is_backward() && self.at.step.unsigned_abs() > WIDE_PAGES
    }

    /// The number of steps from the last run to the run that contains this page.
    fn steps_to(&self, page: Page) -> Option<u64> {
        let length = self.at.length.max(1);
        let (steps, rest) = self.at.locate(page).filter(|_| self.at.repeated >= 2)?;
        let most = (self.ahead / length).saturating_add(SLACK_STEPS);
        (rest < length && (1..=most).contains(&steps)).then_some(steps)
    }

    /// Length of its last run. A reader that makes several calls in a run uses pages that the kernel has requested, without a decision.
    fn run(&self) -> u64 {
        let (run, step) = (self.end.saturating_sub(self.at.first), self.at.step.unsigned_abs());
        let is_filled = self.issued_end.saturating_sub(self.at.first) >= step && run.saturating_mul(2) > step;
        if is_filled { run.max(step).max(1) } else { run.max(1) }
    }

    /// The reader has come to this page, if it is after the end of the run. Returns the pages by which it advanced.
    fn extend(&mut self, end: Page) -> u64 {
        let advanced = end.saturating_sub(self.end);
        self.end = self.end.max(end);
        self.ahead = self.ahead.saturating_sub(advanced);
        self.advanced = self.advanced.saturating_add(advanced);
        advanced
    }

    /// The reader has moved on by steps to a run that begins at this page. Returns the pages by which it advanced.
    fn step_on(&mut self, first: Page, end: Page, steps: u64) -> u64 {
        let length = if steps == 1 { self.run() } else { self.at.length.max(1) };
        let used = length.saturating_mul(steps);
        self.at.repeated = self.at.repeated.saturating_add(u32::try_from(steps).unwrap_or(u32::MAX));
        self.advanced = self.advanced.saturating_add(used);
        self.ahead = self.ahead.saturating_sub(used);
        (self.at.first, self.at.length, self.forward) = (first, length, 0);
        (self.end, self.issued_first, self.issued_end) = (end, end, end);
        used
    }
}

/// The streams of an open file.
#[derive(Clone, Debug, Default)]
pub(super) struct Streams {
    list: Vec<Stream>,
    /// The stream of the last decision.
    last: usize,
    /// Number of decisions.
    now: u64,
    /// The window at the last decision: first page, and the page after its last one.
    window: (Page, Page),
    /// Fetched pages of streams that were dropped.
    dropped_ahead: u64,
}

/// The result of [`Streams::follow`].
#[derive(Clone, Copy, Debug)]
pub(super) struct Followed {
    /// The index of the stream.
    pub index: usize,
    /// How it is continued.
    pub how: How,
    /// Pages by which its reader has advanced.
    pub advanced: u64,
    /// Whether the kernel had requested the page for this stream, and it was evicted before its use.
    pub is_evicted: bool,
}

/// A decision, as far as it concerns streams.
#[derive(Clone, Copy, Debug)]
pub(super) struct Requested {
    pub kind: Kind,
    pub page: Page,
    /// The first page that is needed: a fault reads pages before it.
    pub needed: Page,
    /// The page after the last one that is requested.
    pub end: Page,
    /// The window before the decision: first page, and the page after its last one.
    pub start: Page,
    pub window_end: Page,
}

impl Streams {
    /// Assigns a decision to its stream.
    pub fn follow(&mut self, decision: &Requested) -> Followed {
        self.now += 1;
        self.note_window(decision);
        let &Requested { kind, page, needed, end, .. } = decision;
        let mut is_evicted = false;
        let (index, how, advanced) = if let Some(index) = self.forward(page, end) {
            let stream = &self.list[index];
            is_evicted =
                kind != Kind::Marker && (stream.issued_first.max(stream.end)..stream.issued_end).contains(&needed);
            (index, How::Forward, self.go_forward(index, end))
        } else if let Some((index, steps)) = self.stepped(page, kind) {
            (index, How::Step, self.go_on(index, page, end, steps))
        } else if let Some(index) = self.backward(page, end, kind) {
            (index, How::Step, self.go_backward(index, page, end))
        } else {
            (self.begin(page, end, kind), How::New, end - page)
        };
        if how == How::New && self.is_read(index, page) || how == How::Forward && advanced == 0 {
            // A reader has begun again. That it finds the ends of its former runs says nothing.
            self.list.iter_mut().for_each(|stream| stream.returns = 0);
        }
        self.last = index;
        self.list[index].used_at = self.now;
        Followed { index, how, advanced, is_evicted }
    }

    /// The window before a decision was requested by the decision before it.
    /// A decision that read single pages has left it unchanged.
    fn note_window(&mut self, decision: &Requested) {
        let window = (decision.start, decision.window_end);
        if std::mem::replace(&mut self.window, window) == window {
            return;
        }
        if let Some(last) = self.list.get_mut(self.last)
            && decision.start <= last.reach().saturating_add(MOST_HOLE_PAGES)
            && decision.window_end >= last.at.first
        {
            (last.issued_first, last.issued_end) = (decision.start, last.issued_end.max(decision.window_end));
        }
    }

    /// The stream whose run, or the window after it, ends at this page or contains it.
    fn forward(&self, page: Page, end: Page) -> Option<usize> {
        let near = |stream: &Stream| {
            (stream.at.first..=stream.reach()).contains(&page) && !stream.is_left_behind_by(page, end)
        };
        let key = |stream: &Stream| near(stream).then(|| (page < stream.end, stream.end.abs_diff(page)));
        find_stream(&self.list, key).map(|(index, _)| index)
    }

    /// Whether a stream other than this one has read the page.
    fn is_read(&self, index: usize, page: Page) -> bool {
        let contains = |stream: &Stream| stream.forward > 0 && (stream.at.first..stream.end).contains(&page);
        self.list.iter().enumerate().any(|(other, stream)| other != index && contains(stream))
    }

    fn go_forward(&mut self, index: usize, end: Page) -> u64 {
        let (is_switch, now) = (self.last != index, self.now);
        let stream = &mut self.list[index];
        let advanced = end.saturating_sub(stream.end);
        if is_switch && advanced > 0 {
            let before = if stream.used_at + ACTIVE > now { stream.returns } else { 0 };
            stream.returns = before.saturating_add(1);
        }
        stream.forward = stream.forward.saturating_add(1);
        stream.extend(end)
    }

    /// The stream at whose next step the page is, or at one of the steps after it.
    fn stepped(&self, page: Page, kind: Kind) -> Option<(usize, u64)> {
        if kind == Kind::Marker {
            return None;
        }
        let steps = |stream: &Stream| match stream.at.repeated {
            0 => None,
            1 => (stream.at.nth(1) == Some(page)).then_some(1),
            _ => stream.steps_to(page),
        };
        let found = find_stream(&self.list, |stream| Some((steps(stream)?, self.now - stream.used_at)));
        found.map(|(index, (steps, _))| (index, steps))
    }

    fn go_on(&mut self, index: usize, page: Page, end: Page, steps: u64) -> u64 {
        let stream = &self.list[index];
        if stream.is_wide() && !stream.is_confirmed(0) {
            // The place of the reader that the step may have left stays known.
            let stays = Stream { used_at: stream.used_at, ..Stream::begin(stream.at.first, stream.end) };
            self.add(stays, Some(index));
        }
        self.list[index].step_on(page, end, steps)
    }

    /// The stream whose run begins where the access ends.
    fn backward(&self, page: Page, end: Page, kind: Kind) -> Option<usize> {
        let adjacent = |stream: &Stream| page < stream.at.first && (stream.at.first..=stream.end).contains(&end);
        let is_miss = kind != Kind::Marker;
        self.list.iter().position(|stream| is_miss && adjacent(stream))
    }

    fn go_backward(&mut self, index: usize, page: Page, end: Page) -> u64 {
        let stream = &mut self.list[index];
        let (was_backward, first) = (stream.is_backward(), stream.at.first);
        let repeated = if was_backward { stream.at.repeated } else { 0 };
        stream.step_on(page, end.min(first).max(page + 1), 1);
        stream.at.step = -i64::try_from(first - page).unwrap_or(i64::MAX);
        (stream.at.repeated, stream.at.length) = (repeated.saturating_add(1), first - page);
        first - page
    }

    fn begin(&mut self, page: Page, end: Page, kind: Kind) -> usize {
        let mut fresh = Stream::begin(page, end);
        if let Some(last) = self.list.get(self.last).filter(|_| kind != Kind::Marker)
            && (1..=MOST_STEP_PAGES).contains(&page.abs_diff(last.at.first))
        {
            (fresh.at.step, fresh.at.repeated) = (last.at.step_to(page), 1);
            // The run before counts, if this becomes a pattern.
            fresh.advanced = fresh.advanced.saturating_add(last.end.saturating_sub(last.at.first));
        }
        self.add(fresh, None)
    }

    /// Adds a stream. It replaces the least recently used one except `kept`.
    fn add(&mut self, fresh: Stream, kept: Option<usize>) -> usize {
        let (index, gone) = add_stream(&mut self.list, fresh, MOST_STREAMS, kept, |stream| stream.used_at);
        self.dropped_ahead = self.dropped_ahead.saturating_add(gone.map_or(0, |gone| gone.ahead));
        index
    }

    /// The reader's last page, polled: moves the stream of this page on. `None`: it belongs to no fetched stream. Otherwise its index, and
    /// the pages by which it advanced.
    pub fn progress(&mut self, page: Page) -> Option<(usize, u64)> {
        let of = |stream: &Stream| {
            let end = if stream.is_forward() { stream.reach() } else { stream.end };
            stream.ahead > 0 && (stream.at.first..end).contains(&page)
        };
        if let Some(index) = self.list.iter().position(of) {
            self.list[index].used_at = self.now;
            return Some((index, self.list[index].extend(page + 1)));
        }
        let steps = |stream: &Stream| if stream.ahead > 0 { stream.steps_to(page) } else { None };
        let (index, steps) = self.list.iter().enumerate().find_map(|(index, stream)| Some((index, steps(stream)?)))?;
        let stream = &mut self.list[index];
        let first = stream.at.nth(steps).unwrap_or(0);
        let advanced = stream.step_on(first, first.saturating_add(stream.at.length.max(1)), steps);
        stream.used_at = self.now;
        Some((index, advanced))
    }

    /// A stream.
    pub fn get(&self, index: usize) -> Option<&Stream> {
        self.list.get(index)
    }

    /// A stream, to be changed.
    pub fn get_mut(&mut self, index: usize) -> Option<&mut Stream> {
        self.list.get_mut(index)
    }

    /// Number of active streams that go forwards in turn.
    pub fn forward_streams(&self) -> usize {
        let active =
            |stream: &&Stream| stream.forward > 1 && stream.returns >= RETURNS && stream.used_at + ACTIVE > self.now;
        self.list.iter().filter(active).count()
    }

    /// Fetched pages that no reader has reached.
    pub fn ahead(&self) -> u64 {
        self.list.iter().fold(0, |sum, stream| sum.saturating_add(stream.ahead))
    }

    /// Gives up the fetched pages of streams that other decisions have passed by, or of all. Returns their number.
    pub fn abandon(&mut self, all: bool) -> u64 {
        let mut unused = std::mem::take(&mut self.dropped_ahead);
        for stream in &mut self.list {
            if stream.ahead > 0 && (all || stream.used_at + ACTIVE <= self.now) {
                unused = unused.saturating_add(std::mem::take(&mut stream.ahead));
                (stream.distance, stream.at.repeated) = (0, 0);
            }
        }
        unused
    }

    /// Ends all fetches: the pages are not in the cache.
    pub fn forget_fetched(&mut self) {
        self.dropped_ahead = 0;
        for stream in &mut self.list {
            (stream.ahead, stream.distance) = (0, 0);
        }
    }

    /// Halves the distances.
    pub fn halve_distances(&mut self) {
        self.list.iter_mut().for_each(|stream| stream.distance /= 2);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn miss(page: Page, wanted: u64, window: (Page, Page)) -> Requested {
        Requested { kind: Kind::Miss, page, needed: page, end: page + wanted, start: window.0, window_end: window.1 }
    }

    fn follow(streams: &mut Streams, list: &[(Page, u64)]) -> Vec<How> {
        list.iter().map(|(page, wanted)| streams.follow(&miss(*page, *wanted, (0, 0))).how).collect()
    }

    #[test]
    fn patterns_are_found_beside_other_readers() {
        use How::{Forward, New, Step};
        let mut streams = Streams::default();
        // Two backward readers in turn, and a sequential one.
        let list = [(900, 4), (500, 4), (150, 4), (896, 4), (496, 4), (154, 4), (892, 4), (492, 4), (158, 4)];
        assert_eq!(follow(&mut streams, &list), [New, New, New, Step, Step, Forward, Step, Step, Forward]);
        let confirmed = streams.list.iter().filter(|stream| stream.is_confirmed(0) && stream.is_backward());
        assert_eq!(confirmed.count(), 2);
    }

    /// Regression: the kernel leaves a hole between two windows if another reader's marker is reached. A miss there was counted as
    /// an eviction.
    #[test]
    fn miss_in_a_hole_before_the_window_is_no_eviction() {
        let mut streams = Streams::default();
        let marker = |page, window| Requested { kind: Kind::Marker, ..miss(page, 4, window) };
        streams.follow(&miss(4096, 4, (0, 0)));
        streams.follow(&marker(4116, (4096, 4120)));
        streams.follow(&miss(8192, 4, (4121, 4128)));
        assert!(!streams.follow(&miss(4120, 4, (4121, 4128))).is_evicted);
        assert!(streams.follow(&miss(4124, 4, (4121, 4128))).is_evicted);
    }

    #[test]
    fn several_calls_in_each_block_are_one_run() {
        let mut streams = Streams::default();
        let mut window = (0, 0);
        // Blocks of four pages downwards, each read page by page: the second page of a block makes the kernel read four.
        for block in (90..100u64).rev() {
            streams.follow(&miss(4 * block, 1, window));
            streams.follow(&miss(4 * block + 1, 1, window));
            window = (4 * block + 1, 4 * block + 5);
            streams.follow(&Requested { kind: Kind::Marker, ..miss(4 * block + 2, 1, window) });
            window = (4 * block + 5, 4 * block + 21);
        }
        streams.follow(&miss(4 * 89, 1, window));
        let stream = streams.list.iter().max_by_key(|stream| stream.at.repeated).unwrap();
        assert_eq!((stream.at.step, stream.at.length, stream.is_backward()), (-4, 4, true));
    }

    #[test]
    fn steps_are_counted_in_both_directions() {
        for (step, page, steps) in [
            (16, 116, Some(1)),
            (16, 119, Some(1)),
            (16, 120, None),
            (16, 148, Some(3)),
            (-16, 84, Some(1)),
            (-16, 83, None),
            (-16, 68, Some(2)),
            (16, 90, None),
        ] {
            let begun = Stream::begin(100, 104);
            let stream = Stream { at: Steps { step, repeated: 2, ..begun.at }, ahead: 100, ..begun };
            assert_eq!(stream.steps_to(page), steps, "{step} {page}");
        }
    }
}
