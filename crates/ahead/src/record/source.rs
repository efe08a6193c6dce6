//! The sources of a recording, and the choice of the best one that works here.
//!
//! ```text
//!     BPF ──refused, or no type information──▶ ftrace ──no tracefs──▶ residency (cold recordings of a command by root only)
//!      └── without root, and where none of the others works ──▶ held calls (commands only)
//! ```
//!
//! Each step down is reported to the user with its reason and its cost.

use super::Observation;
use crate::notify::Notify;
use crate::stopping::unless_stopped;
use crate::{Error, Result};
use ahead_observe::calls::{self, Calls, CallsSeen};
use ahead_observe::nobpf::{Ftrace, Residency, Unresolved};
use ahead_observe::{Options, Scope, Tracer, check_cgroup};
use ahead_process::{Child, Command, Signals};
use ahead_sys::{Error as SysError, evict, machine};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// A source of a recording.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Source {
    /// BPF programs of this kind.
    Bpf(ahead_observe::Source),
    /// The page cache's events, by ftrace.
    Ftrace,
    /// The pages that are resident after a cold run.
    Residency,
    /// The calls of the program, which wait a moment, and its page tables. Needs no privilege.
    Calls,
}

/// All sources, the best first.
pub const SOURCES: [Source; 7] = [
    Source::Bpf(ahead_observe::Source::Tracepoints),
    Source::Bpf(ahead_observe::Source::Fentry),
    Source::Bpf(ahead_observe::Source::Kprobes),
    Source::Bpf(ahead_observe::Source::Added),
    Source::Ftrace,
    Source::Residency,
    Source::Calls,
];

impl Source {
    /// The name in options.
    pub fn name(self) -> &'static str {
        match self {
            Source::Bpf(source) => source.name(),
            Source::Ftrace => "ftrace",
            Source::Residency => "resident",
            Source::Calls => "calls",
        }
    }
}

const FTRACE_COST: &str = "paths that are only looked up, and accesses of io_uring workers, are missing; the evaluation searches for the paths of the files";
const RESIDENCY_COST: &str =
    "an upper bound: pages that were read ahead, or by other programs, count, and the order of use is unknown";
const CALLS_COST: &str = "mapped pages are an upper bound, each call that names a path, reads or maps a file waits for the recorder, and setuid programs run without their rights; root adds the \
     used pages alone, metadata blocks of disks, and empty caches for --cold";

/// What a recorder asks of its observer.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wanted {
    /// `None`: the best one that works here.
    pub source: Option<Source>,
    /// Whether the caches are empty when the program starts.
    pub cold: bool,
    /// Whether pages may count that the program did not use. A comparison needs the used ones.
    pub accepts_residency: bool,
}

