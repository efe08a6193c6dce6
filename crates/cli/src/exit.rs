//! Exit statuses: 0 done, 1 failed, 2 usage (clap), 77 not permitted or not supported here. `run` and `record` pass on
//! the program's own status, and use 125, 126 and 127 as env(1) and timeout(1) do.

use ahead_kernel::process::ExecError;
use std::io::{ErrorKind, Write};
use std::process::ExitCode;

/// Not permitted or not supported here (as automake's test harness and others use it).
pub const UNAVAILABLE: u8 = 77;
/// `ahead` itself failed where otherwise the program's status would be passed on.
pub const OWN_FAILURE: u8 = 125;

/// Prints an error as one line with its chain of causes, and gives the status for it.
pub fn status(result: anyhow::Result<ExitCode>) -> ExitCode {
    match result {
        Ok(code) => code,
        // `ahead show … | head`: the reader has seen enough.
        Err(error) if is_broken_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            // Standard error may be closed too: then there is nobody left to tell.
            let _ = writeln!(std::io::stderr(), "ahead: {}", message(&error));
            ExitCode::from(code_of(&error))
        }
    }
}

/// For commands that pass on a program's status: our own failures become 125, except the contract's 77.
pub fn status_beside_program(result: anyhow::Result<ExitCode>) -> anyhow::Result<ExitCode> {
    result.or_else(|error| match code_of(&error) {
        1 => {
            let _ = writeln!(std::io::stderr(), "ahead: {}", message(&error));
            Ok(ExitCode::from(OWN_FAILURE))
        }
        _ => Err(error),
    })
}

/// The error and its causes as one line. A cause is left out where the text of what it caused ends with it already, as
/// that of most errors does.
fn message(error: &anyhow::Error) -> String {
    let mut text = error.to_string();
    for cause in error.chain().skip(1).map(ToString::to_string) {
        if !text.ends_with(&cause) {
            text = format!("{text}: {cause}");
        }
    }
    ahead_report::text::one_line(&text)
}

fn code_of(error: &anyhow::Error) -> u8 {
    for cause in error.chain() {
        if let Some(exec) = cause.downcast_ref::<ExecError>() {
            match exec {
                ExecError::Own(own) if own.is_unavailable() => return UNAVAILABLE,
                _ => return exec.code() as u8,
            }
        }
        if let Some(own) = cause.downcast_ref::<ahead_kernel::Error>()
            && own.is_unavailable()
        {
            return UNAVAILABLE;
        }
    }
    1
}

fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error
        .chain()
        .filter_map(|cause| cause.downcast_ref::<std::io::Error>())
        .any(|cause| cause.kind() == ErrorKind::BrokenPipe)
}
