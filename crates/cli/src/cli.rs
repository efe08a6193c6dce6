//! The command line of `ahead`. Help is made from it; man pages and completions from it and from those of the
//! programs beside this one.

use crate::programs::{LABORATORY, PassedOn, STEERING};
use crate::{
    apps, boot, check, cold, compare, evict, exit, export, import, list, pack, record, replay, resident, restore, run,
    show, tune,
};
use clap::{Args, CommandFactory, FromArgMatches, Parser, Subcommand};
use std::process::ExitCode;

/// Makes cold reads fast: records what a program reads, brings it into the page cache before the program asks,
/// and proves what that gained.
#[derive(Debug, Parser)]
#[command(name = "ahead", version, max_term_width = 100, propagate_version = true, after_help = LABORATORY_HELP)]
pub struct Cli {
    /// The command.
    #[command(subcommand)]
    pub command: Command,
}

/// The second heading of the list of commands: clap has one for all.
const LABORATORY_HELP: &str = "\
Laboratory (measures, models, explains; the program ahead-lab):
  bench    Run jobs with real I/O, under the kernel's read-ahead or any policy
  disk     Emulate a slow disk: a real block device whose reads take the time of a model
  papers   Compare what papers say about read-ahead with the results here
  probe    Find out what a disk and a kernel really do: windows, block size, access time, bandwidth
  sim      Run read-ahead policies over workloads in a simulated machine";

/// A command of `ahead`.
#[derive(Debug, Subcommand)]
#[allow(missing_docs)]
pub enum Command {
    Record(record::Record),
    Run(run::Run),
    Replay(replay::Replay),
    List(list::List),
    Forget(list::Forget),
    Show(show::Show),
    Check(check::Check),
    Import(import::Import),
    Export(export::Export),
    Compare(compare::Compare),
    Cold(cold::Cold),
    Resident(resident::Resident),
    Evict(evict::Evict),
    Pack(pack::Pack),
    Boot(boot::Boot),
    Apps(apps::Apps),
    /// Show the read-ahead of running programs: windows, patterns, hits, misses, waste
    Top(PassedOn),
    /// Steer the read-ahead of running programs: windows of single open files, fetches ahead
    Steer(PassedOn),
    Tune(Box<tune::Tune>),
    Restore(restore::Restore),
    #[command(hide = true)]
    Bench(PassedOn),
    #[command(hide = true)]
    Disk(PassedOn),
    #[command(hide = true)]
    Papers(PassedOn),
    #[command(hide = true)]
    Probe(PassedOn),
    #[command(hide = true)]
    Sim(PassedOn),
    #[command(hide = true)]
    Generate(PassedOn),
}

impl Command {
    /// Parses the command line of this process; prints help or an error and exits where that is the result.
    ///
    /// `run` is started for every program, often cold: where its flags are all that is needed, the definitions of the other commands are not
    /// touched. Everything else, errors and help included, goes through the whole definition.
    pub fn parse() -> Command {
        let mut words = std::env::args_os().skip(1).peekable();
        if words.peek().is_some_and(|word| word == "run")
            && let Ok(matches) = run::Run::augment_args(clap::Command::new("run")).try_get_matches_from(words)
            && let Ok(run) = run::Run::from_arg_matches(&matches)
        {
            return Command::Run(run);
        }
        Cli::parse().command
    }

    /// Runs it.
    pub fn run(self) -> anyhow::Result<ExitCode> {
        match self {
            Command::Record(command) => command.run().map_err(|error| exit::add_usage(error, Cli::command, "record")),
            Command::Run(command) => command.run(),
            Command::Replay(command) => command.run(),
            Command::List(command) => command.run(),
            Command::Forget(command) => command.run(),
            Command::Show(command) => command.run(),
            Command::Check(command) => command.run(),
            Command::Import(command) => command.run(),
            Command::Export(command) => command.run(),
            Command::Compare(command) => command.run(),
            Command::Cold(command) => command.run(),
            Command::Resident(command) => command.run(),
            Command::Evict(command) => command.run(),
            Command::Pack(command) => command.run(),
            Command::Boot(command) => command.run(),
            Command::Apps(command) => command.run(),
            Command::Top(command) => command.run(&STEERING, "top"),
            Command::Steer(command) => command.run(&STEERING, "steer"),
            Command::Tune(command) => command.run(),
            Command::Restore(command) => command.run(),
            Command::Bench(command) => command.run(&LABORATORY, "bench"),
            Command::Disk(command) => command.run(&LABORATORY, "disk"),
            Command::Papers(command) => command.run(&LABORATORY, "papers"),
            Command::Probe(command) => command.run(&LABORATORY, "probe"),
            Command::Sim(command) => command.run(&LABORATORY, "sim"),
            Command::Generate(command) => command.run(&LABORATORY, "generate"),
        }
    }
}
