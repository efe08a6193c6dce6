//! `ahead sim conform`: a policy beside the kernel that it is named after.

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
/// Replays a trace of `ahead sim trace` through the policy of the kernel that it was recorded on, in two ways: step by step,
/// with the state before each decision from the trace; and running free, with a state that evolves from the program's accesses
/// alone. Exits with 1 if a decision differs that is not two threads' at the same time. Needs no privileges.
#[derive(Debug, Args)]
pub struct Conform {
    /// The trace
    trace: PathBuf,
    /// Compare with this policy instead of the kernel's own: linux-6.12, linux-6.18, linux-7.2
    #[arg(long)]
    policy: Option<String>,
    /// Print so many of the decisions that differ
    #[arg(long, value_name = "N", default_value_t = 1)]
    differences: usize,
    /// Print JSON instead of a table (see docs/reference/json.md)
    #[arg(long)]
    json: bool,
}

impl Conform {
    pub fn run(self) -> anyhow::Result<ExitCode> {
        let path = self.trace.display().to_string();
        // A FIFO is not even opened: it would wait for somebody to write.
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
            eprintln!("ahead: {}", nothing(&report));
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
                    if mismatch.is_overlapping { ", beside another thread's decision" } else { "" },
                    one_line(&mismatch.difference),
                    one_line(&mismatch.state),
                ));
            }
        }
        text
    }
}

/// Whom a policy is compared with. The trace, a stranger's perhaps, tells which kernel that was.
fn heading(report: &Report) -> String {
    one_line(&format!("{} against Linux {}", report.policy, report.kernel))
}

/// Why nothing was compared.
fn nothing(report: &Report) -> String {
    match report.step.excluded {
        0 => "the kernel decided nothing in this trace, so that it proves nothing: what was read was cached already"
            .into(),
        left_out => format!(
            "nothing was compared: all {} decisions are of files that were partly cached before; drop them from the cache first",
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
