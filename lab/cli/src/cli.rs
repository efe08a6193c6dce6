//! The command line of `ahead-lab`.

use crate::{bench, disk, generate, papers, probe, sim, tune};
use ahead_cli::exit::add_usage;
use ahead_cli::programs::name_as_typed;
use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};
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
        name_as_typed(Cli::command())
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
            Command::Bench(command) => command.run().map_err(|error| add_usage(error, Cli::named, "bench")),
            Command::Disk(command) => command.run(),
            Command::Papers(command) => command.run(),
            Command::Probe(command) => command.run(),
            Command::Sim(command) => command.run(),
            Command::Tune(command) => tune::run(&command),
            Command::Restore(command) => command.run(),
            Command::Generate(command) => command.run(&Cli::command()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::generate::complete_command;

    #[test]
    fn every_command_and_flag_is_explained() {
        for mut command in [complete_command(&Cli::command()), Cli::command()] {
            command.build();
            command.clone().debug_assert();
            let mut pending = vec![command];
            while let Some(command) = pending.pop() {
                let name = command.get_bin_name().unwrap_or_default().to_owned();
                assert!(command.get_about().is_some(), "{name} has no help");
                for argument in command.get_arguments() {
                    assert!(argument.get_help().is_some(), "{name}: {} has no help", argument.get_id());
                }
                let shown = |inner: &&clap::Command| inner.get_name() != "help" && !inner.is_hide_set();
                pending.extend(command.get_subcommands().filter(shown).cloned());
            }
        }
    }

    #[test]
    fn every_command_of_the_laboratory_is_one_of_ahead() {
        let ahead = ahead_cli::cli::Cli::command();
        for command in Cli::command().get_subcommands() {
            let name = command.get_name();
            assert!(ahead.find_subcommand(name).is_some(), "{name}");
            let line = format!("  {name:<8} {}\n", command.get_about().map(ToString::to_string).unwrap_or_default());
            let listed = format!("{}\n", ahead.get_after_help().unwrap()).contains(&line);
            assert!(listed || command.is_hide_set() || name == "tune", "{line:?} is not in the help");
        }
    }
}
