//! The acts that set a window.

use super::{Around, Jumps, OpenFile, Room};
use crate::pattern::Class;
use crate::steering::act::Act;
use crate::steering::decision::{Decision, Kind, Limits, Machine};
use crate::steering::faults::{self, Change, LOSS_SHARE};
use crate::steering::reason::Reason;
use crate::steering::window::Verdict;

/// Number of decisions after which the pages that the kernel has read are compared with the used ones, and of jumps among these.
const JUDGED_DECISIONS: u64 = 64;
const JUDGED_JUMPS: u64 = 16;
/// If the kernel reads more than this multiple of what the reader uses, the window is too large.
const OVER_READ: u64 = 2;
/// The window is reduced if this part of it was evicted unread: a quarter.
const EVICTED_SHARE: u64 = 4;
/// A reader without waits is kept quiet for this time: 10 s.
const QUIET_NS: u64 = 10_000_000_000;
/// Time between two reductions under pressure: half a second.
const PRESSURE_NS: u64 = 500_000_000;
/// Under pressure windows of up to 64 KiB are left.
const PRESSURE_LEAST_PAGES: u64 = 16;

impl OpenFile {
    /// Sets the window, if a descriptor is known.
    fn set_window(&mut self, pages: u64, reason: Reason) -> Option<Act> {
        if !self.has_descriptor || pages == self.setting.pages || pages == 0 {
            return None;
        }
        self.note_act();
        self.setting.set(pages, self.mark.at_ns);
        if pages == self.setting.baseline {
            return Some(Act::Restore { open: self.open, reason });
        }
        Some(Act::SetWindow { open: self.open, pages, reason })
    }

    /// Adapts the window of sequential streams. A file that is read once only keeps to its part.
    pub(super) fn steer_window(&mut self, decision: &Decision, around: &Around) -> Option<Act> {
        match self.class {
            Class::Sequential | Class::Interleaved | Class::Unknown if self.has_descriptor => {
                let (from, pages) = (self.setting.pages, self.evicted(decision));
                if pages > 0 {
                    let to = self.judge.shrink(from, decision.at_ns, around.limits);
                    (self.wasted_before, self.thrashed_pages) = (decision.wasted_pages, 0);
                    return to.and_then(|to| self.set_window(to, Reason::Evicted { pages, from, to }));
                }
                self.share(&around.room, around.limits).or_else(|| self.judge_window(decision, around))
            }
            Class::OnceOnly => self.share(&around.room, around.limits),
            _ => None,
        }
    }

    /// Judges the waits of the readers, and sets the window that follows.
    fn judge_window(&mut self, decision: &Decision, around: &Around) -> Option<Act> {
        if self.class == Class::Unknown {
            return None;
        }
        let (from, streams) = (self.setting.pages, self.streams.forward_streams().max(1) as u64);
        let most = (around.room.own() / streams).min(self.file_pages).max(from);
        let (marks, size) = ((&self.mark, &self.judged()), decision.before.size);
        match self.judge.judge(marks, size, from, most, around.limits, around.machine) {
            Verdict::Open => None,
            Verdict::Content => self.calm(decision.at_ns),
            Verdict::Grow { rate, to } => self.set_window(to, Reason::Waited { rate, from, to }),
            Verdict::Back { before, after, to } => self.set_window(to, Reason::NoGain { before, after, from, to }),
        }
    }

    /// Pages of this reader that were evicted before their use, if they are many.
    fn evicted(&self, decision: &Decision) -> u64 {
        let wasted = decision.wasted_pages.saturating_sub(self.wasted_before);
        let is_much = wasted > self.setting.pages / EVICTED_SHARE;
        if self.thrashed_pages > 0 || is_much { wasted.max(self.thrashed_pages) } else { 0 }
    }

    /// Whether its window may be reduced to its part at any time.
    fn can_share(&self, now_ns: u64) -> bool {
        let streams = matches!(self.class, Class::Sequential | Class::Interleaved | Class::OnceOnly | Class::Unknown);
        streams && !self.is_mapped && now_ns >= self.held_until_ns
    }

    /// Reduces the window to the part of this open file, if all together claim too much.
    pub(super) fn share(&mut self, room: &Room, limits: &Limits) -> Option<Act> {
        let from = self.setting.pages;
        let streams = self.streams.forward_streams().max(1) as u64;
        let claimed = from.min(self.file_pages).saturating_mul(streams);
        if claimed <= room.own() {
            return None;
        }
        let part = room.part() / streams;
        let to = (1u64 << part.max(1).ilog2()).max(limits.min_window_pages);
        if to >= from {
            return None;
        }
        self.judge.restart();
        let (files, pages) = (room.files, room.budget_pages);
        self.set_window(to, Reason::Share { files, pages, from, to })
    }

