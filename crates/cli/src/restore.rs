//! `ahead restore`: undoes what a killed `ahead` left changed.

use ahead_kernel::undo::{self, Restored};
use anyhow::bail;
use clap::Args;
use serde_json::json;
use std::process::ExitCode;

/// Undo what an ahead that was killed left behind
///
/// Settings, mounts and loop devices are noted in /run/ahead before they are changed. This undoes every noted change
/// whose process is gone, the latest first. What somebody else has changed since is left alone.
#[derive(Debug, Args)]
pub struct Restore {
    /// Print what was undone as JSON
    #[arg(long)]
    json: bool,
}

impl Restore {
    pub fn run(self) -> anyhow::Result<ExitCode> {
        let done = undo::restore()?;
        let failed = done.iter().filter(|restored| restored.outcome.is_err()).count();
        if self.json {
            let rows: Vec<_> = done.iter().map(as_json).collect();
            println!("{}", json!({ "undone": done.len() - failed, "failed": failed, "changes": rows }));
        } else if done.is_empty() {
            println!("nothing to undo");
        } else {
            for Restored { action, outcome } in &done {
                match outcome {
                    Ok(()) => println!("undone: {action:?}"),
                    Err(error) => println!("NOT undone: {action:?}: {error}"),
                }
            }
        }
        if failed > 0 {
            bail!("{failed} of {} changes could not be undone", done.len());
        }
        Ok(ExitCode::SUCCESS)
    }
}

fn as_json(restored: &Restored) -> serde_json::Value {
    let mut row = json!(restored.action);
    row["error"] = match &restored.outcome {
        Ok(()) => serde_json::Value::Null,
        Err(error) => json!(error.to_string()),
    };
    row
}
