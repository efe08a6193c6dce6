//! Undoing the changes noted for the daemon of a disk.

use crate::{Error, Result};
use ahead_process::undo::{Outcome, ProcessId, Restored};
use ahead_sys::machine;
use std::time::Duration;

/// Timeout for a daemon to end after the request. It only has to unmount, which takes milliseconds.
pub const END_TIME: Duration = Duration::from_secs(10);

/// Errors: the caller is not root.
pub fn require_root() -> Result<()> {
    match machine::is_root() {
        true => Ok(()),
        false => Err(ahead_sys::Error::needs_root("emulating a disk").into()),
    }
}

/// Undoes the changes noted for an ended process, and logs those that are not undone. Returns the first error.
pub fn undo_all_of(process: ProcessId) -> Result<()> {
    first_failure(ahead_process::undo::restore_owned_by(process)?)
}

/// As [`undo_all_of`], only for kernel settings, while the process still runs.
pub fn restore_settings_of(process: ProcessId) -> Result<()> {
    first_failure(ahead_process::undo::restore_settings_of(process)?)
}

fn first_failure(restored: Vec<Restored>) -> Result<()> {
    let mut first = Ok(());
    for Restored { action, outcome } in restored {
        match outcome {
            Ok(Outcome::Undone) => {}
            Ok(Outcome::LeftAlone(why)) => tracing::warn!("the {action} is left alone: {why}"),
            Err(error) => first = first.and(Err(error)),
        }
    }
    first.map_err(Error::from)
}
