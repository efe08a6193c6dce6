//! Errors of this crate.

/// Result of this crate's functions.
pub type Result<T> = std::result::Result<T, Error>;

/// Why a window could not be measured.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The target cannot be found or its window cannot be set.
    #[error("{0}")]
    Tune(#[from] ahead_disk::tune::Error),
    /// A run of a job failed.
    #[error("{0}")]
    Bench(#[from] crate::bench::Error),
    /// A profile cannot be read.
    #[error("{0}")]
    Profile(#[from] ahead_profile::LoadError),
    /// There is too little space for the test files.
    #[error(
        "{name}: the test files need {needed_bytes} bytes, and {free_bytes} are free; free some space, or run fewer streams \
        (--streams)"
    )]
    NoRoom {
        /// The directory.
        name: String,
        /// Free space, bytes.
        free_bytes: u64,
        /// Size of all test files, bytes.
        needed_bytes: u64,
    },
    /// The target existed at the start of the measurement, and is missing now.
    #[error("{name} vanished during the measurement: {why}")]
    Vanished {
        /// The target.
        name: String,
        /// The call that failed.
        why: String,
    },
    /// A workload has no read on this target.
    #[error("{0}")]
    Workload(String),
}

impl Error {
    /// Wraps a system error with the action that failed.
    pub fn io(what: impl Into<String>, source: impl Into<std::io::Error>) -> Error {
        Error::Tune(ahead_disk::tune::Error::io(what, source))
    }

    /// An action that is not possible here (exit status 77), and the reason.
    pub fn unsupported(what: impl Into<String>, why: impl Into<String>) -> Error {
        Error::Tune(ahead_disk::tune::Error::unsupported(what, why))
    }
}

impl From<ahead_sys::Error> for Error {
    fn from(error: ahead_sys::Error) -> Error {
        Error::Tune(error.into())
    }
}
