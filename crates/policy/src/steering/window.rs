//! The window of a sequential open file: it grows when the reader waits, and goes back if that did not help.
//!
//! ```text
//!     ramp        4 → 16 → 32 pages              the kernel's own first windows: waits do not count
//!     settled     32  32  32  32                 waits per page are measured
//!     trial       64 → 128  128  128             after growth: the same measure again
//!                 shorter waits: kept            else: back, and a ceiling for a while
//! ```

use super::decision::{Limits, Machine};
use super::effect::Rate;

/// A reader that waits for less than this share of its time is left alone: 1/50, less than the 3 % that a run varies.
const LEAST_WAIT_SHARE: f64 = 0.02;
/// A window grows by these factors at least and at most. If the reader waits for most of its time, the window whose use takes as long as
/// the wait is doubled: reads of the next window then begin before the last wait ends. More than one step is rarely lost: the kernel lets a
/// sequential stream keep the size that it has reached until its next miss, whatever the limit is (`page_cache_async_ra`), and reads that
/// much beyond the end.
const LEAST_GROWTH: u64 = 2;
const MOST_GROWTH: f64 = 4.0;
/// A larger window is kept if the wait time per page falls to this share at most.
const GAIN: f64 = 0.95;
/// Waits are judged over at least this number of windows, and this number of pages. Half of the pages and two windows are enough if the
/// reader waits for most of its time and nothing is on trial.
const JUDGED_WINDOWS: u64 = 3;
const JUDGED_PAGES: u64 = 128;
const CLEAR_WAIT_SHARE: f64 = 0.5;
const CLEAR_WINDOWS: u64 = 2;
const CLEAR_PAGES: u64 = 64;
/// One window and one wait are enough if the reader does nothing else.
const SURE_WAIT_SHARE: f64 = 0.9;
/// A window grows after at least this number of waits.
const LEAST_WAITS: u64 = 2;
/// After this number of windows without a reason for a change, measurement begins again.
const FORGOTTEN_WINDOWS: u64 = 16;
/// A larger window that did not help is not tried again for this time: 1 s, then twice as long each time. Waits vary, so the judgement may
/// be wrong.
const NO_GAIN_NS: u64 = 1_000_000_000;
/// The same after evictions and pressure: 30 s.
const EVICTED_NS: u64 = 30_000_000_000;
/// Largest number of doublings: 1 and 32 minutes.
const MOST_HOLDS: u32 = 6;
/// While memory is short the smallest window is 16 KiB.
const LEAST_SHRUNK_PAGES: u64 = 4;

/// The counters of an open file at a time.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Mark {
    pub at_ns: u64,
    pub advanced_pages: u64,
    pub waits: u64,
    pub wait_ns: u64,
}

impl Mark {
    /// The rate from this time to a later one.
    pub fn rate_to(&self, later: &Mark) -> Rate {
        Rate {
            advanced_pages: later.advanced_pages.saturating_sub(self.advanced_pages),
            waits: later.waits.saturating_sub(self.waits),
            wait_ns: later.wait_ns.saturating_sub(self.wait_ns),
            elapsed_ns: later.at_ns.saturating_sub(self.at_ns),
        }
    }
}

/// A window that was made larger and is not judged yet.
#[derive(Clone, Copy, Debug)]
struct Trial {
    from: u64,
    before: Rate,
}

/// What the judgement says.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Verdict {
    /// Not enough pages yet.
    Open,
    /// The reader does not wait: nothing to do.
    Content,
    /// Another window: because of waits.
    Grow { rate: Rate, to: u64 },
    /// The larger window did not help.
    Back { before: Rate, after: Rate, to: u64 },
}

/// The judgement of one open file.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Judge {
    /// The counters at the begin of the measurement: all, and those without excused waits.
    settled: Option<(Mark, Mark)>,
    trial: Option<Trial>,
    /// No larger window before `held_until_ns`.
    ceiling: u64,
    held_until_ns: u64,
    holds: u32,
}

impl Judge {
    /// A decision with a window of `size` pages before it, of `window` allowed ones. `now` and `judged`: the counters, and those without
    /// the waits that no window would prevent. `most`: limit of the window by memory and file.
    pub fn judge(
        &mut self,
        (now, judged): (&Mark, &Mark),
        size: u64,
        window: u64,
        most: u64,
        limits: &Limits,
        machine: &Machine,
    ) -> Verdict {
        let is_full = size.saturating_mul(2) > window;
        let Some((all, settled)) = self.settled else {
            self.settled = is_full.then_some((*now, *judged));
            return Verdict::Open;
        };
        let (total, rate) = (all.rate_to(now), settled.rate_to(judged));
        let is_clear = self.trial.is_none() && rate.wait_share() > CLEAR_WAIT_SHARE;
        let (windows, pages) = match is_clear {
            true if rate.wait_share() > SURE_WAIT_SHARE => (1, 1),
            true => (CLEAR_WINDOWS, CLEAR_PAGES),
            false => (JUDGED_WINDOWS, JUDGED_PAGES),
        };
        if !is_full || rate.advanced_pages < windows.saturating_mul(window).max(pages) {
            return Verdict::Open;
        }
        if let Some(trial) = self.trial.take()
            && !has_gained(&trial.before, &total)
        {
            self.hold_for(trial.from, now.at_ns, NO_GAIN_NS);
            self.settled = None;
            return Verdict::Back { before: trial.before, after: total, to: trial.from };
        }
        let to = self.larger(now, window, &rate, most, limits, machine);
        if to > window {
            self.trial = Some(Trial { from: window, before: total });
            self.settled = None;
            return Verdict::Grow { rate, to };
        }
        if rate.advanced_pages > FORGOTTEN_WINDOWS.saturating_mul(window) {
            self.settled = Some((*now, *judged));
            return if rate.wait_share() < LEAST_WAIT_SHARE { Verdict::Content } else { Verdict::Open };
        }
        Verdict::Open
    }

