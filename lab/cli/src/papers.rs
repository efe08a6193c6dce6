//! `ahead papers`: what the papers say about read-ahead, beside what comes out here.

mod live;
mod pages;

use ahead_cli::output;
use ahead_papers::{Line, Live, Outcome, PAPERS, Paper, Verdict, named};
use ahead_report::progress::Progress;
use ahead_report::table::Screen;
use ahead_sys::user::User;
use anyhow::{Context, ensure};
use clap::Args;
use std::fmt::Write as _;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Compare what papers say about read-ahead with what comes out here
///
/// Each paper's machine, programs and kernel are scenarios of the simulator. Every number and figure that its text states stands
/// beside ours, with how far apart they may be and why; what was put in is listed as such. Needs no privileges, but with --live.
#[derive(Debug, Args)]
pub struct Papers {
    /// One paper alone [default: all of them]
    #[arg(value_parser = parse_paper)]
    name: Option<&'static Paper>,
    /// Write a page for each paper and an index into this directory, with the papers' figures from our data
    #[arg(long, value_name = "DIR")]
    html: Option<PathBuf>,
    /// Print JSON instead of text (see docs/reference/json.md)
    #[arg(long)]
    json: bool,
    /// Run what makes sense there against the real page cache, too: on emulated disks, some minutes. Needs root
    #[arg(long)]
    live: bool,
}

fn parse_paper(name: &str) -> Result<&'static Paper, String> {
    named(name).map_err(|error| error.to_string())
}

/// A paper and what came of it.
struct Ran {
    paper: &'static Paper,
    outcome: Outcome,
}

impl Papers {
    pub fn run(self) -> anyhow::Result<ExitCode> {
        let user = User::behind_sudo()?;
        if let Some(directory) = &self.html {
            output::with_rights_of(user.as_ref(), || prepare(directory))?;
        }
        let papers = self.name.map_or(PAPERS, std::slice::from_ref);
        let live = self.live.then(live::OnDisk::new).transpose()?;
        let ran = run_all(papers, live.as_ref().map(|live| live as &dyn Live))?;
        drop(live);
        if let Some(directory) = &self.html {
            let files = pages::render(&ran);
            output::with_rights_of(user.as_ref(), || write(directory, &files))?;
        }
        let text = if self.json {
            let lines: Vec<&Line> = ran.iter().flat_map(|ran| &ran.outcome.lines).collect();
            format!("{}\n", serde_json::to_string_pretty(&lines)?)
        } else {
            text(&ran, Screen::stdout())
        };
        std::io::stdout().write_all(text.as_bytes())?;
        Ok(ExitCode::SUCCESS)
    }
}

/// Finds out before the work whether pages can be written there. Nothing is made yet: who interrupts us finds nothing.
fn prepare(directory: &Path) -> anyhow::Result<()> {
    output::check_link(directory)?;
    if directory.exists() {
        ensure!(directory.is_dir(), "{} is not a directory", directory.display());
        return Ok(output::check(&directory.join(pages::INDEX))?);
    }
    // As a file it could be made in the same place.
    output::check(directory).with_context(|| format!("make {}", directory.display()))
}

/// Writes all pages, each as a whole.
fn write(directory: &Path, files: &[(String, String)]) -> anyhow::Result<()> {
    output::check_link(directory)?;
    if !directory.exists() {
        std::fs::create_dir(directory).with_context(|| format!("make {}", directory.display()))?;
    }
    Ok(files.iter().try_for_each(|(name, page)| output::replace(&directory.join(name), page.as_bytes()))?)
}

fn run_all(papers: &'static [Paper], live: Option<&dyn Live>) -> anyhow::Result<Vec<Ran>> {
    let progress = Progress::new(papers.len() as u64);
    let run = |paper: &'static Paper| {
        progress.say(paper.title);
        let outcome = paper.run(live).with_context(|| format!("run {}", paper.name))?;
        progress.step();
        Ok(Ran { paper, outcome })
    };
    papers.iter().map(run).collect()
}

/// How many lines came to what: `40 hold, 2 differ, 3 answered, 1 not shown`.
fn counts(lines: &[Line]) -> String {
    let count = |verdict| lines.iter().filter(|line| line.verdict == verdict).count();
    let [holds, differs] = [Verdict::Holds, Verdict::Differs].map(count);
    let [answered, not_shown] = [Verdict::Answered, Verdict::NotShown].map(count);
    format!("{holds} hold, {differs} differ, {answered} answered, {not_shown} not shown")
}

fn text(ran: &[Ran], screen: Screen) -> String {
    let mut text = String::new();
    for Ran { paper, outcome } in ran {
        let title = format!("{}, \"{}\", {}", paper.authors, paper.title, paper.year);
        let _ = writeln!(text, "{}\n{}\n", screen.heading(&title), counts(&outcome.lines));
        for line in &outcome.lines {
            push_line(&mut text, line, screen);
        }
        let _ = writeln!(text, "\nput in");
        for input in &outcome.inputs {
            let source = screen.faint(&format!("({})", input.source));
            let _ = writeln!(text, "           {}: {} {source}", input.what, input.value);
        }
        text.push('\n');
    }
    text
}

fn push_line(text: &mut String, line: &Line, screen: Screen) {
    let verdict = format!("{:10}", line.verdict.to_string());
    let verdict = if line.verdict == Verdict::Differs { screen.warning(&verdict) } else { verdict };
    let live = line.live_text().map_or(String::new(), |live| format!("  live: {live}"));
    let ours = if line.ours.is_empty() { "–" } else { &line.ours };
    let _ = writeln!(text, "{verdict} {}", line.claim);
    let _ = writeln!(text, "           quoted: {}  ours: {ours}{live}", line.quoted);
    let _ = writeln!(text, "           {}", screen.faint(&line.tolerance));
}