/// The observed processes, for the sources without BPF.
#[derive(Clone, Debug)]
pub(super) enum Target<'a> {
    /// A held child and the name of its program.
    Child(u32, &'a [u8]),
    /// Running processes.
    Others(&'a Scope),
}

/// A running observer of one of the sources.
#[derive(Debug)]
pub(super) enum Observer {
    Bpf(Box<Tracer>),
    Ftrace(Ftrace),
    Residency { process: u32, name: Vec<u8>, baseline: Option<Residency> },
    Calls(Calls),
}

/// Starts a program, held, and its observer.
pub(super) fn start_held(wanted: Wanted, command: &Command, notify: Notify<'_>) -> Result<(Child, Observer)> {
    if wanted.source == Some(Source::Calls) {
        let started = by_calls(wanted, command)?;
        notify(&format!("recording by held calls: {CALLS_COST}"));
        return Ok(started);
    }
    // Before the tracer starts: the fork of a small process is fast.
    let child = Child::spawn_held(command)?;
    let name = command.argv.first().map_or(&[][..], |name| name.as_bytes());
    let refused = match Observer::start(wanted, &Target::Child(child.pid(), name), notify) {
        Ok(observer) => return Ok((child, observer)),
        Err(Error::Sys(refused)) if refused.is_unavailable() => refused,
        Err(error) => return Err(error),
    };
    if wanted.source.is_some() || !wanted.accepts_residency {
        return Err(refused.into());
    }
    drop(child);
    let started = by_calls(wanted, command).map_err(|error| match error {
        Error::Sys(error) if error.is_unavailable() => {
            SysError::Unsupported { what: "recording".into(), why: format!("{refused}; {error}") }.into()
        }
        error => error,
    })?;
    let why = if machine::is_root() { "where nothing else works" } else { "without root" };
    notify(&format!("recording {why}, by held calls: {CALLS_COST}"));
    Ok(started)
}

fn by_calls(wanted: Wanted, command: &Command) -> Result<(Child, Observer)> {
    let (child, listener) = Child::spawn_with_held_calls(command, calls::filter())?;
    let calls = Calls::start(listener, child.pid(), wanted.cold)?;
    Ok((child, Observer::Calls(calls)))
}

impl Observer {
    /// Starts the requested source, or the best one that works here.
    pub(super) fn start(wanted: Wanted, target: &Target<'_>, notify: Notify<'_>) -> Result<Observer> {
        if let Target::Others(Scope::Cgroup(directory)) = target {
            // No other source could follow it either.
            check_cgroup(directory)?;
        }
        match wanted.source {
            Some(Source::Bpf(_)) => by_bpf(wanted, target),
            Some(Source::Ftrace) => {
                let observer = by_ftrace(wanted, target)?;
                notify(&format!("recording by ftrace: {FTRACE_COST}"));
                Ok(observer)
            }
            Some(Source::Residency) => {
                let observer = by_residency(wanted, target)?;
                notify(&format!("recording by residency: {RESIDENCY_COST}"));
                Ok(observer)
            }
            Some(Source::Calls) => {
                let why = "only calls of a command that is started here are held".into();
                Err(SysError::Unsupported { what: "recording by held calls".into(), why }.into())
            }
            None => match by_bpf(wanted, target) {
                Err(Error::Sys(refused)) if refused.is_unavailable() && machine::is_root() => {
                    without_bpf(wanted, target, &refused, notify)
                }
                other => other,
            },
        }
    }

    /// Called between the eviction and the start of the program.
    pub(super) fn note_cold_caches(&mut self, signals: &Signals) -> Result<()> {
        if let Observer::Residency { process, name, baseline } = self {
            let (process, name) = (*process, name.clone());
            *baseline = Some(unless_stopped(signals, move || Residency::start(process, &name))??);
        }
        Ok(())
    }

    /// Whether pages count that the program did not use, also without read-ahead.
    pub(super) fn is_upper_bound(&self) -> bool {
        matches!(self, Observer::Residency { .. } | Observer::Calls(_))
    }

    /// Whether it empties the caches itself, as far as a user may: each file before its first use.
    pub(super) fn evicts(&self) -> bool {
        matches!(self, Observer::Calls(_))
    }

    /// Whether accesses to cached pages are seen. Then the used pages are known with read-ahead, too.
    pub(super) fn sees_hits(&self) -> bool {
        match self {
            Observer::Bpf(tracer) => tracer.source().sees_hits(),
            Observer::Ftrace(ftrace) => ftrace.sees_hits(),
            Observer::Residency { .. } => false,
            Observer::Calls(_) => true,
        }
    }

    /// Stops observing.
    pub(super) fn finish(self) -> Result<Observed> {
        Ok(match self {
            Observer::Bpf(tracer) => Observed::Complete(Box::new(tracer.finish()?)),
            Observer::Ftrace(ftrace) => Observed::WithoutPaths(Box::new(ftrace.finish()?)),
            Observer::Residency { baseline: Some(baseline), .. } => Observed::InCache(baseline),
            Observer::Residency { baseline: None, .. } => Observed::Complete(Box::default()),
            Observer::Calls(calls) => Observed::OfCalls(Box::new(calls.finish()?)),
        })
    }
}

/// The result of an observer, before work that a signal may interrupt.
pub(super) enum Observed {
    Complete(Box<Observation>),
    /// The paths of the files are to be found.
    WithoutPaths(Box<Unresolved>),
    /// The resident pages are to be found.
    InCache(Residency),
    /// The files of the paths are to be found.
    OfCalls(Box<CallsSeen>),
}

impl Observed {
    pub(super) fn observation(self) -> ahead_sys::Result<Observation> {
        match self {
            Observed::Complete(observation) => Ok(*observation),
            Observed::WithoutPaths(events) => events.resolve(),
            Observed::InCache(residency) => residency.finish(),
            Observed::OfCalls(seen) => seen.observation(),
        }
    }
}

/// The best source without BPF. `refused`: why BPF is not possible.
fn without_bpf(wanted: Wanted, target: &Target<'_>, refused: &SysError, notify: Notify<'_>) -> Result<Observer> {
    let no_ftrace = match by_ftrace(wanted, target) {
        Ok(observer) => {
            notify(&format!("recording by ftrace instead of BPF ({refused}): {FTRACE_COST}"));
            return Ok(observer);
        }
        Err(Error::Sys(error)) if error.is_unavailable() => error,
        Err(error) => return Err(error),
    };
    let is_possible = wanted.cold && wanted.accepts_residency && matches!(target, Target::Child(..));
    let is_possible = is_possible && evict::may_drop_caches();
    if !is_possible {
        let why = format!("{refused}; {no_ftrace}; without both, only a command that is started here can be recorded");
        return Err(SysError::Unsupported { what: "observing programs".into(), why }.into());
    }
    notify(&format!("recording by residency instead of BPF ({refused}) and ftrace ({no_ftrace}): {RESIDENCY_COST}"));
    by_residency(wanted, target)
}

fn by_bpf(wanted: Wanted, target: &Target<'_>) -> Result<Observer> {
    let scope = match target {
        Target::Child(..) => Scope::Processes,
        Target::Others(scope) => (*scope).clone(),
    };
    let source = match wanted.source {
        Some(Source::Bpf(source)) => Some(source),
        _ => None,
    };
    let timeline = matches!(target, Target::Child(..));
    let tracer = Tracer::start(&Options {
        scope,
        lookups: wanted.cold,
        added: wanted.cold,
        timeline,
        source,
        memory_bytes: None,
    })?;
    if let Target::Child(pid, _) = target {
        tracer.follow(*pid, true)?;
    }
    Ok(Observer::Bpf(Box::new(tracer)))
}

fn by_ftrace(wanted: Wanted, target: &Target<'_>) -> Result<Observer> {
    let scope = match target {
        Target::Child(pid, _) => ahead_observe::nobpf::Scope::Held(*pid),
        Target::Others(Scope::Family(pid)) => ahead_observe::nobpf::Scope::Running(vec![*pid]),
        Target::Others(Scope::Cgroup(directory)) => {
            let members: Vec<u32> = members(directory).iter().filter_map(|pid| pid.parse().ok()).collect();
            if members.is_empty() {
                let what = format!("recording {} by ftrace", directory.display());
                let why = "the cgroup has no process yet, and ftrace follows only processes; start one before";
                return Err(SysError::Unsupported { what, why: why.into() }.into());
            }
            ahead_observe::nobpf::Scope::Running(members)
        }
        Target::Others(Scope::FirstStart(_)) => {
            let why = "ftrace follows only processes that run".into();
            return Err(SysError::Unsupported { what: "waiting for a start".into(), why }.into());
        }
        Target::Others(Scope::Everything | Scope::Processes) => ahead_observe::nobpf::Scope::Everything,
    };
    let options = ahead_observe::nobpf::Options { scope, added: wanted.cold };
    Ok(Observer::Ftrace(Ftrace::start(&options)?))
}

fn by_residency(wanted: Wanted, target: &Target<'_>) -> Result<Observer> {
    match target {
        Target::Child(process, name) if wanted.cold => {
            Ok(Observer::Residency { process: *process, name: name.to_vec(), baseline: None })
        }
        _ => {
            let why = "only the pages of a command with empty caches before it are known: record a command cold";
            Err(SysError::Unsupported { what: "recording by residency".into(), why: why.into() }.into())
        }
    }
}

/// The processes of a cgroup and of those below it. Groups come and go: one that cannot be read counts as empty.
pub(super) fn members(directory: &Path) -> Vec<String> {
    let listed = std::fs::read_to_string(directory.join("cgroup.procs")).unwrap_or_default();
    let mut found: Vec<String> = listed.lines().map(str::to_owned).collect();
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    let below = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
    found.extend(below.flat_map(|entry| members(&entry.path())));
    found
}
