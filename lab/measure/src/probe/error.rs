//! Errors of this crate.

use std::io;

/// Result of this crate's functions.
pub type Result<T> = std::result::Result<T, Error>;

/// Why the probe failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The kernel refuses or lacks a call.
    #[error("{0}")]
    Kernel(#[from] ahead_sys::Error),
    /// A read or write of the probed file or device failed.
    #[error("{what}: {source}")]
    Io {
        /// The action that failed.
        what: String,
        /// The error of the system call.
        source: io::Error,
    },
    /// There is too little space for the test file.
    #[error(
        "{directory} has {free_bytes} bytes free, and a test file of {wanted_bytes} bytes and a reserve are wanted; choose a smaller one with --size, or another directory"
    )]
    NoSpace {
        /// The directory of the test file.
        directory: String,
        /// Free space, bytes.
        free_bytes: u64,
        /// Requested size of the test file, bytes.
        wanted_bytes: u64,
    },
    /// This file or device cannot be probed.
    #[error("{0}")]
    Unsuitable(String),
    /// The requested options contradict each other.
    #[error("{0}")]
    Usage(String),
    /// The watcher ended the probe.
    #[error("stopped")]
    Stopped,
}

impl Error {
    /// Wraps a system error with the action that failed.
    pub fn io(what: impl Into<String>, source: impl Into<io::Error>) -> Error {
        Error::Io { what: what.into(), source: source.into() }
    }
}
