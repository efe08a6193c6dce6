//! The report on a profile that was replayed on a simulated disk.

use crate::replay::{ReplaySettings, Replayed};
use crate::report::seconds;
use ahead_model::DeviceNumber;
use ahead_report::number::{count, grouped, size};
use ahead_report::text::printable;
use serde_json::{Value, json};

/// The result as JSON, for each device, too; docs/reference/device-description.md describes the keys.
pub fn replay_json(settings: &ReplaySettings, replayed: &Replayed, devices: &[(u64, Replayed)]) -> Value {
    let devices = devices.iter().map(|(number, own)| {
        json!({
            "device": DeviceNumber::from_key(*number).to_string(),
            "arrived_s": seconds(own.arrived_ns),
            "requests": own.requests,
            "issued_bytes": own.issued_bytes,
            "bridged_bytes": own.bridged_bytes,
        })
    });
    json!({
        "disk": settings.model.name(),
        "arrived_s": seconds(replayed.arrived_ns),
        "submitted_s": seconds(replayed.submitted_ns),
        "requests": replayed.requests,
        "issued_bytes": replayed.issued_bytes,
        "bridged_bytes": replayed.bridged_bytes,
        "over_budget_bytes": replayed.over_budget_bytes,
        "lookups": replayed.lookups,
        "device": {
            "requests": replayed.device.requests,
            "bytes": replayed.device.bytes,
            "busy_s": seconds(replayed.device.busy_ns),
            "seeks": replayed.device.seeks,
        },
        "devices": devices.collect::<Vec<_>>(),
    })
}

/// The result as lines of text.
pub fn replay_lines(settings: &ReplaySettings, replayed: &Replayed) -> String {
    let prefetched = replayed.issued_bytes - replayed.bridged_bytes;
    let mut lines = vec![
        format!("prefetched     {:>10}  in {}", size(prefetched), count(replayed.requests, "request", "requests")),
        format!("bridged        {:>10}", size(replayed.bridged_bytes)),
    ];
    if replayed.over_budget_bytes > 0 {
        lines.push(format!("over budget    {:>10}  skipped", size(replayed.over_budget_bytes)));
    }
    if replayed.lookups > 0 {
        lines.push(format!("lookups        {:>10}  (their reads are not simulated)", grouped(replayed.lookups)));
    }
    let disk = printable(settings.model.name().as_bytes());
    let (requests, busy) = (grouped(replayed.device.requests), seconds(replayed.device.busy_ns));
    lines.push(format!("{disk}: {requests} requests, busy for {busy:.3} s, {} seeks", grouped(replayed.device.seeks)));
    lines.push(format!("arrived after {:.3} s", seconds(replayed.arrived_ns)));
    lines.join("\n") + "\n"
}
