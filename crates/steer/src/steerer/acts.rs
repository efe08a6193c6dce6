//! Carrying out acts, putting everything back, and the log of both.

use super::Steerer;
use super::file::{Fetched, File, Set};
use crate::counts::reason;
use crate::log::{LogEntry, LoggedAct, LoggedEffect, Outcome};
use crate::world::{NotDone, World};
use ahead_observe::OpenState;
use ahead_policy::steering::{Act, Failure, Target};
use std::ops::Range;
use std::time::Duration;

/// Fetches for an open file are logged once in this time, with the pages since.
const FETCH_LOG_NS: u64 = Duration::from_secs(1).as_nanos() as u64;

/// The effect of an act is logged after this time at the earliest.
const EFFECT_NS: u64 = Duration::from_secs(1).as_nanos() as u64;

/// Without an effect after this time, the readers have stopped.
const NO_EFFECT_NS: u64 = Duration::from_secs(30).as_nanos() as u64;

/// What was done, to be logged; `None`: it is only counted.
type Done = Result<Option<Outcome>, NotDone>;

impl Steerer {
    /// Carries out acts. `decided_ns`: the time of the decision that led to them.
    pub(super) fn perform(&mut self, world: &mut impl World, acts: Vec<Act>, decided_ns: Option<u64>) {
        self.decided_ns = decided_ns;
        for act in acts {
            let open = act.open();
            let mut entry = LogEntry::of(&act);
            let done = match act {
                Act::SetWindow { pages, .. } => self.set_window(world, open, pages, &mut entry),
                Act::Fetch { ranges, .. } => self.fetch(world, open, &ranges, &entry),
                Act::Restore { .. } => self.restore(world, open, &mut entry),
                Act::Quiet { quiet, .. } => {
                    self.set_quiet(world, open, quiet);
                    continue;
                }
            };
            match done {
                Ok(Some(outcome)) => self.log(world, open, outcome, entry),
                Ok(None) => self.counts.act(entry.act, Outcome::Done),
                Err(why) => self.not_done(world, open, why, entry),
            }
        }
        self.decided_ns = None;
    }

    /// The target of an act that may be done now.
    fn permitted(&mut self, world: &mut impl World, open: u64) -> Result<Target, NotDone> {
        let file = self.files.get(&open).filter(|file| file.left_alone.is_none());
        let target = file.ok_or(NotDone::LeftAlone)?.target;
        if self.dry_run {
            return Err(NotDone::DryRun);
        }
        if !self.limit.take(world.now_ns()) {
            return Err(NotDone::Busy(reason::ACT_LIMIT));
        }
        Ok(target)
    }

    fn set_window(&mut self, world: &mut impl World, open: u64, pages: u64, entry: &mut LogEntry) -> Done {
        let expected = self.files.get(&open).map_or(0, File::expected_pages);
        entry.before_pages = Some(expected);
        let target = self.permitted(world, open)?;
        world.set_window(&target, expected, pages)?;
        let now_ns = world.now_ns();
        if let Some(file) = self.files.get_mut(&open) {
            file.window = Some(Set { pages, at_ns: now_ns });
            file.acted_ns = Some(now_ns);
        }
        Ok(Some(Outcome::Done))
    }

    /// Only the first fetch for an open file is logged at once.
    fn fetch(&mut self, world: &mut impl World, open: u64, ranges: &[Range<u64>], entry: &LogEntry) -> Done {
        let target = self.permitted(world, open)?;
        let decided_ns = self.decided_ns.unwrap_or_else(|| world.now_ns());
        world.fetch(&target, ranges, decided_ns)?;
        let (pages, now_ns) = (entry.pages.unwrap_or(0), world.now_ns());
        self.counts.fetched_pages += pages;
        let Some(file) = self.files.get_mut(&open) else { return Ok(None) };
        if let Some(fetched) = &mut file.fetched {
            fetched.unlogged_pages += pages;
            return Ok(None);
        }
        file.fetched = Some(Fetched { unlogged_pages: 0, logged_ns: now_ns });
        file.acted_ns = Some(now_ns);
        Ok(Some(Outcome::Done))
    }

