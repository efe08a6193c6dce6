//! Why steering cannot start or go on.

use crate::rules::RulesError;

/// Result with this crate's [`Error`].
pub type Result<T> = std::result::Result<T, Error>;

/// Why steering cannot start or go on: one line for users.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A system call failed, or is not permitted or supported.
    #[error("{0}")]
    Kernel(#[from] ahead_sys::Error),
    /// The rules file has a mistake.
    #[error("rules: {0}")]
    Rules(#[from] RulesError),
    /// Another process steers.
    #[error("another ahead steer runs already; see: fuser -v /run/ahead/steer.lock")]
    Busy,
}

impl Error {
    /// `true` where the exit status is 77: not permitted or not supported.
    pub fn is_unavailable(&self) -> bool {
        matches!(self, Error::Kernel(error) if error.is_unavailable())
    }
}
