//! The acts that fetch pages for patterns that the kernel does not know.

use super::{Around, OpenFile};
use crate::pattern::Class;
use crate::steering::act::Act;
use crate::steering::decision::{Decision, Kind, Progress};
use crate::steering::fetching;
use crate::steering::reason::Reason;
use crate::steering::streams::{Followed, How};
use std::ops::Range;

/// After useless fetches there are none for this time: 30 s.
const USELESS_NS: u64 = 30_000_000_000;
/// Fetches are useless if more than this share of their pages was not used: one in eight. That allows for the ends of streams.
const USELESS_SHARE: u64 = 8;
/// Unused pages that are not judged yet: 256 KiB.
const JUDGED_PAGES: u64 = 64;
/// Largest number of additional repetitions that a pattern needs after failures.
const MOST_FAILURES: u32 = 3;
/// With this number of repetitions a pattern makes up for failures.
const SUCCESS: u32 = 16;
/// Number of polls in a row outside the pattern before its pages are given up.
const LOST_POLLS: u32 = 8;
/// Number of polls while half of the distance is used up.
const POLLS_PER_HALF: u64 = 4;
/// The speed of a reader may rise as soon as its pages arrive, so that polls are not rarer than this part of the time in which the disk reads
/// them; but they may be 2 ms apart.
const POLLS_PER_ARRIVAL: u64 = 8;
const LEAST_ARRIVAL_NS: u64 = 2_000_000;
/// A reader whose position stays the same for this time has stopped: 60 s.
const STOPPED_NS: u64 = 60_000_000_000;
/// Time between two polls: from 100 µs, a few times the cost of a poll, to 1 s.
const POLL_NS: Range<u64> = 100_000..1_000_000_000;

/// The polls of a reader whose pages are fetched.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Polls {
    last_ns: u64,
    after_ns: u64,
    lost: u32,
    /// The position at the last poll, and the time since which it has been the same.
    page: Option<u64>,
    since_ns: u64,
}

/// The fetches for an open file.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Fetches {
    pages: u64,
    unused: u64,
    failures: u32,
    off_until_ns: u64,
    /// The waits at the last fetch.
    waits: u64,
}

impl OpenFile {
    /// Fetches for a decision in a pattern that the kernel does not know.
    pub(super) fn steer_fetches(&mut self, decision: &Decision, followed: &Followed, around: &Around) -> Option<Act> {
        let is_pattern = match followed.how {
            // Which pages a mapping uses between two faults is not known.
            How::Step => decision.target.mapping.is_none() || self.class == Class::Backward,
            // On a disk that seeks, the kernel's windows grow too slowly for several readers.
            How::Forward => self.class == Class::Interleaved && fetching::seeks(&around.machine.device),
            How::New => false,
        };
        let is_fetched = is_pattern && !self.faults.are_random();
        is_fetched.then(|| self.fetch(followed.index, decision.kind != Kind::Marker, around)).flatten()
    }

    /// Fetches the next pages of a stream, if enough of its distance is used up. `missed`: its last page was not cached.
    fn fetch(&mut self, index: usize, missed: bool, around: &Around) -> Option<Act> {
        let (machine, now_ns) = (around.machine, self.mark.at_ns);
        if !machine.can_fetch {
            return None;
        }
        let (failures, off_until_ns, waits) = (self.fetches.failures, self.fetches.off_until_ns, self.fetches.waits);
        let room = around.room.own().min(around.limits.max_window_pages.saturating_mul(2));
        let stream = self.streams.get_mut(index)?;
        if missed {
            stream.ahead = 0;
        }
        // The window of the kernel serves a single sequential stream.
        let is_known = match stream.is_forward() {
            true => self.class == Class::Interleaved,
            false => stream.is_confirmed(failures),
        };
        if !is_known || now_ns < off_until_ns || now_ns < self.held_until_ns || machine.pressure {
            return None;
        }
        let (from, is_first) = (stream.distance, stream.distance == 0);
        let waited = self.mark.waits.saturating_sub(waits);
        if is_first {
            stream.distance = fetching::first_distance(stream, machine);
        }
        let distance = fetching::limited(stream, room, machine);
        if !is_first && !missed && !fetching::is_due(stream, distance) {
            return None;
        }
        if !is_first && (missed || waited > 0) {
            stream.distance = fetching::grown(stream, machine);
        }
        let distance = fetching::limited(stream, room, machine);
        stream.distance = stream.distance.max(distance);
        let before = stream.ahead;
        let ranges = fetching::next(stream, distance, self.file_pages, machine);
        let fetched = stream.ahead.saturating_sub(before);
        if stream.at.repeated >= SUCCESS {
            self.fetches.failures = 0;
        }
        let (step, repeated) = match stream.is_forward() {
            true => (i64::try_from(stream.at.length).unwrap_or(i64::MAX), stream.forward),
            false => (stream.at.step, stream.at.repeated),
        };
        let (accesses, to) = (u64::from(repeated).saturating_add(1), stream.distance);
        if ranges.is_empty() {
            return None;
        }
        self.fetches.pages = self.fetches.pages.saturating_add(fetched);
        self.fetches.waits = self.mark.waits;
        if is_first {
            self.note_act();
        }
        self.polls.since_ns = now_ns;
        self.plan_poll(0, machine.device.access_ns / 2);
        let class = self.class;
        let reason = if from > 0 && to > from {
            Reason::PatternWaited { class, waits: waited.max(1), from, to }
        } else {
            Reason::Pattern { class, step, accesses, distance }
        };
        Some(Act::Fetch { open: self.open, file: self.file, ranges, reason })
    }

