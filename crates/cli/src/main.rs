//! The `ahead` command; see the library of this package.

use ahead_cli::cli::Command;
use ahead_fetch::own_program;
use std::process::ExitCode;

fn main() -> ExitCode {
    match std::env::args_os().nth(1) {
        // At the start of a machine each read of this program waits behind those of others: all of them are submitted at once.
        Some(command) if command == "boot" => own_program::read_whole(),
        Some(command) if command == "run" => own_program::read_first(),
        _ => {}
    }
    if let Some(program) = ahead_cli::programs::with_help(std::env::args_os()) {
        return ahead_cli::exit::status(program.replace_process_with_own_arguments());
    }
    let command = Command::parse();
    ahead_cli::start_log();
    ahead_process::undo::guardian::enable(ahead_cli::GUARDIAN_ARGUMENTS);
    ahead_cli::exit::status(command.run())
}

// The progress display calls it.
ahead_sys::own_pow!(libm::pow);
