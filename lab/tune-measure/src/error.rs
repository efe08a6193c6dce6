//! The errors of this crate.

/// Shorthand.
pub type Result<T> = std::result::Result<T, Error>;

/// Why a window could not be measured.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The target cannot be found or its window cannot be set.
    #[error("{0}")]
    Tune(#[from] ahead_tune::Error),
    /// A run failed.
    #[error("{0}")]
    Bench(#[from] ahead_bench::Error),
    /// A profile cannot be read.
    #[error("{0}")]
    Profile(#[from] ahead_profile::LoadError),
    /// There is too little room to measure in.
    #[error(
        "{name} has room for {free_bytes} bytes, and what is measured with takes {needed_bytes}; make room, or run fewer streams \
         (--streams)"
    )]
    NoRoom {
        /// The directory.
        name: String,
        /// What there is.
        free_bytes: u64,
        /// What is needed.
        needed_bytes: u64,
    },
    /// It was there when it began.
    #[error("{name} has vanished while it was measured: {why}")]
    Vanished {
        /// The target.
        name: String,
        /// What failed.
        why: String,
    },
    /// A workload has nothing to read on this target.
    #[error("{0}")]
    Workload(String),
}

impl Error {
    /// Wraps a system error with what was tried.
    pub fn io(what: impl Into<String>, source: impl Into<std::io::Error>) -> Error {
        Error::Tune(ahead_tune::Error::io(what, source))
    }

    /// What cannot be had here (exit status 77), and why.
    pub fn unsupported(what: impl Into<String>, why: impl Into<String>) -> Error {
        Error::Tune(ahead_tune::Error::unsupported(what, why))
    }
}

impl From<ahead_sys::Error> for Error {
    fn from(error: ahead_sys::Error) -> Error {
        Error::Tune(error.into())
    }
}