    /// A small window for calls in no order, if the kernel reads more than they use. In a file that fits into memory, the kernel reads more where
    /// the pages before a call are cached: there the reader comes by again.
    pub(super) fn over_read(&mut self, decision: &Decision, around: &Around) -> Option<Act> {
        self.jumps.decisions += 1;
        if self.jumps.decisions < JUDGED_DECISIONS {
            return None;
        }
        let used_now = self.mark.advanced_pages;
        let next = Jumps { advanced_before: used_now, issued_before: decision.issued_pages, ..Jumps::default() };
        let last = std::mem::replace(&mut self.jumps, next);
        let used = used_now.saturating_sub(last.advanced_before);
        let issued = decision.issued_pages.saturating_sub(last.issued_before);
        if last.issued_before == 0 || last.jumps < JUDGED_JUMPS || issued <= used.saturating_mul(OVER_READ) {
            return None;
        }
        // Pages that are transferred in the time of an access cost less than another access.
        let device = &around.machine.device;
        let over_ns = ((issued - used) / last.jumps).saturating_mul(device.page_ns());
        let from = self.setting.pages;
        let run = (used / last.jumps).max(1);
        let to = run.saturating_mul(2).checked_next_power_of_two().unwrap_or(from).max(around.limits.min_window_pages);
        if over_ns <= device.access_ns || to >= from || decision.file_pages < around.machine.available_pages {
            return None;
        }
        self.judge.restart();
        self.judge.hold(to, decision.at_ns);
        self.set_window(to, Reason::RandomReads { calls: last.jumps, issued, wanted: used, from, to })
    }

    /// Reduces the window for faults in no order, and sets it back when they are consecutive.
    pub(super) fn steer_faults(&mut self, decision: &Decision, around: &Around) -> Option<Act> {
        if decision.kind != Kind::Fault {
            self.faults.marker();
            return None;
        }
        let (from, baseline) = (self.setting.pages, self.setting.baseline);
        let issued = decision.issued_pages.saturating_sub(decision.wasted_pages);
        let open =
            faults::Around { baseline, window: decision.before.window_pages, file_pages: decision.file_pages, issued };
        let change = self.faults.fault(decision.page, &open, around.machine);
        if self.faults.are_random() {
            self.class = Class::RandomMapped;
        }
        match change? {
            Change::Single(faults) => {
                let to = around.limits.min_window_pages.max(1);
                self.judge.restart();
                self.set_window(to, Reason::RandomFaults { faults, pages: from, from, to })
            }
            Change::Dense { faults, rest } => {
                self.set_window(baseline, Reason::Dense { faults, share: LOSS_SHARE, rest })
            }
            Change::Back(pages) => {
                self.class = Class::Unknown;
                self.set_window(baseline, Reason::Consecutive { pages })
            }
        }
    }

    /// Keeps the decisions of a reader without waits quiet for a while.
    fn calm(&mut self, now_ns: u64) -> Option<Act> {
        let starts = self.quiet_since_ns.is_none();
        self.quiet_since_ns.get_or_insert(now_ns);
        starts.then_some(Act::Quiet { open: self.open, quiet: true })
    }

    /// A decision was reported although this open file was quiet, or it was quiet for long.
    pub(super) fn wake(&mut self) -> Option<Act> {
        self.quiet_since_ns.take().map(|_| Act::Quiet { open: self.open, quiet: false })
    }

    /// Reduces the window and the fetches under pressure and to its part, and ends quiet times. `claimed`: the sum and the number of all claims. A
    /// slow reader decides rarely, and by then the kernel has given its stream the whole window.
    pub(in crate::steering) fn tick(
        &mut self,
        now_ns: u64,
        claimed: (u64, u64),
        limits: &Limits,
        machine: &Machine,
    ) -> Vec<Act> {
        let mut acts = Vec::new();
        if let Some(own) = self.counted.filter(|_| self.can_share(now_ns)) {
            let others_pages = claimed.0.saturating_sub(own);
            let room = Room { budget_pages: self.budget_pages, others_pages, files: claimed.1 };
            acts.extend(self.share(&room, limits));
        }
        if self.quiet_since_ns.is_some_and(|since_ns| now_ns.saturating_sub(since_ns) > QUIET_NS) {
            acts.extend(self.wake());
        }
        let is_due = self.shrunk_ns.is_none_or(|at_ns| now_ns.saturating_sub(at_ns) >= PRESSURE_NS);
        if machine.pressure && is_due && self.claim(now_ns).is_some() && self.class != Class::Advised {
            self.shrunk_ns = Some(now_ns);
            self.streams.halve_distances();
            let from = self.setting.pages;
            let to = self.judge.shrink(from, now_ns, limits).filter(|_| from > PRESSURE_LEAST_PAGES);
            acts.extend(to.and_then(|to| self.set_window(to, Reason::Pressure { from, to })));
        }
        acts
    }
}
