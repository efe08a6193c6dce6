//! Observing processes that others have started: until they are ready, the time is over, the one process has ended, or a signal arrives.

use super::Run;
use super::exact::mapped_folio_pages;
use super::read_ahead::SwitchedOn;
use super::recorder::{RecordedRun, Recorder, evaluate, monotonic_ns, single_faults, working_directory};
use super::single_faults::SingleFaults;
use super::source::{Observer, Target, members};
use crate::error::IoContext;
use crate::notify::Notify;
use crate::stopping::check_stopped;
use crate::until::{Finished, Signs};
use crate::{Error, Result};
use ahead_model::sorting;
use ahead_observe::{Scope, now_ns};
use ahead_process::Signals;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant, SystemTime};

impl Recorder {
    pub(super) fn observe_others(&self, scope: &Scope, signals: &Signals, notify: Notify<'_>) -> Result<RecordedRun> {
        let began = Instant::now();
        let process = match scope {
            Scope::Family(pid) => Some(open_process(*pid)?),
            _ => None,
        };
        let signs = self.until.signs(&watched(scope))?;
        // A boot must not be slower for being recorded: more faults would make it so.
        let single_faults = if self.starts_cold { None } else { single_faults() };
        let observer = Observer::start(self.wanted(false), &Target::Others(scope), notify)?;
        check_stopped(signals)?;
        let setup = began.elapsed();
        let (started, started_ns) = (SystemTime::now(), now_ns());
        notify("observing; Ctrl-C ends it");
        let deadline = self.duration.and_then(|duration| Instant::now().checked_add(duration));
        let ready_at = wait(scope, signals, process.as_ref(), &signs, self.until.linger, deadline)?;
        let run = Run {
            command: Vec::new(),
            directory: working_directory(),
            started_ns,
            ended_ns: now_ns(),
            started,
            cpu: Duration::ZERO,
            ready_ns: ready_at.map(monotonic_ns),
            cold: self.starts_cold,
            precise: false,
            read_ahead_off: false,
            mapped_folio_pages: mapped_folio_pages(),
            single_faults: single_faults.as_ref().is_some_and(SingleFaults::holds),
        };
        let now = Instant::now();
        let (at, ready) = (ready_at.unwrap_or(now), ready_at.is_some());
        let finished = Finished { status: 0, at, observed_until: now, ready, stopped: None };
        evaluate(observer, run, SwitchedOn::default(), setup, finished, signals, notify)
    }
}

/// When the processes were ready; `None`: there was another end.
fn wait(
    scope: &Scope,
    signals: &Signals,
    process: Option<&OwnedFd>,
    signs: &Signs<'_>,
    linger: Duration,
    deadline: Option<Instant>,
) -> Result<Option<Instant>> {
    let mut fds = vec![PollFd::new(signals, PollFlags::IN)];
    fds.extend(process.map(|process| PollFd::new(process, PollFlags::IN)));
    let (mut ready_at, mut end_at) = (None, deadline);
    loop {
        let next_look = signs.next_look().filter(|_| ready_at.is_none());
        let wake = [next_look, end_at].into_iter().flatten().min();
        let left = wake.map(|wake| wake.saturating_duration_since(Instant::now()));
        let left = left.map(|left| Timespec { tv_sec: left.as_secs() as i64, tv_nsec: left.subsec_nanos().into() });
        match poll(&mut fds, left.as_ref()) {
            Err(rustix::io::Errno::INTR) => continue,
            Err(error) => return Err(Error::io("wait", error.into())),
            Ok(0) => {}
            Ok(_) => {
                // Taken: a further signal ends the evaluation.
                let _ = signals.poll();
                return Ok(ready_at);
            }
        }
        if next_look.is_some() && signs.is_there(&watched(scope)) {
            let now = Instant::now();
            ready_at = Some(now);
            end_at = [now.checked_add(linger), deadline].into_iter().flatten().min();
        }
        if end_at.is_some_and(|end_at| Instant::now() >= end_at) {
            return Ok(ready_at);
        }
    }
}

/// One process, by its name in `/proc`, for each network namespace in which a port is looked for.
fn watched(scope: &Scope) -> Vec<String> {
    match scope {
        Scope::Cgroup(directory) => by_network(&members(directory)),
        Scope::Family(pid) => vec![pid.to_string()],
        Scope::Processes | Scope::FirstStart(_) | Scope::Everything => vec!["self".into()],
    }
}

fn open_process(pid: u32) -> Result<OwnedFd> {
    let raw = i32::try_from(pid).ok().and_then(Pid::from_raw);
    let raw = raw.ok_or_else(|| Error::Failed("no process has such a number".into()))?;
    pidfd_open(raw, PidfdFlags::empty()).what(&format!("process {pid}"))
}

fn by_network(processes: &[String]) -> Vec<String> {
    let network = |process: &String| std::fs::read_link(format!("/proc/{process}/ns/net")).ok();
    let found = processes.iter().filter_map(|process| Some((network(process)?, process.clone())));
    sorting::map_of(found).into_values().collect()
}
