//! The errors of the library.

use ahead_process::ExecError;
use ahead_profile::{LoadError, SaveError};
use std::io;

/// Shorthand.
pub type Result<T> = std::result::Result<T, Error>;

/// Why a program could not be run or observed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Not permitted, not supported, or a system call failed.
    #[error("{0}")]
    Sys(#[from] ahead_sys::Error),
    /// The program could not be started.
    #[error("{0}")]
    Exec(#[from] ExecError),
    /// An operation on a file or pipe failed.
    #[error("{what}: {source}")]
    Io {
        /// The attempted operation.
        what: String,
        /// The system's error.
        source: io::Error,
    },
    /// Readiness cannot be observed: another process listens on the port already.
    #[error("port {0} is listened on already: end the process that listens, or name another port")]
    PortInUse(u16),
    /// Readiness cannot be observed: the file system of the file does not answer.
    #[error("the file that shows readiness: its file system does not answer")]
    FileNotAnswering,
    /// The command of a comparison failed in its first run, with this status, and failures are not to be measured.
    #[error(
        "the command failed in its first run (exit status {0}): the time of a failure is not that of its work, so nothing was measured"
    )]
    CommandFailed(i32),
    /// A signal arrived.
    #[error("{0}")]
    Stopped(#[from] Stopped),
    /// The profile could not be loaded.
    #[error("{0}")]
    Load(#[from] LoadError),
    /// The profile could not be saved.
    #[error("{0}")]
    Save(#[from] SaveError),
    /// A request to an emulated disk failed.
    #[error("{0}")]
    Disk(#[from] ahead_disk::Error),
    /// One of the above, with the attempted operation.
    #[error("{what}: {source}")]
    While {
        /// The attempted operation.
        what: String,
        /// The error.
        source: Box<Error>,
    },
    /// Any other error: the whole message.
    #[error("{0}")]
    Failed(String),
}

/// Adds the attempted operation to an error.
pub(crate) trait Context<T> {
    /// Adds the attempted operation.
    fn context(self, what: impl FnOnce() -> String) -> Result<T>;
}

impl<T, E: Into<Error>> Context<T> for std::result::Result<T, E> {
    fn context(self, what: impl FnOnce() -> String) -> Result<T> {
        self.map_err(|error| Error::While { what: what(), source: Box::new(error.into()) })
    }
}

/// Adds the attempted operation to a system error.
pub(crate) trait IoContext<T> {
    /// Adds the attempted operation.
    fn what(self, what: &str) -> Result<T>;
}

impl<T, E: Into<io::Error>> IoContext<T> for std::result::Result<T, E> {
    fn what(self, what: &str) -> Result<T> {
        self.map_err(|error| Error::io(what, error.into()))
    }
}

impl Error {
    /// Adds the attempted operation.
    pub fn io(what: impl Into<String>, source: io::Error) -> Error {
        Error::Io { what: what.into(), source }
    }
}

/// A signal arrived before there was a result to keep. The exit status is that of a program that the signal ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("stopped by signal {0}; nothing is left behind")]
pub struct Stopped(pub i32);

impl Stopped {
    /// The exit status, as a shell reports it.
    pub fn code(self) -> u8 {
        128 + self.0 as u8
    }
}
