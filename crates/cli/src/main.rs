//! The `ahead` command; see the library of this package.

use ahead_cli::cli::Command;
use std::process::ExitCode;

fn main() -> ExitCode {
    if std::env::args_os().nth(1).is_some_and(|command| command == "boot") {
        // At the start of a machine each read of this program waits behind those of others: all of them are submitted at once.
        ahead_boot::read_own_program();
    }
    if let Some(program) = ahead_cli::programs::with_help(std::env::args_os()) {
        return ahead_cli::exit::status(program.replace_process_with_own_arguments());
    }
    let command = Command::parse();
    ahead_cli::start_log();
    ahead_process::undo::guardian::enable(ahead_cli::GUARDIAN_ARGUMENTS);
    ahead_cli::exit::status(command.run())
}
