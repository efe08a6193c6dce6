//! The page of `ahead bench --html`: one file, with the papers' figures from our data.
//!
//! ```text
//!     mmapit     figures 1 to 7 of O'Connor and Tracy: how pages were found, where time went, throughput and waits over n;
//!                and how time went during the run
//!     streams    Wu's tables: bandwidth and worst latency over the number of readers
//!     bonnie     Roudier's rows: throughput and CPU
//!     the others time and amplification of each
//! ```

use super::{Measured, table};
use ahead_bench::{Job, Row, Sample};
use ahead_report::html::Page;
use ahead_report::svg::{Axis, Curve, SERIES, lines, rows, stacked};
use std::collections::BTreeSet;

const MB: f64 = 1e6;
/// What one chart of lines can tell apart.
const MOST_CURVES: usize = SERIES.len();

/// A part of a row: its name, and how much it is.
type Part = (&'static str, fn(&Row) -> f64);

const TIMES: [Part; 3] = [("user", |row| row.user_s), ("system", |row| row.system_s), ("idle", |row| row.idle_s)];
const FOUND: [Part; 3] = [
    ("hits", |row| number(row.hits) / 1e3),
    ("locked", |row| number(row.locked) / 1e3),
    ("misses", |row| number(row.misses) / 1e3),
];
const WAITS: [Part; 3] = [
    ("locked", |row| number(row.locked)),
    ("misses", |row| number(row.misses)),
    ("queue waits", |row| number(row.queue_waits)),
];
const THROUGHPUT: [Part; 1] = [("throughput", |row| row.throughput_bytes_per_s.median / MB)];
const CPU: [Part; 1] = [("CPU", |row| row.cpu_percent)];
const AMPLIFICATION: [Part; 1] = [("amplification", |row| row.amplification.unwrap_or(0.0))];

fn number(count: Option<u64>) -> f64 {
    count.unwrap_or(0) as f64
}

pub fn render(job: &Job, measured: &Measured) -> String {
    let all = &measured.rows;
    let mut page = Page::new(&format!("ahead bench {}", job.name));
    page.text(&table::about(measured));
    if let Some(note) = table::disturbed(&measured.rows) {
        page.text(&note);
    }
    page.section("Rows").table(&table::table(all));
    match job.name {
        "mmapit" => mmapit(&mut page, all),
        "streams" => streams(&mut page, all),
        "bonnie" => {
            bars(&mut page, "Throughput", "MB/s", &THROUGHPUT, all, "Roudier's K/sec, row by row.");
            bars(&mut page, "Processor", "%", &CPU, all, "Roudier's %CPU: processor time by elapsed time.");
        }
        _ => {
            bars(&mut page, "Where time went", "s", &TIMES, all, "Idle: no part of one processor was used.");
            let caption = "Bytes that the device read for each byte that was used.";
            bars(&mut page, "Amplification", "×", &AMPLIFICATION, all, caption);
        }
    }
    page.render()
}

fn label(row: &Row) -> String {
    let pages = row.pages.filter(|pages| !row.policy.contains(&format!("({pages}")));
    let pages = pages.map_or(String::new(), |pages| format!(", {pages} pages"));
    match row.job {
        "mmapit" => format!("{}{pages}", row.policy),
        _ => format!("{}: {}{pages}", row.variant, row.policy),
    }
}

fn bars(page: &mut Page, heading: &str, unit: &str, parts: &[Part], all: &[Row], caption: &str) {
    let values: Vec<Vec<f64>> = all.iter().map(|row| parts.iter().map(|(_, of)| of(row)).collect()).collect();
    if values.iter().flatten().all(|value| *value == 0.0) {
        return;
    }
    let names: Vec<&str> = parts.iter().map(|(name, _)| *name).collect();
    let labels: Vec<String> = all.iter().map(label).collect();
    let bars: Vec<(&str, &[f64])> =
        labels.iter().zip(&values).map(|(label, values)| (label.as_str(), values.as_slice())).collect();
    let legend: Vec<(&str, &str)> = SERIES.into_iter().zip(names.iter().copied()).collect();
    page.section(heading).legend(&legend).picture(&rows(unit, &names, &bars), caption);
}

/// A curve for each name, over some number.
fn curves(page: &mut Page, axes: [Axis; 2], named: &[(String, Vec<(f64, f64)>)], caption: &str) {
    let [x, y] = axes;
    for named in named.chunks(MOST_CURVES) {
        let curves: Vec<Curve> = named.iter().map(|(name, points)| Curve { name, points }).collect();
        let legend: Vec<(&str, &str)> = SERIES.into_iter().zip(named.iter().map(|(name, _)| name.as_str())).collect();
        page.legend(&legend).picture(&lines(x, y, &curves), caption);
    }
}

/// Points of all rows by `name`, from left to right.
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
    match row.pages {
        Some(pages) => row.policy.replace(&format!("({pages}"), "(n"),
        None => row.policy.clone(),
    }
}

fn mmapit(page: &mut Page, all: &[Row]) {
    let caption = "Figure 1: accesses to pages that were there, on their way, or not asked for; in thousands.";
    bars(page, "How pages were found", "k", &FOUND, all, caption);
    let caption = "Figures 2, 4 and 5: the program's own time, the kernel's, and the rest, in which nobody ran.";
    bars(page, "Where time went", "s", &TIMES, all, caption);
    let caption = "Figure 7: how often the program waited: for pages on their way, for pages nobody had asked for, and for room in \
                   the queue.";
    bars(page, "Waits", "", &WAITS, all, caption);
    if all.iter().any(|row| row.pages.is_some()) {
        page.section("Throughput over the pages that are read ahead");
        let x = Axis { label: "pages", is_logarithmic: true };
        let y = Axis { label: "throughput, MB/s", is_logarithmic: false };
        let at = |row: &Row| Some((row.pages? as f64, row.throughput_bytes_per_s.median / MB));
        curves(page, [x, y], &points(all, family, at), "Bytes that the program copied in a second.");
        page.section("Idle time over the pages that are read ahead");
        let y = Axis { label: "idle time, s", is_logarithmic: false };
        let at = |row: &Row| Some((row.pages? as f64, row.idle_s));
        curves(page, [x, y], &points(all, family, at), "Figure 6: time in which nobody ran.");
    }
    for row in all.iter().filter(|row| has_most_pages(row, all)) {
        timeline(page, row);
    }
}

/// Whether nobody else of its kind reads more ahead: the paper's time line is that of all pages at once.
fn has_most_pages(row: &Row, all: &[Row]) -> bool {
    all.iter().filter(|other| family(other) == family(row)).all(|other| other.pages <= row.pages)
}

/// How much time of each kind had gone at the samples of a run.
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
    page.section(&format!("How time went, {}", label(row)));
    page.legend(&SERIES.into_iter().zip(names).collect::<Vec<_>>());
    let caption = "Figure 3: what had been used up to each moment. The paper's has all 25,600 pages read ahead at once: --pages 25600 --policy 'advise(n)'.";
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
    bars(page, "Where time went", "s", &TIMES, all, "All readers together; idle: no part of one processor was used.");
}
