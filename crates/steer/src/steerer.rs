//! The logic: from decisions of the kernel to acts, with everything that has to be remembered to take them back.
//!
//! ```text
//!     decide ── admit: process, open file, rules, advice ──▶ steering ──▶ perform ──▶ world: window, fetch ──▶ log
//!                 │                                             ▲            │ not done
//!                 │                                  poll, tick ┘            │
//!                 └──────────── Refusal ──────────────────▶ refuse ◀─────────┘   counted, logged once, known to the policy
//! ```
//!
//! Open files are identified by the address of their `struct file`. An address is reused: an open file of another inode, or one that begins to
//! read, is a new one. All tables are bounded; what was changed is never dropped from them before it is put back or gone.

mod acts;
mod file;
mod processes;
#[cfg(test)]
mod tests;

use crate::counts::Counts;
use crate::log::{LogEntry, LoggedAct};
use crate::pace::RateLimit;
use crate::refusal::Refusal;
use crate::rules::{Limits, Rules, Subject, Verdict};
use crate::world::World;
use ahead_model::PAGE_BYTES;
use ahead_policy::steering::{self, Class, Decision, Kind, Machine, Progress, Steering, Target};
use file::File;
use processes::Processes;
use rustc_hash::FxHashMap;
use std::os::unix::ffi::OsStrExt;
use std::time::Duration;

/// An open file that was not steered is dropped after this time without a decision.
const IDLE_NS: u64 = Duration::from_secs(30).as_nanos() as u64;

/// Interval of the check whether a steered open file without decisions is still open: a check takes some microseconds.
const CHECK_EVERY_NS: u64 = Duration::from_secs(5).as_nanos() as u64;

/// The logic.
pub(crate) struct Steerer {
    steering: Steering,
    rules: Rules,
    dry_run: bool,
    files: FxHashMap<u64, File>,
    /// When the position of the reader of an open file is polled next.
    polls: FxHashMap<u64, u64>,
    processes: Processes,
    limit: RateLimit,
    counts: Counts,
    entries: Vec<LogEntry>,
    /// Time of the decision, poll or tick whose acts are carried out; `None`: their latency means nothing.
    decided_ns: Option<u64>,
    was_pressed: bool,
    ticked_ns: u64,
}

impl Steerer {
    pub(crate) fn new(rules: Rules, dry_run: bool) -> Steerer {
        Steerer {
            steering: Steering::new(&policy_limits(&rules.limits)),
            limit: RateLimit::new(rules.limits.max_acts_per_second),
            processes: Processes::new(rules.limits.max_files),
            rules,
            dry_run,
            files: FxHashMap::default(),
            polls: FxHashMap::default(),
            counts: Counts::default(),
            entries: Vec::new(),
            decided_ns: None,
            was_pressed: false,
            ticked_ns: 0,
        }
    }

    pub(crate) fn counts(&self) -> &Counts {
        &self.counts
    }

    pub(crate) fn counts_mut(&mut self) -> &mut Counts {
        &mut self.counts
    }

    /// The log since the last call.
    pub(crate) fn take_log(&mut self) -> Vec<LogEntry> {
        std::mem::take(&mut self.entries)
    }

    /// Open files with a changed window, and those for which pages are fetched.
    pub(crate) fn steered(&self) -> (usize, usize) {
        let count = |is: fn(&File) -> bool| self.files.values().filter(|file| is(file)).count();
        (count(|file| file.window.is_some()), count(|file| file.fetched.is_some()))
    }

    /// The number of tracked open files.
    pub(crate) fn tracked(&self) -> usize {
        self.files.len()
    }

    /// Whether [`Self::tick`] has something to do.
    pub(crate) fn needs_ticks(&self) -> bool {
        !self.files.is_empty()
    }

    /// A decision of the kernel.
    pub(crate) fn decide(&mut self, world: &mut impl World, decision: &Decision) {
        self.counts.events += 1;
        let open = decision.target.open;
        let (target, (waits, wait_ns)) = match self.admit(world, decision) {
            Ok(admitted) => admitted,
            Err(why) => return self.refuse(world, open, why, LogEntry::default()),
        };
        if waits > 0 {
            world.waited(target.device, waits, wait_ns, decision.before.size);
        }
        let machine = self.machine(world, &target);
        let file = self.files.get_mut(&open);
        let acts = file.map(|file| self.steering.decide(&mut file.steering, decision, &machine)).unwrap_or_default();
        // The observer wakes this process at once only where a reader waits: the delay of other decisions is no latency.
        let is_urgent = decision.kind != Kind::Marker || waits > 0;
        self.perform(world, acts, is_urgent.then_some(decision.at_ns));
        self.plan_poll(open, decision.at_ns);
        self.report_no_descriptor(world, open);
    }

