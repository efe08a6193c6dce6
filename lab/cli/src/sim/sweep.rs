//! `ahead sim sweep`: runs every workload separately, with every policy, window and disk.

use super::{as_json, csv_of, elapsed, page, warn_if_cut};
use ahead_cli::output::{self, Output};
use ahead_device::Model;
use ahead_model::quantity::parse_size;
use ahead_policy::{Choice, PAGE_BYTES, named};
use ahead_recordings::load_scenario;
use ahead_report::number::size;
use ahead_report::progress::Progress;
use ahead_report::table::{Kind, Screen, Table};
use ahead_report::text::printable;
use ahead_sim::{Blame, Counters, Disk, Impossible, Scenario};
use ahead_sys::user::User;
use anyhow::{Context, anyhow};
use clap::Args;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Run a scenario's workloads with other policies, windows and disks
///
/// Each workload runs separately with each policy, window and disk; those of the scenario are the defaults. The runs use all processors.
#[derive(Debug, Args)]
pub struct Sweep {
    /// A scenario with machine and workloads (see docs/formats.md); or a profile or a trace as the only workload
    scenario: PathBuf,
    /// Policies, as listed by `ahead sim policies`, separated by commas (may be repeated)
    #[arg(long, value_name = "NAME,...", value_parser = parse_policies)]
    policy: Vec<Choices>,
    /// Largest windows (read_ahead_kb) with units, as in 128K,4M (may be repeated)
    #[arg(long, value_name = "SIZE,...", value_delimiter = ',', value_parser = parse_window)]
    window: Vec<u64>,
    /// Disks: built-in models, or files with a model (see docs/formats.md), separated by commas (may be repeated)
    #[arg(long, value_name = "MODEL,...", value_delimiter = ',', value_parser = parse_model)]
    device: Vec<Model>,
    /// Number of concurrent runs [default: the number of processors]
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..=4096))]
    jobs: Option<u32>,
    /// Print JSON instead of a table (see docs/formats.md)
    #[arg(long, conflicts_with = "csv")]
    json: bool,
    /// Print comma-separated values instead of a table
    #[arg(long)]
    csv: bool,
    /// Write a page with figures and charts to this file
    #[arg(long, value_name = "OUT")]
    html: Option<PathBuf>,
}

/// Policies of one option.
#[derive(Clone, Debug)]
struct Choices(Vec<Choice>);

/// Parses names between commas; commas in parentheses belong to a policy.
fn parse_policies(text: &str) -> Result<Choices, String> {
    let mut depth = 0_i32;
    let names = text.split(|letter| {
        depth += i32::from(letter == '(') - i32::from(letter == ')');
        letter == ',' && depth <= 0
    });
    let choices = names.map(|name| named(name.trim()).map_err(|error| error.to_string()));
    choices.collect::<Result<_, _>>().map(Choices)
}

fn parse_model(text: &str) -> Result<Model, String> {
    if let Some(model) = Model::builtin(text) {
        return Ok(model);
    }
    let known = [&Model::BUILTIN[..], &Model::PAPERS].concat().join(", ");
    let text = ahead_sim::read_small(text.as_ref())
        .map_err(|error| format!("neither a known model ({known}) nor a readable file: {error}"))?;
    Model::from_toml(&text).map_err(|error| error.to_string())
}

/// Parses a window with its unit; returns pages.
fn parse_window(text: &str) -> Result<u64, String> {
    // A bare number could mean bytes or KiB (as in read_ahead_kb).
    if text.chars().all(|digit| digit.is_ascii_digit()) {
        return Err(format!("{text:?} has no unit: write {text}K, or a size as in 128K or 4M"));
    }
    let bytes = parse_size(text)?;
    if !bytes.is_multiple_of(PAGE_BYTES) {
        return Err("a window must be a multiple of 4K".into());
    }
    Ok(bytes / PAGE_BYTES)
}

/// One run.
pub(super) struct Job {
    pub(super) workload: String,
    pub(super) scenario: Scenario,
    pub(super) choice: Choice,
}

impl Job {
    /// The names of workload and disk, printable.
    fn names(&self) -> [String; 2] {
        [self.workload.as_str(), self.scenario.disk.model.name()].map(|name| printable(name.as_bytes()))
    }

