//! `ahead generate`: man pages and completions from the definitions of the command lines, and the table of metrics (`make dist`).

mod manual;

use anyhow::Context;
use clap::{Args, CommandFactory};
use clap_complete::Shell;
use clap_mangen::Man;
use std::path::PathBuf;
use std::process::ExitCode;

/// Write man pages, shell completions and the table of metrics
#[derive(Debug, Args)]
pub struct Generate {
    /// Directory for the new directories man/ and completions/, and metrics.md
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
        let service = ahead_service::ServiceCli::command();
        let pages = [
            (man.join("ahead.1"), first_page(laboratory)?),
            (man.join("ahead-lab.1"), page(laboratory.clone())?),
            (man.join("aheadd.8"), render(Man::new(service.clone()).section("8"))?),
            (
                self.directory.join("metrics.md"),
                ahead_steer_cli::metrics_reference() + &ahead_service::metrics_reference(),
            ),
        ];
        for (path, text) in pages {
            std::fs::write(&path, text).with_context(|| format!("write {}", path.display()))?;
        }
        let whole = complete_command(laboratory);
        for (mut command, name) in [(whole, "ahead"), (laboratory.clone(), "ahead-lab"), (service, "aheadd")] {
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

/// The command line of `ahead` with the full definitions of the commands that other programs have.
pub fn complete_command(laboratory: &clap::Command) -> clap::Command {
    let mut whole = ahead_cli::cli::Cli::command();
    let steering = ahead_steer_cli::Cli::command();
    let others = steering.get_subcommands().chain(laboratory.get_subcommands());
    for (index, command) in others.filter(|command| !command.is_hide_set()).enumerate() {
        let place = match whole.find_subcommand(command.get_name()) {
            // In the list of `ahead`, too.
            Some(listed) if !listed.is_hide_set() => listed.get_display_order(),
            _ => LABORATORY_PLACE + index,
        };
        let definition = command.clone().display_order(place);
        whole = whole.mut_subcommand(command.get_name(), |_| definition);
    }
    whole.after_help(None::<&str>)
}

/// The page of `ahead` itself. As in its help, the laboratory's commands have a separate heading, which clap_mangen does not know.
fn first_page(laboratory: &clap::Command) -> anyhow::Result<String> {
    let whole = complete_command(laboratory);
    let text = page(whole.clone())?.replacen(".SH SUBCOMMANDS\n", ".SH COMMANDS\n", 1);
    let is_first = |command: &&clap::Command| command.get_display_order() >= LABORATORY_PLACE && !command.is_hide_set();
    let first = whole.get_subcommands().filter(is_first).min_by_key(|command| command.get_display_order());
    let entry = format!(".TP\nahead\\-{}(1)\n", first.context("the laboratory has no command")?.get_name());
    let text = text.replacen(&entry, &format!(".SH LABORATORY\n{entry}"), 1);
    Ok(text.replacen(".SH VERSION\n", &format!("{}.SH VERSION\n", manual::sections(&whole)), 1))
}

fn page(command: clap::Command) -> anyhow::Result<String> {
    render(Man::new(without_help(command)))
}

fn render(page: Man) -> anyhow::Result<String> {
    let mut text = Vec::new();
    page.render(&mut text)?;
    Ok(String::from_utf8(text)?)
}

/// Removes the subcommand `help`, which needs no man pages: `ahead help show` prints the same as `ahead show --help`.
fn without_help(command: clap::Command) -> clap::Command {
    command.disable_help_subcommand(true).mut_subcommands(without_help)
}
