//! `ahead record`: flags, and the summary of the library's recording.

mod summary;

use crate::until::UntilArguments;
use crate::{exit, messages};
use ahead::record::{ReadAhead, Recorder, SOURCES, Scope, Source, check_privileges, is_input_repeatable};
use ahead::store::{self, Arguments, ProfileOutput};
use ahead::{Command, Signals};
use ahead_model::quantity;
use ahead_sys::root::Root;
use ahead_sys::user::User;
use clap::error::ErrorKind;
use clap::{ArgGroup, Args};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;
use summary::Summary;

/// Observe what a program reads and keep it as a profile
///
/// Every page that the program and all that it starts read from files is recorded, with the time of its first use, and
/// in a cold recording the metadata, too. The program itself runs as the user behind sudo. Its exit status is passed on.
/// Without root only a program that is started here is recorded, and its mapped pages are an upper bound.
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
    /// Evict the page cache, dentries and inodes of the whole machine before; without root, each file before its first use
    #[arg(long, conflicts_with_all = ["pid", "cgroup", "all"])]
    cold: bool,
    /// Switch all read-ahead off meanwhile, so that exactly what is used is recorded; takes 1.5 times as long and more
    /// [default with --cold where faults cannot be limited to one page]
    #[arg(long, requires = "cold", overrides_with = "no_precise")]
    precise: bool,
    /// Leave read-ahead as it is
    #[arg(long, overrides_with = "precise")]
    no_precise: bool,
    /// Record N runs and store for each page how many runs used it [default: 1; with --cold, a second run, or a third, is
    /// recorded and kept if the first one was a first start]
    #[arg(long, value_name = "N", conflicts_with_all = ["pid", "cgroup", "all"],
          value_parser = clap::value_parser!(u32).range(1..=1000))]
    runs: Option<u32>,
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
    /// Go on for this time after the end that the --until-... flags describe, as in 30s: what is read beside the first work competes
    /// for the disk, too
    #[arg(long, value_name = "TIME", value_parser = quantity::parse_time, help_heading = "End of the run")]
    linger: Option<Duration>,
    /// Keep only files below this directory, with paths relative to it: a profile of an image or a container, for use with --root or
    /// where the directory is the root
    #[arg(long, value_name = "DIR", requires = "output")]
    root: Option<PathBuf>,
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
    /// Observe by this source or fail: tracepoints, fentry, kprobes or added (BPF), ftrace, resident (needs --cold), or calls (needs no
    /// root) [default: the best one that works here]
    #[arg(long, value_name = "SOURCE", value_parser = parse_source)]
    source: Option<Source>,
    /// The program and its arguments
    #[arg(trailing_var_arg = true, value_name = "CMD")]
    command: Vec<OsString>,
}

fn parse_source(text: &str) -> Result<Source, String> {
    SOURCES.into_iter().find(|source| source.name() == text).ok_or_else(|| {
        let names: Vec<&str> = SOURCES.iter().map(|source| source.name()).collect();
        format!("unknown source; expected one of {}", names.join(", "))
    })
}

impl Record {
    /// Runs it.
    pub fn run(self) -> anyhow::Result<ExitCode> {
        exit::status_beside_program(self.record())
    }

