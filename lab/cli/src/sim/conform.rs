//! `ahead sim conform`: compares a policy with the kernel that it describes.

use ahead_conform::{KINDS, Kind, Report, Tally, conform};
use ahead_report::number::grouped;
use ahead_report::table::{Kind as Column, Screen, Table};
use ahead_report::text::one_line;
use ahead_sys::directory::HeldFile;
use anyhow::Context;
use clap::Args;
use serde_json::json;
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
    /// Print JSON instead of a table (see docs/formats.md)
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
            true => {
                let mut value = serde_json::to_value(&report)?;
                for (way, tally) in [("step", &report.step), ("free_running", &report.free_running)] {
                    value[way]["differences"] =
                        json!(tally.mismatches.iter().take(self.differences).collect::<Vec<_>>());
                }
                format!("{}\n", serde_json::to_string_pretty(&value)?)
            }
            false => self.table(&report),
        };
        std::io::stdout().write_all(text.as_bytes())?;
        if report.step.decisions == 0 {
            eprintln!("ahead: {}", reason_for_no_decision(&report));
        }
        Ok(ExitCode::from(u8::from(!report.agrees())))
    }

    fn table(&self, report: &Report) -> String {
        let mut table =
            Table::new([("", Column::Text), ("step by step", Column::Number), ("running free", Column::Number)]);
        let ways = [&report.step, &report.free_running];
        let mut row = |name: &str, value: &dyn Fn(&Tally) -> String| {
            table.row(vec![name.to_string(), value(ways[0]), value(ways[1])]);
        };
        row("decisions", &|tally| grouped(tally.decisions));
        row("matched", &|tally| share(tally.matched, tally.decisions));
        for kind in KINDS {
            row(name_of(kind), &|tally| {
                let of = tally.of(kind);
                format!("{} of {}", grouped(of.matched), grouped(of.decisions))
            });
        }
        row("beyond single pages", &|tally| grouped(tally.beyond_single_pages));
        row("folio by folio", &|tally| share(tally.folios_matched, tally.decisions));
        row("overlapping", &|tally| grouped(tally.overlapping));
        row("not comparable", &|tally| grouped(tally.excluded));
        row("resynchronised", &|tally| grouped(tally.resynchronised));
        row("corrected", &|tally| grouped(tally.corrected));
        row("balances taken", &|tally| grouped(tally.balances_taken));
        let mut text = format!("{}\n\n{}", heading(report), table.render(Screen::stdout()));
        text.push('\n');
        for (way, tally) in [("step by step", ways[0]), ("running free", ways[1])] {
            for mismatch in tally.mismatches.iter().take(self.differences) {
                text.push_str(&format!(
                    "\n{way}, record {}: {} of page {} ({} wanted) of file {} by thread {}{}\n  {}\n  before: {}\n",
                    mismatch.record,
                    name_of(mismatch.kind).trim_start(),
                    mismatch.page,
                    mismatch.wanted,
                    mismatch.file,
                    mismatch.task,
                    if mismatch.is_overlapping { ", overlapping with another thread's decision" } else { "" },
                    one_line(&mismatch.difference),
                    one_line(&mismatch.state),
                ));
            }
        }
        text
    }
}

/// Policy and kernel. The name of the kernel comes from the trace, which is untrusted.
fn heading(report: &Report) -> String {
    one_line(&format!("{} compared with Linux {}", report.policy, report.kernel))
}

/// Why no decision was compared.
fn reason_for_no_decision(report: &Report) -> String {
    match report.step.excluded {
        0 => "the trace has no decision of the kernel and proves nothing: all pages were cached already".into(),
        left_out => format!(
            "no decision was compared: all {} are on files that were partly cached before; evict these first",
            grouped(left_out)
        ),
    }
}

fn name_of(kind: Kind) -> &'static str {
    match kind {
        Kind::Read => "  reads",
        Kind::Mark => "  marks",
        Kind::Fault => "  faults",
        Kind::Advice => "  advice",
    }
}

fn share(part: u64, whole: u64) -> String {
    match whole {
        0 => grouped(part),
        _ => format!("{} ({:.3} %)", grouped(part), part as f64 * 100.0 / whole as f64),
    }
}
