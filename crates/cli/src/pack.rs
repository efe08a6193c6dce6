//! `ahead pack`: moves the recorded blocks of files together.

use crate::exit::Stopped;
use ahead::Signals;
use ahead_pack::{Options, Report};
use ahead_report::progress::Progress;
use anyhow::bail;
use clap::Args;
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

/// Move the recorded blocks of files together on a rotating disk (ext4)
///
/// The blocks of the profile's files are made contiguous in order of first use, so that a replay reads them in one sweep. Contents, names and
/// times stay as they are, and metadata is not moved. The old blocks are kept until --commit, so that --undo is exact. Needs root.
#[derive(Debug, Args)]
pub struct Pack {
    /// Profile whose files are moved
    #[arg(value_name = "PROFILE")]
    profile: PathBuf,
    /// Show what would be moved and what that would bring, and change nothing
    #[arg(long, conflicts_with_all = ["undo", "commit"])]
    dry_run: bool,
    /// Move everything back to where it was
    #[arg(long, conflicts_with = "commit")]
    undo: bool,
    /// Free the old blocks; after that there is no --undo
    #[arg(long)]
    commit: bool,
    /// Use this description of the disks, instead of what is known of them: a device description or a disk model
    #[arg(long, value_name = "FILE", conflicts_with_all = ["undo", "commit"])]
    device: Option<PathBuf>,
    /// Print the report as JSON
    #[arg(long)]
    json: bool,
}

impl Pack {
    /// Runs it.
    pub fn run(self) -> anyhow::Result<ExitCode> {
        let signals = Signals::take()?;
        let bar = Progress::new(0);
        let progress = |done: u64, total: u64, file: &str| bar.at(done, total, file);
        let report = match (self.undo, self.commit) {
            (true, _) => ahead_pack::undo(&self.profile, &signals, &progress),
            (_, true) => ahead_pack::commit(&self.profile),
            _ => {
                let options = Options { profile: self.profile, dry_run: self.dry_run, device: self.device };
                ahead_pack::pack(&options, &signals, &progress)
            }
        };
        drop(bar);
        let report = report?;
        print(&report, self.json)?;
        match (report.stopped_by, report.failure()) {
            (Some(signal), _) => Ok(ExitCode::from(Stopped(signal).code())),
            (None, Some(why)) => bail!("{why}"),
            (None, None) => Ok(ExitCode::SUCCESS),
        }
    }
}

fn print(report: &Report, as_json: bool) -> anyhow::Result<()> {
    let text = if as_json { serde_json::to_string(report)? + "\n" } else { report.text() };
    Ok(std::io::stdout().write_all(text.as_bytes())?)
}
