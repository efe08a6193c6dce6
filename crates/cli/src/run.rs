//! `ahead run`: starts a program with what it will read already on its way.

use crate::{exit, output, paths};
use ahead_fetch::{Options, Running};
use ahead_kernel::errors_stream;
use ahead_kernel::process::{Child, Command, Ended, Event, Signals};
use ahead_profile::Profile;
use clap::Args;
use std::ffi::OsString;
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

/// Start a program with the files it will read already on their way into memory
///
/// Reads the profile that `ahead record` made and fetches what it lists: metadata first, then data, in the order that
/// suits the disk, while the program starts. The program is never failed by a failed fetch: without a usable profile it
/// simply runs. Its exit status is passed on.
#[derive(Debug, Args)]
#[command(override_usage = "ahead run [OPTIONS] [--] <CMD>...")]
pub struct Run {
    /// Profile to fetch [default: the one that `ahead record` keeps for this command and directory]
    #[arg(short, long, value_name = "FILE")]
    profile: Option<PathBuf>,
    /// Fetch at most this much [default: half of the available memory]
    #[arg(long, value_name = "SIZE", value_parser = crate::units::parse_size)]
    budget: Option<u64>,
    /// Write what was fetched to this file, as JSON
    #[arg(long, value_name = "FILE")]
    account: Option<PathBuf>,
    /// Write our own messages to this file: standard error is then the program's alone
    #[arg(long, hide = true, value_name = "FILE")]
    messages: Option<PathBuf>,
    /// The program and its arguments
    #[arg(required = true, trailing_var_arg = true, value_name = "CMD")]
    command: Vec<OsString>,
}

impl Run {
    pub fn run(self) -> anyhow::Result<ExitCode> {
        exit::status_beside_program(self.run_program())
    }

    fn run_program(self) -> anyhow::Result<ExitCode> {
        let signals = Signals::take()?;
        let errors = self.messages.as_deref().and_then(send_messages_to);
        let command = Command { argv: self.command.clone(), errors, ..Command::default() };
        // Forked before there are threads and a profile in memory: a small process is quickly copied.
        let mut child = Child::spawn_held(&command)?;
        let running = self.load().and_then(|profile| self.start(profile));
        if let Some(running) = &running
            && let Some(ended) = wait_for_head_start(&mut child, &signals, running)?
        {
            return Ok(code_of(ended));
        }
        child.release(&command)?;
        let ended = child.wait(&signals)?;
        if let Some(running) = running {
            self.finish(running)?;
        }
        Ok(code_of(ended))
    }

    /// The profile; without one the program runs nevertheless, and a line says why.
    fn load(&self) -> Option<Profile> {
        let path = self.profile.clone().unwrap_or_else(|| paths::profile_path_for(&self.command, None));
        match ahead_profile::load(&path) {
            Ok(profile) => Some(profile),
            Err(error) => {
                let hint = if self.profile.is_none() && !path.exists() { "; ahead record makes one" } else { "" };
                warn(&format!("runs without a profile: {error}{hint}"));
                None
            }
        }
    }

    fn start(&self, profile: Profile) -> Option<Running> {
        let options = Options { budget_bytes: self.budget, keep_ranges: self.account.is_some(), ..Options::default() };
        match ahead_fetch::start(Arc::new(profile), options) {
            Ok(running) => Some(running),
            Err(error) => {
                warn(&format!("runs without a fetch: {error}"));
                None
            }
        }
    }

    fn finish(&self, running: Running) -> anyhow::Result<()> {
        running.cancel();
        let Some(path) = &self.account else { return Ok(()) };
        let account = serde_json::to_vec_pretty(&running.finish())?;
        // The program has done its work: its status is what counts.
        if let Err(error) = output::replace(path, &account) {
            warn(&format!("the account is not kept: {error:#}"));
        }
        Ok(())
    }
}

/// Gives what standard error was. Where messages cannot go elsewhere, they stay there.
fn send_messages_to(path: &Path) -> Option<Arc<File>> {
    let file = File::options().create(true).append(true).open(path);
    let sent = file.map_err(anyhow::Error::from).and_then(|file| Ok(errors_stream::send_to(&file)?));
    sent.map(Arc::new).inspect_err(|error| warn(&format!("messages stay here: {error:#}"))).ok()
}

/// Waits for the head start to be over. `Some`: a signal ended the program before it began.
fn wait_for_head_start(child: &mut Child, signals: &Signals, running: &Running) -> anyhow::Result<Option<Ended>> {
    while let Some(until) = running.hold_until() {
        match child.wait_event(signals, &[running.head_start()], Some(until))? {
            Event::Ended(ended) => return Ok(Some(ended)),
            Event::Readable(_) => break,
            // A signal is passed on to the program, which lives or dies by it.
            Event::Timeout | Event::Signal(_) => {}
        }
    }
    Ok(None)
}

fn code_of(ended: Ended) -> ExitCode {
    ExitCode::from(ended.code() as u8)
}

fn warn(message: &str) {
    // Nobody may be listening any more; the program runs all the same.
    let _ = writeln!(std::io::stderr(), "ahead: {message}");
}
