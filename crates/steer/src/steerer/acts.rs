//! Carrying out acts, putting everything back, and the log of both.

use super::Steerer;
use super::file::{Fetched, File, Set};
use super::policy::Policy;
use crate::counts::reason;
use crate::log::{LogEntry, LoggedAct, LoggedEffect, Outcome};
use crate::world::{NotDone, Target, World};
use ahead_observe::OpenState;
use ahead_policy::steering::{Act, Failure, Reason};
use std::ops::Range;
use std::time::Duration;

/// Fetches for an open file are logged once in this time, with the pages since.
const FETCH_LOG_NS: u64 = Duration::from_secs(1).as_nanos() as u64;

/// The effect of an act is logged after this time at the earliest.
const EFFECT_NS: u64 = Duration::from_secs(1).as_nanos() as u64;

/// Without an effect after this time, the readers have stopped.
const NO_EFFECT_NS: u64 = Duration::from_secs(30).as_nanos() as u64;

/// What an entry of the log says besides the open file.
#[derive(Default)]
struct Line {
    pages: Option<u64>,
    before_pages: Option<u64>,
    reason: String,
    effect: Option<LoggedEffect>,
    decided_ns: Option<u64>,
}

impl<P: Policy> Steerer<P> {
    /// Carries out acts. `decided_ns`: the time of the decision that led to them.
    pub(super) fn perform(&mut self, world: &mut impl World, acts: Vec<Act>, decided_ns: Option<u64>) {
        for act in acts {
            match act {
                Act::SetWindow { open, pages, reason } => self.act_window(world, open, pages, &reason, decided_ns),
                Act::Fetch { open, ranges, reason, .. } => self.act_fetch(world, open, &ranges, &reason, decided_ns),
                Act::Restore { open, reason } => self.act_restore(world, open, &reason.to_string(), decided_ns),
                Act::Quiet { open, quiet } => self.set_quiet(world, open, quiet),
            }
        }
    }

    /// The target of an act that may be done now.
    fn permitted(&mut self, world: &mut impl World, open: u64, act: LoggedAct, line: &Line) -> Option<Target> {
        let file = self.files.get(&open).filter(|file| file.left_alone.is_none());
        let Some(target) = file.map(|file| file.target) else {
            self.policy.undone(open, Failure::Gone);
            return None;
        };
        if self.dry_run {
            self.policy.undone(open, Failure::DryRun);
            self.log(world, open, act, Outcome::Planned, line);
            return None;
        }
        if !self.limit.take(world.now_ns()) {
            self.policy.undone(open, Failure::Busy);
            self.counts.act(act, Outcome::Dropped);
            self.counts.refusal(reason::ACT_LIMIT);
            return None;
        }
        Some(target)
    }

    fn act_window(&mut self, world: &mut impl World, open: u64, pages: u64, why: &Reason, decided_ns: Option<u64>) {
        let Some(expected) = self.files.get(&open).map(File::expected_pages) else {
            return self.policy.undone(open, Failure::Gone);
        };
        let before_pages = Some(expected);
        let line = Line { pages: Some(pages), before_pages, reason: why.to_string(), decided_ns, ..Line::default() };
        let Some(target) = self.permitted(world, open, LoggedAct::Window, &line) else { return };
        if target.descriptor.is_none() {
            return self.leave_alone(world, open, reason::NO_DESCRIPTOR, None);
        }
        match world.set_window(&target, expected, pages) {
            Ok(()) => {
                let now_ns = world.now_ns();
                if let Some(file) = self.files.get_mut(&open) {
                    file.window = Some(Set { pages, at_ns: now_ns });
                    file.acted_ns = Some(now_ns);
                }
                self.log(world, open, LoggedAct::Window, Outcome::Done, &line);
            }
            Err(why) => self.not_done(world, open, LoggedAct::Window, why, &line),
        }
    }

    fn act_fetch(
        &mut self,
        world: &mut impl World,
        open: u64,
        ranges: &[Range<u64>],
        why: &Reason,
        decided_ns: Option<u64>,
    ) {
        let pages = ranges.iter().map(|range| range.end.saturating_sub(range.start)).sum();
        let line = Line { pages: Some(pages), reason: why.to_string(), decided_ns, ..Line::default() };
        if !self.rules.limits.fetch {
            return self.leave_alone(world, open, reason::FETCH_OFF, None);
        }
        let Some(target) = self.permitted(world, open, LoggedAct::Fetch, &line) else { return };
        if target.descriptor.is_none() && target.mapping.is_none() {
            return self.leave_alone(world, open, reason::NO_DESCRIPTOR, None);
        }
        if let Err(why) = world.fetch(&target, ranges, decided_ns.unwrap_or_else(|| world.now_ns())) {
            return self.not_done(world, open, LoggedAct::Fetch, why, &line);
        }
        self.counts.fetched_pages += pages;
        let now_ns = world.now_ns();
        let Some(file) = self.files.get_mut(&open) else { return };
        let is_first = file.fetched.is_none();
        let fetched = file.fetched.get_or_insert(Fetched { unlogged_pages: 0, logged_ns: now_ns });
        fetched.unlogged_pages += pages;
        if is_first {
            fetched.unlogged_pages = 0;
            file.acted_ns = Some(now_ns);
            self.log(world, open, LoggedAct::Fetch, Outcome::Done, &line);
        } else {
            self.counts.act(LoggedAct::Fetch, Outcome::Done);
        }
    }

