//! `ahead run`: flags, and the account of a launched program.

use crate::missing::MissingProfile;
use crate::window::WindowArguments;
use crate::{account, exit, messages, output};
use ahead::prefetch::{Options, ProfileFile, Program, Request, WindowSize};
use ahead::store::note::{self, Verdict};
use ahead::{Account, Command, Error, Launch, Signals, store};
use ahead_profile::LoadError;
use ahead_report::number::{size, time};
use ahead_sys::errors_stream;
use clap::Args;
use std::ffi::OsString;
use std::fs::File;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Instant;

/// Start a program with the files it will read already on their way into memory
///
/// Reads the profile that `ahead record` made and prefetches its pages: metadata first, then data, in the order that
/// suits the disk, while the program starts. A failed prefetch never fails the program: without a usable profile it
/// simply runs. Its exit status is passed on.
#[derive(Debug, Args)]
#[command(override_usage = "ahead run [OPTIONS] [--] <CMD>...")]
#[command(after_help = "Examples:
  ahead run -v -- git status
  ahead run -p server.ahead -- ./server")]
pub struct Run {
    /// Profile to prefetch [default: the one that `ahead record` keeps for this command and directory]
    #[arg(short, long, value_name = "FILE")]
    profile: Option<PathBuf>,
    /// Prefetch at most this much [default: half of the available memory]
    #[arg(long, value_name = "SIZE", value_parser = ahead_model::quantity::parse_size_with_unit)]
    budget: Option<u64>,
    #[command(flatten)]
    window: WindowArguments,
    /// Use this description of the disks, instead of what `ahead probe --save` has kept of them: a device description or a disk model
    #[arg(long, value_name = "FILE")]
    device: Option<PathBuf>,
    /// Write the account of the prefetch to this file, as JSON
    #[arg(long, value_name = "FILE")]
    account: Option<PathBuf>,
    /// With every range that was prefetched in the account
    #[arg(long, requires = "account")]
    account_ranges: bool,
    /// Print the account as one line on standard error, after the program's end
    #[arg(short, long)]
    verbose: bool,
    /// Write the messages of ahead to this file, so that standard error has only those of the program
    #[arg(long, hide = true, value_name = "FILE")]
    messages: Option<PathBuf>,
    /// The program and its arguments
    #[arg(required = true, trailing_var_arg = true, value_name = "CMD")]
    command: Vec<OsString>,
}

impl Run {
    /// Runs it.
    pub fn run(self) -> anyhow::Result<ExitCode> {
        exit::status_beside_program(self.run_program())
    }

    fn run_program(self) -> anyhow::Result<ExitCode> {
        let began = Instant::now();
        self.leave_profile_alone()?;
        let signals = Signals::take()?;
        let errors = self.messages.as_deref().and_then(send_messages_to);
        let command = Command::new(&self.command).errors(errors);
        // A mistyped program needs no prefetching and no advice on profiles. With --account the launch finds out: it writes the account
        // also for a program that cannot be started, and `ahead compare` reads it.
        if self.account.is_none() {
            command.check_found()?;
        }
        // A descriptor (`/dev/stdout`) is ours alone: the process that prefetches does not have it.
        let (opened, file) = match &self.account {
            Some(path) if output::is_open(path) => (Some(path), None),
            path => (None, path.clone()),
        };
        let profile = match &self.profile {
            Some(path) => ProfileFile::Named(path.clone()),
            None => ProfileFile::OfCommand(self.command.clone()),
        };
        let options = Options::default()
            .budget_bytes(self.budget)
            .keep_ranges(self.account_ranges)
            .since(Some(began))
            .low_memory(self.window.low_memory)
            .window(self.window.window.unwrap_or(WindowSize::Auto))
            .program(Some(Program::default()));
        let request = Request::new(profile, options)
            .device(self.device.clone())
            .account_file(file)
            .send_account(self.verbose || opened.is_some());
        let explain = |error: &Error| self.explain(error);
        let launched = Launch::new(command, request).run(&signals, began, &messages::print, &explain);
        if let Some(account) = &launched.account {
            self.use_account(account, opened);
        }
        Ok(ExitCode::from(launched.ended?.code() as u8))
    }

