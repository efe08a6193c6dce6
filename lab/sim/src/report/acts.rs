//! The acts of `ahead steer` on the programs of a scenario.

use crate::Scenario;
use ahead_policy::policies::steer::Steer;
use ahead_policy::steering::Act;
use ahead_policy::{PAGE_BYTES, Parameters};
use ahead_report::number::size;
use ahead_report::table::{Kind, Table};
use serde_json::{Value, json};
use std::sync::mpsc;

/// An act and its time.
#[derive(Clone, Debug)]
pub struct TimedAct {
    /// Time since the start of the run, nanoseconds.
    pub at_ns: u64,
    /// The act.
    pub act: Act,
}

/// Runs the scenario's programs with the policy `steer`, and returns its acts on windows and pages in the order of time.
pub fn steering_acts(scenario: &Scenario) -> Vec<TimedAct> {
    let (sender, acts) = mpsc::channel();
    let observer = move |at_ns, act: &Act| {
        if !matches!(act, Act::Quiet { .. }) {
            // The receiver exists until the end of the run.
            let _ = sender.send(TimedAct { at_ns, act: act.clone() });
        }
    };
    let device = scenario.disk.model.device_description();
    let steer = Steer::new(&Parameters { device, ..Parameters::default() }).observed(Box::new(observer));
    scenario.run_with(Box::new(steer));
    acts.try_iter().collect()
}

/// The act in one word, its open file, its pages (0: none), and its reason.
fn parts(act: &Act) -> (&'static str, u64, u64, String) {
    let name = match act {
        Act::SetWindow { .. } => "set window",
        Act::Fetch { .. } => "fetch",
        Act::Restore { .. } => "restore",
        Act::Quiet { .. } => "quiet",
    };
    (name, act.open(), act.pages().unwrap_or(0), act.reason().map(ToString::to_string).unwrap_or_default())
}

/// The acts as JSON; docs/reference/json.md describes the keys.
pub fn acts_json(acts: &[TimedAct]) -> Value {
    let row = |timed: &TimedAct| {
        let (act, open, pages, reason) = parts(&timed.act);
        let bytes = pages.saturating_mul(PAGE_BYTES);
        json!({ "time_ms": timed.at_ns as f64 / 1e6, "open": open, "act": act, "bytes": bytes, "reason": reason })
    };
    acts.iter().map(row).collect()
}

/// The acts as a table.
pub fn acts_table(acts: &[TimedAct]) -> Table {
    let mut table = Table::new([
        ("time", Kind::Number),
        ("open", Kind::Number),
        ("act", Kind::Text),
        ("size", Kind::Number),
        ("reason", Kind::Text),
    ]);
    for timed in acts {
        let (act, open, pages, reason) = parts(&timed.act);
        let pages = if pages == 0 { String::new() } else { size(pages.saturating_mul(PAGE_BYTES)) };
        let time = format!("{:.3} ms", timed.at_ns as f64 / 1e6);
        table.row([time, open.to_string(), act.to_owned(), pages, reason]);
    }
    table
}
