//! The right to change what the whole machine shares: its page cache and its read-ahead.

use crate::notify::Notify;
use crate::{Result, Stopped, restore};
use ahead_process::Signals;
use ahead_sys::machine;
use ahead_undo::machine_lock::MachineLock;
use std::time::Duration;

/// How often the lock is tried, and a signal is looked for.
const RETRY_INTERVAL: Duration = Duration::from_millis(100);

/// Waits for the machine-wide lock: two cold recordings at once would disturb each other, as would a recording and a comparison. Then sets
/// back what killed processes left changed.
///
/// # Errors
/// [`Stopped`]; the lock needs root.
pub fn wait_for_machine(signals: &Signals, notify: Notify<'_>) -> Result<MachineLock> {
    let mut is_first_try = true;
    loop {
        if let Some(lock) = MachineLock::try_acquire()? {
            restore::settings(&lock, notify);
            return Ok(lock);
        }
        if std::mem::take(&mut is_first_try) {
            notify("waiting for the end of another cold recording or measurement");
        }
        if let Some(signal) = signals.wait(Some(RETRY_INTERVAL))? {
            return Err(Stopped(signal.number).into());
        }
    }
}

/// The same where the caller may take the lock; otherwise only sets back what killed processes left changed.
///
/// # Errors
/// As [`wait_for_machine`].
pub fn wait_for_machine_as_root(signals: &Signals, notify: Notify<'_>) -> Result<Option<MachineLock>> {
    if machine::is_root() {
        return wait_for_machine(signals, notify).map(Some);
    }
    restore::settings_if_free(notify);
    Ok(None)
}
