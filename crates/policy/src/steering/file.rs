//! The state of an open file: its class, and what follows from a decision.

mod patterns;
mod windows;

use super::act::Act;
use super::decision::{Decision, Kind, Limits, Machine};
use super::effect::{Effect, Rate};
use super::faults::Faults;
use super::setting::Setting;
use super::streams::{Followed, How, Requested, Streams};
use super::window::{Judge, Mark};
use crate::pattern::Class;
use patterns::{Fetches, Polls};

/// A file of at most this length that is read from its first page on is left alone: 1 MiB. It ends before a larger window helps.
const ONCE_ONLY_PAGES: u64 = 256;
/// Number of calls in no order that are a class.
const RANDOM_READS: u64 = 4;
/// Number of decisions that continue a run before it is a sequential stream.
const FORWARD: u32 = 2;
/// An open file is active for this time after a decision, or for this multiple of the time between two decisions: 10 s.
const ACTIVE_NS: u64 = 10_000_000_000;
const ACTIVE_INTERVALS: u64 = 4;
/// After an act that was not carried out, the next one follows after 30 s, or after 1 s if it may succeed then.
const UNDONE_NS: u64 = 30_000_000_000;
const BUSY_NS: u64 = 1_000_000_000;

/// The pages that an open file may claim.
#[derive(Clone, Copy, Debug)]
pub(super) struct Room {
    /// For all open files together.
    pub budget_pages: u64,
    /// Claimed by the others.
    pub others_pages: u64,
    /// Number of open files with claims, including this one.
    pub files: u64,
}

/// A window may be this multiple of an equal part, if the others leave room.
const UNEQUAL: u64 = 2;
/// If all claims are at most this part of the budget, a half, windows may differ by any factor. Beyond it a slow reader with a large window among many
/// would find its pages evicted: the others read all of the memory in less time than it needs for its window.
const LOW_SHARE: u64 = 2;

impl Room {
    /// The part of each open file.
    fn part(&self) -> u64 {
        self.budget_pages / self.files.max(1)
    }

    /// The pages that this open file may claim: what the others leave, and at least its part.
    fn own(&self) -> u64 {
        let left = self.budget_pages.saturating_sub(self.others_pages);
        let low = (self.budget_pages / LOW_SHARE).saturating_sub(self.others_pages);
        left.min(low.max(self.part().saturating_mul(UNEQUAL))).max(self.part())
    }
}

/// Whether readers have advanced, and time has passed.
fn has_data(rate: &Rate) -> bool {
    rate.advanced_pages > 0 && rate.elapsed_ns > 0
}

/// The surroundings of a decision.
#[derive(Clone, Copy, Debug)]
pub(super) struct Around<'a> {
    pub machine: &'a Machine,
    pub limits: &'a Limits,
    pub room: Room,
}

/// The jumps among the last decisions about calls.
#[derive(Clone, Copy, Debug, Default)]
struct Jumps {
    decisions: u64,
    jumps: u64,
    /// Used and issued pages before the first of these decisions.
    advanced_before: u64,
    issued_before: u64,
}

/// What is known of an open file.
#[derive(Clone, Debug, Default)]
pub struct OpenFile {
    open: u64,
    file: u64,
    class: Class,
    /// Whether the program has given advice: it is not only a window that differs at first sight.
    is_advised: bool,
    file_pages: u64,
    has_descriptor: bool,
    is_mapped: bool,
    setting: Setting,
    /// No acts before this time.
    held_until_ns: u64,
    mark: Mark,
    interval_ns: u64,
    decisions: u64,
    /// Whether the last decision began a stream, and the waits for the pages of such decisions.
    has_jumped: bool,
    excused: Mark,
    /// Whether the first decision was about the first page, and no decision has left the sequence.
    is_once: bool,
    judge: Judge,
    faults: Faults,
    streams: Streams,
    fetches: Fetches,
    polls: Polls,
    /// Consecutive calls in no order.
    random: u64,
    jumps: Jumps,
    /// Pages that were evicted unused, at the last change of the window, and pages that were found evicted since.
    wasted_before: u64,
    thrashed_pages: u64,
    quiet_since_ns: Option<u64>,
    shrunk_ns: Option<u64>,
    /// The counters at first sight.
    begun: Mark,
    /// The rate before the last act, unless there was no decision before it, and the counters at that time.
    acted: Option<(Option<Rate>, Mark)>,
    /// The budget of all open files at its last decision: that of its control group.
    budget_pages: u64,
    /// The claim that the sum over all open files contains.
    pub(super) counted: Option<u64>,
}

