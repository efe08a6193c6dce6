//! The errors of this crate, each with the sentence a person needs.

use std::io;
use std::path::{Path, PathBuf};

/// Shorthand.
pub type Result<T> = std::result::Result<T, Error>;

/// What can go wrong between us and the kernel.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The caller lacks a privilege. Exit status 77.
    #[error("{what} is not permitted: {remedy}")]
    NotPermitted {
        /// What was tried.
        what: String,
        /// The exact remedy, an imperative sentence.
        remedy: String,
    },
    /// The kernel, the machine or the file system does not have it. Exit status 77.
    #[error("{what} is not supported here: {why}")]
    Unsupported {
        /// What was tried.
        what: String,
        /// What is missing.
        why: String,
    },
    /// A system call failed.
    #[error("{what}: {source}")]
    Io {
        /// What was tried, with its object.
        what: String,
        /// The system's answer.
        source: io::Error,
    },
    /// A kernel file holds something that we do not understand.
    #[error("{path}: cannot understand {text:?}", path = path.display())]
    Parse {
        /// The kernel file.
        path: PathBuf,
        /// The part that was not understood.
        text: String,
    },
}

impl Error {
    /// Wraps a system error with what was tried. `EPERM` and `EACCES` stay [`Error::Io`]: whether root would help
    /// is known only where it happens, see [`Error::needs_root`].
    pub fn io(what: impl Into<String>, source: impl Into<io::Error>) -> Self {
        Error::Io { what: what.into(), source: source.into() }
    }

    /// `what` needs root.
    pub fn needs_root(what: impl Into<String>) -> Self {
        Error::NotPermitted { what: what.into(), remedy: "run it as root (sudo ahead …)".into() }
    }

    /// What `what` needs cannot be written at `path`. Below `/run` that is so for everybody but root, and in a container
    /// with a read-only `/run` for root, too.
    pub fn unwritable(what: impl Into<String>, path: &Path, source: io::Error) -> Self {
        match source.kind() {
            io::ErrorKind::PermissionDenied => Error::needs_root(what),
            io::ErrorKind::ReadOnlyFilesystem => {
                Error::Unsupported { what: what.into(), why: format!("{} cannot be written", path.display()) }
            }
            _ => Error::io(format!("write {}", path.display()), source),
        }
    }

    /// `true` where the contract asks for exit status 77: not permitted or not supported here.
    pub fn is_unavailable(&self) -> bool {
        matches!(self, Error::NotPermitted { .. } | Error::Unsupported { .. })
    }

    /// The system's error number, if this came from a system call.
    pub fn raw_os_error(&self) -> Option<i32> {
        match self {
            Error::Io { source, .. } => source.raw_os_error(),
            _ => None,
        }
    }

    /// Something is in use (`EBUSY`).
    pub fn is_busy(&self) -> bool {
        self.raw_os_error() == Some(libc::EBUSY)
    }

    /// Something is there already (`EEXIST`).
    pub fn exists(&self) -> bool {
        self.raw_os_error() == Some(libc::EEXIST)
    }
}
