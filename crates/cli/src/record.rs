//! `ahead record`: runs a program, observes what it reads, and keeps that as a profile.

mod keep;
mod others;
mod read_ahead;
mod summary;

use crate::exit::{self, Stopped};
use crate::patience::unless_stopped;
use crate::until::UntilArguments;
use crate::{drives, restore};
use ahead::record::learn;
use ahead::record::{LeftOut, Run};
use ahead::store::Arguments;
use ahead::until::Finished;
use ahead_learn::{Counters, Observation};
use ahead_model::quantity;
use ahead_observe::{Options, Scope, SingleFaults, Source, Tracer, check_privileges, now_ns};
use ahead_observe::{switch_fault_around_off, switch_read_ahead_off};
use ahead_process::family;
use ahead_process::{Child, Command, Signals};
use ahead_profile::Profile;
use ahead_sys::user::User;
use ahead_sys::{evict, usage};
use ahead_undo::Guard;
use ahead_undo::machine_lock::MachineLock;
use anyhow::{Context, bail};
use clap::error::ErrorKind;
use clap::{ArgGroup, Args};
use keep::Keeper;
use read_ahead::SwitchedOn;
use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
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
#[command(override_usage = "ahead record [OPTIONS] [--] <CMD>...
       ahead record [OPTIONS] -o <FILE> <--pid <PID>|--cgroup <DIR>|--all>")]
#[command(after_help = "Examples:
  sudo ahead record --cold -- git status
  sudo ahead record --cold --until-port 8080 -- ./server
  sudo ahead record --duration 30s --all -o login.ahead")]
pub struct Record {
    /// Where to keep the profile [default: the place where `ahead run` looks for it]
    #[arg(short, long, value_name = "FILE")]
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
    /// End after this time; of several runs, each. A program that was started is ended with all that it started, and the
    /// exit status is 0
    #[arg(long, value_name = "TIME", value_parser = quantity::parse_time)]
    duration: Option<Duration>,
    #[command(flatten)]
    until: UntilArguments,
    /// Keep a profile for this program in this directory with any arguments; `ahead run` uses it where there is none for the
    /// arguments that it is given
    #[arg(long, conflicts_with_all = ["output", "pid", "cgroup", "all"])]
    any_arguments: bool,
    /// Replace an earlier profile though the program ends with a status other than 0
    #[arg(long)]
    even_if_failed: bool,
    /// Print what was recorded as one line of JSON on standard error: standard output is the program's
    #[arg(long)]
    json: bool,
    /// Send the program's output and errors to /dev/null, and only our own messages to standard error
    #[arg(long, hide = true)]
    discard_output: bool,
    /// Take events from this source or fail (tracepoints, fentry, kprobes, added)
    #[arg(long, hide = true, value_parser = parse_source)]
    source: Option<Source>,
    /// The program and its arguments
    #[arg(trailing_var_arg = true, value_name = "CMD")]
    command: Vec<OsString>,
}

fn parse_source(text: &str) -> Result<Source, String> {
    ahead_observe::SOURCES.into_iter().find(|source| source.name() == text).ok_or_else(|| "no such source".into())
}

/// The status of a recording that did not come to its end.
const FAILED: u8 = 1;

/// One recorded run.
struct Recorded {
    profile: Profile,
    left_out: LeftOut,
    counters: Counters,
    finished: Finished,
    setup: Duration,
    finish: Duration,
}

/// The runs of one recording, one at least.
struct Series {
    runs: Vec<Recorded>,
    /// How many there were to be.
    asked: usize,
    /// The status to pass on.
    status: u8,
}

impl Series {
    /// How it was broken off, if it was.
    fn interrupted(&self) -> Option<String> {
        let whole = self.runs.iter().filter(|run| !run.finished.is_interrupted()).count();
        let how = match self.asked {
            1 => "by a signal".into(),
            asked => format!("by a signal after {whole} of {asked} runs"),
        };
        (whole < self.asked).then_some(how)
    }

    /// The status of the first run whose program failed: it ended by itself, with a status other than 0.
    fn failed(&self) -> Option<i32> {
        let statuses = self.runs.iter().map(|run| run.finished).filter(|run| !run.ready && !run.is_interrupted());
        statuses.map(|run| run.status).find(|status| *status != 0)
    }
}

impl Record {
    /// Runs it.
    pub fn run(self) -> anyhow::Result<ExitCode> {
        exit::status_beside_program(self.record())
    }

