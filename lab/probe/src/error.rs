//! Why nothing can be found out.

use std::io;

/// Shorthand.
pub type Result<T> = std::result::Result<T, Error>;

/// What can go wrong.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The kernel refuses or lacks something.
    #[error("{0}")]
    Kernel(#[from] ahead_sys::Error),
    /// A read or write of what is probed failed.
    #[error("{what}: {source}")]
    Io {
        /// What was tried.
        what: String,
        /// The system's answer.
        source: io::Error,
    },
    /// The test file has no room.
    #[error(
        "{directory} has {free_bytes} bytes free, and a test file of {wanted_bytes} bytes and a reserve are wanted; choose a smaller one with --size, or another directory"
    )]
    NoSpace {
        /// Where.
        directory: String,
        /// Free there.
        free_bytes: u64,
        /// Asked for.
        wanted_bytes: u64,
    },
    /// This can't be probed.
    #[error("{0}")]
    Unsuitable(String),
    /// What is asked for makes no sense together.
    #[error("{0}")]
    Usage(String),
    /// The watcher ended the probe.
    #[error("stopped")]
    Stopped,
}

impl Error {
    /// Wraps a system error with what was tried.
    pub fn io(what: impl Into<String>, source: impl Into<io::Error>) -> Error {
        Error::Io { what: what.into(), source: source.into() }
    }
}
