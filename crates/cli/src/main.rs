//! The `ahead` command; see the library of this package.

use ahead_cli::cli::Command;
use std::process::ExitCode;

fn main() -> ExitCode {
    if std::env::args_os().nth(1).is_some_and(|command| command == "boot") {
        // At the start of a machine each read of this program waits behind those of others: all of them are submitted at once.
        ahead::boot::read_own_program();
    }
    if ahead_cli::is_help_of_laboratory(std::env::args_os()) {
        return ahead_cli::exit::status(ahead_cli::become_laboratory_with_own_arguments());
    }
    let command = Command::parse();
    ahead_cli::start_log();
    ahead_undo::guardian::enable(ahead_cli::GUARDIAN_ARGUMENTS);
    ahead_cli::exit::status(command.run())
}
