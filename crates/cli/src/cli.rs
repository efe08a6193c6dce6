//! The one definition of the command line: help, man pages and completions are made from it.

use crate::{bench, compare, disk, generate, papers, probe, record, replay, restore, run, show, sim, tune};
use clap::{Parser, Subcommand};
use std::process::ExitCode;

/// Makes cold reads fast: records what a program reads, brings it into the page cache before the program asks,
/// and proves what that gained.
#[derive(Debug, Parser)]
#[command(name = "ahead", version, max_term_width = 100, propagate_version = true)]
pub struct Cli {
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    Bench(bench::Bench),
    Compare(compare::Compare),
    Disk(disk::Disk),
    Papers(papers::Papers),
    Probe(probe::Probe),
    Record(record::Record),
    Run(run::Run),
    Replay(replay::Replay),
    Restore(restore::Restore),
    Show(show::Show),
    Sim(sim::Sim),
    Tune(tune::Tune),
    #[command(hide = true)]
    Generate(generate::Generate),
}

impl Command {
    pub fn run(self) -> anyhow::Result<ExitCode> {
        match self {
            Command::Bench(command) => command.run(),
            Command::Compare(command) => command.run(),
            Command::Disk(command) => command.run(),
            Command::Papers(command) => command.run(),
            Command::Probe(command) => command.run(),
            Command::Record(command) => command.run(),
            Command::Run(command) => command.run(),
            Command::Replay(command) => command.run(),
            Command::Restore(command) => command.run(),
            Command::Show(command) => command.run(),
            Command::Sim(command) => command.run(),
            Command::Tune(command) => command.run(),
            Command::Generate(command) => command.run(),
        }
    }
}