    /// The target of a decision, and the new waits of its readers. Starts to track its open file.
    ///
    /// Errors: its process or open file may not be steered.
    fn admit(&mut self, world: &mut impl World, decision: &Decision) -> Result<(Target, (u64, u64)), Refusal> {
        let open = decision.target.open;
        let comm = self.admitted_process(world, decision)?;
        if self.files.get(&open).is_some_and(|file| file.is_replaced(decision)) {
            self.drop_file(world, open);
        }
        if !self.files.contains_key(&open) {
            if self.files.len() >= self.rules.limits.max_files && !self.make_room(world) {
                return Err(Refusal::TableFull);
            }
            self.counts.files += 1;
            let mut file = File::new(decision, comm);
            let verdict = self.verdict(world, &mut file);
            self.files.insert(open, file);
            if let Verdict::LeftAlone(why) = verdict {
                return Err(Refusal::Rules(why));
            }
        }
        let file = self.files.get_mut(&open).ok_or(Refusal::LeftAlone)?;
        file.update(decision);
        file.check(decision)?;
        Ok((file.target, file.new_waits(decision)))
    }

    /// The machine as the rules permit to use it.
    fn machine(&self, world: &mut impl World, target: &Target) -> Machine {
        let machine = world.machine(target);
        Machine { can_fetch: machine.can_fetch && self.rules.limits.fetch, ..machine }
    }

    /// Reports faults in no order through a mapping whose descriptor was closed: no window can be set for them.
    fn report_no_descriptor(&mut self, world: &mut impl World, open: u64) {
        let is_it = |file: &&mut File| file.target.descriptor.is_none() && file.steering.class() == Class::RandomMapped;
        if let Some(file) = self.files.get_mut(&open).filter(is_it)
            && !std::mem::replace(&mut file.is_reported, true)
        {
            self.counts.refusal(&Refusal::NoDescriptor);
            self.log_left_alone(world, open, &Refusal::NoDescriptor);
        }
    }

    /// Whether the rules admit a file of an admitted process.
    fn verdict(&self, world: &mut impl World, file: &mut File) -> Verdict {
        let Some(cgroups) = self.processes.needs_places(file.target.pid) else { return Verdict::Steered };
        let path = world.path(&file.target);
        let mount = if self.rules.needs_mounts() { world.mount(&file.target) } else { None };
        let path_bytes = path.as_ref().map(|path| path.as_os_str().as_bytes());
        let subject = Subject { command: &file.comm, path: path_bytes, mount: mount.as_deref(), cgroups };
        let verdict = self.rules.verdict(&subject);
        file.path = Some(path);
        verdict
    }

    /// Drops the quarter of the open files without a change that was seen least recently. `false`: all are changed.
    fn make_room(&mut self, world: &mut impl World) -> bool {
        let unchanged = self.files.iter().filter(|(_, file)| !file.is_steered());
        let mut idle: Vec<(u64, u64)> = unchanged.map(|(open, file)| (file.seen_ns, *open)).collect();
        idle.sort_unstable();
        idle.truncate(self.rules.limits.max_files.div_ceil(4));
        idle.iter().for_each(|(_, open)| self.drop_state(world, *open));
        !idle.is_empty()
    }

    /// Forgets an open file that is gone, or that is another one now.
    fn drop_file(&mut self, world: &mut impl World, open: u64) {
        self.remove(world, open);
        world.forget(open);
    }

    /// Forgets an unchanged open file that may still be in use. The observer keeps its counts and its descriptor: to find a descriptor again
    /// takes longer than a read.
    fn drop_state(&mut self, world: &mut impl World, open: u64) {
        self.set_quiet(world, open, false);
        self.remove(world, open);
    }

    fn remove(&mut self, world: &mut impl World, open: u64) {
        self.polls.remove(&open);
        let Some(mut file) = self.files.remove(&open) else { return };
        self.steering.forget(&mut file.steering);
        if file.fetched.is_some() {
            world.stop_fetching(open);
        }
    }

    /// Sets whether the observer keeps the usual decisions of an open file to itself.
    fn set_quiet(&mut self, world: &mut impl World, open: u64, quiet: bool) {
        if let Some(file) = self.files.get_mut(&open)
            && std::mem::replace(&mut file.is_quiet, quiet) != quiet
        {
            world.set_quiet(open, quiet);
        }
    }

