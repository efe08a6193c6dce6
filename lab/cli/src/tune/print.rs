//! The results of a measurement, as text and as JSON.

use ahead_cli::tune::Measured as Report;
use ahead_measure::tune::{Disk, Harm, Measured, Measurement};
use ahead_report::number::size;
use ahead_report::table::{Kind, Screen, Table};
use ahead_report::text::{one_line, printable};
use anyhow::bail;
use serde_json::{Value, json};

/// Wu's table, with the columns of his paper.
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
    format!(
        "the largest request whose transfer takes no longer than the access ({ms:.2} ms for a request, {mb:.1} MB/s)"
    )
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

/// The results for a target whose current window is `current_kb`. `details`: every column, and not only the rates and the score.
pub fn measured(measurement: &Measurement, current_kb: u64, details: bool, screen: Screen) -> anyhow::Result<Report> {
    let recommended_kb = measurement.verdict.recommended_kb;
    let mut text = format!("\n{}\n", table(measurement, details).render(screen));
    text += &format!("* recommended: {recommended_kb} KiB: {}\n", one_line(&measurement.verdict.reason));
    if let Some(doubt) = &measurement.verdict.doubt {
        text += &format!("{}\n", screen.warning(&one_line(&format!("doubtful: {doubt}"))));
    }
    for harm in &measurement.verdict.harms {
        text += &format!("{}\n", screen.warning(&harm_line(current_kb, harm)));
    }
    let Value::Object(json) = serde_json::to_value(measurement)? else { bail!("a measurement is no JSON object") };
    Ok(Report { recommended_kb, text, json })
}

fn harm_line(current_kb: u64, harm: &Harm) -> String {
    let percent = 100.0 * harm.ratio;
    one_line(&format!(
        "harmful: with {current_kb} KiB the job {:?} has {percent:.0} % of its rate with the recommended window: {}",
        harm.job, harm.why
    ))
}

/// One row for each window: a mark at the recommended one, the window, the rate of each job, the score; then the details.
fn table(measurement: &Measurement, details: bool) -> Table {
    let jobs = measurement.candidates.first().map(|candidate| candidate.jobs.as_slice()).unwrap_or_default();
    let names = jobs.iter().map(|job| {
        let unit = match job.unit {
            "bytes_per_s" => "MB/s",
            "faults_per_s" | "rounds_per_s" => "/s",
            other => other,
        };
        format!("{}, {unit}", printable(job.name.as_bytes()))
    });
    let is_known = |detail: &Detail| measurement.candidates.iter().any(|candidate| (detail.1)(candidate).is_some());
    let details: Vec<Detail> = DETAILS.into_iter().filter(|detail| details && is_known(detail)).collect();
    let columns: Vec<String> =
        std::iter::once("window, KiB".to_owned()).chain(names).chain(["score".to_owned()]).collect();
    let columns = columns.iter().map(String::as_str).chain(details.iter().map(|(name, _)| *name));
    let columns = columns.map(|name| (name, Kind::Number));
    let mut table = Table::new([("", Kind::Text)].into_iter().chain(columns));
    for candidate in &measurement.candidates {
        let mark = if candidate.kb == measurement.verdict.recommended_kb { "*" } else { "" };
        table.row(std::iter::once(mark.to_owned()).chain(row(candidate, &details)));
    }
    table
}

/// A column that only some workloads fill: its name and its content.
type Detail = (&'static str, fn(&Measured) -> Option<String>);

const DETAILS: [Detail; 7] = [
    ("fault, ms", |one| one.fault_latency_s.map(ms)),
    ("worst call, ms", |one| one.longest_call_s.map(ms)),
    ("amplification", |one| one.amplification.map(|times| format!("{times:.1}"))),
    ("unused by fault", |one| one.unused_bytes_per_fault.map(|bytes| size(bytes as u64))),
    ("unused", |one| one.unused_bytes.map(|bytes| size(bytes as u64))),
    ("ahead of a stream", |one| one.ahead_bytes_per_stream.map(|bytes| size(bytes as u64))),
    ("spread", |one| one.spread.map(|spread| format!("{:.0} %", spread * 100.0))),
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
    row.push(format!("{:.2}", candidate.score));
    row.extend(details.iter().map(|(_, of)| of(candidate).unwrap_or_default()));
    row
}

#[cfg(test)]
mod tests {
    use super::*;
    use ahead_measure::tune::{Job, Verdict};

    fn measurement() -> Measurement {
        let jobs = [
            ("one stream", "bytes_per_s"),
            ("8 streams", "bytes_per_s"),
            ("faults", "faults_per_s"),
            ("mixed", "rounds_per_s"),
        ];
        let job = |(name, unit): (&str, _)| Job {
            name: name.into(),
            rate: if unit == "bytes_per_s" { 2.5e9 } else { 9999.5 },
            unit,
            ratio: 0.9,
        };
        let candidate = |kb| Measured {
            kb,
            runs: 3,
            score: 0.97,
            spread: Some(0.04),
            jobs: jobs.map(job).into(),
            fault_latency_s: Some(0.0125),
            longest_call_s: Some(0.05),
            amplification: Some(12.5),
            unused_bytes_per_fault: Some(65_536.0),
            unused_bytes: None,
            ahead_bytes_per_stream: Some(1_048_576.0),
        };
        let harm = Harm { job: "faults".into(), ratio: 0.4, why: "each fault reads up to 8192 KiB".into() };
        let reason = "best balance".to_owned();
        let verdict = Verdict { recommended_kb: 512, reason, harms: vec![harm], noise: None, doubt: None };
        let candidates = [128, 512, 16_384].map(candidate).into();
        Measurement { current_kb: 8192, candidates, verdict, measured_s: 1.0, elapsed_s: 2.0 }
    }

    /// Regression: the table had 170 columns, and did not mark the recommended window.
    #[test]
    fn table_fits_80_columns_and_marks_the_recommended_window() {
        let text = table(&measurement(), false).render(Screen::default());
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
        let marked: Vec<&str> = text.lines().filter(|line| line.starts_with('*')).collect();
        assert!(marked.len() == 1 && marked[0].split_whitespace().nth(1) == Some("512"), "{text}");
        assert!(text.lines().next().unwrap().ends_with("score") && !text.contains("spread"), "{text}");
    }

    #[test]
    fn details_add_every_known_column() {
        let text = table(&measurement(), true).render(Screen::default());
        for column in ["fault, ms", "worst call, ms", "amplification", "unused by fault", "ahead of a stream", "spread"]
        {
            assert!(text.contains(column), "{column}: {text}");
        }
        assert_eq!(table(&measurement(), true).columns().len(), table(&measurement(), false).columns().len() + 6);
    }

    #[test]
    fn json_is_complete_without_details() {
        let [brief, whole] =
            [false, true].map(|details| measured(&measurement(), 8192, details, Screen::default()).unwrap());
        assert_eq!(brief.json, whole.json);
        assert!(brief.text.contains("* recommended: 512 KiB: best balance"), "{}", brief.text);
        assert!(brief.text.contains("with 8192 KiB the job \"faults\" has 40 % of its rate"), "{}", brief.text);
    }
}
