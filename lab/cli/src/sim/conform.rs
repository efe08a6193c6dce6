//! `ahead sim conform`: compares a policy with the kernel that it describes.

use ahead_report::table::Screen;
use ahead_sim::conform::conform;
use ahead_sim::conform::report::{json, reason_for_no_decision, text};
use ahead_sys::directory::HeldFile;
use anyhow::Context;
use clap::Args;
use std::io::{BufReader, Write};
use std::path::PathBuf;
use std::process::ExitCode;

/// Compare a policy's decisions with a kernel's
///
/// Replays a trace of `ahead sim trace` through the policy of the recorded kernel, with two methods: step by step, with the state before each
/// decision from the trace; and free running, with a state that follows from the program's accesses only. The exit status is 1 if a decision
/// differs, unless decisions of two threads overlap. Needs no privileges.
#[derive(Debug, Args)]
pub struct Conform {
    /// The trace
    trace: PathBuf,
    /// Compare with this policy instead of that of the recorded kernel: linux-6.12, linux-6.18, linux-7.2
    #[arg(long)]
    policy: Option<String>,
    /// Number of differing decisions to print
    #[arg(long, value_name = "N", default_value_t = 1)]
    differences: usize,
    /// Print JSON instead of a table (see docs/reference/json.md)
    #[arg(long)]
    json: bool,
}

impl Conform {
    pub fn run(self) -> anyhow::Result<ExitCode> {
        let path = self.trace.display().to_string();
        // A FIFO is not opened: the call would wait for a writer.
        if !std::fs::metadata(&self.trace).with_context(|| path.clone())?.is_file() {
            anyhow::bail!("{path}: not a regular file");
        }
        let file = HeldFile::open(&self.trace)?.into_file();
        let report = conform(BufReader::new(file), self.policy.as_deref()).context(path)?;
        let text = match self.json {
            true => format!("{}\n", serde_json::to_string_pretty(&json(&report, self.differences)?)?),
            false => text(&report, self.differences, Screen::stdout()),
        };
        std::io::stdout().write_all(text.as_bytes())?;
        if report.step.decisions == 0 {
            eprintln!("ahead: {}", reason_for_no_decision(&report));
        }
        Ok(ExitCode::from(u8::from(!report.agrees())))
    }
}
