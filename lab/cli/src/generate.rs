//! `ahead generate`: man pages and completions from the definitions of both command lines (`make dist`).

use anyhow::Context;
use clap::{Args, CommandFactory};
use clap_complete::Shell;
use std::path::PathBuf;
use std::process::ExitCode;

/// Write man pages and shell completions
#[derive(Debug, Args)]
pub struct Generate {
    /// Directory for the new directories man/ and completions/
    directory: PathBuf,
}

impl Generate {
    /// `laboratory`: the command line of `ahead-lab`.
    pub fn run(self, laboratory: &clap::Command) -> anyhow::Result<ExitCode> {
        let man = self.directory.join("man");
        let completions = self.directory.join("completions");
        for directory in [&man, &completions] {
            std::fs::create_dir_all(directory).with_context(|| format!("create {}", directory.display()))?;
        }
        clap_mangen::generate_to(without_help(complete_command(laboratory)), &man)
            .with_context(|| format!("write to {}", man.display()))?;
        let manual = clap_mangen::Man::new(without_help(laboratory.clone()));
        let page = man.join("ahead-lab.1");
        let mut file = std::fs::File::create(&page).with_context(|| format!("create {}", page.display()))?;
        manual.render(&mut file).with_context(|| format!("write {}", page.display()))?;
        for (mut command, name) in [(complete_command(laboratory), "ahead"), (laboratory.clone(), "ahead-lab")] {
            command.build();
            for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
                clap_complete::generate_to(shell, &mut command, name, &completions)
                    .with_context(|| format!("write to {}", completions.display()))?;
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// Position of the laboratory's commands in help: after those of `ahead`.
const LABORATORY_PLACE: usize = 100;

/// Position of `tune`: as in the definition of `ahead`, before `restore`.
const TUNE_PLACE: usize = 7;

/// The command line of `ahead` with the full definitions of the laboratory's commands.
pub fn complete_command(laboratory: &clap::Command) -> clap::Command {
    let mut whole = ahead_cli::cli::Cli::command();
    for (index, command) in laboratory.get_subcommands().filter(|command| !command.is_hide_set()).enumerate() {
        // Both programs have `tune`.
        let place = if command.get_name() == "tune" { TUNE_PLACE } else { LABORATORY_PLACE + index };
        let definition = command.clone().display_order(place);
        whole = whole.mut_subcommand(command.get_name(), |_| definition);
    }
    whole.after_help(None::<&str>)
}

/// Removes the subcommand `help`, which needs no man pages: `ahead help show` prints the same as `ahead show --help`.
fn without_help(command: clap::Command) -> clap::Command {
    command.disable_help_subcommand(true).mut_subcommands(without_help)
}
