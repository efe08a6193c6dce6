//! The pages of runs and sweeps: one file each, without scripts.

use crate::report::seconds;
use crate::report::sweep::Job;
use crate::{Counters, Disk, Scenario};
use ahead_policy::PAGE_BYTES;
use ahead_report::html::Page;
use ahead_report::number::size;
use ahead_report::svg::{Axis, Curve, SERIES, lines, rows};
use ahead_report::table::Table;
use std::collections::BTreeSet;

/// Limit of curves in one chart: the number of colours.
const MAX_CURVES: usize = SERIES.len();
const MB: f64 = 1e6;

/// A part of a chart: its name and its value in a run.
type Part = (&'static str, fn(&Counters) -> f64);

/// A chart of rows.
struct Chart {
    heading: &'static str,
    caption: &'static str,
    unit: &'static str,
    parts: &'static [Part],
}

fn mb(pages: u64) -> f64 {
    (pages * PAGE_BYTES) as f64 / MB
}

const CHARTS: [Chart; 4] = [
    Chart {
        heading: "Times",
        caption: "From the start to the end of the last program: user time, system time, and idle time of the processor.",
        unit: "s",
        parts: &[
            ("user", |run| seconds(run.user_ns)),
            ("system", |run| seconds(run.system_ns)),
            ("idle", |run| seconds(run.idle_ns())),
        ],
    },
    Chart {
        heading: "Page accesses",
        caption: "Accesses to pages that were present (hits), in flight (a wait), or absent (a longer wait). In thousands.",
        unit: "k",
        parts: &[
            ("hits", |run| run.hits as f64 / 1e3),
            ("locked", |run| run.locked as f64 / 1e3),
            ("misses", |run| run.misses as f64 / 1e3),
        ],
    },
    Chart {
        heading: "Disk reads",
        caption: "Issued pages that were used, that were evicted before use (wasted), or that are still unused in the cache (unread); \
        and metadata blocks.",
        unit: "MB",
        parts: &[
            ("used", |run| mb(run.used_pages)),
            ("wasted", |run| mb(run.wasted_pages)),
            ("unread", |run| mb(run.unread_pages)),
            ("metadata", |run| mb(run.metadata_pages)),
        ],
    },
    Chart {
        heading: "Waits of programs",
        caption: "Sum over all programs: for pages of files, for metadata blocks, and for writeback of dirty pages.",
        unit: "s",
        parts: &[
            ("pages", |run| seconds(run.wait_ns - run.metadata_wait_ns)),
            ("metadata", |run| seconds(run.metadata_wait_ns)),
            ("writeback", |run| seconds(run.writeback_wait_ns)),
        ],
    },
];

/// The results of a scenario.
pub fn run_page(scenario: &Scenario, text: &str, results: &[(String, Counters)], table: &Table) -> String {
    let mut page = Page::new(title(scenario));
    page.text("Simulated: one processor, a page cache, a request queue and a disk model; the same on every machine.");
    page.section("Machine and programs").facts(&facts(scenario));
    page.section("Policies");
    if results.iter().any(|(_, run)| !run.ended) {
        page.text(
            "A run marked \"cut at\" ended at the time limit (end_s), before its programs: it cannot be compared.",
        );
    }
    page.table(table);
    for chart in &CHARTS {
        add_rows(&mut page, chart, results);
    }
    page.section("The scenario").code(text);
    page.render()
}

fn title(scenario: &Scenario) -> &str {
    if scenario.name.is_empty() { "Simulated read-ahead" } else { &scenario.name }
}

fn facts(scenario: &Scenario) -> Vec<(String, String)> {
    let Disk { model, window_pages, .. } = &scenario.disk;
    let mut facts = vec![
        ("disk".to_owned(), format!("{}: {}", model.name(), model.description())),
        ("window (read_ahead_kb)".to_owned(), format!("{} KiB", window_pages * PAGE_BYTES / 1024)),
        ("memory of the page cache".to_owned(), size(scenario.memory_pages * PAGE_BYTES)),
    ];
    facts.extend(scenario.workloads.iter().map(|workload| {
        let streams = workload.streams.iter().map(|stream| stream.file_pages);
        let recorded = workload.recording.iter().flat_map(|recording| &recording.file_pages).copied();
        let programs = workload.streams.len() + workload.recording.as_ref().map_or(0, |one| one.programs.len());
        let bytes = streams.chain(recorded).sum::<u64>() * PAGE_BYTES;
        ("programs".to_owned(), format!("{}: {programs} on {}", workload.name, size(bytes)))
    }));
    facts
}

fn add_rows(page: &mut Page, chart: &Chart, results: &[(String, Counters)]) {
    let values: Vec<Vec<f64>> =
        results.iter().map(|(_, run)| chart.parts.iter().map(|(_, of)| of(run)).collect()).collect();
    if values.iter().flatten().all(|value| *value == 0.0) {
        return;
    }
    let bars: Vec<(&str, &[f64])> =
        results.iter().zip(&values).map(|((name, _), values)| (name.as_str(), values.as_slice())).collect();
    let names: Vec<&str> = chart.parts.iter().map(|(name, _)| *name).collect();
    let legend: Vec<(&str, &str)> = SERIES.into_iter().zip(names.iter().copied()).collect();
    page.section(chart.heading).legend(&legend).picture(&rows(chart.unit, &names, &bars), chart.caption);
}

/// The results of a sweep: for each workload and disk the throughput over the window. With one window only, the
/// throughput of each policy.
pub fn sweep_page(scenario: &Scenario, jobs: &[Job], results: &[Counters], table: &Table) -> String {
    let mut page = Page::new(title(scenario));
    page.text("Simulated: each workload separately, with each policy, window and disk; the same on every machine.");
    let key = |job: &Job| (job.workload.clone(), job.scenario.disk.model.name().to_owned());
    let mut seen = BTreeSet::new();
    for place in jobs.iter().map(key).filter(|place| seen.insert(place.clone())) {
        let of_place: Vec<(&Job, &Counters)> = jobs.iter().zip(results).filter(|(job, _)| key(job) == place).collect();
        page.section(&format!("{} on {}", place.0, place.1));
        add_throughput(&mut page, &of_place);
    }
    page.section("All runs").table(table);
    page.render()
}

fn add_throughput(page: &mut Page, runs: &[(&Job, &Counters)]) {
    let kb = |job: &Job| job.scenario.disk.window_pages * PAGE_BYTES / 1024;
    let throughput = |run: &Counters| run.throughput_bytes_per_s() / MB;
    let mut seen = BTreeSet::new();
    let policies: Vec<String> =
        runs.iter().map(|(job, _)| job.choice.to_string()).filter(|name| seen.insert(name.clone())).collect();
    let windows: BTreeSet<u64> = runs.iter().map(|(job, _)| kb(job)).collect();
    if windows.len() == 1 {
        let values: Vec<(String, [f64; 1])> =
            runs.iter().map(|(job, run)| (job.choice.to_string(), [throughput(run)])).collect();
        let bars: Vec<(&str, &[f64])> = values.iter().map(|(name, value)| (name.as_str(), &value[..])).collect();
        page.picture(&rows("MB/s", &["throughput"], &bars), "Bytes that programs read and wrote per second.");
        return;
    }
    for policies in policies.chunks(MAX_CURVES) {
        let points: Vec<Vec<(f64, f64)>> = policies
            .iter()
            .map(|policy| {
                let of_policy = runs.iter().filter(|(job, _)| job.choice.to_string() == *policy);
                let mut points: Vec<(f64, f64)> =
                    of_policy.map(|(job, run)| (kb(job) as f64, throughput(run))).collect();
                points.sort_by(|one, other| one.0.total_cmp(&other.0));
                points
            })
            .collect();
        let curves: Vec<Curve> =
            policies.iter().zip(&points).map(|(name, points)| Curve { name, points: points.as_slice() }).collect();
        let legend: Vec<(&str, &str)> = SERIES.into_iter().zip(policies.iter().map(String::as_str)).collect();
        let x = Axis { label: "window, KiB", is_logarithmic: true };
        let y = Axis { label: "throughput, MB/s", is_logarithmic: false };
        // A logarithmic axis cannot show a window of 0; the table does.
        page.legend(&legend).picture(&lines(x, y, &curves), "Bytes that programs read and wrote per second.");
    }
}
