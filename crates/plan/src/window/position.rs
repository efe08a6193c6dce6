//! Where the program is: confirmed by marks, estimated by the clock in between.
//!
//! ```text
//!     the program's clock   0 ─────── m1 ──────────── m2 ─── m3 ───▶       time_us of the items, with everything cached
//!     real time             0 ────────────── m1 ─────────···now           speed = real time / the program's clock, so far
//!                                             ╰ the estimate moves on from here; beyond m2, which was not seen, at a quarter of it
//! ```
//!
//! Until a source reports marks, the position does not move: a program that is faster than its clock has passed what is fetched behind
//! it, and pages that were evicted meanwhile would be read again.

use super::{Item, Mark};

/// The clock moves past missing marks at this part of its speed, and past each further one at this part of that.
const SLOWDOWN: f64 = 4.0;
/// The slowest part. So the estimate reaches the end of a profile that the program does not follow at all.
const MOST_SLOWDOWN: f64 = 16.0;

/// Limits of the speed: a program is hardly faster than with everything cached, and it may wait for a disk for most of its time.
const SPEEDS: (f64, f64) = (0.5, 64.0);

/// Longest time for which the position waits for a source of marks, microseconds: loading the observer takes 0.1 s, 0.4 s on busy processors.
const SOURCE_US: u64 = 1_000_000;

/// Weight of the past at each mark: the speed follows some ten marks.
const MEMORY: f64 = 0.9;

/// Where the program is.
#[derive(Clone, Debug)]
pub(super) struct Position {
    marks: Vec<Mark>,
    seen: Vec<bool>,
    /// The program's clock at each item: does not go back; one more at the end.
    clock_us: Vec<u64>,
    sees_marks: bool,
    /// A source reports marks, or none will.
    is_watched: bool,
    /// The most advanced place of a seen mark.
    confirmed: usize,
    /// The thread of that mark; `None`: unknown.
    confirmed_by: Option<u32>,
    at: usize,
    /// The program's clock and real time at the last confirmation, microseconds.
    anchor: (u64, u64),
    /// Real time and the program's clock between the last marks, microseconds.
    passed: (f64, f64),
}

impl Position {
    pub fn new(items: &[Item], marks: Vec<Mark>, sees_marks: bool) -> Position {
        let mut clock_us = Vec::with_capacity(items.len() + 1);
        let mut latest = 0;
        for item in items {
            latest = item.time_us.max(latest);
            clock_us.push(latest);
        }
        clock_us.push(latest);
        let seen = vec![false; marks.len()];
        let is_watched = !sees_marks;
        let (anchor, passed) = ((0, 0), (0.0, 0.0));
        Position {
            marks,
            seen,
            clock_us,
            sees_marks,
            is_watched,
            confirmed: 0,
            confirmed_by: None,
            at: 0,
            anchor,
            passed,
        }
    }

    pub fn at(&self) -> usize {
        self.at
    }

    pub fn confirmed(&self) -> usize {
        self.confirmed
    }

    pub fn mark(&self, index: usize) -> Option<Mark> {
        self.marks.get(index).copied()
    }

    pub fn expected_marks(&self) -> usize {
        self.marks.iter().filter(|mark| mark.is_expected).count()
    }

    /// Whether the program has used an item before a mark that was seen, which is that of this thread, and will not need it again. Items
    /// of unknown threads have been used if their file was opened.
    pub fn is_used(&self, item: &Item, by: Option<u32>) -> Option<bool> {
        match (item.thread, by) {
            (Some(thread), Some(other)) => Some(thread == other),
            _ => item.opened_by.and_then(|mark| self.seen.get(mark)).filter(|is_seen| **is_seen).copied(),
        }
    }

    /// Whether a seen mark shows that the program has used this item.
    pub fn has_passed(&self, index: usize, item: &Item) -> bool {
        index < self.confirmed && self.is_used(item, self.confirmed_by) == Some(true)
    }

    pub fn source_started(&mut self) {
        self.is_watched = true;
    }

    pub fn stop_expecting(&mut self) {
        (self.sees_marks, self.is_watched) = (false, true);
    }

    /// The places of the expected marks that were not seen and lie beyond the confirmed position.
    fn expected(&self) -> impl Iterator<Item = usize> + '_ {
        let from = self.marks.partition_point(|mark| mark.place <= self.confirmed);
        let marks = (from..self.marks.len()).filter(|index| self.marks[*index].is_expected && !self.seen[*index]);
        marks.take_while(|_| self.sees_marks).map(|index| self.marks[index].place)
    }

    /// The place of the next expected mark; `None`: no source reports marks, or there is none.
    pub fn next_expected(&self) -> Option<usize> {
        self.expected().find(|place| *place >= self.at)
    }

    /// Counts a mark as seen. Returns whether it moves the confirmed position forward.
    pub fn confirm(&mut self, mark: usize, now_us: u64) -> bool {
        (self.seen[mark], self.is_watched) = (true, true);
        let place = self.marks[mark].place;
        if place <= self.confirmed && self.anchor.1 > 0 {
            return false;
        }
        let clock_us = self.clock_us[place];
        let passed = (now_us.saturating_sub(self.anchor.1) as f64, clock_us.saturating_sub(self.anchor.0) as f64);
        self.passed = (self.passed.0 * MEMORY + passed.0, self.passed.1 * MEMORY + passed.1);
        self.anchor = (clock_us, now_us.max(1));
        let is_forward = place > self.confirmed;
        if is_forward {
            (self.confirmed, self.confirmed_by) = (place, self.marks[mark].thread);
        }
        // The clock may have been too fast: then the program is here.
        self.at = self.confirmed;
        is_forward
    }

    /// Moves the estimate to this time.
    pub fn advance(&mut self, now_us: u64) {
        if !self.is_watched && now_us < SOURCE_US {
            return;
        }
        let clock_us = self.estimate_us(now_us);
        let by_clock = self.clock_us[..self.clock_us.len() - 1].partition_point(|time_us| *time_us < clock_us);
        self.at = by_clock.max(self.confirmed);
    }

    /// The program's clock at this time.
    fn estimate_us(&self, now_us: u64) -> u64 {
        let speed = match self.passed.1 > 0.0 {
            true => (self.passed.0 / self.passed.1).clamp(SPEEDS.0, SPEEDS.1),
            false => 1.0,
        };
        let mut left = now_us.saturating_sub(self.anchor.1) as f64 / speed;
        let (mut clock_us, mut slowdown) = (self.anchor.0, 1.0);
        for place in self.expected() {
            let room = self.clock_us[place].saturating_sub(clock_us) as f64 * slowdown;
            if left <= room {
                break;
            }
            if room > 0.0 || slowdown == 1.0 {
                slowdown = f64::min(slowdown * SLOWDOWN, MOST_SLOWDOWN);
            }
            left -= room;
            clock_us = clock_us.max(self.clock_us[place]);
        }
        clock_us.saturating_add((left / slowdown) as u64).saturating_add(u64::from(left > 0.0))
    }
}
