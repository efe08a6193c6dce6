//! The command line of `ahead-lab`.

use crate::{bench, disk, generate, papers, probe, sim, tune};
use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};
use std::path::Path;
use std::process::ExitCode;

/// Measures, models and explains read-ahead: the laboratory of `ahead`, which starts it for these commands.
#[derive(Debug, Parser)]
#[command(name = "ahead-lab", version, max_term_width = 100, propagate_version = true)]
pub struct Cli {
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    Bench(bench::Bench),
    Disk(disk::Disk),
    Papers(papers::Papers),
    Probe(probe::Probe),
    Sim(sim::Sim),
    Tune(Box<ahead_cli::tune::Tune>),
    /// Undo the changes of a killed process; the guardian of this program runs it.
    #[command(hide = true)]
    Restore(ahead_cli::restore::Restore),
    #[command(hide = true)]
    Generate(generate::Generate),
}

impl Cli {
    /// The definition, with the program name that the user typed: `ahead sim` or `ahead-lab sim`.
    pub fn named() -> clap::Command {
        let first = std::env::args_os().next().unwrap_or_default();
        match Path::new(&first).file_name() {
            Some(name) if name == "ahead" => Cli::command().name("ahead").bin_name("ahead"),
            _ => Cli::command(),
        }
    }

    /// Parses the arguments of this process; a wrong argument ends it with the usage.
    pub fn read() -> Cli {
        let matches = Cli::named().get_matches();
        Cli::from_arg_matches(&matches).unwrap_or_else(|error| error.exit())
    }
}

impl Command {
    pub fn run(self) -> anyhow::Result<ExitCode> {
        match self {
            Command::Bench(command) => command.run(),
            Command::Disk(command) => command.run(),
            Command::Papers(command) => command.run(),
            Command::Probe(command) => command.run(),
            Command::Sim(command) => command.run(),
            Command::Tune(command) => tune::run(&command),
            Command::Restore(command) => command.run(),
            Command::Generate(command) => command.run(),
        }
    }
}
