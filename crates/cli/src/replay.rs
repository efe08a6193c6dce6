//! `ahead replay`: fetches what a profile or a list names, without starting anything.

use crate::exit::{Stopped, UsageError};
use crate::root::RootArgument;
use crate::window::WindowArguments;
use crate::{account, import, messages};
use ahead::Signals;
use ahead::prefetch::{self, HeadStart, Options, PrefetchProcess, ProfileFile, Program, Request, WindowSize};
use ahead_files::lists::Syntax;
use ahead_profile::{DecodeError, LoadError};
use anyhow::{Context, bail};
use clap::{Args, ValueEnum};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// Prefetch the pages of a profile or a list, without starting a program
///
/// Returns when everything is submitted: the kernel reads on by itself. What differs from the recording, is there already
/// or may not be read is passed over and counted. A list has on each line a path, or PATH:START-END with bytes or sizes as in
/// 4K (END exclusive); a file that has the name of the whole line wins. Lines that begin with # are comments.
#[derive(Debug, Args)]
pub struct Replay {
    /// Profile to prefetch; `-`: a list from standard input
    #[arg(value_name = "FILE")]
    profile: PathBuf,
    /// The entries of the list end with a NUL byte, as those of find -print0
    #[arg(short = '0', long)]
    null: bool,
    #[command(flatten)]
    root: RootArgument,
    /// Return only when everything has arrived
    #[arg(long)]
    wait: bool,
    /// Prefetch at most this much [default: half of the available memory]
    #[arg(long, value_name = "SIZE", value_parser = ahead_model::quantity::parse_size_with_unit)]
    budget: Option<u64>,
    #[command(flatten)]
    window: WindowArguments,
    /// Let the window follow this process and its descendants [default of --window: auto]
    #[arg(long, value_name = "PID", value_parser = clap::value_parser!(u32).range(1..))]
    follow: Option<u32>,
    /// Give up after this time, as in 30s
    #[arg(long, value_name = "TIME", value_parser = ahead_model::quantity::parse_time)]
    deadline: Option<Duration>,
    /// How much of the disks to take from other programs: idle leaves them what they want, and fills no rotating disk's queue
    #[arg(long, value_name = "CLASS", default_value = "idle")]
    priority: Priority,
    /// Let other programs read first: pause within one request when one reads the same disk, and go on when it is quiet. On a disk that is
    /// never quiet there is one request a second. Network and FUSE file systems have no counts for it, and are read at once
    #[arg(long = "yield")]
    yields: bool,
    /// Use this description of the disks, instead of what `ahead probe --save` has kept of them: a device description or a disk model
    #[arg(long, value_name = "FILE")]
    device: Option<PathBuf>,
    /// Print the account as JSON
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Priority {
    Idle,
    Normal,
}

impl Replay {
    fn profile_file(&self) -> anyhow::Result<ProfileFile> {
        if self.profile != Path::new("-") {
            return match self.null {
                false => Ok(ProfileFile::Named(self.profile.clone())),
                true => Err(UsageError("-0 is for a list from standard input: ahead replay -0 -".into()).into()),
            };
        }
        let bytes = import::read(&self.profile).context("read the list from standard input")?;
        let list = ahead_files::lists::parse(&bytes, Syntax { nul: self.null, paths_only: false });
        Ok(ProfileFile::Listed(list.context("list from standard input")?))
    }

    /// Runs it.
    pub fn run(self) -> anyhow::Result<ExitCode> {
        let began = Instant::now();
        if let Some(pid) = self.follow.filter(|pid| !Path::new(&format!("/proc/{pid}")).exists()) {
            bail!("no process has the number {pid}: --follow takes one that runs");
        }
        // Before the signals are taken: until a list has arrived, they end this process.
        let profile = self.profile_file()?;
        let signals = Signals::take()?;
        let priority = match self.priority {
            Priority::Idle => prefetch::Priority::Idle,
            Priority::Normal => prefetch::Priority::Normal,
        };
        let window = match (self.window.window, self.follow) {
            (None, Some(_)) => WindowSize::Auto,
            (asked, _) => asked.unwrap_or_default(),
        };
        let options = Options::default()
            .budget_bytes(self.budget)
            .deadline(self.deadline)
            .since(Some(began))
            .priority(priority)
            .head_start(HeadStart::None)
            .wait(self.wait)
            .low_memory(self.window.low_memory)
            .window(window)
            .program(self.follow.map(Program::running));
        let request = Request::new(profile, options)
            .root(self.root.path().map(Path::to_owned))
            .device(self.device.clone())
            .yields(self.yields)
            .send_account(true);
        let explain = |error: &ahead::Error| match error {
            ahead::Error::Load(LoadError::Decode { source: DecodeError::NotAProfile, .. }) => {
                format!("{error}; a list is read from standard input: ahead replay - < FILE")
            }
            other => other.to_string(),
        };
        let mut process = PrefetchProcess::start(&request, &messages::print, &explain)?;
        let signal = process.wait(&signals, began, self.deadline)?;
        let failure = process.failure();
        let account = if failure.is_none() { process.account().unwrap_or(None) } else { None };
        let printed = account.as_ref().map(|account| -> anyhow::Result<()> {
            let text = match self.json {
                true => serde_json::to_string(account)? + "\n",
                false => account::lines(account, self.wait),
            };
            Ok(std::io::stdout().write_all(text.as_bytes())?)
        });
        match (signal, failure, printed) {
            (Some(number), _, printed) => {
                let follows = if printed.is_some() { "the account is partial" } else { "there is no account" };
                messages::print(&format!("stopped by signal {number}; {follows}"));
                Ok(ExitCode::from(Stopped(number).code()))
            }
            (None, Some(why), _) => bail!("{why}"),
            (None, None, Some(printed)) => printed.map(|()| ExitCode::SUCCESS),
            (None, None, None) if process.is_complete() => bail!("the prefetch process panicked"),
            (None, None, None) => {
                let after = began.elapsed().as_secs_f64();
                bail!("{}: its file system has not answered for {after:.1} s", self.profile.display())
            }
        }
    }
}
