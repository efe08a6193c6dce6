//! The page of `ahead bench --html`: one file, with the papers' figures from these results.
//!
//! ```text
//!     mmapit     figures 1 to 7 of O'Connor and Tracy: page accesses, times, throughput and waits over n; times over the run
//!     streams    Wu's tables: bandwidth and worst latency over the number of readers
//!     bonnie     Roudier's rows: throughput and CPU
//!     the others times and amplification
//! ```

use super::{Results, table};
use crate::bench::{Job, Row, Sample};
use ahead_report::html::Page;
use ahead_report::svg::{Axis, Curve, SERIES, lines, rows, stacked};
use std::collections::BTreeSet;

const MB: f64 = 1e6;
/// Limit of curves in one chart: the number of colours.
const MAX_CURVES: usize = SERIES.len();

/// A part of a row: its name and its value; `None` where it is not counted.
type PagePart = (&'static str, fn(&Row) -> Option<f64>);

const TIMES: [PagePart; 3] =
    [("user", |row| Some(row.user_s)), ("system", |row| Some(row.system_s)), ("idle", |row| Some(row.idle_s))];
const FOUND: [PagePart; 3] = [
    ("hits", |row| Some(row.hits? as f64 / 1e3)),
    ("locked", |row| Some(row.locked? as f64 / 1e3)),
    ("misses", |row| Some(row.misses? as f64 / 1e3)),
];
const WAITS: [PagePart; 3] = [
    ("locked", |row| Some(row.locked? as f64)),
    ("misses", |row| Some(row.misses? as f64)),
    ("queue waits", |row| Some(row.queue_waits? as f64)),
];
const THROUGHPUT: [PagePart; 1] = [("throughput", |row| Some(row.throughput_bytes_per_s.median / MB))];
const CPU: [PagePart; 1] = [("CPU", |row| Some(row.cpu_percent))];
const AMPLIFICATION: [PagePart; 1] = [("amplification", |row| row.amplification)];

/// The results as a page.
pub fn page(job: &Job, results: &Results) -> String {
    let all = &results.rows;
    let mut page = Page::new(&format!("ahead bench {}", job.name));
    page.text(&table::about(results));
    for note in table::disturbances(all) {
        page.text(&format!("Disturbed: {note}."));
    }
    page.section("Rows").table(&table::table(all));
    match job.name {
        "mmapit" => mmapit(&mut page, all),
        "streams" => streams(&mut page, all),
        "bonnie" => {
            bars(&mut page, "Throughput", "MB/s", &THROUGHPUT, all, "Roudier's K/sec, row by row.");
            bars(&mut page, "Processor", "%", &CPU, all, "Roudier's %CPU: processor time divided by elapsed time.");
        }
        _ => {
            bars(&mut page, "Times", "s", &TIMES, all, "Idle: time without use of a processor.");
            let caption = "Bytes that the device read for each byte that was used.";
            bars(&mut page, "Amplification", "×", &AMPLIFICATION, all, caption);
        }
    }
    page.render()
}

/// A policy's name with `n` in place of its number of pages, if that is its first argument.
fn with_n(policy: &str, pages: Option<u64>) -> Option<String> {
    let (name, arguments) = policy.split_once('(')?;
    let first = arguments.split([',', ')']).next()?;
    let is_number = pages.is_some_and(|pages| first.trim().parse() == Ok(pages));
    is_number.then(|| format!("{name}(n{}", &arguments[first.len()..]))
}

fn label(row: &Row) -> String {
    let pages = row.pages.filter(|_| with_n(&row.policy, row.pages).is_none());
    let pages = pages.map_or(String::new(), |pages| format!(", {pages} pages"));
    match row.job {
        "mmapit" => format!("{}{pages}", row.policy),
        _ => format!("{}: {}{pages}", row.variant, row.policy),
    }
}

/// Adds a section of bars for the rows whose parts are counted.
fn bars(page: &mut Page, heading: &str, unit: &str, parts: &[PagePart], all: &[Row], caption: &str) {
    let counted = |row: &Row| {
        let values: Vec<Option<f64>> = parts.iter().map(|(_, of)| of(row)).collect();
        let is_counted = values.iter().any(Option::is_some);
        is_counted.then(|| (label(row), values.into_iter().map(|value| value.unwrap_or(0.0)).collect::<Vec<f64>>()))
    };
    let values: Vec<(String, Vec<f64>)> = all.iter().filter_map(counted).collect();
    if values.iter().flat_map(|(_, values)| values).all(|value| *value == 0.0) {
        return;
    }
    let names: Vec<&str> = parts.iter().map(|(name, _)| *name).collect();
    let bars: Vec<(&str, &[f64])> = values.iter().map(|(label, values)| (label.as_str(), values.as_slice())).collect();
    let legend: Vec<(&str, &str)> = SERIES.into_iter().zip(names.iter().copied()).collect();
    page.section(heading).legend(&legend).picture(&rows(unit, &names, &bars), caption);
}

/// Adds charts with a curve for each name.
fn curves(page: &mut Page, axes: [Axis; 2], named: &[(String, Vec<(f64, f64)>)], caption: &str) {
    let [x, y] = axes;
    for named in named.chunks(MAX_CURVES) {
        let curves: Vec<Curve> = named.iter().map(|(name, points)| Curve { name, points }).collect();
        let legend: Vec<(&str, &str)> = SERIES.into_iter().zip(named.iter().map(|(name, _)| name.as_str())).collect();
        page.legend(&legend).picture(&lines(x, y, &curves), caption);
    }
}

/// The points of all rows, grouped by `name`, from left to right.
fn points(
    all: &[Row],
    name: impl Fn(&Row) -> String,
    at: impl Fn(&Row) -> Option<(f64, f64)>,
) -> Vec<(String, Vec<(f64, f64)>)> {
    let names: BTreeSet<String> = all.iter().map(&name).collect();
    let of = |wanted: String| {
        let mut points: Vec<(f64, f64)> = all.iter().filter(|row| name(row) == wanted).filter_map(&at).collect();
        points.sort_by(|one, other| one.0.total_cmp(&other.0));
        (wanted, points)
    };
    names.into_iter().map(of).filter(|(_, points)| !points.is_empty()).collect()
}

/// A policy without its number of pages.
fn family(row: &Row) -> String {
    with_n(&row.policy, row.pages).unwrap_or_else(|| row.policy.clone())
}

fn mmapit(page: &mut Page, all: &[Row]) {
    let caption = "Figure 1: accesses to pages that were present, in flight, or absent; in thousands.";
    bars(page, "Page accesses", "k", &FOUND, all, caption);
    let caption = "Figures 2, 4 and 5: user, system and idle time.";
    bars(page, "Times", "s", &TIMES, all, caption);
    let caption =
        "Figure 7: waits of the program for pages in flight, for absent pages, and for a free place in the queue.";
    bars(page, "Waits", "", &WAITS, all, caption);
    if all.iter().any(|row| row.pages.is_some()) {
        page.section("Throughput over the pages read ahead");
        let x = Axis { label: "pages", is_logarithmic: true };
        let y = Axis { label: "throughput, MB/s", is_logarithmic: false };
        let at = |row: &Row| Some((row.pages? as f64, row.throughput_bytes_per_s.median / MB));
        curves(page, [x, y], &points(all, family, at), "Bytes that the program copied per second.");
        page.section("Idle time over the pages read ahead");
        let y = Axis { label: "idle time, s", is_logarithmic: false };
        let at = |row: &Row| Some((row.pages? as f64, row.idle_s));
        curves(page, [x, y], &points(all, family, at), "Figure 6: idle time.");
    }
    for row in all.iter().filter(|row| has_most_pages(row, all)) {
        timeline(page, row);
    }
}

/// Whether no other row of this family reads more pages ahead: the timeline of the paper is that of all pages at once.
fn has_most_pages(row: &Row, all: &[Row]) -> bool {
    all.iter().filter(|other| family(other) == family(row)).all(|other| other.pages <= row.pages)
}

/// Adds the times at the samples of a run.
fn timeline(page: &mut Page, row: &Row) {
    let until = |sample: &Sample| {
        let idle = (sample.at_s - sample.user_s - sample.system_s).max(0.0);
        (format!("{:.2}", sample.at_s), [sample.user_s, sample.system_s, idle])
    };
    let spent: Vec<(String, [f64; 3])> = row.timeline.iter().skip(1).map(until).collect();
    if spent.is_empty() {
        return;
    }
    let bars: Vec<(&str, &[f64])> = spent.iter().map(|(at, parts)| (at.as_str(), parts.as_slice())).collect();
    let names = TIMES.map(|(name, _)| name);
    page.section(&format!("Times over the run, {}", label(row)));
    page.legend(&SERIES.into_iter().zip(names).collect::<Vec<_>>());
    let caption = "Figure 3: time used up to each moment. The paper's figure has all 25,600 pages read ahead at once: --pages 25600 --policy 'advise(n)'.";
    page.picture(&stacked("seconds since the beginning", "seconds", &names, &bars), caption);
}

fn streams(page: &mut Page, all: &[Row]) {
    let x = || Axis { label: "readers", is_logarithmic: true };
    let name = |row: &Row| match row.pages {
        Some(pages) => format!("{}, {pages} pages", row.policy),
        None => row.policy.clone(),
    };
    page.section("Bandwidth");
    let y = Axis { label: "all readers together, MB/s", is_logarithmic: false };
    let at = |row: &Row| Some((row.streams as f64, row.throughput_bytes_per_s.median / MB));
    curves(page, [x(), y], &points(all, name, at), "Wu's ReadBW over the number of readers (NR).");
    page.section("Worst latency");
    let y = Axis { label: "longest call, ms", is_logarithmic: false };
    let at = |row: &Row| Some((row.streams as f64, row.latency_most_s * 1e3));
    curves(page, [x(), y], &points(all, name, at), "Wu's MaxClat.");
    bars(page, "Times", "s", &TIMES, all, "All readers together; idle: time without use of a processor.");
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Regression: a number that begins with that of the pages was replaced: `fixed(80)` became `fixed(n0)`.
    #[test]
    fn only_the_whole_number_becomes_n() {
        assert_eq!(with_n("fixed(8)", Some(8)).as_deref(), Some("fixed(n)"));
        assert_eq!(with_n("true-readahead(48, 16)", Some(48)).as_deref(), Some("true-readahead(n, 16)"));
        for (policy, pages) in [("fixed(80)", Some(8)), ("fixed(8)", Some(80)), ("fixed(8)", None), ("kernel", Some(8))]
        {
            assert_eq!(with_n(policy, pages), None, "{policy} {pages:?}");
        }
    }
}
