//! Carrying out acts, putting everything back, and the log of both.

use super::Steerer;
use super::file::{Fetched, File, Set};
use crate::log::{LogEntry, LoggedAct, Outcome};
use crate::refusal::Refusal;
use crate::world::World;
use ahead_observe::OpenState;
use ahead_policy::steering::{Act, Failure, Target};
use std::time::Duration;

/// Fetches for an open file are logged once in this time, with the pages since.
const FETCH_LOG_NS: u64 = Duration::from_secs(1).as_nanos() as u64;

/// The effect of an act is logged after this time at the earliest.
const EFFECT_NS: u64 = Duration::from_secs(1).as_nanos() as u64;

/// Without an effect after this time, the readers have stopped.
const NO_EFFECT_NS: u64 = Duration::from_secs(30).as_nanos() as u64;

/// No open file: a line of the log is about a process, or about all.
pub(super) const NO_FILE: u64 = 0;

impl Steerer {
    /// Carries out acts. `decided_ns`: the time of the decision that led to them.
    pub(super) fn perform(
        &mut self,
        world: &mut impl World,
        acts: impl IntoIterator<Item = Act>,
        decided_ns: Option<u64>,
    ) {
        self.decided_ns = decided_ns;
        for act in acts {
            let (open, mut entry) = (act.open(), LogEntry::of(&act));
            match self.carry_out(world, &act, &mut entry) {
                Ok(Some(outcome)) => self.log(world, open, outcome, entry),
                Ok(None) => {}
                Err(why) => self.refuse(world, open, why, entry),
            }
        }
        self.decided_ns = None;
    }

    /// The target of an act that may be done now.
    fn permitted(&mut self, world: &mut impl World, open: u64) -> Result<Target, Refusal> {
        let file = self.files.get(&open).filter(|file| file.left_alone.is_none());
        let target = file.ok_or(Refusal::LeftAlone)?.target;
        if self.dry_run {
            return Err(Refusal::DryRun);
        }
        if !self.limit.take(world.now_ns()) {
            return Err(Refusal::ActLimit);
        }
        Ok(target)
    }

