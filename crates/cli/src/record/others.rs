//! Observing processes that somebody else has started: until they are ready, the time is over, the one process has ended,
//! or a signal arrives.

use super::read_ahead::SwitchedOn;
use super::{Record, Recorded, finish, go_on, single_faults, working_directory};
use crate::cli::Cli;
use ahead::record::Run;
use ahead::until::{Finished, Signs};
use ahead_observe::{SingleFaults, Tracer, now_ns};
use ahead_process::Signals;
use anyhow::Context;
use clap::CommandFactory;
use clap::error::ErrorKind;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

impl Record {
    /// What only works with a program that we start is a mistake in the command line.
    pub(super) fn check_usage(&self) {
        if self.command.is_empty() && self.output.is_none() {
            usage_error(
                ErrorKind::MissingRequiredArgument,
                "with --pid, --cgroup and --all, name a place: --output <FILE>",
            );
        }
        if self.command.is_empty() && self.until.until().needs_output() {
            let why = "--until-output reads the output of a program that is started here; with --pid, --cgroup and --all \
                       use --until-port, --until-file or --duration";
            usage_error(ErrorKind::ArgumentConflict, why);
        }
    }

    pub(super) fn observe_others(&self, signals: &Signals) -> anyhow::Result<Recorded> {
        let began = Instant::now();
        let process = self.pid.map(open_process).transpose()?;
        let until = self.until.until();
        let signs = until.signs(&self.watched())?;
        let single_faults = single_faults();
        let tracer = Tracer::start(&self.options())?;
        go_on(signals)?;
        let setup = began.elapsed();
        let (started, started_ns) = (SystemTime::now(), now_ns());
        eprintln!("ahead: observing; Ctrl-C ends it");
        let deadline = self.duration.and_then(|duration| Instant::now().checked_add(duration));
        let ready = self.wait_for_others(signals, process.as_ref(), &signs, deadline)?;
        let run = Run {
            command: Vec::new(),
            directory: working_directory(),
            started_ns,
            ended_ns: now_ns(),
            started,
            cpu: Duration::ZERO,
            ready,
            cold: false,
            precise: false,
            single_faults: single_faults.as_ref().is_some_and(SingleFaults::holds),
        };
        let finished = Finished { status: 0, at: Instant::now(), ready, stopped: None };
        finish(tracer, run, SwitchedOn::default(), setup, finished, signals)
    }

    /// Whether what was waited for is there; otherwise it was another end.
    fn wait_for_others(
        &self,
        signals: &Signals,
        process: Option<&OwnedFd>,
        signs: &Signs<'_>,
        deadline: Option<Instant>,
    ) -> anyhow::Result<bool> {
        let mut fds = vec![PollFd::new(signals, PollFlags::IN)];
        fds.extend(process.map(|process| PollFd::new(process, PollFlags::IN)));
        loop {
            let next_look = signs.next_look();
            let wake = [next_look, deadline].into_iter().flatten().min();
            let left = wake.map(|wake| wake.saturating_duration_since(Instant::now()));
            let left = left.map(|left| Timespec { tv_sec: left.as_secs() as i64, tv_nsec: left.subsec_nanos().into() });
            match poll(&mut fds, left.as_ref()) {
                Err(rustix::io::Errno::INTR) => continue,
                Err(error) => return Err(error).context("wait"),
                Ok(0) => {}
                Ok(_) => {
                    // Heard: a further one ends the evaluation.
                    let _ = signals.poll();
                    return Ok(false);
                }
            }
            if next_look.is_some() && signs.is_there(&self.watched()) {
                return Ok(true);
            }
            if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                return Ok(false);
            }
        }
    }

    /// One process, by its name in `/proc`, for each network namespace in which a port is looked for.
    fn watched(&self) -> Vec<String> {
        match (&self.cgroup, self.pid) {
            (Some(directory), _) => by_network(&members(directory)),
            (None, Some(pid)) => vec![pid.to_string()],
            (None, None) => vec!["self".into()],
        }
    }
}

pub(super) fn usage_error(kind: ErrorKind, why: &str) -> ! {
    let mut cli = Cli::command();
    // Names and usages of subcommands are only complete then.
    cli.build();
    cli.find_subcommand_mut("record").expect("it is ours").error(kind, why).exit()
}

fn open_process(pid: u32) -> anyhow::Result<OwnedFd> {
    let raw = i32::try_from(pid).ok().and_then(Pid::from_raw).context("no process has such a number")?;
    pidfd_open(raw, PidfdFlags::empty()).with_context(|| format!("process {pid}"))
}

/// The processes of a cgroup and of those below it. Groups come and go: what cannot be read is empty.
fn members(directory: &Path) -> Vec<String> {
    let listed = std::fs::read_to_string(directory.join("cgroup.procs")).unwrap_or_default();
    let mut found: Vec<String> = listed.lines().map(str::to_owned).collect();
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    let below = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
    found.extend(below.flat_map(|entry| members(&entry.path())));
    found
}

fn by_network(processes: &[String]) -> Vec<String> {
    let network = |process: &String| std::fs::read_link(format!("/proc/{process}/ns/net")).ok();
    let found = processes.iter().filter_map(|process| Some((network(process)?, process.clone())));
    found.collect::<BTreeMap<PathBuf, String>>().into_values().collect()
}
