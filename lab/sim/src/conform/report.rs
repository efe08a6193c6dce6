//! The report on a comparison, as text and as JSON.

use crate::conform::{KINDS, Kind, Report, Tally};
use ahead_report::number::grouped;
use ahead_report::table::{Kind as Column, Screen, Table};
use ahead_report::text::one_line;
use serde_json::{Value, json as value};

/// The report as JSON, with the first `differences` mismatches of each method; docs/reference/json.md describes the keys.
///
/// Errors: the serialization failed.
pub fn json(report: &Report, differences: usize) -> serde_json::Result<Value> {
    let mut json = serde_json::to_value(report)?;
    for (method, tally) in [("step", &report.step), ("free_running", &report.free_running)] {
        json[method]["differences"] = value!(tally.mismatches.iter().take(differences).collect::<Vec<_>>());
    }
    Ok(json)
}

/// The counts as a table, and the first `differences` mismatches of each method.
pub fn text(report: &Report, differences: usize, screen: Screen) -> String {
    let mut table =
        Table::new([("", Column::Text), ("step by step", Column::Number), ("running free", Column::Number)]);
    let methods = [&report.step, &report.free_running];
    let mut row = |name: &str, value: &dyn Fn(&Tally) -> String| {
        table.row(vec![name.to_string(), value(methods[0]), value(methods[1])]);
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
    let mut text = format!("{}\n\n{}", heading(report), table.render(screen));
    text.push('\n');
    for (method, tally) in [("step by step", methods[0]), ("running free", methods[1])] {
        for mismatch in tally.mismatches.iter().take(differences) {
            text.push_str(&format!(
                "\n{method}, record {}: {} of page {} ({} wanted) of file {} by thread {}{}\n  {}\n  before: {}\n",
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

/// Policy and kernel. The name of the kernel comes from the trace, which is untrusted.
fn heading(report: &Report) -> String {
    one_line(&format!("{} compared with Linux {}", report.policy, report.kernel))
}

/// Why no decision was compared.
pub fn reason_for_no_decision(report: &Report) -> String {
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
