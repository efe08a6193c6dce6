//! What can go wrong.

use std::path::PathBuf;

/// Shorthand.
pub type Result<T> = std::result::Result<T, Error>;

/// Why a job was not run, or not to its end.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Not permitted, not supported, or a system call failed.
    #[error("{0}")]
    Kernel(#[from] ahead_sys::Error),
    /// Reading through a policy failed.
    #[error("{0}")]
    Live(#[from] ahead_live::Error),
    /// The emulated disk does not answer.
    #[error("{0}")]
    Disk(#[from] ahead_disk::Error),
    /// A policy cannot be had.
    #[error("{0}")]
    Policy(#[from] ahead_policy::UnknownPolicy),
    /// An operation on a file failed.
    #[error("{what}: {source}")]
    Io {
        /// What was tried.
        what: String,
        /// The system's answer.
        source: std::io::Error,
    },
    /// There is too little room for the files.
    #[error(
        "{} has room for {free_bytes} bytes, and the job's files take {needed_bytes}; make them smaller with --size",
        path.display()
    )]
    NoRoom {
        /// Where they were to be made.
        path: PathBuf,
        /// What is free there.
        free_bytes: u64,
        /// What they would take.
        needed_bytes: u64,
    },
    /// The files stay cached whatever is done (a file system in memory; somebody has them mapped).
    #[error(
        "{cached_bytes} bytes of {} stay in memory, so that no run on it is cold; choose a directory on a disk",
        path.display()
    )]
    NotCold {
        /// The file.
        path: PathBuf,
        /// What stays.
        cached_bytes: u64,
    },
    /// It was there when it began.
    #[error("{} has vanished while it was measured: {why}", path.display())]
    Vanished {
        /// What the files were in.
        path: PathBuf,
        /// What failed.
        why: String,
    },
    /// A job was put together wrongly.
    #[error("{0}")]
    Job(String),
    /// It was asked to stop.
    #[error("stopped")]
    Stopped,
}

impl Error {
    /// Wraps a system error with what was tried.
    pub fn io(what: impl Into<String>, source: impl Into<std::io::Error>) -> Error {
        Error::Io { what: what.into(), source: source.into() }
    }
}
