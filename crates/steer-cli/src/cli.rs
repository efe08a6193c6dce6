//! The command line of `ahead-steer`.

use crate::{steer, top};
use ahead_cli::programs::name_as_typed;
use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};
use std::process::ExitCode;

/// Observes and steers the read-ahead of running programs: the part of `ahead` that it starts for these commands.
#[derive(Debug, Parser)]
#[command(name = "ahead-steer", version, max_term_width = 100, propagate_version = true)]
pub struct Cli {
    /// The command.
    #[command(subcommand)]
    pub command: Command,
}

/// A command of `ahead-steer`.
#[derive(Debug, Subcommand)]
#[allow(missing_docs)]
pub enum Command {
    Top(top::Top),
    Steer(steer::Steer),
    /// Undo the changes of a killed process; the guardian of this program runs it.
    #[command(hide = true)]
    Restore(ahead_cli::restore::Restore),
}

impl Cli {
    /// Parses the arguments of this process; a wrong argument ends it with the usage.
    pub fn read() -> Cli {
        let matches = name_as_typed(Cli::command()).get_matches();
        Cli::from_arg_matches(&matches).unwrap_or_else(|error| error.exit())
    }
}

impl Command {
    /// Runs it.
    pub fn run(self) -> anyhow::Result<ExitCode> {
        match self {
            Command::Top(command) => command.run(),
            Command::Steer(command) => command.run(),
            Command::Restore(command) => command.run(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `ahead` lists these commands with its definitions, and passes their arguments on.
    #[test]
    fn commands_have_the_same_help_in_ahead() {
        let ahead = ahead_cli::cli::Cli::command();
        for command in Cli::command().get_subcommands() {
            let listed = ahead.find_subcommand(command.get_name()).unwrap();
            let about = |command: &clap::Command| command.get_about().map(ToString::to_string);
            assert!(command.is_hide_set() || about(listed) == about(command), "{}", command.get_name());
        }
    }
}
