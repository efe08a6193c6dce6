//! What was measured, as text and as JSON.

use ahead_cli::tune::Measured as Report;
use ahead_report::number::size;
use ahead_report::table::{Kind, Screen, Table};
use ahead_report::text::{one_line, printable};
use ahead_tune_measure::{Disk, Harm, Measured, Measurement};
use anyhow::bail;
use serde_json::{Value, json};

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

/// The results for a target whose window is `current_kb` now.
pub fn measured(measurement: &Measurement, current_kb: u64, screen: Screen) -> anyhow::Result<Report> {
    let recommended_kb = measurement.verdict.recommended_kb;
    let mut text = format!("\n{}\n", table(measurement).render(screen));
    text += &format!("recommended: {recommended_kb} KiB: {}\n", one_line(&measurement.verdict.reason));
    if let Some(doubt) = &measurement.verdict.doubt {
        text += &format!("{}\n", screen.warning(&one_line(&format!("doubtful: {doubt}"))));
    }
    for harm in &measurement.verdict.harms {
        text += &format!("{}\n", screen.warning(&harm_line(current_kb, harm)));
    }
    let Value::Object(json) = serde_json::to_value(measurement)? else { bail!("a measurement is an object") };
    Ok(Report { recommended_kb, text, json })
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
        format!("{}, {unit}", printable(job.name.as_bytes()))
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
