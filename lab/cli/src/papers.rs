//! `ahead papers`: the claims of papers about read-ahead, compared with the results here.

use ahead_cli::output;
use ahead_papers::report::{self, PaperResult};
use ahead_papers::{Live, LiveError, Measured, OnDisk, PAPERS, Paper, RealBoots, named};
use ahead_report::progress::Progress;
use ahead_report::table::Screen;
use ahead_sys::user::User;
use anyhow::Context;
use clap::Args;
use std::io::Write;
use std::path::PathBuf;
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
            output::with_rights_of(user.as_ref(), || output::check_pages(directory, report::INDEX))?;
        }
        let boots = self.boots.as_deref().map(RealBoots::load).transpose()?;
        let papers = self.name.map_or(PAPERS, std::slice::from_ref);
        let live = self.live.then(|| OnDisk::new(crate::disk::launcher())).transpose().map_err(as_itself)?;
        let measured = Measured { live: live.as_ref().map(|live| live as &dyn Live), boots: boots.as_ref() };
        let results = run_all(papers, &measured)?;
        drop(live);
        if let Some(directory) = &self.html {
            let files = report::pages(&results);
            output::with_rights_of(user.as_ref(), || output::replace_pages(directory, &files))?;
        }
        let text = if self.json { report::json(&results)? } else { report::text(&results, Screen::stdout()) };
        std::io::stdout().write_all(text.as_bytes())?;
        Ok(ExitCode::SUCCESS)
    }
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

/// The error with its own type, which decides on the status of the command.
fn as_itself(error: LiveError) -> anyhow::Error {
    match error.downcast::<ahead_sys::Error>() {
        Ok(error) => (*error).into(),
        Err(error) => anyhow::Error::from_boxed(error),
    }
}
