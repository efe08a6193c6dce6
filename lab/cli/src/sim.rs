//! `ahead sim`: policies over workloads, and the planner, in a simulated machine.

mod conform;
mod page;
pub mod recordings;
mod replay;
mod sweep;
mod trace;

use ahead_cli::output::{self, Output};
use ahead_policy::{Argument, CATALOGUE, Description, PAGE_BYTES};
use ahead_report::number::{grouped, size};
use ahead_report::progress::Progress;
use ahead_report::table::{Kind, Screen, Table};
use ahead_report::text::printable;
use ahead_sim::{Counters, Scenario};
use ahead_sys::user::User;
use clap::{Args, Subcommand};
use recordings::load_scenario;
use serde_json::{Value, json};
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

/// Run read-ahead policies over workloads in a simulated machine
///
/// The machine has one processor, a page cache, a request queue and a disk model; the policies are every read-ahead of Linux
/// from 1.3 to today, those of the papers, and our own. The same scenario gives the same figures on every machine. Needs no
/// privileges.
#[derive(Debug, Args)]
pub struct Sim {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
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
    /// Scenario: machine, disk, workloads and policies, in TOML (see docs/formats.md); or a profile or a trace, which is a workload by itself
    scenario: PathBuf,
    /// Print JSON instead of a table (see docs/formats.md)
    #[arg(long, conflicts_with = "csv")]
    json: bool,
    /// Print comma-separated values instead of a table
    #[arg(long)]
    csv: bool,
    /// Write a page with the scenario, the figures and pictures of them into this file
    #[arg(long, value_name = "OUT")]
    html: Option<PathBuf>,
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
            Command::Run(command) => command.run(),
            Command::Sweep(command) => command.run(),
            Command::Replay(command) => command.run(),
            Command::Policies(command) => command.run(),
            Command::Trace(command) => command.run(),
            Command::Conform(command) => command.run(),
        }
    }
}

impl Run {
    fn run(self) -> anyhow::Result<ExitCode> {
        let user = User::behind_sudo()?;
        let prepare = |out| output::with_rights_of(user.as_ref(), || Output::prepare_page(out));
        let html = self.html.as_deref().map(prepare).transpose()?;
        let scenario = load_scenario(&self.scenario)?;
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
            let policies: Vec<Value> = results.iter().map(|(name, counters)| as_json(name, counters)).collect();
            let whole = json!({ "scenario": scenario.name, "disk": scenario.disk.model.name(), "policies": policies });
            format!("{}\n", serde_json::to_string_pretty(&whole)?)
        } else if self.csv {
            csv_of(&results.iter().map(|(name, counters)| as_json(name, counters)).collect::<Vec<Value>>())
        } else {
            let screen = Screen::stdout();
            format!("{}\n{}", screen.heading(&about(&scenario)), table(&results).render(screen))
        };
        let printed = std::io::stdout().write_all(text.as_bytes());
        if let Some(html) = &html {
            let page = page::of_run(&scenario, &scenario.text, &results, &table(&results));
            output::with_rights_of(user.as_ref(), || html.commit(page.as_bytes()))?;
        }
        results.iter().for_each(|(name, counters)| tell_if_cut(name, &scenario, counters));
        printed?;
        Ok(ExitCode::SUCCESS)
    }
}

/// A run that was cut off looks like any other in its figures.
fn tell_if_cut(what: &str, scenario: &Scenario, counters: &Counters) {
    if !counters.ended {
        let end_s = scenario.settings.end_ns / 1_000_000_000;
        eprintln!("ahead: {what}: cut off after {end_s} s (end_s), before its programs had ended");
    }
}

/// How long a run took.
fn elapsed(counters: &Counters) -> String {
    format!("{}{:.3} s", if counters.ended { "" } else { "cut at " }, seconds(counters.elapsed_ns))
}

fn seconds(time_ns: u64) -> f64 {
    time_ns as f64 / 1e9
}

fn as_json(name: &str, counters: &Counters) -> Value {
    let bytes = |pages: u64| pages * PAGE_BYTES;
    json!({
        "policy": name,
        "ended": counters.ended,
        "elapsed_s": seconds(counters.elapsed_ns),
        "drained_s": seconds(counters.drained_ns),
        "user_s": seconds(counters.user_ns),
        "system_s": seconds(counters.system_ns),
        "moved": {
            "from_user_s": seconds(counters.moved.from_user_ns),
            "from_system_s": seconds(counters.moved.from_system_ns),
            "from_idle_s": seconds(counters.moved.from_idle_ns),
        },
        "idle_s": seconds(counters.idle_ns()),
        "throughput_bytes_per_s": counters.throughput_bytes_per_s(),
        "latency_most_s": seconds(counters.latency_most_ns),
        "wait_s": seconds(counters.wait_ns),
        "dirty_waits": counters.dirty_waits,
        "writeback_wait_s": seconds(counters.writeback_wait_ns),
        "metadata_wait_s": seconds(counters.metadata_wait_ns),
        "hits": counters.hits,
        "locked": counters.locked,
        "misses": counters.misses,
        "queue_waits": counters.queue_waits,
        "read_bytes": counters.read_bytes,
        "write_bytes": counters.write_bytes,
        "dirtied_bytes": bytes(counters.dirtied_pages),
        "written_bytes": bytes(counters.written_pages),
        "unwritten_bytes": bytes(counters.unwritten_pages),
        "issued_bytes": bytes(counters.issued_pages),
        "used_bytes": bytes(counters.used_pages),
        "wasted_bytes": bytes(counters.wasted_pages),
        "unread_bytes": bytes(counters.unread_pages),
        "metadata_bytes": bytes(counters.metadata_pages),
        "dropped_bytes": bytes(counters.dropped_pages),
        "thrashings": counters.thrashings,
        "decisions": counters.decisions,
        "device": {
            "requests": counters.device.requests,
            "bytes": counters.device.bytes,
            "write_requests": counters.device.write_requests,
            "write_bytes": counters.device.write_bytes,
            "busy_s": seconds(counters.device.busy_ns),
            "queued_s": seconds(counters.device.queued_ns),
            "seeks": counters.device.seeks,
        },
    })
}

