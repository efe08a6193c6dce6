//! The `ahead` command: one file per subcommand, each with its flags and what it does with the rooms behind it.
//!
//! In come arguments; out come results on standard output, everything else on standard error, and the exit status of
//! the contract (`exit.rs`). Nothing is decided here that a library crate could decide.

mod bench;
mod cli;
mod compare;
mod disk;
mod drives;
mod exit;
mod generate;
mod output;
mod papers;
mod patience;
mod probe;
mod record;
mod replay;
mod restore;
mod run;
mod show;
mod sim;
mod tune;
mod until;
mod words;

use clap::Parser;
use std::io::IsTerminal;
use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments = cli::Cli::parse();
    tracing_subscriber::fmt()
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none())
        .with_env_filter(tracing_subscriber::EnvFilter::try_from_env("AHEAD_LOG").unwrap_or_else(|_| "warn".into()))
        .without_time()
        .with_target(false)
        .init();
    // A disk's daemon has its own.
    if !matches!(arguments.command, cli::Command::Disk(_)) {
        ahead_undo::guardian::enable(&["restore", "--after"]);
    }
    exit::status(arguments.command.run())
}