    /// Becomes the program where a note says that its profile gains nothing; returns otherwise. A profile that is named has no note, and with
    /// an account the prefetch is what is asked for.
    fn leave_profile_alone(&self) -> ahead::Result<()> {
        if self.profile.is_some() || self.account.is_some() || self.messages.is_some() {
            return Ok(());
        }
        let Some(verdict) = note::for_command(&self.command) else { return Ok(()) };
        if self.verbose || verdict.asks_for_a_recording() {
            messages::print(&self.why_left_alone(verdict));
        }
        Err(Command::new(&self.command).replace_process().into())
    }

    fn why_left_alone(&self, verdict: Verdict) -> String {
        let why = match verdict {
            Verdict::NoWaits { waits_us, cost_us } => {
                let (waits, cost) = (time(waits_us), time(cost_us));
                return format!(
                    "runs without prefetching: the program waits for its disks for {waits}, a prefetch costs {cost}"
                );
            }
            Verdict::Slower { ahead_us, cold_us } => {
                let (ahead, cold) = (time(ahead_us), time(cold_us));
                return format!(
                    "runs without prefetching: ahead compare measured {ahead} with the profile, {cold} cold"
                );
            }
            Verdict::Wasted { wasted_bytes, issued_bytes } => {
                format!(
                    "{} of {} that it brought were not used, and nothing was gained",
                    size(wasted_bytes),
                    size(issued_bytes)
                )
            }
            Verdict::Stale { stale_bytes, used_bytes } => {
                format!("{} of its {} are of files that have changed since", size(stale_bytes), size(used_bytes))
            }
        };
        let again = MissingProfile { command: &self.command, file: None, until: None }.recording();
        format!("runs without prefetching: the profile is of no use: {why}; record again: {again}")
    }

    /// Writes the account to a descriptor, and prints its line.
    fn use_account(&self, account: &Account, opened: Option<&PathBuf>) {
        if let Some(path) = opened {
            let json = serde_json::to_vec_pretty(account).map_err(anyhow::Error::from);
            if let Err(error) = json.and_then(|json| Ok(output::replace(path, &json)?)) {
                messages::print(&format!("the account is not kept: {error:#}"));
            }
        }
        if self.verbose {
            messages::print(&account::line(account));
        }
    }

    /// Why the program runs without prefetching, and what to do.
    fn explain(&self, error: &Error) -> String {
        let Error::Load(load) = error else { return format!("runs without prefetching: {error}") };
        let is_missing = matches!(load, LoadError::Io { source, .. } if source.kind() == ErrorKind::NotFound);
        if !is_missing {
            return format!("runs without a profile: {load}");
        }
        let file = self.profile.as_deref();
        // The similar profiles are counted but not read: the program waits for this message.
        let hint = match if file.is_none() { store::count_similar(&self.command) } else { 0 } {
            0 => String::new(),
            1 => "; there is 1 profile for other arguments or another directory (ahead list)".into(),
            more => format!("; there are {more} profiles for other arguments or directories (ahead list)"),
        };
        let missing = MissingProfile { command: &self.command, file, until: None };
        format!("runs without a profile: {}{hint}", missing.message())
    }
}

/// Sends our messages to a file, and returns what standard error was. Where they cannot go elsewhere, they stay there.
fn send_messages_to(path: &Path) -> Option<Arc<File>> {
    let file = File::options().create(true).append(true).open(path);
    let sent = file.map_err(anyhow::Error::from).and_then(|file| Ok(errors_stream::send_to(&file)?));
    sent.map(Arc::new).inspect_err(|error| messages::print(&format!("messages stay here: {error:#}"))).ok()
}
