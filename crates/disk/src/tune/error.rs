//! Errors.

use std::path::PathBuf;

/// Result with this crate's [`Error`].
pub type Result<T> = std::result::Result<T, Error>;

/// Why a window could not be found, set or kept.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Not permitted, not supported, or a system call failed.
    #[error("{0}")]
    Kernel(#[from] ahead_sys::Error),
    /// An operation on a file failed.
    #[error("{what}: {source}")]
    Io {
        /// The operation.
        what: String,
        /// The error of the system.
        source: std::io::Error,
    },
    /// The content of one of our files is invalid.
    #[error("{}: {why}; remove the file if it is not needed", path.display())]
    State {
        path: PathBuf,
        /// The reason.
        why: String,
    },
}

impl Error {
    /// Wraps a system error with the operation.
    pub fn io(what: impl Into<String>, source: impl Into<std::io::Error>) -> Error {
        Error::Io { what: what.into(), source: source.into() }
    }

    pub(crate) fn from_io(source: std::io::Error) -> Error {
        Error::io("resolve a layer", source)
    }

    /// An operation that is not supported here (exit status 77), with the reason.
    pub fn unsupported(what: impl Into<String>, why: impl Into<String>) -> Error {
        Error::Kernel(ahead_sys::Error::Unsupported { what: what.into(), why: why.into() })
    }
}