    /// When the next poll is due, if any is needed.
    pub(crate) fn next_poll_ns(&self) -> Option<u64> {
        self.polls.values().min().copied()
    }

    fn plan_poll(&mut self, open: u64, from_ns: u64) {
        match self.files.get(&open).and_then(|file| file.steering.poll_after_ns()) {
            Some(after_ns) => drop(self.polls.insert(open, from_ns.saturating_add(after_ns))),
            None => drop(self.polls.remove(&open)),
        }
    }

    /// Polls the positions of the readers that are due.
    pub(crate) fn poll_readers(&mut self, world: &mut impl World) {
        let now_ns = world.now_ns();
        let due: Vec<u64> = self.polls.iter().filter(|(_, at)| **at <= now_ns).map(|(open, _)| *open).collect();
        for open in due {
            let Some(file) = self.files.get_mut(&open) else {
                self.polls.remove(&open);
                continue;
            };
            let target = file.target;
            let Some(state) = world.state(open, target.inode) else {
                self.drop_file(world, open);
                continue;
            };
            file.checked_ns = now_ns;
            if let Some(page) = state.readahead.prev_page() {
                let progress = Progress { at_ns: now_ns, page, waits: world.waits(open) };
                let machine = self.machine(world, &target);
                let Some(file) = self.files.get_mut(&open) else { continue };
                let act = self.steering.progress(&mut file.steering, &progress, &machine);
                self.perform(world, act, Some(now_ns));
            }
            self.plan_poll(open, now_ns);
        }
        for (open, why) in world.failed_fetches() {
            if let Some(file) = self.files.get_mut(&open) {
                file.fetched = None;
                world.stop_fetching(open);
                self.refuse(world, open, why, LogEntry { act: LoggedAct::Fetch, ..LogEntry::default() });
            }
        }
    }

    /// Four times per second while open files are tracked: pressure, effects, closed files.
    pub(crate) fn tick(&mut self, world: &mut impl World) {
        let now_ns = world.now_ns();
        let machine = world.machine_overall();
        let pressure_begins = machine.pressure && !std::mem::replace(&mut self.was_pressed, machine.pressure);
        if !pressure_begins && now_ns < self.ticked_ns + Duration::from_secs(1).as_nanos() as u64 {
            return;
        }
        self.ticked_ns = now_ns;
        let mut files: Vec<&mut File> = self.files.values_mut().collect();
        files.sort_unstable_by_key(|file| file.target.open);
        let acts = self.steering.tick(files.into_iter().map(|file| &mut file.steering), now_ns, &machine);
        self.perform(world, acts, Some(now_ns));
        let opens: Vec<u64> = self.files.keys().copied().collect();
        for open in opens {
            self.plan_poll(open, now_ns);
            self.log_progress(world, open, now_ns);
            self.check_file(world, open, now_ns);
        }
        self.processes.drop_idle(now_ns);
    }

    /// Drops an open file that is closed, or that had no decision for a long time and was not changed.
    fn check_file(&mut self, world: &mut impl World, open: u64, now_ns: u64) {
        let Some(file) = self.files.get_mut(&open) else { return };
        let is_idle = now_ns > file.seen_ns.max(file.checked_ns) + CHECK_EVERY_NS;
        if !file.is_steered() {
            if now_ns > file.seen_ns + IDLE_NS {
                self.drop_state(world, open);
            }
        } else if is_idle {
            file.checked_ns = now_ns;
            let inode = file.target.inode;
            if world.state(open, inode).is_none() {
                self.drop_file(world, open);
            }
        }
    }

    /// Puts everything back, and begins again with other rules.
    pub(crate) fn reload(&mut self, world: &mut impl World, rules: Rules) {
        self.put_back(world, "the rules were read again");
        let counts = std::mem::take(&mut self.counts);
        let entries = std::mem::take(&mut self.entries);
        *self = Steerer { counts, entries, ..Steerer::new(rules, self.dry_run) };
    }
}

/// The limits of the rules as the policy has them.
fn policy_limits(limits: &Limits) -> steering::Limits {
    steering::Limits {
        max_window_pages: limits.max_window_bytes / PAGE_BYTES,
        min_window_pages: (limits.min_window_bytes / PAGE_BYTES).max(1),
        memory_share: limits.memory_share,
    }
}
