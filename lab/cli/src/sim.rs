//! `ahead sim`: runs policies over workloads in a simulated machine.

mod conform;
mod replay;
mod sweep;
mod trace;

use ahead_cli::output::{self, Output};
use ahead_policy::{Choice, named};
use ahead_report::progress::Progress;
use ahead_report::table::Screen;
use ahead_sim::Counters;
use ahead_sim::recordings::load_scenario;
use ahead_sim::report::{
    acts_json, acts_table, csv, describe, json as counters_json, policies_json, policies_text, run_page, steering_acts,
    table, time_limit_warning,
};
use ahead_sys::user::User;
use anyhow::anyhow;
use clap::{Args, Subcommand};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Run read-ahead policies over workloads in a simulated machine
///
/// The machine has one processor, a page cache, a request queue and a disk model; the policies are every read-ahead of Linux
/// from 1.3 to today, those of the papers, and our own. The same scenario gives the same figures on every machine. Needs no
/// privileges.
#[derive(Debug, Args)]
pub struct Sim {
    #[command(subcommand)]
    command: SimCommand,
}

#[derive(Debug, Subcommand)]
enum SimCommand {
    Run(Run),
    Sweep(sweep::Sweep),
    Replay(replay::Replay),
    Policies(Policies),
    Trace(trace::Trace),
    Conform(conform::Conform),
}

/// Run the policies of a scenario and compare them
#[derive(Debug, Args)]
struct Run {
    /// A scenario in TOML: machine, disk, workloads and policies (see docs/reference/scenario.md); or a profile or a trace as the only workload
    #[arg(value_name = "SCENARIO|PROFILE|TRACE")]
    scenario: PathBuf,
    /// Policies instead of those of the scenario, as listed by `ahead sim policies`, separated by commas (may be repeated)
    #[arg(long, value_name = "NAME,...", value_parser = parse_policies)]
    policy: Vec<Choices>,
    /// Print JSON instead of a table (see docs/reference/json.md)
    #[arg(long, conflicts_with = "csv")]
    json: bool,
    /// Print comma-separated values instead of a table
    #[arg(long)]
    csv: bool,
    /// Write a page with the scenario, figures and charts to this file
    #[arg(long, value_name = "OUT")]
    html: Option<PathBuf>,
    /// Print each act of `ahead steer` on these programs, with its reason, instead of figures (policy steer)
    #[arg(long, conflicts_with_all = ["csv", "html"])]
    acts: bool,
}

/// List the policies
#[derive(Debug, Args)]
struct Policies {
    /// Print JSON instead of a table
    #[arg(long)]
    json: bool,
}

impl Sim {
    pub fn run(self) -> anyhow::Result<ExitCode> {
        match self.command {
            SimCommand::Run(command) => command.run(),
            SimCommand::Sweep(command) => command.run(),
            SimCommand::Replay(command) => command.run(),
            SimCommand::Policies(command) => command.run(),
            SimCommand::Trace(command) => command.run(),
            SimCommand::Conform(command) => command.run(),
        }
    }
}

impl Run {
    fn run(self) -> anyhow::Result<ExitCode> {
        let user = User::behind_sudo()?;
        let prepare = |out| output::with_rights_of(user.as_ref(), || Output::prepare_page(out));
        let html = self.html.as_deref().map(prepare).transpose()?;
        let mut scenario = load_scenario(&self.scenario)?;
        if !self.policy.is_empty() {
            scenario.policies = self.policy.into_iter().flat_map(|choices| choices.0).collect();
            check_unique("--policy", scenario.policies.iter().map(Choice::to_string))?;
            scenario.check().map_err(|impossible| anyhow!("{impossible}: change --policy, or the scenario"))?;
        }
        check_policies(&self.scenario, !scenario.policies.is_empty())?;
        if self.acts {
            let acts = steering_acts(&scenario);
            let text = match self.json {
                true => format!("{}\n", serde_json::to_string_pretty(&acts_json(&acts))?),
                false => acts_table(&acts).render(Screen::stdout()),
            };
            std::io::stdout().write_all(text.as_bytes())?;
            return Ok(ExitCode::SUCCESS);
        }
        let progress = Progress::new(scenario.policies.len() as u64);
        let results = scenario.policies.iter().map(|choice| {
            progress.say(choice.to_string());
            let counters = scenario.run(choice)?;
            progress.step();
            Ok((choice.to_string(), counters))
        });
        let results: Vec<(String, Counters)> = results.collect::<anyhow::Result<_>>()?;
        drop(progress);
        let text = if self.json {
            let policies: Vec<Value> = results.iter().map(|(name, counters)| counters_json(name, counters)).collect();
            let whole = json!({ "scenario": scenario.name, "disk": scenario.disk.model.name(), "policies": policies });
            format!("{}\n", serde_json::to_string_pretty(&whole)?)
        } else if self.csv {
            csv(&results.iter().map(|(name, counters)| counters_json(name, counters)).collect::<Vec<Value>>())
        } else {
            let screen = Screen::stdout();
            format!("{}\n{}", screen.heading(&describe(&scenario)), table(&results).render(screen))
        };
        let printed = std::io::stdout().write_all(text.as_bytes());
        if let Some(html) = &html {
            let page = run_page(&scenario, &scenario.text, &results, &table(&results));
            output::with_rights_of(user.as_ref(), || html.commit(page.as_bytes()))?;
        }
        for warning in results.iter().filter_map(|(name, counters)| time_limit_warning(name, &scenario, counters)) {
            eprintln!("ahead: {warning}");
        }
        printed?;
        Ok(ExitCode::SUCCESS)
    }
}

impl Policies {
    fn run(self) -> anyhow::Result<ExitCode> {
        let text = match self.json {
            true => format!("{}\n", serde_json::to_string_pretty(&policies_json())?),
            false => policies_text(Screen::stdout()),
        };
        std::io::stdout().write_all(text.as_bytes())?;
        Ok(ExitCode::SUCCESS)
    }
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

/// Checks that there is a policy to run.
fn check_policies(scenario: &Path, is_any: bool) -> anyhow::Result<()> {
    if is_any {
        return Ok(());
    }
    let file = scenario.display();
    Err(anyhow!(
        "{file} names no policies: add policies = [\"linux-6.18\", \"ahead\"] or use --policy (ahead sim policies lists them)"
    ))
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
