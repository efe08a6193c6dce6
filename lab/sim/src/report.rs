//! Reports on simulations, and sweeps over policies, windows and disks.
//!
//! ```text
//!     scenario ──▶ counters of each policy ──▶ table, JSON, CSV, page
//!     scenario × policies × windows × disks ──▶ runs on all processors ──▶ the same
//!     profile on a disk ──▶ times, requests ──▶ lines, JSON
//! ```
//!
//! This crate must never change a figure of the simulator beyond its unit, or hide that a run ended at its time limit. This
//! crate must never read a clock or a file.

mod acts;
mod page;
mod policies;
mod replay;
pub mod sweep;

pub use acts::{TimedAct, acts_json, acts_table, steering_acts};
pub use page::{run_page, sweep_page};
pub use policies::{policies_json, policies_text};
pub use replay::{replay_json, replay_lines};

use crate::{Counters, Scenario};
use ahead_policy::PAGE_BYTES;
use ahead_report::number::{grouped, size};
use ahead_report::table::{Kind, Table};
use ahead_report::text::printable;
use serde_json::{Value, json};

/// The warning about a run that ended at the time limit, which its figures do not show. `None`: the run ended before.
pub fn time_limit_warning(what: &str, scenario: &Scenario, counters: &Counters) -> Option<String> {
    let end_s = scenario.settings.end_ns / 1_000_000_000;
    (!counters.ended).then(|| format!("{what}: ended after {end_s} s (end_s), before its programs had ended"))
}

/// The time of a run.
fn elapsed(counters: &Counters) -> String {
    format!("{}{:.3} s", if counters.ended { "" } else { "cut at " }, seconds(counters.elapsed_ns))
}

fn seconds(time_ns: u64) -> f64 {
    time_ns as f64 / 1e9
}

/// The figures of a run as JSON; docs/reference/json.md describes the keys.
pub fn json(name: &str, counters: &Counters) -> Value {
    let bytes = |pages: u64| pages * PAGE_BYTES;
    json!({
        "policy": name,
        "ended": counters.ended,
        "elapsed_s": seconds(counters.elapsed_ns),
        "drained_s": seconds(counters.drained_ns),
        "user_s": seconds(counters.user_ns),
        "system_s": seconds(counters.system_ns),
        "moved": {
            "from_user_s": seconds(counters.moved.from_user_ns),
            "from_system_s": seconds(counters.moved.from_system_ns),
            "from_idle_s": seconds(counters.moved.from_idle_ns),
        },
        "idle_s": seconds(counters.idle_ns()),
        "throughput_bytes_per_s": counters.throughput_bytes_per_s(),
        "latency_most_s": seconds(counters.latency_most_ns),
        "wait_s": seconds(counters.wait_ns),
        "dirty_waits": counters.dirty_waits,
        "writeback_wait_s": seconds(counters.writeback_wait_ns),
        "metadata_wait_s": seconds(counters.metadata_wait_ns),
        "hits": counters.hits,
        "locked": counters.locked,
        "misses": counters.misses,
        "queue_waits": counters.queue_waits,
        "read_bytes": counters.read_bytes,
        "write_bytes": counters.write_bytes,
        "dirtied_bytes": bytes(counters.dirtied_pages),
        "written_bytes": bytes(counters.written_pages),
        "unwritten_bytes": bytes(counters.unwritten_pages),
        "issued_bytes": bytes(counters.issued_pages),
        "used_bytes": bytes(counters.used_pages),
        "wasted_bytes": bytes(counters.wasted_pages),
        "unread_bytes": bytes(counters.unread_pages),
        "metadata_bytes": bytes(counters.metadata_pages),
        "dropped_bytes": bytes(counters.dropped_pages),
        "thrashings": counters.thrashings,
        "decisions": counters.decisions,
        "device": {
            "requests": counters.device.requests,
            "bytes": counters.device.bytes,
            "write_requests": counters.device.write_requests,
            "write_bytes": counters.device.write_bytes,
            "busy_s": seconds(counters.device.busy_ns),
            "queued_s": seconds(counters.device.queued_ns),
            "seeks": counters.device.seeks,
        },
    })
}

/// Rows of figures with a header; names of inner objects get a prefix, such as `device_`.
pub fn csv(rows: &[Value]) -> String {
    let mut text = String::new();
    for row in rows {
        let cells = row.as_object().into_iter().flatten().flat_map(|(key, value)| match value.as_object() {
            Some(inner) => inner.iter().map(|(inner, value)| (format!("{key}_{inner}"), value.to_string())).collect(),
            None => vec![(key.clone(), value.to_string())],
        });
        let (keys, values): (Vec<String>, Vec<String>) = cells.unzip();
        if text.is_empty() {
            text = format!("{}\n", keys.join(","));
        }
        text += &format!("{}\n", values.join(","));
    }
    text
}

/// A scenario in one line.
pub fn describe(scenario: &Scenario) -> String {
    let title = if scenario.name.is_empty() { "simulated" } else { &scenario.name };
    let disk = &scenario.disk;
    let [title, model] = [title, disk.model.name()].map(|name| printable(name.as_bytes()));
    format!("{title} on {model}, read-ahead {} KiB", disk.window_pages * 4)
}

/// The figures of all policies as a table.
pub fn table(results: &[(String, Counters)]) -> Table {
    let columns = ["elapsed", "user", "system", "idle", "MB/s", "hits", "locked", "misses", "queue waits"];
    let columns = columns.into_iter().chain(["issued", "wasted", "thrashings", "requests"]);
    let columns = columns.map(|name| (name, Kind::Number));
    let mut table = Table::new(std::iter::once(("policy", Kind::Text)).chain(columns));
    for (name, counters) in results {
        let time = |time_ns: u64| format!("{:.3} s", seconds(time_ns));
        table.row([
            name.clone(),
            elapsed(counters),
            time(counters.user_ns),
            time(counters.system_ns),
            time(counters.idle_ns()),
            format!("{:.2}", counters.throughput_bytes_per_s() / 1e6),
            grouped(counters.hits),
            grouped(counters.locked),
            grouped(counters.misses),
            grouped(counters.queue_waits),
            size(counters.issued_pages * PAGE_BYTES),
            size((counters.wasted_pages + counters.unread_pages) * PAGE_BYTES),
            grouped(counters.thrashings),
            grouped(counters.device.requests),
        ]);
    }
    table
}