    fn record(&self) -> anyhow::Result<ExitCode> {
        self.check_usage();
        let signals = Signals::take()?;
        let user = match &self.user {
            Some(name) => Some(named_user(name)?),
            None => User::behind_sudo()?,
        };
        let arguments = if self.any_arguments { Arguments::Any } else { Arguments::Same };
        // Before a place for the profile is looked for: where nothing can be recorded, none is needed.
        check_privileges()?;
        let keeper = Keeper::new(self.output.as_ref(), &self.command, arguments, user.as_ref())?;
        if !self.cold {
            restore::try_set_back();
        }
        let series = self.record_runs(&signals, user.as_ref())?;
        // The profile of half a run, or of an error message, in place of a good one would silently make every later start slower.
        let is_good = series.interrupted().is_none() && (series.failed().is_none() || self.even_if_failed);
        let kept = is_good || !keeper.is_taken();
        let waits = self.until.until().is_set();
        let never_came = waits && series.runs.iter().any(|run| !run.finished.ready && run.finished.stopped.is_none());
        // A program that ended well before what was waited for came has not done what was to be recorded.
        let status = if never_came && series.status == 0 { FAILED } else { series.status };
        let mut summary = Summary::of(&series, waits, kept);
        let mut profile = ahead_profile::merge(series.runs.into_iter().map(|run| run.profile).collect());
        summary.beyond_limits = ahead_profile::fit(&mut profile);
        if let Some(how) = &summary.interrupted {
            profile.recording.source.push_str(&format!(", INTERRUPTED {how}"));
        }
        if kept {
            keeper.save(&profile)?;
        }
        match self.json {
            true => eprintln!("{}", summary.json(&profile, keeper.path())),
            false => summary.print(&profile, keeper.path()),
        }
        Ok(ExitCode::from(status))
    }

    /// All runs, or those until a signal. One that was interrupted is only given when there is no whole one before it.
    fn record_runs(&self, signals: &Signals, user: Option<&User>) -> anyhow::Result<Series> {
        let (mut runs, mut status): (Vec<Recorded>, u8) = (Vec::new(), 0);
        let asked = self.runs as usize;
        for _ in 0..asked {
            let recorded = match self.record_once(signals, user) {
                Ok(recorded) => recorded,
                Err(error) if !runs.is_empty() && error.is::<Stopped>() => {
                    status = exit::code_of(&error);
                    break;
                }
                Err(error) => return Err(error),
            };
            let finished = recorded.finished;
            status = finished.status as u8;
            if runs.is_empty() || !finished.is_interrupted() {
                runs.push(recorded);
            }
            if finished.is_interrupted() {
                break;
            }
            if let Some(signal) = finished.stopped {
                // This run ended well, but not all of them.
                if status == 0 && runs.len() < asked {
                    status = Stopped(signal).code();
                }
                break;
            }
        }
        Ok(Series { runs, asked, status })
    }

    fn record_once(&self, signals: &Signals, user: Option<&User>) -> anyhow::Result<Recorded> {
        if self.command.is_empty() { self.observe_others(signals) } else { self.record_command(signals, user) }
    }

    fn options(&self) -> Options {
        let scope = match (&self.cgroup, self.pid) {
            (Some(directory), _) => Scope::Cgroup(directory.clone()),
            (None, Some(pid)) => Scope::Family(pid),
            (None, None) if self.all => Scope::Everything,
            (None, None) => Scope::Processes,
        };
        Options { scope, lookups: self.cold, added: self.cold, source: self.source }
    }

