//! `ahead sim sweep`: runs every workload separately, with every policy, window and disk.

use super::{Choices, check_policies, check_unique, parse_policies};
use ahead_cli::output::{self, Output};
use ahead_device::Model;
use ahead_model::quantity::parse_size_with_unit;
use ahead_policy::{Choice, PAGE_BYTES};
use ahead_report::number::size;
use ahead_report::progress::Progress as ProgressBar;
use ahead_report::table::Screen;
use ahead_sim::recordings::load_scenario;
use ahead_sim::report::sweep::{Job, Progress, Variations, run_all, table};
use ahead_sim::report::{csv, sweep_page, time_limit_warning};
use ahead_sim::{Blame, Counters, Impossible, Scenario};
use ahead_sys::user::User;
use anyhow::{Context, anyhow};
use clap::Args;
use serde_json::{Value, json};
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

/// Run a scenario's workloads with other policies, windows and disks
///
/// Each workload runs separately with each policy, window and disk; those of the scenario are the defaults. The runs use all processors.
#[derive(Debug, Args)]
pub struct Sweep {
    /// A scenario with machine and workloads (see docs/reference/scenario.md); or a profile or a trace as the only workload
    #[arg(value_name = "SCENARIO|PROFILE|TRACE")]
    scenario: PathBuf,
    /// Policies, as listed by `ahead sim policies`, separated by commas (may be repeated)
    #[arg(long, value_name = "NAME,...", value_parser = parse_policies)]
    policy: Vec<Choices>,
    /// Largest windows (read_ahead_kb) with units, as in 128K,4M (may be repeated)
    #[arg(long, value_name = "SIZE,...", value_delimiter = ',', value_parser = parse_window)]
    window: Vec<u64>,
    /// Disks: built-in models, or files with a model (see docs/reference/device-model.md), separated by commas (may be repeated)
    #[arg(long, value_name = "MODEL,...", value_delimiter = ',', value_parser = parse_model)]
    device: Vec<Model>,
    /// Number of concurrent runs [default: the number of processors]
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..=4096))]
    jobs: Option<u32>,
    /// Print JSON instead of a table (see docs/reference/json.md)
    #[arg(long, conflicts_with = "csv")]
    json: bool,
    /// Print comma-separated values instead of a table
    #[arg(long)]
    csv: bool,
    /// Write a page with figures and charts to this file
    #[arg(long, value_name = "OUT")]
    html: Option<PathBuf>,
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
    let bytes = parse_size_with_unit(text)?;
    if !bytes.is_multiple_of(PAGE_BYTES) {
        return Err("a window must be a multiple of 4K".into());
    }
    Ok(bytes / PAGE_BYTES)
}

impl Sweep {
    pub fn run(self) -> anyhow::Result<ExitCode> {
        let user = User::behind_sudo()?;
        let prepare = |out| output::with_rights_of(user.as_ref(), || Output::prepare_page(out));
        let html = self.html.as_deref().map(prepare).transpose()?;
        let scenario = load_scenario(&self.scenario)?;
        self.check_names(&scenario)?;
        check_policies(&self.scenario, !(self.policy.is_empty() && scenario.policies.is_empty()))?;
        let policies = self.policies().cloned().collect();
        let variations = Variations { policies, windows: self.window.clone(), models: self.device.clone() };
        let jobs = variations.jobs(&scenario);
        for job in &jobs {
            let what = || format!("{}, {}", job.names().join(" on "), job.choice);
            job.scenario.check().map_err(|impossible| self.with_cause(&scenario, impossible)).with_context(what)?;
        }
        let results = self.run_all(&jobs)?;
        let rows = || jobs.iter().zip(&results).map(|(job, counters)| job.row(counters)).collect::<Vec<Value>>();
        let text = if self.json {
            format!("{}\n", serde_json::to_string_pretty(&json!({ "scenario": scenario.name, "runs": rows() }))?)
        } else if self.csv {
            csv(&rows())
        } else {
            table(&jobs, &results).render(Screen::stdout())
        };
        let printed = std::io::stdout().write_all(text.as_bytes());
        if let Some(html) = &html {
            let page = sweep_page(&scenario, &jobs, &results, &table(&jobs, &results));
            output::with_rights_of(user.as_ref(), || html.commit(page.as_bytes()))?;
        }
        for (job, counters) in jobs.iter().zip(&results) {
            let window = size(job.scenario.disk.window_pages * PAGE_BYTES);
            let what = format!("{}, {window}, {}", job.names().join(" on "), job.choice);
            if let Some(warning) = time_limit_warning(&what, &job.scenario, counters) {
                eprintln!("ahead: {warning}");
            }
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

    fn run_all(&self, jobs: &[Job]) -> anyhow::Result<Vec<Counters>> {
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        let progress = ProgressBar::new(jobs.len() as u64);
        let results = run_all(jobs, self.jobs.map_or(processors, |jobs| jobs as usize), |step| match step {
            Progress::Started(job) => progress.say(format!("{} {}", job.names().join(" "), job.choice)),
            Progress::Ended => progress.step(),
        });
        results.into_iter().map(|result| Ok(result.context("a simulation panicked")??)).collect()
    }
}
