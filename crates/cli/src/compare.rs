//! `ahead compare`: flags, and the report of the library's comparison.

mod render;

use crate::missing::MissingProfile;
use crate::output::{self, Output};
use crate::until::UntilArguments;
use crate::{list, messages};
use ahead::compare::{Comparison, Input, ProgramComparison, Rival};
use ahead::store::note;
use ahead::{Command, Signals, store};
use ahead_profile::{LoadError, Profile};
use ahead_report::progress::Progress;
use ahead_report::table::Screen;
use ahead_report::text::printable;
use ahead_sys::user::User;
use anyhow::{Context, bail};
use clap::Args;
use render::Rendered;
pub use render::coldness;
use std::ffi::OsString;
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Measure a command cold, with ahead, and warm
///
/// The three variants are interleaved, round after round, so that a noisy machine disturbs them alike. Before a cold run,
/// `compare` evicts file data, block-device pages, dentries and inodes, and checks the eviction. Without root it evicts only
/// the pages of files that you may evict (reported as `cold: data`). One more run, recorded exactly, gives the share of the
/// prefetched bytes that the program used; if recording is not permitted, the profile gives it.
///
/// Every run gets the same standard input: each run reads a file from the same position; `compare` first reads a pipe to its end
/// (at most 1 GiB); from a terminal there is no input. Output and errors of the runs go to /dev/null. If the program fails in its first
/// run, `compare` stops with status 1, because the time of a failure says nothing; with --even-if-failed it goes on, and the result has the
/// exit status of the program.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  sudo ahead compare -- libreoffice --headless --convert-to pdf report.odt
  sudo ahead compare --runs 9 --until-port 8080 -- ./server
  sudo ahead compare --against 'vmtouch=vmtouch -q -t -b files.list' -- python3 -c 'import numpy'")]
pub struct Compare {
    /// Profile to use [default: the one that `ahead record` makes for this command]
    #[arg(short, long, value_name = "FILE")]
    profile: Option<PathBuf>,
    /// Use this description of the disks for the runs with the profile, as `ahead run --device` does
    #[arg(long, value_name = "FILE")]
    device: Option<PathBuf>,
    /// Rounds; the medians of all are reported
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1000))]
    runs: u32,
    /// Also measure another prefetcher: a shell command that runs before the program, its time included
    #[arg(long, value_name = "NAME=COMMAND", value_parser = parse_rival)]
    against: Vec<Rival>,
    /// Shell command to run before each run, its time not included (to remove what the last run left)
    #[arg(long, value_name = "COMMAND")]
    prepare: Option<String>,
    /// Go on though the program ends with a status other than 0 in its first run
    #[arg(long)]
    even_if_failed: bool,
    /// Do not make the extra recorded run: what was used is then taken from the profile
    #[arg(long)]
    no_reference: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// Also write a report with pictures
    #[arg(long, value_name = "OUT")]
    html: Option<PathBuf>,
    #[command(flatten)]
    until: UntilArguments,
    /// The command
    #[arg(required = true, trailing_var_arg = true, value_name = "CMD")]
    command: Vec<OsString>,
}

/// Whether another user could read it.
fn is_denied(error: &LoadError) -> bool {
    matches!(error, LoadError::Io { source, .. } if source.kind() == ErrorKind::PermissionDenied)
}

fn parse_rival(text: &str) -> Result<Rival, String> {
    match text.split_once('=') {
        Some((name, _)) if printable(name.as_bytes()) != name => Err("the name holds what cannot be shown".into()),
        Some((name, shell)) if !name.is_empty() && !shell.trim().is_empty() => Ok(Rival::new(name, shell)),
        _ => Err("write NAME=COMMAND, as in 'vmtouch=vmtouch -q -t FILES'".into()),
    }
}

impl Compare {
    /// Runs it.
    pub fn run(self) -> anyhow::Result<ExitCode> {
        let user = User::behind_sudo()?;
        let path = self.profile.clone().unwrap_or_else(|| store::profile_path_for(&self.command, user.as_ref()));
        let profile = self.load(&path, user.as_ref())?;
        let prepare = |out| output::with_rights_of(user.as_ref(), || Output::prepare(out));
        let html = self.html.as_deref().map(prepare).transpose()?;
        let ahead_program = std::env::current_exe().context("find the ahead binary")?;
        let comparison = ProgramComparison::new(self.command.clone(), path, profile, ahead_program)
            .device(self.device.clone())
            .user(user.clone())
            .until(self.until.until())
            .comparison(Comparison::new(self.runs))
            .rivals(self.against.clone())
            .prepare(self.prepare.clone())
            .observe_use(!self.no_reference)
            .even_if_failed(self.even_if_failed)
            .input(Input::take(&messages::print)?);
        let recording = self.missing().recording();
        let report = measure(&comparison)?;
        if self.profile.is_none() {
            let leave = || {
                note::write(&comparison.profile_path, report.note());
                anyhow::Ok(())
            };
            output::with_rights_of(user.as_ref(), leave)?;
        }
        let rendered = Rendered::new(&comparison, report, recording);
        let text = match self.json {
            true => serde_json::to_string_pretty(&rendered.json())? + "\n",
            false => rendered.text(Screen::stdout()),
        };
        let printed = std::io::stdout().write_all(text.as_bytes());
        if let Some(html) = &html {
            output::with_rights_of(user.as_ref(), || html.commit(rendered.page().as_bytes()))?;
        }
        printed?;
        Ok(ExitCode::SUCCESS)
    }

    /// The profile, for a message about what is to be recorded.
    fn missing(&self) -> MissingProfile<'_> {
        MissingProfile { command: &self.command, file: self.profile.as_deref(), until: Some(&self.until) }
    }

    /// Reads the profile with the rights of the user as whom the program runs: `ahead run` will have no others.
    fn load(&self, path: &Path, user: Option<&User>) -> anyhow::Result<Profile> {
        let loaded = match user {
            Some(user) => user.with_file_rights(|| ahead_files::load(path))?,
            None => ahead_files::load(path),
        };
        let error = match loaded {
            Ok(profile) => return Ok(profile),
            Err(error) => error,
        };
        if matches!(path.try_exists(), Ok(false)) {
            // A mistyped program has no profile either, and nothing could record it.
            Command::new(&self.command).user(user.cloned()).check_found()?;
            bail!("{}{}", self.missing().message(), list::hint(&self.command));
        }
        match user {
            Some(user) if is_denied(&error) => Err(error).with_context(|| {
                let (name, path) = (user.name.display(), path.display());
                format!("{name}, as whom the program runs, cannot use the profile (if another user owns it: chown {name} {path})")
            }),
            _ => Err(error.into()),
        }
    }
}

fn measure(comparison: &ProgramComparison) -> anyhow::Result<ahead::compare::Report> {
    let (bar, mut done) = (Progress::new(1), 0);
    // A disturbed run is measured again: the bar has as many steps more then.
    let mut progress = |step: &str, steps: u64| {
        bar.at(done, steps.max(done), step);
        done += 1;
    };
    comparison.measure(&Signals::take()?, &messages::print, &mut progress).map_err(|error| match error {
        ahead::Error::CommandFailed(_) => anyhow::anyhow!("{error}; --even-if-failed measures it"),
        error => error.into(),
    })
}