    fn record(&self) -> anyhow::Result<ExitCode> {
        self.check_usage()?;
        let signals = Signals::take()?;
        let user = match &self.user {
            Some(name) => Some(named_user(name)?),
            None => User::behind_sudo()?,
        };
        let arguments = if self.any_arguments { Arguments::Any } else { Arguments::Same };
        // Before the place for the profile: where nothing can be recorded, no place is needed.
        if self.scope().is_some() || self.source.is_some_and(|source| source != Source::Calls) {
            check_privileges()?;
        }
        let output = ProfileOutput::prepare(self.output.as_ref(), &self.command, arguments, user.as_ref())?;
        let recorder = self.recorder()?.earlier(output.earlier());
        let mut recording = match self.scope() {
            Some(scope) => recorder.observe(&scope, Some(&signals), &messages::print)?,
            None => {
                let command = Command::new(&self.command).user(user.clone());
                recorder.record(&command, Some(&signals), &messages::print)?
            }
        };
        // The profile of half a run, or of an error message, in place of a good one would make every later start slower.
        let is_good = recording.is_complete() || recording.interrupted.is_none() && self.even_if_failed;
        let kept = is_good || !output.is_taken();
        if kept {
            // The program's pages are still resident.
            ahead_files::lists::add_content_checks(&mut recording.profile, &self.root()?);
            output.save(&recording.profile)?;
            let is_shared = self.output.is_none() && !self.any_arguments;
            let share = || store::share_recorded(&self.command, user.as_ref(), &recording.profile);
            is_shared.then(share).flatten().iter().for_each(|message| messages::print(message));
        }
        let summary = Summary { recording: &recording, path: output.path(), kept };
        match self.json {
            true => eprintln!("{}", summary.json()),
            false => summary.print(),
        }
        Ok(ExitCode::from(recording.status))
    }

    /// The directory below which the paths of the profile are.
    fn root(&self) -> ahead_sys::Result<Root> {
        self.root.as_deref().map_or_else(|| Ok(Root::default()), Root::at)
    }

    fn recorder(&self) -> anyhow::Result<Recorder> {
        // The paths of a recording have no symbolic links.
        let root = self.root.is_some().then(|| self.root()).transpose()?;
        let read_ahead = match (self.precise, self.no_precise) {
            (_, true) => ReadAhead::Unchanged,
            (true, _) => ReadAhead::Off,
            _ => ReadAhead::OffIfNeeded,
        };
        Ok(Recorder::default()
            .cold(self.cold)
            .read_ahead(read_ahead)
            .runs(self.runs.unwrap_or(1))
            .again_after_first_start(self.cold && self.runs.is_none() && is_input_repeatable())
            .until(self.until.until().linger(self.linger.unwrap_or_default()))
            .duration(self.duration)
            .source(self.source)
            .root(root.map(|root| Path::new("/").join(root.prefix()))))
    }

    /// The running processes to observe; `None`: a command is started.
    fn scope(&self) -> Option<Scope> {
        match (&self.cgroup, self.pid) {
            (Some(directory), _) => Some(Scope::Cgroup(directory.clone())),
            (None, Some(pid)) => Some(Scope::Family(pid)),
            (None, None) => self.all.then_some(Scope::Everything),
        }
    }

    /// Refuses options that need a program which is started here.
    fn check_usage(&self) -> anyhow::Result<()> {
        if self.command.is_empty() && self.output.is_none() {
            let why = "with --pid, --cgroup and --all, name a place: --output <FILE>";
            return Err(exit::argument_error(ErrorKind::MissingRequiredArgument, why));
        }
        if self.command.is_empty() && self.until.until().needs_output() {
            let why = "--until-output reads the output of a program that is started here; with --pid, --cgroup and --all \
                       use --until-port, --until-file or --duration";
            return Err(exit::argument_error(ErrorKind::ArgumentConflict, why));
        }
        if self.linger.is_some() && !self.until.until().is_set() {
            let why = "--linger begins when the run is ready: add --until-output, --until-port or --until-file, or use --duration";
            return Err(exit::argument_error(ErrorKind::MissingRequiredArgument, why));
        }
        if self.source == Some(Source::Residency) && !self.cold {
            let why = "--source resident finds the pages that a cold run has left in memory; add --cold";
            return Err(exit::argument_error(ErrorKind::MissingRequiredArgument, why));
        }
        Ok(())
    }
}

/// The user of `--user`; an unknown name is a mistake in the command line.
fn named_user(name: &str) -> anyhow::Result<User> {
    User::lookup(name).map_err(|error| match error {
        ahead_sys::Error::Unsupported { why, .. } => {
            exit::argument_error(ErrorKind::InvalidValue, format!("--user {name:?}: {why}"))
        }
        other => other.into(),
    })
}