    fn row(&self, counters: &Counters) -> Value {
        let mut row = as_json(&self.choice.to_string(), counters);
        if let Some(row) = row.as_object_mut() {
            row.insert("workload".into(), self.workload.clone().into());
            row.insert("disk".into(), self.scenario.disk.model.name().into());
            row.insert("window_bytes".into(), (self.scenario.disk.window_pages * PAGE_BYTES).into());
        }
        row
    }
}

impl Sweep {
    pub fn run(self) -> anyhow::Result<ExitCode> {
        let user = User::behind_sudo()?;
        let prepare = |out| output::with_rights_of(user.as_ref(), || Output::prepare_page(out));
        let html = self.html.as_deref().map(prepare).transpose()?;
        let scenario = load_scenario(&self.scenario)?;
        self.check_names(&scenario)?;
        let jobs = self.list(&scenario);
        for job in &jobs {
            let what = || format!("{}, {}", job.names().join(" on "), job.choice);
            job.scenario.check().map_err(|impossible| self.with_cause(&scenario, impossible)).with_context(what)?;
        }
        let results = self.run_all(&jobs)?;
        let rows = || jobs.iter().zip(&results).map(|(job, counters)| job.row(counters)).collect::<Vec<Value>>();
        let text = if self.json {
            format!("{}\n", serde_json::to_string_pretty(&json!({ "scenario": scenario.name, "runs": rows() }))?)
        } else if self.csv {
            csv_of(&rows())
        } else {
            table(&jobs, &results).render(Screen::stdout())
        };
        let printed = std::io::stdout().write_all(text.as_bytes());
        if let Some(html) = &html {
            let page = page::of_sweep(&scenario, &jobs, &results, &table(&jobs, &results));
            output::with_rights_of(user.as_ref(), || html.commit(page.as_bytes()))?;
        }
        for (job, counters) in jobs.iter().zip(&results) {
            let window = size(job.scenario.disk.window_pages * PAGE_BYTES);
            let what = format!("{}, {window}, {}", job.names().join(" on "), job.choice);
            warn_if_cut(&what, &job.scenario, counters);
        }
        printed?;
        Ok(ExitCode::SUCCESS)
    }

    /// The error of an impossible combination, with its option or its line in the scenario.
    fn with_cause(&self, scenario: &Scenario, impossible: Impossible) -> anyhow::Error {
        let option = match impossible.blame {
            Blame::Policy(_) if !self.policy.is_empty() => Some("--policy"),
            Blame::Disk("read_ahead_kb") if !self.window.is_empty() => Some("--window"),
            Blame::Disk("model" | "max_request_kb") if !self.device.is_empty() => Some("--device"),
            _ => None,
        };
        let place = |line: usize| format!("{}: line {line}", self.scenario.display());
        let memory = scenario.line_of(Blame::Machine("memory_mb")).map_or(self.scenario.display().to_string(), place);
        match option {
            Some(option) => anyhow!("{impossible}: change {option}, or memory_mb ({memory})"),
            None => anyhow!(
                "{}{impossible}",
                scenario.line_of(impossible.blame).map_or(String::new(), |line| place(line) + ": ")
            ),
        }
    }

    /// Checks that names are unique: workload, disk, window and policy identify a run.
    fn check_names(&self, scenario: &Scenario) -> anyhow::Result<()> {
        check_unique("--policy", self.policies().map(Choice::to_string))?;
        check_unique("--device", self.device.iter().map(|model| model.name().to_owned()))?;
        check_unique("--window", self.window.iter().map(|pages| format!("{}K", pages * PAGE_BYTES / 1024)))?;
        for (index, workload) in scenario.workloads.iter().enumerate() {
            if scenario.workloads[..index].iter().any(|before| before.name == workload.name) {
                let line = scenario.line_of(Blame::Workload(index, "name")).unwrap_or(1);
                let path = self.scenario.display();
                anyhow::bail!(
                    "{path}: line {line}: an earlier workload has the same name {:?}; give it another name",
                    workload.name
                );
            }
        }
        Ok(())
    }

    fn policies(&self) -> impl Iterator<Item = &Choice> {
        self.policy.iter().flat_map(|choices| &choices.0)
    }