impl OpenFile {
    /// An open file without a decision, with its window before the first act.
    pub fn new(baseline_window_pages: u64) -> OpenFile {
        let setting = Setting::new(baseline_window_pages, baseline_window_pages);
        OpenFile { setting, ..OpenFile::default() }
    }

    /// The state at first sight.
    fn met(&self, decision: &Decision) -> OpenFile {
        let baseline = self.setting.baseline;
        let is_advised = baseline != decision.disk_window_pages || baseline == 0;
        let begun = Mark { at_ns: decision.at_ns, advanced_pages: 0, waits: decision.waits, wait_ns: decision.wait_ns };
        OpenFile {
            open: decision.target.open,
            file: decision.target.inode,
            class: if is_advised { Class::Advised } else { Class::Unknown },
            setting: Setting::new(decision.before.window_pages, baseline),
            mark: begun,
            begun,
            is_once: decision.page == 0,
            wasted_before: decision.wasted_pages,
            ..OpenFile::default()
        }
    }

    /// The class.
    pub fn class(&self) -> Class {
        self.class
    }

    /// The window before the first act, pages.
    pub fn baseline_window_pages(&self) -> u64 {
        self.setting.baseline
    }

    /// The window that an act has set; `None`: unchanged.
    pub fn window(&self) -> Option<u64> {
        self.setting.is_changed().then_some(self.setting.pages).filter(|_| self.class != Class::Advised)
    }

    /// The waits before and after the last act; `None`: no act, or no decision before it or since.
    pub fn effect(&self) -> Option<Effect> {
        let (before, mark) = self.acted?;
        let (before, after) = (before?, mark.rate_to(&self.mark));
        has_data(&after).then_some(Effect { before, after })
    }

    /// Forgets all but its window before the first act.
    pub(super) fn forget(&mut self) {
        *self = OpenFile::new(self.setting.baseline);
    }

    /// Handles a decision of the kernel.
    pub(super) fn decide(&mut self, decision: &Decision, around: &Around) -> Vec<Act> {
        if self.decisions == 0 {
            *self = self.met(decision);
        }
        self.note(decision);
        self.budget_pages = around.room.budget_pages;
        let followed = self.is_free(decision).then(|| self.follow(decision));
        let mut acts = Vec::new();
        if followed.is_none() || decision.kind != Kind::Marker {
            acts.extend(self.wake());
        }
        match followed {
            None => self.streams.forget_fetched(),
            Some(_) if decision.at_ns < self.held_until_ns => {}
            Some(followed) => {
                acts.extend(self.steer_window(decision, around));
                acts.extend(match decision.target.mapping {
                    Some(_) => self.steer_faults(decision, around),
                    None => self.over_read(decision, around),
                });
                acts.extend(self.steer_fetches(decision, &followed, around));
                acts.extend(self.give_up(false));
            }
        }
        acts
    }

    /// Updates the counters.
    fn note(&mut self, decision: &Decision) {
        let before_ns = self.mark.at_ns;
        self.mark.at_ns = before_ns.max(decision.at_ns);
        let interval_ns = self.mark.at_ns - before_ns;
        self.interval_ns =
            if self.decisions < 2 { interval_ns } else { (self.interval_ns / 4 * 3).saturating_add(interval_ns / 4) };
        self.decisions = self.decisions.saturating_add(1);
        self.note_waits(decision.waits, decision.wait_ns);
        self.is_mapped = decision.target.mapping.is_some();
        (self.file_pages, self.has_descriptor) = (decision.file_pages, decision.target.descriptor.is_some());
    }

    /// Updates the waits. One wait for the page of a jump is not due to a small window.
    fn note_waits(&mut self, waits: u64, wait_ns: u64) {
        let more = waits.saturating_sub(self.mark.waits);
        if self.has_jumped && more > 0 {
            self.has_jumped = false;
            let each_ns = wait_ns.saturating_sub(self.mark.wait_ns) / more;
            self.excused.waits = self.excused.waits.saturating_add(1);
            self.excused.wait_ns = self.excused.wait_ns.saturating_add(each_ns);
        }
        (self.mark.waits, self.mark.wait_ns) = (self.mark.waits.max(waits), self.mark.wait_ns.max(wait_ns));
    }

    /// Whether the program leaves read-ahead to the kernel. Its own advice stays, even where an act had set a window before.
    fn is_free(&mut self, decision: &Decision) -> bool {
        // While an act sets the window of another open file, the disk has that window for some microseconds.
        let was_set =
            self.decisions == 2 && self.setting.baseline == decision.disk_window_pages && !self.setting.is_changed();
        if was_set && self.class == Class::Advised && !self.is_advised {
            self.class = Class::Unknown;
        }
        let is_advised = decision.is_advised() || !self.setting.check(decision.before.window_pages, decision.at_ns);
        if is_advised {
            (self.class, self.is_advised) = (Class::Advised, true);
        }
        self.class != Class::Advised
    }