    fn record_command(&self, signals: &Signals, user: Option<&User>) -> anyhow::Result<Recorded> {
        let began = Instant::now();
        let command = Command {
            argv: self.command.clone(),
            user: user.cloned(),
            discard_output: self.discard_output,
            ..Command::default()
        };
        let until = self.until.until();
        let (command, watch) = until.prepare(&command)?;
        if self.duration.is_some() {
            family::adopt_orphans()?;
        }
        let cpu_before = usage::cpu_of_ended_children();
        // Before the tracer: a small process is quickly copied.
        let mut child = Child::spawn_held(&command)?;
        let tracer = Tracer::start(&self.options())?;
        tracer.follow(child.pid(), true)?;
        go_on(signals)?;
        let alone = if self.cold { Some(wait_to_be_alone(signals)?) } else { None };
        // Not while we wait: it is changed for everybody, for a comparison, too.
        let single_faults = single_faults();
        let guards = alone.as_ref().map_or(Ok(None), |alone| self.make_exact(alone))?;
        if self.cold {
            // Nothing is evicted for a recording that will not be.
            go_on(signals)?;
            unless_stopped(signals, evict::everything)??;
            // Which of them the program will read is not known yet, and only times depend on it.
            if let Err(error) = drives::restart(|_| true) {
                tracing::info!("{error:#}");
            }
        }
        go_on(signals)?;
        let setup = began.elapsed();
        let (started, started_ns) = (SystemTime::now(), now_ns());
        let deadline = self.duration.and_then(|duration| Instant::now().checked_add(duration));
        child.release(&command)?;
        let finished = watch.wait(&mut child, signals, deadline)?;
        // In this order: when we are held up between the two, the end is told too late, never before the last reads.
        let since_end = finished.at.elapsed();
        let ended_ns = now_ns() - u64::try_from(since_end.as_nanos()).unwrap_or(0);
        let cpu = usage::cpu_of_ended_children() - cpu_before;
        let precise = guards.is_some();
        let switched_on = SwitchedOn::now();
        drop(guards);
        let was_single = single_faults.as_ref().is_some_and(SingleFaults::holds);
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
        finish(tracer, run, switched_on, setup, finished, signals)
    }

    /// Switches read-ahead off where that was asked for, or is possible in a cold recording.
    fn make_exact(&self, alone: &MachineLock) -> anyhow::Result<Option<Vec<Guard>>> {
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
}

/// The user of `--user`; one who is unknown is a mistake in the command line.
fn named_user(name: &str) -> anyhow::Result<User> {
    User::lookup(name).map_err(|error| match error {
        ahead_sys::Error::Unsupported { why, .. } => {
            others::usage_error(ErrorKind::InvalidValue, &format!("--user {name:?}: {why}"))
        }
        other => other.into(),
    })
}

/// A signal from the time of set-up would end the program at its first instruction, and a profile of that would replace a
/// good one; a comparison would go on for minutes.
pub fn go_on(signals: &Signals) -> anyhow::Result<()> {
    match signals.poll() {
        Some(signal) => bail!(Stopped(signal.number)),
        None => Ok(()),
    }
}

/// Two cold recordings at once would disturb each other, and so would a recording and a comparison. What one that was killed
/// has left is set back then.
pub fn wait_to_be_alone(signals: &Signals) -> anyhow::Result<MachineLock> {
    let mut is_first_try = true;
    loop {
        if let Some(alone) = MachineLock::try_acquire()? {
            restore::set_back(&alone);
            return Ok(alone);
        }
        if std::mem::take(&mut is_first_try) {
            eprintln!("ahead: waiting for the end of another cold recording or measurement");
        }
        if let Some(signal) = signals.wait(Some(Duration::from_millis(100)))? {
            bail!(Stopped(signal.number));
        }
    }
}

/// Where the kernel lets us, each page is faulted by itself: what is recorded is then what was touched.
fn single_faults() -> Option<SingleFaults> {
    switch_fault_around_off().inspect_err(|error| tracing::debug!("faults map windows of pages: {error}")).ok()
}

/// `switched_on`: the read-ahead that was not off at the end. A signal that comes while files are looked for ends it.
fn finish(
    tracer: Tracer,
    run: Run,
    switched_on: SwitchedOn,
    setup: Duration,
    finished: Finished,
    signals: &Signals,
) -> anyhow::Result<Recorded> {
    let began = Instant::now();
    let observed = tracer.finish()?;
    let counters = observed.counters;
    let (profile, left_out) = unless_stopped(signals, move || evaluate(&observed, &run, &switched_on))??;
    Ok(Recorded { profile, left_out, counters, finished, setup, finish: began.elapsed() })
}

fn evaluate(observed: &Observation, run: &Run, switched_on: &SwitchedOn) -> anyhow::Result<(Profile, LeftOut)> {
    let (profile, left_out) = learn(observed, run)?;
    let Some(setting) = switched_on.of_any_in(&profile).filter(|_| run.precise) else { return Ok((profile, left_out)) };
    eprintln!("ahead: read-ahead came back during the run ({}), so this is an upper bound", setting.display());
    Ok(learn(observed, &Run { precise: false, ..run.clone() })?)
}

fn working_directory() -> Vec<u8> {
    std::env::current_dir().map(|path| path.as_os_str().as_bytes().to_vec()).unwrap_or_default()
}
