//! The machine-wide lock for changes to state that the whole machine shares: the page cache and read-ahead.

use crate::notify::Notify;
use crate::stopping::unless_stopped;
use crate::{Result, Stopped, restore};
use ahead_process::Signals;
use ahead_process::undo::machine_lock::MachineLock;
use ahead_sys::machine;
use std::time::Duration;

/// Interval between attempts to take the lock and checks for a signal.
const RETRY_INTERVAL: Duration = Duration::from_millis(100);

/// Waits for the machine-wide lock: two cold recordings at once would disturb each other, as would a recording and a comparison. Then
/// restores the settings that killed processes left changed.
///
/// # Errors
/// [`Stopped`]; the lock needs root.
pub(crate) fn wait_for_machine(signals: &Signals, notify: Notify<'_>) -> Result<MachineLock> {
    let mut is_first_try = true;
    loop {
        if let Some(lock) = MachineLock::try_acquire()? {
            restore::settings(&lock, notify);
            return Ok(lock);
        }
        if std::mem::take(&mut is_first_try) {
            let holder = unless_stopped(signals, holder)?;
            notify(&format!("waiting for the end of another cold recording or measurement{holder}"));
        }
        if let Some(signal) = signals.wait(Some(RETRY_INTERVAL))? {
            return Err(Stopped(signal.number).into());
        }
    }
}

/// The characters of a command line that are shown: two lines of a terminal.
const MAX_COMMAND_CHARACTERS: usize = 160;

/// The process that holds the lock, for a message: `: process 4711 (ahead record --cold -- git status)`. Empty if it is unknown. May wait for
/// that process.
fn holder() -> String {
    let Some(pid) = MachineLock::holder() else { return String::new() };
    let command = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let words = command.split(|byte| *byte == 0).filter(|word| !word.is_empty());
    let line = words.map(String::from_utf8_lossy).collect::<Vec<_>>().join(" ");
    match line.char_indices().nth(MAX_COMMAND_CHARACTERS) {
        Some((end, _)) => format!(": process {pid} ({}…)", &line[..end]),
        None => format!(": process {pid} ({line})"),
    }
}

/// The same if the caller may take the lock; otherwise only restores the settings that killed processes left changed.
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
