//! Undoing what was noted for the daemon of a disk.

use crate::{Error, Result};
use ahead_sys::machine;
use ahead_undo::{Outcome, ProcessId, Restored};
use std::time::Duration;

/// How long a daemon may take to end after it was asked to. It only has to unmount; measured in milliseconds.
pub const END_TIME: Duration = Duration::from_secs(10);

/// Refuses every other user.
pub fn require_root() -> Result<()> {
    match machine::is_root() {
        true => Ok(()),
        false => Err(ahead_sys::Error::needs_root("emulating a disk").into()),
    }
}

/// Undoes what was noted for a process that has ended, and logs what is left alone. The first failure is the error.
pub fn undo_all_of(process: ProcessId) -> Result<()> {
    first_failure(ahead_undo::restore_owned_by(process)?)
}

/// The same for the settings of the kernel only, while the process still lives.
pub fn restore_settings_of(process: ProcessId) -> Result<()> {
    first_failure(ahead_undo::restore_settings_of(process)?)
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
