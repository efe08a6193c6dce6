//! The errors of this crate.

use std::io;

/// Shorthand.
pub type Result<T> = std::result::Result<T, Error>;

/// What can go wrong with an emulated disk. Each is one line that says what to do.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The kernel refused, or something is missing here.
    #[error("{0}")]
    Kernel(ahead_sys::Error),
    /// What was asked for does not go together with what is there: a bad image, mount point, name or model.
    #[error("{0}")]
    Invalid(String),
    /// What was asked for can be no disk at all, whatever there is on this machine: a mistake in the command line.
    #[error("{0}")]
    Usage(String),
    /// Something still uses the disk.
    #[error("{0}")]
    Busy(String),
    /// There is no such disk.
    #[error("{0}: no such emulated disk; `ahead disk list` shows those there are")]
    Unknown(String),
    /// A system call failed.
    #[error("{what}: {error}")]
    Io {
        /// What was tried, with its object.
        what: String,
        /// The system's answer.
        error: io::Error,
    },
    /// The daemon could not do it; its own words.
    #[error("{0}")]
    Daemon(String),
    /// A signal asked us to stop before the disk was ready.
    #[error("interrupted; nothing is left behind")]
    Interrupted(i32),
    /// A signal asked us to stop before the disk was detached.
    #[error("interrupted; the disk is as it was")]
    StillAttached(i32),
}

impl Error {
    /// Wraps a system error with what was tried.
    pub fn io(what: impl Into<String>, error: impl Into<io::Error>) -> Self {
        Error::Io { what: what.into(), error: error.into() }
    }

    /// Whether exit status 77 is due: not permitted or not supported here.
    pub fn is_unavailable(&self) -> bool {
        matches!(self, Error::Kernel(error) if error.is_unavailable())
    }
}

impl From<ahead_sys::Error> for Error {
    fn from(error: ahead_sys::Error) -> Self {
        Error::Kernel(error)
    }
}
