//! What `ahead tune` says, as text and as JSON.

use super::Tuned;
use ahead_report::number::size;
use ahead_report::table::{Kind, Screen, Table};
use ahead_report::text::{one_line, printable};
use ahead_sys::machine;
use ahead_tune::{Checked, Restored, Target};
use ahead_tune_measure::{Disk, Harm, Measured, Measurement};
use serde_json::{Value, json};
use std::path::Path;

/// Wu's table, with his columns.
pub fn plan(disk: &Disk, screen: Screen) -> String {
    let names = ["io_size KB", "access_time ms", "transfer_time ms", "io_latency ms", "util%", "throughput KB/s"];
    let mut table = Table::new(names.map(|name| (name, Kind::Number)));
    let access_ms = disk.access_time.as_secs_f64() * 1e3;
    for row in disk.table() {
        table.row([
            row.kb.to_string(),
            format!("{access_ms:.2}"),
            format!("{:.2}", row.transfer_s * 1e3),
            format!("{:.2}", row.latency_s * 1e3),
            format!("{:.2}%", row.utilisation * 1e2),
            format!("{:.2}", row.throughput_bytes_per_s / 1024.0),
        ]);
    }
    format!("{}\nrecommended: {} KiB: {}\n", table.render(screen), disk.recommended().kb, plan_reason(disk))
}

fn plan_reason(disk: &Disk) -> String {
    let row = disk.recommended();
    let (ms, mb) = (row.latency_s * 1e3, row.throughput_bytes_per_s / 1e6);
    format!("the largest that takes no longer to bring than to come to ({ms:.2} ms for a request, {mb:.1} MB/s)")
}

pub fn plan_json(disk: &Disk) -> Value {
    json!({
        "access_time_s": disk.access_time.as_secs_f64(),
        "bandwidth_bytes_per_s": disk.bandwidth_bytes_per_s,
        "candidates": disk.table(),
        "recommended_kb": disk.recommended().kb,
        "reason": plan_reason(disk),
        "current_kb": Value::Null,
    })
}

/// What was measured of a target, what to make of it, and what was done.
pub fn tuned(tuned: &Tuned, screen: Screen) -> String {
    let target = &tuned.target;
    let heading = format!("{}, {}: {} KiB now", shown(&target.name), target.kind.describe(), tuned.current_kb);
    let mut text = screen.heading(&heading) + "\n";
    if let Some(measurement) = &tuned.measurement {
        text += &format!("\n{}\n", table(measurement).render(screen));
        text += &format!("recommended: {} KiB: {}\n", tuned.recommended_kb, one_line(&measurement.verdict.reason));
        if let Some(doubt) = &measurement.verdict.doubt {
            text += &format!("{}\n", screen.warning(&one_line(&format!("doubtful: {doubt}"))));
        }
        for harm in &measurement.verdict.harms {
            text += &format!("{}\n", screen.warning(&harm_line(tuned.current_kb, harm)));
        }
    }
    if let Some(kb) = tuned.applied_kb {
        text += &format!("set: {kb} KiB\n");
    }
    if let Some(rule) = &tuned.set.rule {
        text += &format!("kept by {}{}\n", path(rule), daemon_reload(rule));
    }
    for replaced in &tuned.set.replaced {
        text += &format!("in place of {}, which was about the same window and is gone\n", path(replaced));
    }
    text
}

/// systemd has to be told of a unit.
fn daemon_reload(rule: &Path) -> &'static str {
    let is_unit = rule.extension().is_some_and(|extension| extension == "service");
    if is_unit { "; systemd knows it after: systemctl daemon-reload" } else { "" }
}

fn harm_line(current_kb: u64, harm: &Harm) -> String {
    let percent = 100.0 * harm.ratio;
    one_line(&format!("harmful: with {current_kb} KiB {} runs at {percent:.0} % of its rate: {}", harm.job, harm.why))
}

fn table(measurement: &Measurement) -> Table {
    let jobs = measurement.candidates.first().map(|candidate| candidate.jobs.as_slice()).unwrap_or_default();
    let names = jobs.iter().map(|job| {
        let unit = match job.unit {
            "bytes_per_s" => "MB/s",
            "faults_per_s" | "rounds_per_s" => "/s",
            other => other,
        };
        format!("{}, {unit}", shown(&job.name))
    });
    let details: Vec<Detail> =
        DETAILS.into_iter().filter(|(_, of)| measurement.candidates.iter().any(|one| of(one).is_some())).collect();
    let rest = details.iter().map(|(name, _)| (*name).to_owned());
    let columns: Vec<String> = std::iter::once("KiB".to_owned()).chain(names).chain(rest).collect();
    let columns = columns.iter().map(String::as_str).chain(["score", "spread"]);
    let mut table = Table::new(columns.map(|name| (name, Kind::Number)));
    for candidate in &measurement.candidates {
        table.row(row(candidate, &details));
    }
    table
}