    fn restore(&mut self, world: &mut impl World, open: u64, entry: &mut LogEntry) -> Done {
        let file = self.files.get_mut(&open).ok_or(NotDone::LeftAlone)?;
        entry.effect = file.steering.effect().map(LoggedEffect::from);
        let (target, set, baseline) = (file.target, file.window, file.steering.baseline_window_pages());
        if file.fetched.take().is_some() {
            world.stop_fetching(open);
        }
        file.acted_ns = None;
        (entry.pages, entry.before_pages) = (set.map(|_| baseline), set.map(|set| set.pages));
        if self.dry_run {
            return Ok(Some(Outcome::Planned));
        }
        if let Some(set) = set {
            world.set_window(&target, set.pages, baseline)?;
        }
        file.window = None;
        self.counts.windows_restored += u64::from(set.is_some());
        self.counts.undone += 1;
        Ok(Some(Outcome::Done))
    }

    /// The policy learns that its last act was not carried out.
    pub(super) fn undone(&mut self, open: u64, failure: Failure) {
        if let Some(file) = self.files.get_mut(&open) {
            self.steering.undone(&mut file.steering, failure);
        }
    }

    /// An act was not done: the policy learns of it, and the log says why.
    fn not_done(&mut self, world: &mut impl World, open: u64, why: NotDone, entry: LogEntry) {
        match why {
            NotDone::LeftAlone => self.undone(open, Failure::Gone),
            NotDone::DryRun => {
                self.undone(open, Failure::DryRun);
                self.log(world, open, Outcome::Planned, entry);
            }
            NotDone::Gone => {
                // Perhaps only the descriptor has changed: then the next decision finds another one.
                self.counts.refusal(reason::GONE);
                self.counts.act(entry.act, Outcome::Failed);
                self.undone(open, Failure::Gone);
                self.drop_unless_changed(world, open);
            }
            NotDone::Advised => {
                if let Some(file) = self.files.get_mut(&open) {
                    file.window = None;
                }
                self.leave_alone(world, open, reason::ADVISED, None);
            }
            NotDone::Forbidden(detail) => {
                let pid = self.files.get(&open).map_or(0, |file| file.target.pid);
                self.processes.leave_alone(pid);
                self.leave_alone(world, open, reason::FORBIDDEN, Some(format!("{}: {detail}", reason::FORBIDDEN)));
            }
            NotDone::Impossible(why) => self.leave_alone(world, open, why, None),
            NotDone::Busy(why) => {
                self.counts.refusal(why);
                self.counts.act(entry.act, Outcome::Dropped);
                self.undone(open, Failure::Busy);
            }
            NotDone::Failed(detail) => {
                self.counts.refusal(reason::FAILED);
                self.undone(open, Failure::Refused);
                let reason = format!("{}; {detail}", entry.reason);
                self.log(world, open, Outcome::Failed, LogEntry { act: entry.act, reason, ..LogEntry::default() });
            }
        }
    }

    /// An open file whose descriptor is gone. If its window was changed, another process may still have it: it is put back at the end.
    fn drop_unless_changed(&mut self, world: &mut impl World, open: u64) {
        let Some(file) = self.files.get(&open) else { return };
        let is_changed = file.window.is_some() && world.state(open, file.target.inode).is_some();
        if is_changed {
            // The observer looks for another descriptor.
            world.forget(open);
        } else {
            self.drop_file(world, open);
        }
    }

    /// A worker reports that it could not fetch.
    pub(super) fn fetch_failed(&mut self, world: &mut impl World, open: u64, why: NotDone) {
        if let Some(file) = self.files.get_mut(&open) {
            file.fetched = None;
            world.stop_fetching(open);
            self.not_done(world, open, why, LogEntry { act: LoggedAct::Fetch, ..LogEntry::default() });
        }
    }

    /// Logs the pages fetched since the last entry, and effects that are known by now.
    pub(super) fn log_progress(&mut self, world: &mut impl World, open: u64, now_ns: u64) {
        let Some(file) = self.files.get_mut(&open) else { return };
        if let Some(fetched) = &mut file.fetched
            && fetched.unlogged_pages > 0
            && now_ns >= fetched.logged_ns + FETCH_LOG_NS
        {
            let pages = std::mem::take(&mut fetched.unlogged_pages);
            fetched.logged_ns = now_ns;
            let reason = "the pattern continues".into();
            let entry = LogEntry { act: LoggedAct::Fetch, pages: Some(pages), reason, ..LogEntry::default() };
            self.note(world, open, Outcome::Done, entry);
        }
        let Some(file) = self.files.get_mut(&open) else { return };
        let Some(acted_ns) = file.acted_ns.filter(|acted| now_ns > acted + EFFECT_NS) else { return };
        let effect = file.steering.effect().map(LoggedEffect::from);
        if effect.is_some() || now_ns > acted_ns + NO_EFFECT_NS {
            file.acted_ns = None;
        }
        if effect.is_some() {
            let reason = "effect of the last act".into();
            let entry = LogEntry { act: LoggedAct::Effect, reason, effect, ..LogEntry::default() };
            self.log(world, open, Outcome::Done, entry);
        }
    }

