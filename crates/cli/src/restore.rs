//! `ahead restore`: undoes what a killed `ahead` left changed.

use crate::messages;
use ahead_process::undo::{Outcome, ProcessId, Restored};
use ahead_report::text::printable;
use anyhow::bail;
use clap::Args;
use serde_json::json;
use std::io::Write;
use std::process::ExitCode;

/// Undo what an ahead that was killed left behind
///
/// ahead notes settings, mounts and loop devices in /run/ahead before it changes them. This command undoes every noted
/// change whose process has ended, the latest first. It does not touch a setting that another process has changed since,
/// or what another process has put at the same path.
#[derive(Debug, Args)]
pub struct Restore {
    /// Print what was undone as JSON
    #[arg(long)]
    json: bool,
    /// Wait for the end of this process, and undo in silence what is noted for it
    #[arg(long, hide = true, num_args = 2, value_names = ["PID", "START"], conflicts_with = "json")]
    after: Vec<u64>,
}

impl Restore {
    /// Runs it.
    pub fn run(self) -> anyhow::Result<ExitCode> {
        if let &[pid, start_ticks] = self.after.as_slice() {
            return undo_after(ProcessId { pid: u32::try_from(pid)?, start_ticks });
        }
        let done = ahead::restore::everything()?;
        let count = |wanted: fn(&Restored) -> bool| done.iter().filter(|restored| wanted(restored)).count();
        let failed = count(|restored| restored.outcome.is_err());
        let left = count(|restored| matches!(restored.outcome, Ok(Outcome::LeftAlone(_))));
        let lines: Vec<String> = if self.json {
            let rows: Vec<_> = done.iter().map(as_json).collect();
            let undone = done.len() - failed - left;
            vec![json!({ "undone": undone, "left_alone": left, "failed": failed, "changes": rows }).to_string()]
        } else if done.is_empty() {
            vec!["nothing to undo".into()]
        } else {
            done.iter().map(|restored| printable(as_line(restored).as_bytes())).collect()
        };
        let printed = writeln!(std::io::stdout(), "{}", lines.join("\n"));
        if failed > 0 {
            bail!("{failed} of {} changes could not be undone", done.len());
        }
        printed?;
        Ok(ExitCode::SUCCESS)
    }
}

/// Undoes what a process that is killed leaves: the guardian's work.
fn undo_after(process: ProcessId) -> anyhow::Result<ExitCode> {
    let ready = std::io::stdout().write_all(b"\n").and_then(|()| std::io::stdout().flush());
    // The process was killed already: then there is no reader.
    tracing::debug!("ready: {ready:?}");
    ahead::restore::after(process)?;
    Ok(ExitCode::SUCCESS)
}

/// Undoes everything for a command that takes back more than that, and prints each change on standard error.
pub fn everything() -> anyhow::Result<()> {
    let done = ahead::restore::everything()?;
    for restored in &done {
        messages::print(&as_line(restored));
    }
    match done.iter().filter(|restored| restored.outcome.is_err()).count() {
        0 => Ok(()),
        failed => bail!("{failed} of {} changes could not be undone", done.len()),
    }
}

fn as_line(Restored { action, outcome }: &Restored) -> String {
    match outcome {
        Ok(Outcome::Undone) => format!("undone: {action}"),
        Ok(Outcome::LeftAlone(why)) => format!("left alone: {action}: {why}"),
        Err(error) => format!("NOT undone: {action}: {error}"),
    }
}

fn as_json(restored: &Restored) -> serde_json::Value {
    let mut row = json!(restored.action);
    row["error"] = json!(restored.outcome.as_ref().err().map(ToString::to_string));
    row["left_alone"] = match &restored.outcome {
        Ok(Outcome::LeftAlone(why)) => json!(why),
        _ => serde_json::Value::Null,
    };
    row
}
