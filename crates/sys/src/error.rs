//! The errors of this crate, each with a message for users.

use std::io;
use std::path::{Path, PathBuf};

/// Result with this crate's [`Error`].
pub type Result<T> = std::result::Result<T, Error>;

/// A failed system call or kernel file access.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The caller lacks a privilege. Exit status 77.
    #[error("{what} is not permitted: {remedy}")]
    NotPermitted {
        /// The operation.
        what: String,
        /// The exact remedy, an imperative sentence.
        remedy: String,
    },
    /// The kernel, the machine or the file system does not support it. Exit status 77.
    #[error("{what} is not supported here: {why}")]
    Unsupported {
        /// The operation.
        what: String,
        /// The missing feature or condition.
        why: String,
    },
    /// A system call failed.
    #[error("{what}: {source}")]
    Io {
        /// The operation and its object.
        what: String,
        /// The error of the system.
        source: io::Error,
    },
    /// The content of a kernel file is not understood.
    #[error("{path}: unexpected content {text:?}", path = path.display())]
    Parse {
        /// The kernel file.
        path: PathBuf,
        /// The part that was not understood.
        text: String,
    },
}

impl Error {
    /// Wraps a system error with the operation. `EPERM` and `EACCES` stay [`Error::Io`]: only the caller knows whether
    /// root would help, see [`Error::needs_root`].
    pub fn io(what: impl Into<String>, source: impl Into<io::Error>) -> Self {
        Error::Io { what: what.into(), source: source.into() }
    }

    /// `what` needs root.
    pub fn needs_root(what: impl Into<String>) -> Self {
        Error::NotPermitted { what: what.into(), remedy: "run it as root (sudo ahead …)".into() }
    }

    /// `what` failed because `path` cannot be written. Below `/run` this happens to every user except root; in a
    /// container with a read-only `/run`, to root, too.
    pub fn unwritable(what: impl Into<String>, path: &Path, source: io::Error) -> Self {
        match source.kind() {
            io::ErrorKind::PermissionDenied => Error::needs_root(what),
            io::ErrorKind::ReadOnlyFilesystem => {
                Error::Unsupported { what: what.into(), why: format!("{} cannot be written: {source}", path.display()) }
            }
            _ => Error::io(format!("write {}", path.display()), source),
        }
    }

    /// `true` where the exit status is 77: not permitted or not supported.
    pub fn is_unavailable(&self) -> bool {
        matches!(self, Error::NotPermitted { .. } | Error::Unsupported { .. })
    }

    /// The error number, if a system call failed.
    pub fn raw_os_error(&self) -> Option<i32> {
        match self {
            Error::Io { source, .. } => source.raw_os_error(),
            _ => None,
        }
    }

    /// The object is in use (`EBUSY`).
    pub fn is_busy(&self) -> bool {
        self.raw_os_error() == Some(libc::EBUSY)
    }

    /// The object exists already (`EEXIST`).
    pub fn exists(&self) -> bool {
        self.raw_os_error() == Some(libc::EEXIST)
    }
}