/// Rows of figures, with their names above; those of the device with `device_` before them.
fn csv_of(rows: &[Value]) -> String {
    let mut text = String::new();
    for row in rows {
        let cells = row.as_object().into_iter().flatten().flat_map(|(key, value)| match value.as_object() {
            Some(inner) => inner.iter().map(|(inner, value)| (format!("{key}_{inner}"), value.to_string())).collect(),
            None => vec![(key.clone(), value.to_string())],
        });
        let (keys, values): (Vec<String>, Vec<String>) = cells.unzip();
        if text.is_empty() {
            text = format!("{}\n", keys.join(","));
        }
        text += &format!("{}\n", values.join(","));
    }
    text
}

/// A scenario in a line.
fn about(scenario: &Scenario) -> String {
    let title = if scenario.name.is_empty() { "simulated" } else { &scenario.name };
    let disk = &scenario.disk;
    let [title, model] = [title, disk.model.name()].map(|name| printable(name.as_bytes()));
    format!("{title} on {model}, read-ahead {} KiB", disk.window_pages * 4)
}

fn table(results: &[(String, Counters)]) -> Table {
    let columns = ["elapsed", "user", "system", "idle", "MB/s", "hits", "locked", "misses", "queue waits"];
    let columns = columns.into_iter().chain(["issued", "wasted", "thrashings", "requests"]);
    let columns = columns.map(|name| (name, Kind::Number));
    let mut table = Table::new(std::iter::once(("policy", Kind::Text)).chain(columns));
    for (name, counters) in results {
        let time = |time_ns: u64| format!("{:.3} s", seconds(time_ns));
        table.row([
            name.clone(),
            elapsed(counters),
            time(counters.user_ns),
            time(counters.system_ns),
            time(counters.idle_ns()),
            format!("{:.2}", counters.throughput_bytes_per_s() / 1e6),
            grouped(counters.hits),
            grouped(counters.locked),
            grouped(counters.misses),
            grouped(counters.queue_waits),
            size(counters.issued_pages * PAGE_BYTES),
            size((counters.wasted_pages + counters.unread_pages) * PAGE_BYTES),
            grouped(counters.thrashings),
            grouped(counters.device.requests),
        ]);
    }
    table
}

impl Policies {
    fn run(self) -> anyhow::Result<ExitCode> {
        let text = if self.json {
            format!("{}\n", serde_json::to_string_pretty(&CATALOGUE.iter().map(described).collect::<Vec<Value>>())?)
        } else {
            let mut table = Table::new([("policy", Kind::Text), ("what it does", Kind::Text), ("source", Kind::Text)]);
            for policy in CATALOGUE {
                table.row([policy.usage(), policy.summary.to_owned(), policy.source.to_owned()]);
            }
            format!("{}\n{}", table.render(Screen::stdout()), parameters())
        };
        std::io::stdout().write_all(text.as_bytes())?;
        Ok(ExitCode::SUCCESS)
    }
}

fn described(policy: &Description) -> Value {
    let parameters = policy.arguments.iter().map(|argument| {
        json!({
            "name": argument.name,
            "summary": argument.summary,
            "unit": argument.unit,
            "least": Argument::LEAST,
            "most": Argument::MOST,
            "words": argument.words,
            "default": argument.default,
        })
    });
    json!({
        "name": policy.name,
        "usage": policy.usage(),
        "summary": policy.summary,
        "source": policy.source,
        "parameters": parameters.collect::<Vec<Value>>(),
    })
}

/// What each parameter may be: those that are the same for several policies once.
fn parameters() -> String {
    let mut lines: Vec<String> = Vec::new();
    for argument in CATALOGUE.iter().flat_map(|policy| policy.arguments) {
        let default = argument.default.map_or("must be given".to_owned(), |default| format!("{default} if left out"));
        let line = format!("{}: {} ({}); {default}\n", argument.name, argument.accepts(), argument.summary);
        if !lines.contains(&line) {
            lines.push(line);
        }
    }
    lines.concat()
}
