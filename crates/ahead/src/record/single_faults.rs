//! Limits faults to one page while any process records.
//!
//! The setting is the whole machine's, and recordings may overlap:
//!
//! ```text
//!     A   65536 ──▶ 4096 ················ ends: B still records, the setting stays
//!     B                 (4096 already) ······························ ends last: back to 65536
//! ```
//!
//! The undo notes of running processes are the list of recordings that need the setting. Each note has the value from before the
//! first one. A lock makes reading the list and changing the setting one step.

use ahead_process::undo::home;
use ahead_process::undo::{Action, Guard, Note, ProcessId};
use ahead_sys::{Error, Result, machine};
use std::fs::File;
use std::path::{Path, PathBuf};

/// The file of the setting, in debugfs.
pub(super) const SETTING: &str = "fault_around_bytes";

const LOCK: &str = "/run/ahead/fault_around.lock";

/// Faults map only one page while this value lives.
#[derive(Debug)]
pub struct SingleFaults {
    file: PathBuf,
    guard: Option<Guard>,
    /// The mount and directory of the setting, removed after the setting is restored.
    _mounts: Vec<Guard>,
}

impl SingleFaults {
    /// Sets this kernel file (identified by its name, not by its directory) to the page size.
    pub(super) fn switch(file: PathBuf, mounts: Vec<Guard>) -> Result<SingleFaults> {
        let _lock = lock()?;
        let (now, single) = (read(&file)?, machine::page_size().to_string());
        // With another value than ours, notes are obsolete: another process has set it since.
        let noted = if now == single { notes(&file)? } else { Vec::new() };
        let before = noted.into_iter().find_map(|(_, old)| (old != single).then_some(old)).unwrap_or(now.clone());
        let guard =
            ahead_process::undo::note(Action::SetFile { path: file.clone(), old: before, new: Some(single.clone()) })?;
        if now != single {
            std::fs::write(&file, &single).map_err(|e| Error::io(format!("write {}", file.display()), e))?;
        }
        Ok(SingleFaults { file, guard: Some(guard), _mounts: mounts })
    }

    /// Whether the setting is unchanged. `sudo ahead restore` leaves it to the last recording that needs it.
    pub fn holds(&self) -> bool {
        read(&self.file).is_ok_and(|now| now == machine::page_size().to_string())
    }
}

impl Drop for SingleFaults {
    fn drop(&mut self) {
        let Some(guard) = self.guard.take() else { return };
        // Without the lock, restoring is still better than not restoring.
        let _lock = lock();
        // One of them is ours.
        let running = notes(&self.file).map_or(1, |all| all.iter().filter(|(owner, _)| owner.is_executing()).count());
        let is_needed = running > 1;
        let done = if is_needed { guard.keep() } else { guard.undo() };
        if let Err(error) = done {
            tracing::warn!("cannot restore {} (run `sudo ahead restore` to try again): {error}", self.file.display());
        }
    }
}

/// Whether a running recording has limited faults to one page.
pub fn is_fault_around_off() -> bool {
    notes(Path::new(SETTING)).is_ok_and(|all| all.iter().any(|(owner, _)| owner.is_executing()))
}

fn read(file: &Path) -> Result<String> {
    let text = std::fs::read_to_string(file).map_err(|e| Error::io(format!("read {}", file.display()), e))?;
    Ok(text.trim().to_owned())
}

/// The owners of notes about this setting, with the earlier value. The path differs between processes: without a mounted
/// debugfs, each mounts its own.
fn notes(file: &Path) -> Result<Vec<(ProcessId, String)>> {
    let of_setting = |note: Note| match note.action {
        Action::SetFile { path, old, .. } if path.file_name() == file.file_name() => Some((note.owner, old)),
        _ => None,
    };
    Ok(ahead_process::undo::notes()?.into_iter().filter_map(|(_, note)| of_setting(note)).collect())
}

/// The lock for reading the notes and changing the setting.
fn lock() -> Result<File> {
    let file = home::open_lock("changing how faults are served", Path::new(LOCK))?;
    file.lock().map_err(|e| Error::io(format!("lock {LOCK}"), e))?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A file in place of the kernel's, with a name that no other test or recording uses.
    fn setting(home: &Path, value: u64) -> PathBuf {
        let file = home.join(format!("setting-{}", home.file_name().unwrap().display()));
        std::fs::write(&file, value.to_string()).unwrap();
        file
    }

    #[test]
    fn last_of_two_recordings_restores_the_setting() {
        if !machine::is_root() {
            eprintln!("skipped: notes in /run need root");
            return;
        }
        let home = tempfile::tempdir().unwrap();
        let file = setting(home.path(), 65_536);
        let page = machine::page_size().to_string();
        let first = SingleFaults::switch(file.clone(), Vec::new()).unwrap();
        let second = SingleFaults::switch(file.clone(), Vec::new()).unwrap();
        drop(first);
        assert_eq!(read(&file).unwrap(), page);
        assert!(second.holds());
        let third = SingleFaults::switch(file.clone(), Vec::new()).unwrap();
        drop(second);
        assert!(third.holds());
        drop(third);
        assert_eq!(read(&file).unwrap(), "65536");
        assert!(notes(&file).unwrap().is_empty());
    }

    #[test]
    fn change_by_another_process_is_detected_and_stays() {
        if !machine::is_root() {
            eprintln!("skipped: notes in /run need root");
            return;
        }
        let home = tempfile::tempdir().unwrap();
        let file = setting(home.path(), 65_536);
        let single = SingleFaults::switch(file.clone(), Vec::new()).unwrap();
        std::fs::write(&file, "8192").unwrap();
        assert!(!single.holds());
        drop(single);
        assert_eq!(read(&file).unwrap(), "8192");
    }

    /// Regression: an old note was trusted, and finally an obsolete value was set.
    #[test]
    fn value_set_after_a_killed_recording_is_restored() {
        if !machine::is_root() {
            eprintln!("skipped: notes in /run need root");
            return;
        }
        let home = tempfile::tempdir().unwrap();
        let file = setting(home.path(), 8192);
        let killed = ProcessId { pid: std::process::id(), start_ticks: 1 };
        let action =
            Action::SetFile { path: file.clone(), old: "65536".into(), new: Some(machine::page_size().to_string()) };
        let note = ahead_process::undo::note_for(killed, action).unwrap();
        drop(SingleFaults::switch(file.clone(), Vec::new()).unwrap());
        note.keep().unwrap();
        assert_eq!(read(&file).unwrap(), "8192");
    }
}