    fn act_restore(&mut self, world: &mut impl World, open: u64, why: &str, decided_ns: Option<u64>) {
        let effect = self.policy.effect(open).map(LoggedEffect::from);
        let Some(file) = self.files.get_mut(&open) else { return self.policy.undone(open, Failure::Gone) };
        let (target, set, baseline) = (file.target, file.window, file.baseline);
        if file.fetched.take().is_some() {
            world.stop_fetching(open);
        }
        file.acted_ns = None;
        let pages = set.map(|_| baseline);
        let before_pages = set.map(|set| set.pages);
        let line = Line { pages, before_pages, reason: why.to_owned(), effect, decided_ns };
        if self.dry_run {
            return self.log(world, open, LoggedAct::Restore, Outcome::Planned, &line);
        }
        let done = set.map_or(Ok(()), |set| world.set_window(&target, set.pages, baseline));
        match done {
            Ok(()) => {
                if let Some(file) = self.files.get_mut(&open) {
                    self.counts.windows_restored += u64::from(file.window.take().is_some());
                }
                self.counts.undone += 1;
                self.log(world, open, LoggedAct::Restore, Outcome::Done, &line);
            }
            Err(why) => self.not_done(world, open, LoggedAct::Restore, why, &line),
        }
    }

    /// An act was not done: the policy learns of it, and the log says why.
    fn not_done(&mut self, world: &mut impl World, open: u64, act: LoggedAct, why: NotDone, line: &Line) {
        match why {
            NotDone::Gone => {
                // Perhaps only the descriptor has changed: then the next decision finds another one.
                self.counts.refusal(reason::GONE);
                self.counts.act(act, Outcome::Failed);
                self.policy.undone(open, Failure::Gone);
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
            NotDone::Busy => {
                self.counts.refusal(reason::QUEUE);
                self.counts.act(act, Outcome::Dropped);
                self.policy.undone(open, Failure::Busy);
            }
            NotDone::Failed(detail) => {
                self.counts.refusal(reason::FAILED);
                self.policy.undone(open, Failure::Refused);
                let reason = format!("{}; {detail}", line.reason);
                self.log(world, open, act, Outcome::Failed, &Line { reason, ..Line::default() });
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
            self.not_done(world, open, LoggedAct::Fetch, why, &Line::default());
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
            let line = Line { pages: Some(pages), reason: "the pattern continues".into(), ..Line::default() };
            let entry = self.entry(world, open, LoggedAct::Fetch, Outcome::Done, &line);
            self.entries.extend(entry);
        }
        let acted_ns = self.files.get(&open).and_then(|file| file.acted_ns).filter(|acted| now_ns > acted + EFFECT_NS);
        let Some(acted_ns) = acted_ns else { return };
        let effect = self.policy.effect(open).map(LoggedEffect::from);
        if (effect.is_some() || now_ns > acted_ns + NO_EFFECT_NS)
            && let Some(file) = self.files.get_mut(&open)
        {
            file.acted_ns = None;
        }
        if effect.is_some() {
            let line = Line { reason: "effect of the last act".into(), effect, ..Line::default() };
            self.log(world, open, LoggedAct::Effect, Outcome::Done, &line);
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
            let (mut target, baseline) = (file.target, file.baseline);
            let mut done = world.set_window(&target, set.pages, baseline);
            if done == Err(NotDone::Gone) {
                let others = others.get_or_insert_with(|| world.holders());
                if let Some((pid, descriptor)) = others.get(&open) {
                    target = Target { pid: *pid, tid: *pid, descriptor: Some(*descriptor), ..target };
                    done = world.set_window(&target, set.pages, baseline);
                }
            }
            let is_still_set = |state: OpenState| u64::from(state.readahead.window_pages) == set.pages;
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
            let line = Line { pages: Some(baseline), before_pages: Some(set.pages), reason, ..Line::default() };
            self.log(world, open, LoggedAct::Restore, outcome, &line);
        }
        let all: Vec<u64> = self.files.keys().copied().collect();
        all.into_iter().for_each(|open| self.drop_file(world, open));
    }

    /// The rules were read again, or could not be.
    pub(crate) fn log_rules(&mut self, world: &mut impl World, outcome: Outcome, reason: String) {
        self.counts.act(LoggedAct::Rules, outcome);
        self.log_process(world, 0, b"", reason);
        if let Some(entry) = self.entries.last_mut() {
            (entry.act, entry.outcome) = (LoggedAct::Rules, outcome);
        }
    }

    pub(super) fn log_left_alone(&mut self, world: &mut impl World, open: u64, reason: String) {
        self.log(world, open, LoggedAct::None, Outcome::Refused, &Line { reason, ..Line::default() });
    }

    fn log(&mut self, world: &mut impl World, open: u64, act: LoggedAct, outcome: Outcome, line: &Line) {
        self.counts.act(act, outcome);
        let entry = self.entry(world, open, act, outcome, line);
        self.entries.extend(entry);
    }

    fn entry(
        &mut self,
        world: &mut impl World,
        open: u64,
        act: LoggedAct,
        outcome: Outcome,
        line: &Line,
    ) -> Option<LogEntry> {
        let file = self.files.get_mut(&open)?;
        // Before the lookup of the path, which is not part of the act.
        let latency_us = line.decided_ns.map(|decided| world.now_ns().saturating_sub(decided) as f64 / 1e3);
        let target = file.target;
        let path = file.path.get_or_insert_with(|| world.path(&target)).as_ref();
        let path = path.map(|path| path.to_string_lossy().into_owned());
        Some(LogEntry {
            time_ms: world.wall_ms(),
            pid: target.pid,
            comm: String::from_utf8_lossy(&file.comm).into_owned(),
            descriptor: target.descriptor,
            path,
            class: self.policy.class(open).name().into(),
            act,
            outcome,
            pages: line.pages,
            before_pages: line.before_pages,
            reason: line.reason.clone(),
            effect: line.effect,
            latency_us: latency_us.filter(|_| outcome == Outcome::Done),
            dry_run: self.dry_run,
        })
    }
}