    /// The window that the waits justify.
    fn larger(&self, now: &Mark, window: u64, rate: &Rate, most: u64, limits: &Limits, machine: &Machine) -> u64 {
        let waits = if rate.wait_share() > SURE_WAIT_SHARE { 1 } else { LEAST_WAITS };
        if rate.waits < waits || rate.wait_share() < LEAST_WAIT_SHARE || machine.pressure {
            return window;
        }
        // A window of this length would take as long to use as the wait, if the disk had the bandwidth.
        let doubled = if rate.wait_share() > CLEAR_WAIT_SHARE { 2.0 } else { 1.0 };
        let factor = doubled / (1.0 - rate.wait_share()).max(doubled / MOST_GROWTH);
        let factor = (factor as u64).max(LEAST_GROWTH);
        let ceiling = if now.at_ns < self.held_until_ns { self.ceiling } else { u64::MAX };
        window.max(1).saturating_mul(factor).min(limits.max_window_pages).min(most).min(ceiling)
    }

    /// No window larger than this one for a while, because pages were evicted or read in vain.
    pub fn hold(&mut self, ceiling: u64, now_ns: u64) {
        self.hold_for(ceiling, now_ns, EVICTED_NS);
    }

    fn hold_for(&mut self, ceiling: u64, now_ns: u64, first_ns: u64) {
        if now_ns >= self.held_until_ns.saturating_add(EVICTED_NS) {
            self.holds = 0;
        }
        let time_ns = first_ns << self.holds.min(MOST_HOLDS);
        (self.ceiling, self.held_until_ns) = (ceiling, now_ns.saturating_add(time_ns));
        self.holds = self.holds.saturating_add(1);
    }

    /// The window, reduced because pages were evicted unread or memory is short: half of it; `None`: it is small already.
    pub fn shrink(&mut self, window: u64, now_ns: u64, limits: &Limits) -> Option<u64> {
        let to = (window / 2).max(LEAST_SHRUNK_PAGES).max(limits.min_window_pages);
        self.restart();
        self.hold(to, now_ns);
        (to < window).then_some(to)
    }

    /// The window was changed for another reason, or the reader has jumped: measurement begins again.
    pub fn restart(&mut self) {
        (self.settled, self.trial) = (None, None);
    }
}

/// Whether the waits are clearly shorter.
fn has_gained(before: &Rate, after: &Rate) -> bool {
    after.wait_ns_per_mib() <= GAIN * before.wait_ns_per_mib()
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    /// A reader at its markers with full windows. `wait_share`: its waits, as a share of its time of 1 ms for 32 pages.
    /// Returns the first verdict in 6 windows.
    fn verdict(judge: &mut Judge, window: u64, from: u64, wait_share: f64) -> Option<Verdict> {
        let verdict = |number: u64| {
            let time_ns = number * MS * window / 32;
            let wait_ns = (time_ns as f64 * wait_share) as u64;
            let mark = Mark { at_ns: from + time_ns, advanced_pages: number * window, waits: number, wait_ns };
            judge.judge((&mark, &mark), window, window, 1 << 20, &Limits::default(), &Machine::default())
        };
        (1..=6).map(verdict).find(|verdict| *verdict != Verdict::Open)
    }

    #[test]
    fn growth_follows_the_share_of_the_waits() {
        for (wait_share, expected) in
            [(0.01, None), (0.1, Some(64)), (0.45, Some(64)), (0.55, Some(128)), (0.8, Some(128)), (0.995, Some(128))]
        {
            let to = verdict(&mut Judge::default(), 32, 0, wait_share).map(|verdict| match verdict {
                Verdict::Grow { to, .. } => to,
                other => panic!("{other:?}"),
            });
            assert_eq!(to, expected, "{wait_share}");
        }
    }

    #[test]
    fn ceiling_is_kept_longer_after_each_failure() {
        let mut judge = Judge::default();
        let mut from = 0;
        for expected_s in [1, 2, 4] {
            assert!(matches!(verdict(&mut judge, 32, from, 0.6), Some(Verdict::Grow { to: 128, .. })));
            assert!(matches!(verdict(&mut judge, 128, from, 0.6), Some(Verdict::Back { to: 32, .. })));
            assert_eq!((judge.held_until_ns - from) / (1000 * MS), expected_s);
            assert_eq!(verdict(&mut judge, 32, from, 0.6), None);
            judge.restart();
            from = judge.held_until_ns;
        }
    }

    #[test]
    fn small_windows_are_not_reduced() {
        let mut judge = Judge::default();
        let shrunk = [1, 4, 5, 8, 100].map(|window| judge.shrink(window, 0, &Limits::default()));
        assert_eq!(shrunk, [None, None, Some(4), Some(4), Some(50)]);
    }
}
