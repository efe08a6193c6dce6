//! `ahead generate`: man pages and completions from the one definition of the command line (`make dist`).

use crate::cli::Cli;
use anyhow::Context;
use clap::{Args, CommandFactory};
use clap_complete::Shell;
use std::path::PathBuf;
use std::process::ExitCode;

/// Write man pages and shell completions
#[derive(Debug, Args)]
pub struct Generate {
    /// Directory to write to: man/ and completions/ are made in it
    directory: PathBuf,
}

impl Generate {
    pub fn run(self) -> anyhow::Result<ExitCode> {
        let man = self.directory.join("man");
        let completions = self.directory.join("completions");
        for directory in [&man, &completions] {
            std::fs::create_dir_all(directory).with_context(|| format!("create {}", directory.display()))?;
        }
        clap_mangen::generate_to(without_help(Cli::command()), &man)
            .with_context(|| format!("write to {}", man.display()))?;
        let mut command = Cli::command();
        command.build();
        for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
            clap_complete::generate_to(shell, &mut command, "ahead", &completions)
                .with_context(|| format!("write to {}", completions.display()))?;
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// `ahead help show` prints what `ahead show --help` prints: no pages of its own for that.
fn without_help(command: clap::Command) -> clap::Command {
    command.disable_help_subcommand(true).mut_subcommands(without_help)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_and_flag_is_explained() {
        let mut command = Cli::command();
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