    fn list(&self, scenario: &Scenario) -> Vec<Job> {
        fn or<T: Clone>(given: &[T], own: Vec<T>) -> Vec<T> {
            if given.is_empty() { own } else { given.to_vec() }
        }
        let models = or(&self.device, vec![scenario.disk.model.clone()]);
        let windows = or(&self.window, vec![scenario.disk.window_pages]);
        let policies = or(&self.policies().cloned().collect::<Vec<Choice>>(), scenario.policies.clone());
        let mut jobs = Vec::new();
        for workload in &scenario.workloads {
            for model in &models {
                for window_pages in &windows {
                    let disk = Disk { model: model.clone(), window_pages: *window_pages, ..scenario.disk.clone() };
                    let policies = policies.clone();
                    let alone = Scenario { workloads: vec![workload.clone()], policies, disk, ..scenario.clone() };
                    let job = |choice: &Choice| Job {
                        workload: workload.name.clone(),
                        scenario: alone.clone(),
                        choice: choice.clone(),
                    };
                    jobs.extend(alone.policies.iter().map(job));
                }
            }
        }
        jobs
    }

    fn run_all(&self, jobs: &[Job]) -> anyhow::Result<Vec<Counters>> {
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        let threads = self.jobs.map_or(processors, |jobs| jobs as usize).min(jobs.len());
        let (next, progress) = (AtomicUsize::new(0), Progress::new(jobs.len() as u64));
        let results: Mutex<Vec<Option<Result<Counters, _>>>> = Mutex::new(jobs.iter().map(|_| None).collect());
        std::thread::scope(|scope| {
            for _ in 0..threads {
                scope.spawn(|| {
                    while let Some((index, job)) =
                        Some(next.fetch_add(1, Ordering::Relaxed)).and_then(|i| Some((i, jobs.get(i)?)))
                    {
                        progress.say(format!("{} {}", job.names().join(" "), job.choice));
                        let result = job.scenario.run(&job.choice);
                        progress.step();
                        results.lock().unwrap_or_else(|poisoned| poisoned.into_inner())[index] = Some(result);
                    }
                });
            }
        });
        let results = results.into_inner().unwrap_or_else(|poisoned| poisoned.into_inner());
        results.into_iter().map(|result| Ok(result.context("a simulation panicked")??)).collect()
    }
}

/// Checks that an option has no value twice.
fn check_unique(option: &str, names: impl Iterator<Item = String>) -> anyhow::Result<()> {
    let mut seen = BTreeSet::new();
    for name in names {
        if let Some(twice) = seen.replace(name) {
            anyhow::bail!("{option} {twice} is given twice");
        }
    }
    Ok(())
}

fn table(jobs: &[Job], results: &[Counters]) -> Table {
    let text = ["workload", "disk", "policy"].map(|name| (name, Kind::Text));
    let numbers = ["window", "elapsed", "MB/s", "misses", "waits", "issued", "unused", "requests"];
    let mut table = Table::new(text.into_iter().chain(numbers.map(|name| (name, Kind::Number))));
    for (job, counters) in jobs.iter().zip(results) {
        let [workload, disk] = job.names();
        table.row([
            workload,
            disk,
            job.choice.to_string(),
            size(job.scenario.disk.window_pages * PAGE_BYTES),
            elapsed(counters),
            format!("{:.2}", counters.throughput_bytes_per_s() / 1e6),
            counters.misses.to_string(),
            counters.locked.to_string(),
            size(counters.issued_pages * PAGE_BYTES),
            size((counters.wasted_pages + counters.unread_pages) * PAGE_BYTES),
            counters.device.requests.to_string(),
        ]);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commas_separate_policies_but_not_their_arguments() {
        let names = |text| parse_policies(text).unwrap().0.iter().map(Choice::to_string).collect::<Vec<String>>();
        assert_eq!(names("none, linux-6.18,ahead"), ["none", "linux-6.18", "ahead"]);
        assert_eq!(names("true-readahead(64, adaptive),none"), ["true-readahead(64, adaptive)", "none"]);
        assert!(parse_policies("none,").is_err() && parse_policies("none;ahead").is_err());
    }
}