    fn plan_poll(&mut self, lost: u32, after_ns: u64) {
        let after_ns = after_ns.clamp(POLL_NS.start, POLL_NS.end);
        self.polls = Polls { last_ns: self.mark.at_ns, after_ns, lost, ..self.polls };
    }

    /// The time from the last decision or poll to the next poll, nanoseconds; `None`: no poll is needed.
    pub fn poll_after_ns(&self) -> Option<u64> {
        // Faults do not move the position of an open file.
        let is_fetched = self.streams.ahead() > 0 && self.class != Class::Advised && !self.is_mapped;
        is_fetched.then_some(self.polls.after_ns.clamp(POLL_NS.start, POLL_NS.end))
    }

    /// The position of the reader was polled.
    pub(in crate::steering) fn progress(&mut self, progress: &Progress, around: &Around) -> Option<Act> {
        if self.class == Class::Advised || self.streams.ahead() == 0 {
            return None;
        }
        self.mark.at_ns = self.mark.at_ns.max(progress.at_ns);
        if let Some((waits, wait_ns)) = progress.waits {
            self.note_waits(waits, wait_ns);
        }
        let elapsed_ns = self.mark.at_ns.saturating_sub(self.polls.last_ns);
        if self.polls.page.replace(progress.page) == Some(progress.page) {
            let unchanged_ns = self.mark.at_ns.saturating_sub(self.polls.since_ns);
            let factor = if unchanged_ns < self.arrival_ns(around) { 1 } else { 2 };
            self.plan_poll(self.polls.lost, self.polls.after_ns.saturating_mul(factor));
            let has_stopped = self.mark.at_ns.saturating_sub(self.polls.since_ns) > STOPPED_NS;
            return if has_stopped { self.give_up(true) } else { None };
        }
        self.polls.since_ns = self.mark.at_ns;
        let Some((index, advanced)) = self.streams.progress(progress.page) else {
            self.plan_poll(self.polls.lost.saturating_add(1), self.polls.after_ns);
            return self.give_up(self.polls.lost >= LOST_POLLS);
        };
        self.mark.advanced_pages = self.mark.advanced_pages.saturating_add(advanced);
        let act = self.fetch(index, false, around);
        self.plan_next_poll(index, advanced, elapsed_ns, around);
        act
    }

    /// Within this time the disk reads all pages that were fetched. A reader that waits for them uses them at the speed of memory as soon as
    /// they arrive, so it is polled as often as before.
    fn arrival_ns(&self, around: &Around) -> u64 {
        let device = &around.machine.device;
        let pages_ns = self.streams.ahead().saturating_mul(device.page_ns());
        device.access_ns.saturating_add(pages_ns).saturating_mul(2).min(STOPPED_NS)
    }

    /// Plans the polls until half of the distance is used up, at the speed since the last poll: the reader may be faster now.
    fn plan_next_poll(&mut self, index: usize, advanced: u64, elapsed_ns: u64, around: &Around) {
        let Some(stream) = self.streams.get(index) else { return };
        let left = stream.ahead.saturating_sub(stream.distance.min(stream.ahead) / 2).max(1);
        let after_ns = match advanced {
            0 => self.polls.after_ns.saturating_mul(2),
            pages => (elapsed_ns as f64 / pages as f64 * left as f64) as u64 / POLLS_PER_HALF,
        };
        let most_ns = (self.arrival_ns(around) / POLLS_PER_ARRIVAL).max(LEAST_ARRIVAL_NS);
        self.plan_poll(0, after_ns.min(most_ns));
    }

    /// Gives up pages that no reader will use, and pauses if they were many.
    pub(super) fn give_up(&mut self, all: bool) -> Option<Act> {
        let unused = self.streams.abandon(all);
        if unused == 0 {
            return None;
        }
        let fetches = &mut self.fetches;
        fetches.unused = fetches.unused.saturating_add(unused);
        fetches.failures = (fetches.failures + 1).min(MOST_FAILURES);
        if fetches.unused < JUDGED_PAGES || fetches.unused.saturating_mul(USELESS_SHARE) < fetches.pages {
            return None;
        }
        let reason =
            Reason::Useless { fetched: fetches.pages, unused: fetches.unused, pause_s: USELESS_NS / 1_000_000_000 };
        (fetches.pages, fetches.unused) = (0, 0);
        fetches.off_until_ns = self.mark.at_ns.saturating_add(USELESS_NS);
        self.streams.forget_fetched();
        self.judge.restart();
        self.setting.set(self.setting.baseline, self.mark.at_ns);
        Some(Act::Restore { open: self.open, reason })
    }
}
