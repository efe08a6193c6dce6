//! The `ahead-steer` command; see the library of this package.

use ahead_steer_cli::Cli;
use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments = Cli::read();
    ahead_cli::start_log();
    ahead_process::undo::guardian::enable(ahead_cli::GUARDIAN_ARGUMENTS);
    ahead_cli::exit::status(arguments.command.run())
}
