//! The machine-wide lock: at most one process at a time evicts the whole page cache, or changes settings of the whole machine for a
//! measurement. The settings of two recordings at once would end with the first of them.

use crate::home;
use ahead_sys::{Error, Result};
use rustix::fs::FlockOperation;
use rustix::io::Errno;
use std::fs::File;
use std::path::Path;

/// The lock, held. Released when dropped, also when the process is killed.
#[derive(Debug)]
pub struct MachineLock {
    _file: File,
}

const PATH: &str = "/run/ahead/alone.lock";

impl MachineLock {
    /// Takes the lock if it is free. `None`: another process holds it.
    ///
    /// Errors: the file of the lock cannot be created (needs root).
    pub fn try_acquire() -> Result<Option<MachineLock>> {
        let file = home::open_lock("a cold recording", Path::new(PATH))?;
        match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Some(MachineLock { _file: file })),
            Err(Errno::WOULDBLOCK) => Ok(None),
            Err(error) => Err(Error::io(format!("lock {PATH}"), error)),
        }
    }
}