    /// Assigns the decision to a stream, and finds the class.
    fn follow(&mut self, decision: &Decision) -> Followed {
        // The kernel notes the whole window as the request of a fault; a fault uses a page, and half of the window before it is read.
        let wanted = if decision.target.mapping.is_some() { 1 } else { decision.wanted.max(1) };
        let end = decision.page.saturating_add(wanted).min(decision.file_pages.max(decision.page.saturating_add(1)));
        let before = if decision.kind == Kind::Fault { decision.before.window_pages / 2 } else { 0 };
        let window_end = decision.before.start.saturating_add(decision.before.size);
        let page = decision.page.saturating_sub(before);
        let start = decision.before.start;
        let requested = Requested { kind: decision.kind, page, needed: decision.page, end, start, window_end };
        let followed = self.streams.follow(&requested);
        self.thrashed_pages = self.thrashed_pages.saturating_add(u64::from(followed.is_evicted));
        // The pages before a fault are read, but not used.
        let advanced = if followed.how == How::New { end.saturating_sub(decision.page) } else { followed.advanced };
        self.mark.advanced_pages = self.mark.advanced_pages.saturating_add(advanced);
        self.has_jumped = followed.how == How::New && decision.kind != Kind::Marker;
        self.classify(decision, &followed);
        followed
    }

    /// Finds the class.
    fn classify(&mut self, decision: &Decision, followed: &Followed) {
        if followed.how != How::New {
            self.random = 0;
        } else if decision.target.mapping.is_none() && decision.kind != Kind::Marker {
            self.random = self.random.saturating_add(1);
            self.jumps.jumps = self.jumps.jumps.saturating_add(1);
        }
        self.is_once &= followed.how == How::Forward || self.decisions == 1;
        let Some(stream) = self.streams.get(followed.index) else { return };
        let several = self.streams.forward_streams() > 1;
        self.class = match followed.how {
            How::Step if stream.is_confirmed(0) && stream.is_backward() => Class::Backward,
            How::Step if stream.is_confirmed(0) => Class::Stride,
            How::Forward if self.is_once && self.file_pages <= ONCE_ONLY_PAGES => Class::OnceOnly,
            How::Forward if several && !self.faults.are_random() => Class::Interleaved,
            How::Forward if stream.forward >= FORWARD && !self.faults.are_random() => Class::Sequential,
            How::New if self.random >= RANDOM_READS => Class::RandomRead,
            _ => self.class,
        };
    }

    /// The counters without the waits for the pages of jumps.
    fn judged(&self) -> Mark {
        Mark {
            waits: self.mark.waits.saturating_sub(self.excused.waits),
            wait_ns: self.mark.wait_ns.saturating_sub(self.excused.wait_ns),
            ..self.mark
        }
    }

    /// An act on this open file was counted: the effect is measured from now on.
    fn note_act(&mut self) {
        let since = self.acted.map_or(self.begun, |(_, mark)| mark);
        let before = since.rate_to(&self.mark);
        // Several acts at the same time have the same effect.
        if self.acted.is_none() || has_data(&before) {
            self.acted = Some((Some(before).filter(has_data), self.mark));
        }
    }

    /// An act was not carried out.
    pub(super) fn undone(&mut self, is_final: bool, may_succeed: bool) {
        self.setting.unset();
        self.streams.forget_fetched();
        self.polls = Polls::default();
        self.judge.restart();
        self.faults.reset();
        let pause_ns = match (is_final, may_succeed) {
            (true, _) => u64::MAX,
            (false, true) => BUSY_NS,
            (false, false) => UNDONE_NS,
        };
        self.held_until_ns = self.mark.at_ns.saturating_add(pause_ns);
    }

    /// The pages that it claims; `None`: it is not active.
    pub(super) fn claim(&self, now_ns: u64) -> Option<u64> {
        let active_ns = ACTIVE_NS.max(self.interval_ns.saturating_mul(ACTIVE_INTERVALS));
        let is_active = now_ns.saturating_sub(self.mark.at_ns) <= active_ns || self.quiet_since_ns.is_some();
        let streams = match self.class {
            Class::Sequential | Class::OnceOnly => 1,
            Class::Interleaved => self.streams.forward_streams().max(1) as u64,
            Class::Unknown if self.decisions > 1 => 1,
            _ => 0,
        };
        let windows = self.setting.pages.saturating_mul(streams).min(self.file_pages);
        let pages = windows.saturating_add(self.streams.ahead());
        (is_active && pages > 0).then_some(pages)
    }
}
