//! `ahead record`: runs a program, observes what it reads, and keeps that as a profile.

mod summary;

use crate::until::{Finished, Until};
use crate::{exit, paths, units};
use ahead_kernel::process::{Child, Command, Signals, User};
use ahead_kernel::undo::Guard;
use ahead_kernel::{evict, family, usage};
use ahead_profile::Profile;
use ahead_trace::{Alone, Counters, LeftOut, Options, Run, Scope, Source, Tracer, now_ns};
use ahead_trace::{switch_fault_around_off, switch_read_ahead_off, to_profile, try_alone};
use anyhow::{Context, bail};
use clap::{ArgGroup, Args};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use std::ffi::OsString;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant, SystemTime};
use summary::Summary;

/// Observe what a program reads and keep it as a profile
///
/// Every page that the program and all that it starts read from files is recorded, with the time of its first use, and
/// in a cold recording the metadata, too. Needs root; the program itself runs as the user behind sudo. Its exit status
/// is passed on.
#[derive(Debug, Args)]
#[command(group = ArgGroup::new("whom").required(true).args(["pid", "cgroup", "all", "command"]))]
#[command(after_help = "Examples:
  sudo ahead record --cold -- git status
  sudo ahead record --cold --until-port 8080 -- ./server
  sudo ahead record --duration 30s --all -o login.ahead")]
pub struct Record {
    /// Where to keep the profile [default: the place where `ahead run` looks for it]
    #[arg(short, long, value_name = "FILE", required_unless_present = "command")]
    output: Option<PathBuf>,
    /// Evict the page cache, dentries and inodes of the whole machine before
    #[arg(long, conflicts_with_all = ["pid", "cgroup", "all"])]
    cold: bool,
    /// Switch all read-ahead off meanwhile, so that exactly what is used is recorded; takes 1.5 times as long and more
    /// [default with --cold]
    #[arg(long, requires = "cold", overrides_with = "no_precise")]
    precise: bool,
    /// Leave read-ahead as it is
    #[arg(long, overrides_with = "precise")]
    no_precise: bool,
    /// Record so many runs and keep how many of them used each page
    #[arg(long, value_name = "N", default_value_t = 1, conflicts_with_all = ["pid", "cgroup", "all"],
          value_parser = clap::value_parser!(u32).range(1..=1000))]
    runs: u32,
    /// Run the program as this user [default: the user behind sudo]
    #[arg(long, conflicts_with_all = ["pid", "cgroup", "all"])]
    user: Option<String>,
    /// Observe a running process and all that it starts, until it ends
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..))]
    pid: Option<u32>,
    /// Observe every process in this cgroup (a directory of the cgroup v2 file system)
    #[arg(long, value_name = "DIR")]
    cgroup: Option<PathBuf>,
    /// Observe every process of the machine
    #[arg(long)]
    all: bool,
    /// End after this time
    #[arg(long, value_name = "TIME", value_parser = units::parse_time)]
    duration: Option<Duration>,
    #[command(flatten)]
    until: Until,
    /// Print what was recorded as one line of JSON on standard error: standard output is the program's
    #[arg(long)]
    json: bool,
    /// Take events from this source or fail (tracepoints, fentry, kprobes, added)
    #[arg(long, hide = true, value_parser = parse_source)]
    source: Option<Source>,
    /// The program and its arguments
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "CMD")]
    command: Vec<OsString>,
}

fn parse_source(text: &str) -> Result<Source, String> {
    ahead_trace::SOURCES.into_iter().find(|source| source.name() == text).ok_or_else(|| "no such source".into())
}

/// One recorded run.
struct Recorded {
    profile: Profile,
    left_out: LeftOut,
    counters: Counters,
    status: i32,
    stopped: bool,
    setup: Duration,
    finish: Duration,
}

impl Record {
    pub fn run(self) -> anyhow::Result<ExitCode> {
        exit::status_beside_program(self.record())
    }

