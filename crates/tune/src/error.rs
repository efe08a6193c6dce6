//! What can go wrong.

use std::path::PathBuf;

/// Shorthand.
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
        /// What was tried.
        what: String,
        /// The system's answer.
        source: std::io::Error,
    },
    /// A file of ours holds something that we do not understand.
    #[error("{}: {why}; remove it if nobody needs what it says", path.display())]
    State {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
}

impl Error {
    /// Wraps a system error with what was tried.
    pub fn io(what: impl Into<String>, source: impl Into<std::io::Error>) -> Error {
        Error::Io { what: what.into(), source: source.into() }
    }

    pub(crate) fn from_io(source: std::io::Error) -> Error {
        Error::io("follow a layer", source)
    }

    /// What cannot be had here (exit status 77), and why.
    pub fn unsupported(what: impl Into<String>, why: impl Into<String>) -> Error {
        Error::Kernel(ahead_sys::Error::Unsupported { what: what.into(), why: why.into() })
    }
}
