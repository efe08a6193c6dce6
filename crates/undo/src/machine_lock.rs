//! The machine-wide lock: only one process at a time evicts the whole page cache, or changes settings of the whole machine for a
//! measurement. With two recordings at once, the first to end would restore the settings of both. Steering has a lock of the same kind.

use crate::home;
use ahead_sys::{Error, Result};
use rustix::fs::FlockOperation;
use rustix::io::Errno;
use std::fs::File;
use std::path::Path;

/// The held lock. Dropping it, or the end of the process, releases it.
#[derive(Debug)]
pub struct MachineLock {
    _file: File,
}

const PATH: &str = "/run/ahead/alone.lock";

/// Held by the process that steers: two of them would take each other's windows for advice of the programs.
const STEERING_PATH: &str = "/run/ahead/steer.lock";

impl MachineLock {
    /// Takes the lock if it is free. `None`: another process holds it.
    ///
    /// Errors: the lock file cannot be created (needs root).
    pub fn try_acquire() -> Result<Option<MachineLock>> {
        Self::try_acquire_at("a cold recording", PATH)
    }

    /// As [`Self::try_acquire`], for the only process that steers the read-ahead of others.
    pub fn try_acquire_steering() -> Result<Option<MachineLock>> {
        Self::try_acquire_at("steering read-ahead", STEERING_PATH)
    }

    /// `purpose`: the operation that needs it, for messages.
    fn try_acquire_at(purpose: &str, path: &str) -> Result<Option<MachineLock>> {
        let file = home::open_lock(purpose, Path::new(path))?;
        match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Some(MachineLock { _file: file })),
            Err(Errno::WOULDBLOCK) => Ok(None),
            Err(error) => Err(Error::io(format!("lock {path}"), error)),
        }
    }
}
