//! One page per fault, for as long as anybody records.
//!
//! The setting is the whole machine's, and recordings may overlap:
//!
//! ```text
//!     A   65536 ──▶ 4096 ················ ends: B is still there, it stays
//!     B                 (4096 already) ······························ ends last: back to 65536
//! ```
//!
//! The undo notes of the living are the list of those who need it, and each of them holds the value from before the
//! first. One lock makes looking at that list and changing the setting one step.

use crate::exact::SETTING;
use ahead_sys::{Error, Result, machine};
use ahead_undo::home;
use ahead_undo::{Action, Guard, Note, ProcessId};
use std::fs::File;
use std::path::{Path, PathBuf};

const LOCK: &str = "/run/ahead/fault_around.lock";

/// Faults map one page each while this lives.
#[derive(Debug)]
pub struct SingleFaults {
    file: PathBuf,
    guard: Option<Guard>,
    /// Of what the file lies in; they go after the setting.
    _mounts: Vec<Guard>,
}

impl SingleFaults {
    /// Sets this kernel file (its name tells it from others, not its place) to the size of a page.
    pub(crate) fn switch(file: PathBuf, mounts: Vec<Guard>) -> Result<SingleFaults> {
        let _turn = turn()?;
        let (now, single) = (read(&file)?, machine::page_size().to_string());
        // Of a value that is not ours the notes say nothing: somebody else has set it since.
        let noted = if now == single { notes(&file)? } else { Vec::new() };
        let before = noted.into_iter().find_map(|(_, old)| (old != single).then_some(old)).unwrap_or(now.clone());
        let guard = ahead_undo::note(Action::SetFile { path: file.clone(), old: before, new: Some(single.clone()) })?;
        if now != single {
            std::fs::write(&file, &single).map_err(|e| Error::io(format!("write {}", file.display()), e))?;
        }
        Ok(SingleFaults { file, guard: Some(guard), _mounts: mounts })
    }

    /// Whether it is still so: a person may have set it. `ahead restore` leaves it to the last who needs it.
    pub fn holds(&self) -> bool {
        read(&self.file).is_ok_and(|now| now == machine::page_size().to_string())
    }
}

impl Drop for SingleFaults {
    fn drop(&mut self) {
        let Some(guard) = self.guard.take() else { return };
        // Without the lock rather than not at all.
        let _turn = turn();
        // One of them is ours.
        let living = notes(&self.file).map_or(1, |all| all.iter().filter(|(owner, _)| owner.is_executing()).count());
        let is_needed = living > 1;
        let done = if is_needed { guard.keep() } else { guard.undo() };
        if let Err(error) = done {
            tracing::warn!("could not set {} back (ahead restore will try again): {error}", self.file.display());
        }
    }
}

/// Whether a recording that runs now has done this to the machine.
pub fn is_fault_around_off() -> bool {
    notes(Path::new(SETTING)).is_ok_and(|all| all.iter().any(|(owner, _)| owner.is_executing()))
}

fn read(file: &Path) -> Result<String> {
    let text = std::fs::read_to_string(file).map_err(|e| Error::io(format!("read {}", file.display()), e))?;
    Ok(text.trim().to_owned())
}

/// Everybody who noted this change, and the value from before. The path is not the same everywhere: who finds no debugfs
/// mounts his own.
fn notes(file: &Path) -> Result<Vec<(ProcessId, String)>> {
    let of_setting = |note: Note| match note.action {
        Action::SetFile { path, old, .. } if path.file_name() == file.file_name() => Some((note.owner, old)),
        _ => None,
    };
    Ok(ahead_undo::notes()?.into_iter().filter_map(|(_, note)| of_setting(note)).collect())
}

/// The right to look and to change, until it is dropped.
fn turn() -> Result<File> {
    let file = home::open_lock("changing how faults are served", Path::new(LOCK))?;
    file.lock().map_err(|e| Error::io(format!("lock {LOCK}"), e))?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A file in the place of the kernel's, with a name that no other test or recording has.
    fn setting(home: &Path, value: u64) -> PathBuf {
        let file = home.join(format!("setting-{}", home.file_name().unwrap().display()));
        std::fs::write(&file, value.to_string()).unwrap();
        file
    }

    #[test]
    fn of_two_at_once_the_last_sets_it_back() {
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
    fn who_sets_it_back_meanwhile_is_noticed_and_left_alone() {
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

    /// Regression: an old note was believed, and in the end a value of another day was set.
    #[test]
    fn what_somebody_has_set_since_a_killed_recording_is_set_back() {
        if !machine::is_root() {
            eprintln!("skipped: notes in /run need root");
            return;
        }
        let home = tempfile::tempdir().unwrap();
        let file = setting(home.path(), 8192);
        let killed = ProcessId { pid: std::process::id(), start_ticks: 1 };
        let action =
            Action::SetFile { path: file.clone(), old: "65536".into(), new: Some(machine::page_size().to_string()) };
        let note = ahead_undo::note_for(killed, action).unwrap();
        drop(SingleFaults::switch(file.clone(), Vec::new()).unwrap());
        note.keep().unwrap();
        assert_eq!(read(&file).unwrap(), "8192");
    }
}
