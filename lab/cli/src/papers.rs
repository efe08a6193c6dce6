//! `ahead papers`: the claims of papers about read-ahead, compared with the results here.

use ahead_cli::output;
use ahead_papers::report::{self, PaperResult};
use ahead_papers::{Live, Measured, OnDisk, PAPERS, Paper, RealBoots, named};
use ahead_report::progress::Progress;
use ahead_report::table::Screen;
use ahead_sys::user::User;
use anyhow::{Context, ensure};
use clap::Args;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Compare what papers say about read-ahead with the results here
///
/// Each paper's machine, programs and kernel are scenarios of the simulator. Every number and figure in its text is printed with ours, with
/// the tolerance and its reason; inputs are listed separately. Needs no privileges, except with --live.
#[derive(Debug, Args)]
pub struct Papers {
    /// The paper [default: all]
    #[arg(value_parser = named)]
    name: Option<&'static Paper>,
    /// Write a page for each paper and an index to this directory, with the papers' figures from our data
    #[arg(long, value_name = "DIR")]
    html: Option<PathBuf>,
    /// Print JSON instead of text (see docs/reference/json.md)
    #[arg(long)]
    json: bool,
    /// Also run workloads against the real page cache where this is possible, on emulated disks; takes some minutes, needs root
    #[arg(long)]
    live: bool,
    /// Show boots of real systems beside Opdenacker's table 1: a file that `make bench-boot` writes (bench/results/boot.json)
    #[arg(long, value_name = "FILE")]
    boots: Option<PathBuf>,
}

impl Papers {
    pub fn run(self) -> anyhow::Result<ExitCode> {
        let user = User::behind_sudo()?;
        if let Some(directory) = &self.html {
            output::with_rights_of(user.as_ref(), || check_directory(directory))?;
        }
        let boots = self.boots.as_deref().map(RealBoots::load).transpose()?;
        let papers = self.name.map_or(PAPERS, std::slice::from_ref);
        let live =
            self.live.then(|| OnDisk::new(crate::disk::launcher())).transpose().map_err(anyhow::Error::from_boxed)?;
        let measured = Measured { live: live.as_ref().map(|live| live as &dyn Live), boots: boots.as_ref() };
        let results = run_all(papers, &measured)?;
        drop(live);
        if let Some(directory) = &self.html {
            let files = report::pages(&results);
            output::with_rights_of(user.as_ref(), || write(directory, &files))?;
        }
        let text = if self.json { report::json(&results)? } else { report::text(&results, Screen::stdout()) };
        std::io::stdout().write_all(text.as_bytes())?;
        Ok(ExitCode::SUCCESS)
    }
}

/// Checks before the work whether pages can be written. Nothing is made yet, so an interrupt leaves nothing.
fn check_directory(directory: &Path) -> anyhow::Result<()> {
    output::check_link(directory)?;
    if directory.exists() {
        ensure!(directory.is_dir(), "{} is not a directory", directory.display());
        return Ok(output::check(&directory.join(report::INDEX))?);
    }
    // A directory can be made where a file can.
    output::check(directory).with_context(|| format!("make {}", directory.display()))
}

/// Writes all pages, each one atomically.
fn write(directory: &Path, files: &[(String, String)]) -> anyhow::Result<()> {
    output::check_link(directory)?;
    if !directory.exists() {
        std::fs::create_dir(directory).with_context(|| format!("make {}", directory.display()))?;
    }
    Ok(files.iter().try_for_each(|(name, page)| output::replace(&directory.join(name), page.as_bytes()))?)
}

fn run_all(papers: &'static [Paper], measured: &Measured) -> anyhow::Result<Vec<PaperResult>> {
    let progress = Progress::new(papers.len() as u64);
    let run = |paper: &'static Paper| {
        progress.say(paper.title);
        let outcome = paper.run(measured).with_context(|| format!("run {}", paper.name))?;
        progress.step();
        Ok(PaperResult { paper, outcome })
    };
    papers.iter().map(run).collect()
}
