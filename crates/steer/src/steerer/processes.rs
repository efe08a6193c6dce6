//! The processes whose decisions were seen: who they are, and whether they are left alone.

use super::Steerer;
use super::acts::NO_FILE;
use crate::log::{LogEntry, Outcome};
use crate::refusal::Refusal;
use crate::rules::Verdict;
use crate::world::{Process, World};
use ahead_policy::steering::Decision;
use rustc_hash::FxHashMap;
use std::rc::Rc;
use std::time::Duration;

/// A process number may belong to another process after this time: then it is looked up again.
const VALID_NS: u64 = Duration::from_secs(1).as_nanos() as u64;

/// A process without decisions is dropped after this time.
const IDLE_NS: u64 = Duration::from_secs(60).as_nanos() as u64;

/// Reasons for which files of a process are excluded, as far as they are kept: rules have no limit, and a process has few kinds of files.
const MOST_EXCLUSIONS: usize = 8;

/// A process.
#[derive(Debug)]
struct Known {
    process: Process,
    cgroups: Vec<Vec<u8>>,
    is_left_alone: bool,
    /// The rules depend on the path or the mount of a file.
    needs_places: bool,
    /// Why the rules exclude files of it.
    exclusions: Vec<String>,
    looked_up_ns: u64,
    seen_ns: u64,
}

impl Known {
    /// Its name, if it may be steered.
    fn admitted(&self) -> Result<Rc<[u8]>, Refusal> {
        if self.is_left_alone { Err(Refusal::LeftAlone) } else { Ok(self.process.comm.clone()) }
    }
}

/// Processes by their number; bounded.
#[derive(Debug)]
pub(super) struct Processes {
    known: FxHashMap<u32, Known>,
    most: usize,
}

impl Processes {
    pub(super) fn new(most: usize) -> Processes {
        Processes { known: FxHashMap::default(), most }
    }

    /// The control groups of a process for whose files the rules need paths or mounts. `None`: all its files are steered.
    pub(super) fn needs_places(&self, pid: u32) -> Option<&[Vec<u8>]> {
        let known = self.known.get(&pid).filter(|known| known.needs_places)?;
        Some(&known.cgroups)
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.known.len()
    }

    pub(super) fn leave_alone(&mut self, pid: u32) {
        if let Some(known) = self.known.get_mut(&pid) {
            known.is_left_alone = true;
        }
    }

    /// Whether this is the first file of the process that the rules exclude for this reason.
    pub(super) fn is_first_exclusion(&mut self, pid: u32, why: &str) -> bool {
        let Some(known) = self.known.get_mut(&pid) else { return true };
        let is_first =
            known.exclusions.len() < MOST_EXCLUSIONS && known.exclusions.iter().all(|earlier| earlier != why);
        if is_first {
            known.exclusions.push(why.to_owned());
        }
        is_first
    }

    pub(super) fn drop_idle(&mut self, now_ns: u64) {
        self.known.retain(|_, known| now_ns < known.seen_ns + IDLE_NS);
    }
}

/// Whether the process has another name than at its lookup: it executes another program. The name of a decision is that of its thread.
fn is_renamed(decision: &Decision, process: &Process) -> bool {
    let name = decision.comm.split(|byte| *byte == 0).next().unwrap_or_default();
    decision.target.tid == decision.target.pid && name != &*process.comm
}

impl Steerer {
    /// The name of the process of a decision.
    ///
    /// Errors: it has ended, or may not be steered; the latter is counted and logged once.
    pub(super) fn admitted_process(
        &mut self,
        world: &mut impl World,
        decision: &Decision,
    ) -> Result<Rc<[u8]>, Refusal> {
        let (pid, now_ns) = (decision.target.pid, decision.at_ns);
        if let Some(known) = self.processes.known.get_mut(&pid) {
            known.seen_ns = now_ns;
            if now_ns < known.looked_up_ns + VALID_NS && !is_renamed(decision, &known.process) {
                return known.admitted();
            }
        }
        self.look_up_process(world, pid, now_ns)
    }

    /// Looks a process up that was not known, whose number may be another one's, or that executes another program.
    fn look_up_process(&mut self, world: &mut impl World, pid: u32, now_ns: u64) -> Result<Rc<[u8]>, Refusal> {
        let Some(process) = world.process(pid) else {
            self.processes.known.remove(&pid);
            return Err(Refusal::LeftAlone);
        };
        let is_same =
            |known: &&mut Known| known.process.start_ticks == process.start_ticks && known.process.comm == process.comm;
        if let Some(known) = self.processes.known.get_mut(&pid).filter(is_same) {
            known.looked_up_ns = now_ns;
            return known.admitted();
        }
        let cgroups = if self.rules.needs_cgroups() { world.cgroups(pid) } else { Vec::new() };
        let verdict = self.rules.verdict_of_process(&process.comm, &cgroups);
        let needs_places = verdict.is_none();
        let refusal = match verdict {
            _ if process.is_kernel_thread => Some(Refusal::KernelThread),
            Some(Verdict::LeftAlone(why)) => Some(Refusal::Rules(why)),
            Some(Verdict::Steered) | None => None,
        };
        if self.processes.known.len() >= self.processes.most {
            // Looked up again when they are seen again.
            self.processes.known.clear();
        }
        let comm = process.comm.clone();
        let is_left_alone = refusal.is_some();
        let (exclusions, looked_up_ns, seen_ns) = (Vec::new(), now_ns, now_ns);
        let known = Known { process, cgroups, is_left_alone, needs_places, exclusions, looked_up_ns, seen_ns };
        self.processes.known.insert(pid, known);
        let Some(why) = refusal else { return Ok(comm) };
        self.counts.refusal(&why);
        // Threads of the kernel are many, and expected.
        if why != Refusal::KernelThread {
            let comm = String::from_utf8_lossy(&comm).into_owned();
            let entry = LogEntry { pid, comm, reason: why.to_string(), ..LogEntry::default() };
            let entry = self.completed(world, NO_FILE, Outcome::Refused, entry);
            self.entries.push(entry);
        }
        Err(Refusal::LeftAlone)
    }
}
