//! The errors of this crate.

use std::io;

/// Result with this crate's [`Error`].
pub type Result<T> = std::result::Result<T, Error>;

/// An error of an emulated disk. Each message is one line and says what to do.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Not permitted or not supported here, or a system call failed.
    #[error("{0}")]
    Kernel(ahead_sys::Error),
    /// Invalid for this machine's state: a bad image, mount point, name or model.
    #[error("{0}")]
    Invalid(String),
    /// Invalid on every machine: a mistake in the command line.
    #[error("{0}")]
    Usage(String),
    /// The disk is in use.
    #[error("{0}")]
    Busy(String),
    /// There is no such disk.
    #[error("{0}: no such emulated disk; `ahead disk list` lists the disks")]
    Unknown(String),
    /// A system call failed.
    #[error("{what}: {error}")]
    Io {
        /// The operation and its object.
        what: String,
        /// The error of the system.
        error: io::Error,
    },
    /// The daemon reported an error; its message.
    #[error("{0}")]
    Daemon(String),
    /// A signal asked for an end before the disk was ready.
    #[error("interrupted; nothing is left behind")]
    Interrupted(i32),
    /// A signal asked for an end before the disk was detached.
    #[error("interrupted; the disk is unchanged")]
    StillAttached(i32),
}

impl Error {
    /// Wraps a system error with the operation.
    pub fn io(what: impl Into<String>, error: impl Into<io::Error>) -> Self {
        Error::Io { what: what.into(), error: error.into() }
    }

    /// Whether the exit status is 77: not permitted or not supported.
    pub fn is_unavailable(&self) -> bool {
        matches!(self, Error::Kernel(error) if error.is_unavailable())
    }
}

impl From<ahead_sys::Error> for Error {
    fn from(error: ahead_sys::Error) -> Self {
        Error::Kernel(error)
    }
}