    fn record(&self) -> anyhow::Result<ExitCode> {
        if self.command.is_empty() && self.until.is_set() {
            bail!(
                "--until-output, --until-port and --until-file need a command to wait for: leave them out, or use --duration"
            );
        }
        let signals = Signals::take()?;
        let user = match &self.user {
            Some(name) => Some(User::lookup(name)?),
            None => User::behind_sudo()?,
        };
        let output = self.output.clone().unwrap_or_else(|| paths::profile_path_for(&self.command, user.as_ref()));
        prepare_directory(&output, user.as_ref(), self.output.is_none())?;
        let mut runs = Vec::new();
        for _ in 0..self.runs {
            let recorded = if self.command.is_empty() {
                self.observe_others(&signals)?
            } else {
                self.record_command(&signals, user.as_ref())?
            };
            let stopped = recorded.stopped;
            runs.push(recorded);
            if stopped {
                break;
            }
        }
        let last = runs.last().expect("there is at least one run");
        let (status, summary) = (last.status, Summary::of(last, runs.len()));
        let profile = ahead_profile::merge(runs.into_iter().map(|run| run.profile).collect());
        let owner = user.as_ref().map(|user| (user.uid, user.gid));
        ahead_profile::save_owned(&profile, &output, owner)?;
        match self.json {
            true => eprintln!("{}", summary.json(&profile, &output)),
            false => summary.print(&profile, &output),
        }
        Ok(ExitCode::from(status as u8))
    }

    fn options(&self) -> Options {
        let scope = match &self.cgroup {
            Some(directory) => Scope::Cgroup(directory.clone()),
            None if self.all => Scope::Everything,
            None => Scope::Processes,
        };
        Options { scope, lookups: self.cold, added: self.cold, source: self.source }
    }

    fn record_command(&self, signals: &Signals, user: Option<&User>) -> anyhow::Result<Recorded> {
        let began = Instant::now();
        let command = Command { argv: self.command.clone(), user: user.cloned(), ..Command::default() };
        let (command, watch) = self.until.prepare(&command)?;
        if self.duration.is_some() {
            family::adopt_orphans()?;
        }
        let cpu_before = usage::cpu_of_ended_children();
        // Before the tracer: a small process is quickly copied.
        let mut child = Child::spawn_held(&command)?;
        let tracer = Tracer::start(&self.options())?;
        tracer.follow(child.pid(), true)?;
        let single_faults = single_faults();
        let alone = if self.cold { Some(wait_to_be_alone(signals)?) } else { None };
        let guards = alone.as_ref().map_or(Ok(None), |alone| self.make_exact(alone))?;
        if self.cold {
            evict::everything()?;
        }
        let setup = began.elapsed();
        let (started, started_ns) = (SystemTime::now(), now_ns());
        let deadline = self.duration.map(|duration| Instant::now() + duration);
        child.release(&command)?;
        let finished = watch.wait(&mut child, signals, deadline)?;
        // In this order: when we are held up between the two, the end is told too late, never before the last reads.
        let since_end = finished.at.elapsed();
        let ended_ns = now_ns() - u64::try_from(since_end.as_nanos()).unwrap_or(0);
        let cpu = usage::cpu_of_ended_children() - cpu_before;
        let precise = guards.is_some();
        drop(guards);
        let was_single = single_faults.is_some();
        drop(single_faults);
        drop(alone);
        let run = Run {
            command: self.command.iter().map(|word| word.as_bytes().to_vec()).collect(),
            directory: working_directory(),
            started_ns,
            ended_ns,
            started,
            cpu,
            ready: finished.ready,
            cold: self.cold,
            precise,
            single_faults: was_single,
        };
        finish(tracer, &run, setup, finished)
    }

    /// Switches read-ahead off where that was asked for, or is possible in a cold recording.
    fn make_exact(&self, alone: &Alone) -> anyhow::Result<Option<Vec<Guard>>> {
        if self.no_precise {
            return Ok(None);
        }
        match switch_read_ahead_off(alone) {
            Ok(guards) => Ok(Some(guards)),
            Err(error) if self.precise => Err(error).context("--precise needs read-ahead switched off"),
            Err(error) => {
                eprintln!("ahead: read-ahead stays on, so this will be an upper bound: {error}");
                Ok(None)
            }
        }
    }

