//! The machine-wide lock: only one process at a time evicts the whole page cache, or changes settings of the whole machine for a
//! measurement. With two recordings at once, the first to end would restore the settings of both.

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

impl MachineLock {
    /// Takes the lock if it is free. `None`: another process holds it.
    ///
    /// Errors: the lock file cannot be created (needs root).
    pub fn try_acquire() -> Result<Option<MachineLock>> {
        let file = home::open_lock("a cold recording", Path::new(PATH))?;
        match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Some(MachineLock { _file: file })),
            Err(Errno::WOULDBLOCK) => Ok(None),
            Err(error) => Err(Error::io(format!("lock {PATH}"), error)),
        }
    }
}
