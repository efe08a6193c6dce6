//! Errors of this crate.

use std::path::PathBuf;

/// Result of this crate's functions.
pub type Result<T> = std::result::Result<T, Error>;

/// Why a job did not run, or did not end.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Not permitted, not supported, or a system call failed.
    #[error("{0}")]
    Kernel(#[from] ahead_sys::Error),
    /// Reading through a policy failed.
    #[error("{0}")]
    Live(#[from] crate::bench::live::Error),
    /// The emulated disk does not answer.
    #[error("{0}")]
    Disk(#[from] ahead_disk::Error),
    /// There is no such policy.
    #[error("{0}")]
    Policy(#[from] ahead_policy::UnknownPolicy),
    /// An operation on a file failed.
    #[error("{what}: {source}")]
    Io {
        /// The action that failed.
        what: String,
        /// The error of the system call.
        source: std::io::Error,
    },
    /// There is too little space for the files.
    #[error(
        "{}: the job's files need {needed_bytes} bytes, and {free_bytes} are free; make them smaller with --size",
        path.display()
    )]
    NoRoom {
        path: PathBuf,
        /// Free space, bytes.
        free_bytes: u64,
        /// Size of the files, bytes.
        needed_bytes: u64,
    },
    /// The files cannot be evicted (a file system in memory; another process has mapped them).
    #[error(
        "{}: {cached_bytes} bytes stay in memory, and no run would be cold; choose a directory on a disk",
        path.display()
    )]
    NotCold {
        path: PathBuf,
        /// Bytes that stay cached.
        cached_bytes: u64,
    },
    /// The files existed at the start of the job, and are missing now.
    #[error("{} vanished during the measurement: {why}", path.display())]
    Vanished {
        /// The directory of the files.
        path: PathBuf,
        /// The call that failed, or the reason.
        why: String,
    },
    /// The description of a job has an error.
    #[error("{0}")]
    Job(String),
    /// `stop` was set.
    #[error("stopped")]
    Stopped,
}

impl Error {
    /// Wraps a system error with the action that failed.
    pub fn io(what: impl Into<String>, source: impl Into<std::io::Error>) -> Error {
        Error::Io { what: what.into(), source: source.into() }
    }

    /// The error of a refused thread (`ulimit -u`, `pids.max`).
    pub(crate) fn refused_thread(error: std::io::Error) -> Error {
        Error::io("start a thread for a reader (ulimit -u, pids.max)", error)
    }
}