    /// Puts every changed window back, and ends every fetch. Descriptors that were closed are looked for in all processes.
    pub(crate) fn put_back(&mut self, world: &mut impl World, why: &str) {
        let changed = |(open, file): (&u64, &File)| file.is_steered().then_some(*open);
        let opens: Vec<u64> = self.files.iter().filter_map(changed).collect();
        let mut others = None;
        for open in opens {
            let Some(file) = self.files.get_mut(&open) else { continue };
            if file.fetched.take().is_some() {
                world.stop_fetching(open);
            }
            let Some(set) = file.window.take() else { continue };
            let (mut target, baseline) = (file.target, file.steering.baseline_window_pages());
            let mut done = world.set_window(&target, set.pages, baseline);
            if done == Err(NotDone::Gone) {
                let others = others.get_or_insert_with(|| world.holders());
                if let Some((pid, descriptor)) = others.get(&open) {
                    target = Target { pid: *pid, tid: *pid, descriptor: Some(*descriptor), ..target };
                    done = world.set_window(&target, set.pages, baseline);
                }
            }
            let is_still_set = |state: OpenState| state.readahead.window_pages == set.pages;
            if done == Err(NotDone::Gone) && world.state(open, target.inode).is_some_and(is_still_set) {
                done = Err(NotDone::Impossible(reason::NO_DESCRIPTOR));
            }
            let outcome = match &done {
                Ok(()) => {
                    self.counts.windows_restored += 1;
                    Outcome::Done
                }
                // Closed, or the program's own advice: nothing is left to put back.
                Err(NotDone::Gone | NotDone::Advised) => continue,
                Err(_) => Outcome::Failed,
            };
            let reason = done.err().map_or(why.to_owned(), |error| format!("{why}; {error}"));
            let (act, pages, before_pages) = (LoggedAct::Restore, Some(baseline), Some(set.pages));
            self.log(world, open, outcome, LogEntry { act, pages, before_pages, reason, ..LogEntry::default() });
        }
        let all: Vec<u64> = self.files.keys().copied().collect();
        all.into_iter().for_each(|open| self.drop_file(world, open));
    }

    /// The rules were read again, or could not be.
    pub(crate) fn log_rules(&mut self, world: &mut impl World, outcome: Outcome, reason: String) {
        self.counts.act(LoggedAct::Rules, outcome);
        self.push(world, LogEntry { act: LoggedAct::Rules, outcome, reason, ..LogEntry::default() });
    }

    pub(super) fn log_left_alone(&mut self, world: &mut impl World, open: u64, reason: String) {
        self.log(world, open, Outcome::Refused, LogEntry { reason, ..LogEntry::default() });
    }

    /// Counts an act on an open file, and logs it.
    fn log(&mut self, world: &mut impl World, open: u64, outcome: Outcome, entry: LogEntry) {
        self.counts.act(entry.act, outcome);
        self.note(world, open, outcome, entry);
    }

    /// Logs an act on an open file.
    fn note(&mut self, world: &mut impl World, open: u64, outcome: Outcome, entry: LogEntry) {
        let Some(file) = self.files.get_mut(&open) else { return };
        // Before the lookup of the path, which is not part of the act.
        let latency_us = self.decided_ns.map(|decided| world.now_ns().saturating_sub(decided) as f64 / 1e3);
        let path = file.path.get_or_insert_with(|| world.path(&file.target)).as_ref();
        let entry = LogEntry {
            pid: file.target.pid,
            comm: String::from_utf8_lossy(&file.comm).into_owned(),
            descriptor: file.target.descriptor,
            path: path.map(|path| path.to_string_lossy().into_owned()),
            class: file.steering.class(),
            outcome,
            latency_us: latency_us.filter(|_| outcome == Outcome::Done),
            ..entry
        };
        self.push(world, entry);
    }

    pub(super) fn push(&mut self, world: &mut impl World, entry: LogEntry) {
        self.entries.push(LogEntry { time_ms: world.wall_ms(), dry_run: self.dry_run, ..entry });
    }
}
