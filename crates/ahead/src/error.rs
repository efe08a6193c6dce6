//! The errors of the library.

use ahead_process::ExecError;
use std::io;

/// Shorthand.
pub type Result<T> = std::result::Result<T, Error>;

/// Why a program could not be run or observed.
#[derive(Debug, thiserror::Error)]
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
        /// What was tried.
        what: String,
        /// The system's answer.
        source: io::Error,
    },
    /// Readiness cannot be seen: another process listens on the port already.
    #[error("port {0} is listened on already: end the process that listens, or name another port")]
    PortInUse(u16),
    /// Readiness cannot be seen: the file system of the file does not answer.
    #[error("--until-file: its file system does not answer")]
    FileNotAnswering,
    /// A signal asked us to stop.
    #[error("{0}")]
    Stopped(#[from] Stopped),
}

impl Error {
    /// Wraps a system error with what was tried.
    pub fn io(what: impl Into<String>, source: io::Error) -> Error {
        Error::Io { what: what.into(), source }
    }
}

/// A signal asked us to stop before there was anything to keep. The status is that of a program that the signal ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("stopped by signal {0}; nothing is left behind")]
pub struct Stopped(pub i32);

impl Stopped {
    /// The exit status, as a shell reports it.
    pub fn code(self) -> u8 {
        128 + self.0 as u8
    }
}
