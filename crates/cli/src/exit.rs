//! Exit statuses: 0 done, 1 failed, 2 usage, 77 not permitted or not supported here, 128 + n stopped by signal n. `run` and
//! `record` pass on the program's own status, and use 125, 126 and 127 as env(1) and timeout(1) do.

use ahead_disk::Error as DiskError;
use ahead_process::ExecError;
use clap::error::ErrorKind as ArgumentErrorKind;
use std::fmt::Display;
use std::io::{ErrorKind, Write};
use std::process::ExitCode;

/// A mistake in the command line.
pub const USAGE: u8 = 2;
/// Not permitted or not supported here (as automake's test harness and others use it).
pub const UNAVAILABLE: u8 = 77;
/// `ahead` itself failed where otherwise the program's status would be passed on.
pub const OWN_FAILURE: u8 = 125;

pub use ahead::Stopped;

/// A mistake in the command line that only the command itself can find. The text is the whole message.
#[derive(Debug)]
pub struct UsageError(pub String);

impl std::fmt::Display for UsageError {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(&self.0)
    }
}

impl std::error::Error for UsageError {}

/// A mistake in the arguments of a subcommand that only the command itself can find. [`add_usage`] adds the usage.
pub fn argument_error(kind: ArgumentErrorKind, why: impl Display) -> anyhow::Error {
    clap::Error::raw(kind, why).into()
}

/// Adds the usage of the subcommand `name` to an [`argument_error`] in its arguments. `definition`: of the whole command line.
pub fn add_usage(error: anyhow::Error, definition: impl FnOnce() -> clap::Command, name: &str) -> anyhow::Error {
    match error.downcast::<clap::Error>() {
        Ok(error) => {
            let mut whole = definition();
            // Names and usages of subcommands are only complete then.
            whole.build();
            error.format(whole.find_subcommand_mut(name).expect("the command line has it")).into()
        }
        Err(other) => other,
    }
}

/// Prints an error as one line with its chain of causes, and gives the status for it.
pub fn status(result: anyhow::Result<ExitCode>) -> ExitCode {
    match result {
        Ok(code) => code,
        // `ahead show … | head`: the reader has seen enough.
        Err(error) if is_closed_output(&error) => ExitCode::SUCCESS,
        Err(error) => {
            // Standard error may be closed, too: then the message has no reader.
            let _ = match error.downcast_ref::<clap::Error>() {
                Some(error) => error.print(),
                None => writeln!(std::io::stderr(), "ahead: {}", message(&error)),
            };
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
pub fn message(error: &anyhow::Error) -> String {
    let mut text = error.to_string();
    for cause in error.chain().skip(1).map(ToString::to_string) {
        if !text.ends_with(&cause) {
            text = format!("{text}: {cause}");
        }
    }
    ahead_report::text::one_line(&text)
}

/// The status for an error.
pub fn code_of(error: &anyhow::Error) -> u8 {
    for cause in error.chain() {
        if let Some(stopped) = cause.downcast_ref::<Stopped>() {
            return stopped.code();
        }
        match cause.downcast_ref() {
            Some(DiskError::Interrupted(signal) | DiskError::StillAttached(signal)) => return Stopped(*signal).code(),
            Some(DiskError::Usage(_)) => return USAGE,
            Some(error) if error.is_unavailable() => return UNAVAILABLE,
            _ => {}
        }
        if let Some(exec) = cause.downcast_ref::<ExecError>() {
            match exec {
                ExecError::Own(own) if own.is_unavailable() => return UNAVAILABLE,
                _ => return exec.code() as u8,
            }
        }
        if cause.is::<UsageError>() || cause.is::<clap::Error>() {
            return USAGE;
        }
        if cause.downcast_ref().is_some_and(ahead_sys::Error::is_unavailable) {
            return UNAVAILABLE;
        }
    }
    1
}

/// Only what was written to our own output fails without any words around it: every other pipe is named in its error.
fn is_closed_output(error: &anyhow::Error) -> bool {
    let outermost = error.chain().next().and_then(|error| error.downcast_ref::<std::io::Error>());
    outermost.is_some_and(|error| error.kind() == ErrorKind::BrokenPipe)
}

#[cfg(test)]
mod tests {
    use super::*;
    use anyhow::Context;

    #[test]
    fn only_our_own_output_may_be_closed() {
        let broken = || std::io::Error::from(ErrorKind::BrokenPipe);
        assert!(is_closed_output(&anyhow::Error::from(broken())));
        let gate = ahead_sys::Error::io("start the program", broken());
        assert!(!is_closed_output(&gate.into()));
        assert!(!is_closed_output(&Err::<(), _>(broken()).context("read").unwrap_err()));
    }
}