    /// Observes processes that we did not start, until the time is over, the process has ended, or a signal arrives.
    fn observe_others(&self, signals: &Signals) -> anyhow::Result<Recorded> {
        let began = Instant::now();
        let process = self.pid.map(open_process).transpose()?;
        let tracer = Tracer::start(&self.options())?;
        let single_faults = single_faults();
        if let Some(pid) = self.pid {
            tracer.follow(pid, false)?;
            // Those it starts from now on are followed by themselves; these were there before.
            for process in family::descendants(pid)? {
                tracer.follow(process.pid, false)?;
            }
        }
        let setup = began.elapsed();
        let (started, started_ns) = (SystemTime::now(), now_ns());
        eprintln!("ahead: observing; Ctrl-C ends it");
        wait_for_others(signals, process.as_ref(), self.duration.map(|duration| Instant::now() + duration))?;
        let run = Run {
            command: Vec::new(),
            directory: working_directory(),
            started_ns,
            ended_ns: now_ns(),
            started,
            cpu: Duration::ZERO,
            ready: false,
            cold: false,
            precise: false,
            single_faults: single_faults.is_some(),
        };
        let finished = Finished { status: 0, at: Instant::now(), ready: false, stopped: true };
        finish(tracer, &run, setup, finished)
    }
}

/// Two cold recordings at once would disturb each other.
fn wait_to_be_alone(signals: &Signals) -> anyhow::Result<Alone> {
    let mut is_first_try = true;
    loop {
        if let Some(alone) = try_alone()? {
            return Ok(alone);
        }
        if std::mem::take(&mut is_first_try) {
            eprintln!("ahead: waiting for the end of another cold recording");
        }
        if signals.wait(Some(Duration::from_millis(100)))?.is_some() {
            bail!("interrupted");
        }
    }
}

/// Where the kernel lets us, each page is faulted by itself: what is recorded is then what was touched.
fn single_faults() -> Option<Vec<Guard>> {
    switch_fault_around_off().inspect_err(|error| tracing::debug!("faults map windows of pages: {error}")).ok()
}

fn finish(tracer: Tracer, run: &Run, setup: Duration, finished: Finished) -> anyhow::Result<Recorded> {
    let began = Instant::now();
    let observed = tracer.finish()?;
    let (profile, left_out) = to_profile(&observed, run)?;
    Ok(Recorded {
        profile,
        left_out,
        counters: observed.counters,
        status: finished.status,
        stopped: finished.stopped,
        setup,
        finish: began.elapsed(),
    })
}

fn open_process(pid: u32) -> anyhow::Result<OwnedFd> {
    let raw = i32::try_from(pid).ok().and_then(Pid::from_raw).context("no process has such a number")?;
    pidfd_open(raw, PidfdFlags::empty()).with_context(|| format!("process {pid}"))
}

fn wait_for_others(signals: &Signals, process: Option<&OwnedFd>, deadline: Option<Instant>) -> anyhow::Result<()> {
    let mut fds = vec![PollFd::new(signals, PollFlags::IN)];
    fds.extend(process.map(|process| PollFd::new(process, PollFlags::IN)));
    loop {
        let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        let left = left.map(|left| Timespec { tv_sec: left.as_secs() as i64, tv_nsec: left.subsec_nanos().into() });
        match poll(&mut fds, left.as_ref()) {
            Err(rustix::io::Errno::INTR) => {}
            other => return other.map(drop).context("wait"),
        }
    }
}

fn working_directory() -> Vec<u8> {
    std::env::current_dir().map(|path| path.as_os_str().as_bytes().to_vec()).unwrap_or_default()
}

/// Finds out before the run whether the profile can be kept afterwards.
fn prepare_directory(output: &Path, user: Option<&User>, ours: bool) -> anyhow::Result<()> {
    let parent = match output.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    if ours {
        make_directories(parent, user).with_context(|| format!("make {}", parent.display()))?;
    }
    rustix::fs::access(parent, rustix::fs::Access::WRITE_OK)
        .with_context(|| format!("cannot keep a profile in {}", parent.display()))
}

/// Makes the missing directories, for their owner alone, and gives them to the user that the recording is for.
fn make_directories(directory: &Path, user: Option<&User>) -> std::io::Result<()> {
    use std::os::unix::fs::{DirBuilderExt, chown};
    if directory.is_dir() {
        return Ok(());
    }
    if let Some(parent) = directory.parent() {
        make_directories(parent, user)?;
    }
    std::fs::DirBuilder::new().mode(0o700).create(directory)?;
    match user {
        Some(user) => chown(directory, Some(user.uid), Some(user.gid)),
        None => Ok(()),
    }
}