/// A column that only some workloads fill: its name, and what stands there.
type Detail = (&'static str, fn(&Measured) -> Option<String>);

const DETAILS: [Detail; 6] = [
    ("fault, ms", |one| one.fault_latency_s.map(ms)),
    ("worst call, ms", |one| one.longest_call_s.map(ms)),
    ("amplification", |one| one.amplification.map(|times| format!("{times:.1}"))),
    ("unused a fault", |one| one.unused_bytes_per_fault.map(|bytes| size(bytes as u64))),
    ("unused", |one| one.unused_bytes.map(|bytes| size(bytes as u64))),
    ("ahead of a stream", |one| one.ahead_bytes_per_stream.map(|bytes| size(bytes as u64))),
];

fn ms(time_s: f64) -> String {
    format!("{:.2}", time_s * 1e3)
}

fn row(candidate: &Measured, details: &[Detail]) -> Vec<String> {
    let mut row = vec![candidate.kb.to_string()];
    row.extend(candidate.jobs.iter().map(|job| match job.unit {
        "bytes_per_s" => format!("{:.1}", job.rate / 1e6),
        _ => format!("{:.1}", job.rate),
    }));
    row.extend(details.iter().map(|(_, of)| of(candidate).unwrap_or_default()));
    row.push(format!("{:.2}", candidate.score));
    row.push(candidate.spread.map_or(String::new(), |spread| format!("{:.0} %", spread * 100.0)));
    row
}

pub fn tuned_json(tuned: &Tuned) -> Value {
    let target = &tuned.target;
    let mut value = json!({
        "machine": machine::describe(),
        "kernel": machine::kernel_release(),
        "target": target_json(target),
        "notes": target.notes,
        "current_kb": tuned.current_kb,
        "recommended_kb": tuned.recommended_kb,
        "reason": "it was said with --kb",
        "candidates": [],
        "harms": [],
        "noise": Value::Null,
        "doubt": Value::Null,
        "applied_kb": tuned.applied_kb,
        "rule": tuned.set.rule,
        "replaced": tuned.set.replaced,
    });
    if let Some(measurement) = &tuned.measurement
        && let (Value::Object(whole), Ok(Value::Object(measured))) = (&mut value, serde_json::to_value(measurement))
    {
        whole.extend(measured);
    }
    value
}

fn target_json(target: &Target) -> Value {
    json!({
        "name": target.name,
        "kind": target.kind.describe(),
        "device": target.number.to_string(),
        "setting": target.setting,
        "identity": target.identity.as_ref().map(ToString::to_string).ok(),
    })
}

pub fn checked(target: &Target, checked: &Checked) -> String {
    let (name, rule, running_kb) = (shown(&target.name), path(&checked.rule), checked.running_kb);
    match checked.rule_kb {
        _ if checked.agrees() => format!("{name}: {running_kb} KiB, as {rule} says\n"),
        None => format!("{name}: {running_kb} KiB, and no rule keeps it; write one with: ahead tune … --persist\n"),
        Some(_) if !checked.intact => {
            format!("{name}: {rule} is not as it was written; write it anew with --persist\n")
        }
        Some(kb) => format!("{name}: {running_kb} KiB, but {rule} says {kb}; set it again with --kb {kb} --apply\n"),
    }
}

pub fn checked_json(target: &Target, checked: &Checked) -> Value {
    json!({
        "target": target_json(target),
        "rule": checked.rule,
        "rule_kb": checked.rule_kb,
        "intact": checked.intact,
        "current_kb": checked.running_kb,
        "agrees": checked.agrees(),
    })
}

pub fn restored(restored: &Restored) -> String {
    let window = match (&restored.restored_kb, &restored.left_alone) {
        (Some(kb), _) => format!("{kb} KiB again"),
        (None, Some(why)) => format!("left alone: {}", one_line(why)),
        (None, None) => "left alone".into(),
    };
    let gone: String = restored.removed.iter().map(|file| format!("; removed {}", path(file))).collect();
    let kept = restored.kept_kb.map(|kb| format!("; the {kb} KiB of before are kept for another --restore"));
    format!("{}: {window}{gone}{}\n", shown(&restored.name), kept.unwrap_or_default())
}

pub fn shown(text: &str) -> String {
    printable(text.as_bytes())
}

fn path(path: &Path) -> String {
    use std::os::unix::ffi::OsStrExt;
    printable(path.as_os_str().as_bytes())
}