    /// Carries out an act, and completes its line of the log. `None`: the log has no line about it.
    fn carry_out(
        &mut self,
        world: &mut impl World,
        act: &Act,
        entry: &mut LogEntry,
    ) -> Result<Option<Outcome>, Refusal> {
        match act {
            Act::SetWindow { open, pages, .. } => {
                let expected = self.files.get(open).map_or(0, File::expected_pages);
                entry.before_pages = Some(expected);
                let target = self.permitted(world, *open)?;
                world.set_window(&target, expected, *pages)?;
                let now_ns = world.now_ns();
                if let Some(file) = self.files.get_mut(open) {
                    file.window = Some(Set { pages: *pages, at_ns: now_ns });
                    file.acted_ns = Some(now_ns);
                }
                Ok(Some(Outcome::Done))
            }
            Act::Fetch { open, ranges, .. } => {
                let target = self.permitted(world, *open)?;
                let decided_ns = self.decided_ns.unwrap_or_else(|| world.now_ns());
                world.fetch(&target, ranges, decided_ns)?;
                let (pages, now_ns) = (entry.pages.unwrap_or(0), world.now_ns());
                self.counts.fetched_pages += pages;
                let Some(file) = self.files.get_mut(open) else { return Ok(None) };
                // Only the first fetch for an open file is logged at once.
                if let Some(fetched) = &mut file.fetched {
                    fetched.unlogged_pages += pages;
                    self.counts.act(LoggedAct::Fetch, Outcome::Done);
                    return Ok(None);
                }
                file.fetched = Some(Fetched { unlogged_pages: 0, logged_ns: now_ns });
                file.acted_ns = Some(now_ns);
                Ok(Some(Outcome::Done))
            }
            Act::Restore { open, .. } => {
                let file = self.files.get_mut(open).ok_or(Refusal::LeftAlone)?;
                entry.effect = file.steering.effect();
                let (target, set, baseline) = (file.target, file.window, file.steering.baseline_window_pages());
                if file.fetched.take().is_some() {
                    world.stop_fetching(*open);
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
            Act::Quiet { open, quiet } => {
                self.set_quiet(world, *open, *quiet);
                Ok(None)
            }
        }
    }

    /// The policy learns that its last act was not carried out.
    fn undone(&mut self, open: u64, failure: Failure) {
        if let Some(file) = self.files.get_mut(&open) {
            self.steering.undone(&mut file.steering, failure);
        }
    }

    /// An act was not done, or an open file is left alone: it is counted, the policy learns of it, and the log says why. `entry`: the line about
    /// the act.
    pub(super) fn refuse(&mut self, world: &mut impl World, open: u64, why: Refusal, entry: LogEntry) {
        if why == Refusal::LeftAlone {
            return;
        }
        self.counts.refusal(&why);
        self.undone(open, why.failure());
        match &why {
            Refusal::DryRun => self.log(world, open, Outcome::Planned, entry),
            Refusal::Gone => {
                // Perhaps only the descriptor has changed: then the next decision finds another one.
                self.counts.act(entry.act, Outcome::Failed);
                self.drop_unless_changed(world, open);
            }
            Refusal::ActLimit | Refusal::Queue => self.counts.act(entry.act, Outcome::Dropped),
            Refusal::Failed(detail) => {
                let reason = format!("{}; {detail}", entry.reason);
                self.log(world, open, Outcome::Failed, LogEntry { act: entry.act, reason, ..LogEntry::default() });
            }
            _ => self.leave_alone(world, open, why),
        }
    }

    /// No more acts on an open file.
    fn leave_alone(&mut self, world: &mut impl World, open: u64, why: Refusal) {
        self.polls.remove(&open);
        self.set_quiet(world, open, true);
        // The table was full: the file is not in it.
        let Some(file) = self.files.get_mut(&open) else { return };
        let pid = file.target.pid;
        file.left_alone = Some(why.clone());
        if file.fetched.take().is_some() {
            world.stop_fetching(open);
        }
        let is_logged = match &why {
            // Files that the rules exclude are many.
            Refusal::Rules(rule) => self.processes.is_first_exclusion(pid, rule),
            Refusal::Forbidden(_) => {
                self.processes.leave_alone(pid);
                true
            }
            Refusal::Advised => {
                file.window = None;
                true
            }
            _ => true,
        };
        if is_logged {
            self.log_left_alone(world, open, &why);
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
            let entry = self.completed(world, open, Outcome::Done, entry);
            self.entries.push(entry);
        }
        let Some(file) = self.files.get_mut(&open) else { return };
        let Some(acted_ns) = file.acted_ns.filter(|acted| now_ns > acted + EFFECT_NS) else { return };
        let effect = file.steering.effect();
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
            if done == Err(Refusal::Gone) {
                let others = others.get_or_insert_with(|| world.holders());
                if let Some((pid, descriptor)) = others.get(&open) {
                    target = Target { pid: *pid, tid: *pid, descriptor: Some(*descriptor), ..target };
                    done = world.set_window(&target, set.pages, baseline);
                }
            }
            let is_still_set = |state: OpenState| state.readahead.window_pages == set.pages;
            if done == Err(Refusal::Gone) && world.state(open, target.inode).is_some_and(is_still_set) {
                done = Err(Refusal::NoDescriptor);
            }
            let outcome = match &done {
                Ok(()) => {
                    self.counts.windows_restored += 1;
                    Outcome::Done
                }
                // Closed, or the program's own advice: nothing is left to put back.
                Err(Refusal::Gone | Refusal::Advised) => continue,
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
        self.log(world, NO_FILE, outcome, LogEntry { act: LoggedAct::Rules, reason, ..LogEntry::default() });
    }

    pub(super) fn log_left_alone(&mut self, world: &mut impl World, open: u64, why: &Refusal) {
        self.log(world, open, Outcome::Refused, LogEntry { reason: why.to_string(), ..LogEntry::default() });
    }

    /// Counts an act on an open file, and logs it.
    fn log(&mut self, world: &mut impl World, open: u64, outcome: Outcome, entry: LogEntry) {
        self.counts.act(entry.act, outcome);
        let entry = self.completed(world, open, outcome, entry);
        self.entries.push(entry);
    }

    /// A line of the log with what is known of its time and of its open file, if it is about one.
    pub(super) fn completed(
        &mut self,
        world: &mut impl World,
        open: u64,
        outcome: Outcome,
        entry: LogEntry,
    ) -> LogEntry {
        let entry = LogEntry { outcome, time_ms: world.wall_ms(), dry_run: self.dry_run, ..entry };
        let Some(file) = self.files.get_mut(&open) else { return entry };
        // Before the lookup of the path, which is not part of the act.
        let latency_us = self.decided_ns.map(|decided| world.now_ns().saturating_sub(decided) as f64 / 1e3);
        let path = file.path.get_or_insert_with(|| world.path(&file.target)).as_ref();
        LogEntry {
            pid: file.target.pid,
            comm: String::from_utf8_lossy(&file.comm).into_owned(),
            descriptor: file.target.descriptor,
            path: path.map(|path| path.to_string_lossy().into_owned()),
            class: file.steering.class(),
            latency_us: latency_us.filter(|_| outcome == Outcome::Done),
            ..entry
        }
    }
}
