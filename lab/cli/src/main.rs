//! The `ahead-lab` command: one file for each subcommand, which parses flags, calls the crates of the laboratory, and prints results.
//!
//! Results go to standard output, everything else to standard error. Exit statuses, output files and the machine-wide lock are those of
//! `ahead` (`ahead-cli`). `ahead sim …` starts this program.

mod bench;
mod cli;
mod disk;
mod generate;
mod interruptible;
mod papers;
mod probe;
mod sim;
mod tune;

use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments = cli::Cli::read();
    ahead_cli::start_log();
    // The server of a disk has another guardian.
    if !matches!(arguments.command, cli::Command::Disk(_)) {
        ahead_process::undo::guardian::enable(ahead_cli::GUARDIAN_ARGUMENTS);
    }
    ahead_cli::exit::status(arguments.command.run())
}
