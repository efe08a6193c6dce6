//! Undoing the changes of ended processes.
//!
//! ```text
//!     owner        a setting                                  any other change
//!     running      stays                                      stays
//!     exiting      undone: no other process will do it        stays: it may still be in use
//!     ended        undone                                     undone
//! ```
//!
//! A running process may have set the same setting after the ended one, or to the same value. Then the setting and the
//! note stay for now. Otherwise the value would change under the running process, and that process would finally
//! restore the value of the ended one. A setting that was set before is restored to that value.

use super::reverting::undo_action;
use super::{Action, NOTES, Note, Outcome, ProcessId, TEMPORARY, remove_note};
use crate::undo::home;
use ahead_model::sorting;
use ahead_sys::{Error, Result};
use std::fs;
use std::io::{ErrorKind, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The result of [`restore`] for one note.
#[derive(Debug)]
pub struct Restored {
    /// The change.
    pub action: Action,
    /// The result of the undo. After an error the note is kept.
    pub outcome: Result<Outcome>,
}

/// Undoes every noted change whose owner has ended, the latest first.
pub fn restore() -> Result<Vec<Restored>> {
    restore_in(Path::new(NOTES))
}

/// Restores only kernel settings whose owner has ended: with read-ahead off, for example, every measurement is wrong. Files and
/// mounts disturb no other process.
pub fn restore_settings() -> Result<Vec<Restored>> {
    restore_settings_in(Path::new(NOTES))
}

/// Whether [`restore_settings`] would restore a setting.
pub fn has_abandoned_settings() -> Result<bool> {
    let is_one = |note: &Note| matches!(note.action, Action::SetFile { .. }) && is_abandoned(note);
    Ok(notes()?.iter().any(|(_, note)| is_one(note)))
}

fn restore_settings_in(directory: &Path) -> Result<Vec<Restored>> {
    restore_where(directory, |note| matches!(note.action, Action::SetFile { .. }))
}

/// As [`restore`], for a given directory, for tests.
pub fn restore_in(directory: &Path) -> Result<Vec<Restored>> {
    restore_where(directory, |_| true)
}

fn restore_where(directory: &Path, is_selected: impl Fn(&Note) -> bool) -> Result<Vec<Restored>> {
    undo_where(directory, is_abandoned, is_selected)
}

/// Undoes the notes that are `is_undone` and `is_selected`. Settings of the other notes stay, unless these are abandoned, too.
fn undo_where(
    directory: &Path,
    is_undone: impl Fn(&Note) -> bool,
    is_selected: impl Fn(&Note) -> bool,
) -> Result<Vec<Restored>> {
    let mut done = Vec::new();
    if !home::look_for_directory(READING, directory)? {
        return Ok(done);
    }
    let _lock = lock(directory)?;
    remove_partial_notes(directory);
    let (undone, kept): (Vec<_>, Vec<_>) = notes_in(directory)?.into_iter().partition(|(_, note)| is_undone(note));
    let is_needed = |note: &Note| {
        let is_in_use = |other: &Note| !is_abandoned(other) && is_built_on(note, other);
        kept.iter().any(|(_, other)| is_in_use(other) && sets_the_same(&note.action, &other.action))
    };
    for (path, note) in undone.into_iter().rev().filter(|(_, note)| is_selected(note)) {
        if is_needed(&note) {
            continue;
        }
        let outcome = undo_action(&note.action).and_then(|outcome| remove_note(&path).map(|()| outcome));
        done.push(Restored { action: note.action, outcome });
    }
    Ok(done)
}

/// Whether the owner will not undo the change any more.
fn is_abandoned(note: &Note) -> bool {
    match note.action {
        Action::SetFile { .. } => !note.owner.is_executing(),
        _ => !note.owner.is_alive(),
    }
}

/// Whether undoing this change of a setting would lose another one.
fn is_built_on(note: &Note, other: &Note) -> bool {
    let value = |note: &Note| match &note.action {
        Action::SetFile { new, .. } => new.clone(),
        _ => None,
    };
    other.sequence > note.sequence || (value(note).is_some() && value(note) == value(other))
}

/// Compares files, too, since a file system may be mounted at several paths.
fn sets_the_same(one: &Action, other: &Action) -> bool {
    let file = |path: &Path| fs::metadata(path).map(|metadata| (metadata.dev(), metadata.ino())).ok();
    match (one, other) {
        (Action::SetFile { path: one, .. }, Action::SetFile { path: other, .. }) => {
            one == other || file(one).is_some_and(|one| file(other) == Some(one))
        }
        _ => false,
    }
}

/// Removes notes whose writer was killed while writing. Their changes were not made yet, or are noted under the final name.
fn remove_partial_notes(directory: &Path) {
    let is_dead = |path: &PathBuf| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let writer = name.split('-').nth(1).and_then(|pid| pid.parse().ok());
        path.extension().is_some_and(|e| e == TEMPORARY)
            && writer.is_some_and(|pid| matches!(ProcessId::of(pid), Ok(None)))
    };
    let entries = fs::read_dir(directory).into_iter().flatten().flatten().map(|entry| entry.path());
    for path in entries.filter(is_dead) {
        if let Err(error) = remove_note(&path) {
            tracing::warn!("{error}");
        }
    }
}

/// Timeout for another process that restores. It may have to end processes, with up to ten seconds each.
const LOCK_TIME: Duration = Duration::from_secs(120);

/// Prevents that two processes undo the same changes and each sees half of them fail. Closing the file releases the lock.
fn lock(directory: &Path) -> Result<Option<fs::File>> {
    let path = directory.join("lock");
    match home::open_lock("undoing changes", &path) {
        Ok(file) => home::lock_within(&file, &path, LOCK_TIME, |pause| {
            std::thread::sleep(pause);
            Ok(())
        })
        .map(|()| Some(file)),
        // Without permission to lock, undoing fails, too, and the first note reports that.
        Err(error) if error.is_unavailable() => Ok(None),
        Err(error) => Err(error),
    }
}

/// Undoes every change of an ended process, the latest first. If the process still lives: nothing.
pub fn restore_owned_by(owner: ProcessId) -> Result<Vec<Restored>> {
    restore_where(Path::new(NOTES), |note| note.owner == owner)
}

/// Restores the settings of a process that may still live. Called while its disk is detached: after its end, other processes would
/// treat the settings as abandoned.
pub fn restore_settings_of(owner: ProcessId) -> Result<Vec<Restored>> {
    let is_its = |note: &Note| note.owner == owner && matches!(note.action, Action::SetFile { .. });
    undo_where(Path::new(NOTES), is_its, |_| true)
}

/// Removes notes of a process whose changes were undone by other means.
pub fn forget(owner: ProcessId, is_undone: impl Fn(&Action) -> bool) -> Result<()> {
    let of_owner = notes()?.into_iter().filter(|(_, note)| note.owner == owner);
    of_owner.filter(|(_, note)| is_undone(&note.action)).try_for_each(|(path, _)| remove_note(&path))
}

/// The operation that needs trustworthy notes, for messages.
const READING: &str = "reading undo notes";

/// All notes, the earliest first. Skips files that are not notes, and notes that users other than root may have written: with such
/// a note they could make root write any file.
pub fn notes() -> Result<Vec<(PathBuf, Note)>> {
    notes_in(Path::new(NOTES))
}

pub(super) fn notes_in(directory: &Path) -> Result<Vec<(PathBuf, Note)>> {
    if !home::look_for_directory(READING, directory)? {
        return Ok(Vec::new());
    }
    let entries = fs::read_dir(directory).map_err(|e| match e.kind() {
        ErrorKind::PermissionDenied => Error::needs_root(READING),
        _ => Error::io(format!("list {}", directory.display()), e),
    })?;
    let mut found: Vec<(PathBuf, Note)> = entries
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| path.extension().is_some_and(|e| e == "json"))
        .filter_map(|path| read_note(&path).map(|note| (path, note)))
        .collect();
    sorting::sort_by_key(&mut found, |(path, note): &(PathBuf, Note)| (note.sequence, path.clone()));
    Ok(found)
}

/// Maximum length of a note: two paths and some numbers. Unit: bytes.
const NOTE_MAX_BYTES: u64 = 64 << 10;

fn read_note(path: &Path) -> Option<Note> {
    let file = fs::File::open(path).ok()?;
    if !home::is_ours_alone(&file.metadata().ok()?) {
        tracing::warn!("{} is ignored: users other than root may have written it", path.display());
        return None;
    }
    let mut text = Vec::new();
    file.take(NOTE_MAX_BYTES).read_to_end(&mut text).ok()?;
    serde_json::from_slice(&text).ok()
}

#[cfg(test)]
mod tests {
    use super::super::note_in;
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    fn dead_process() -> ProcessId {
        ProcessId { pid: std::process::id(), start_ticks: 1 }
    }

    fn set(path: &Path, old: &str, new: &str) -> Action {
        Action::SetFile { path: path.into(), old: old.into(), new: Some(new.into()) }
    }

    #[test]
    fn restore_undoes_changes_of_ended_processes_latest_first() {
        let home = tempfile::tempdir().unwrap();
        let (notes, file, mine) = (home.path().join("undo"), home.path().join("f"), home.path().join("g"));
        fs::write(&file, "c").unwrap();
        fs::write(&mine, "c").unwrap();
        note_in(&notes, dead_process(), set(&file, "a", "b")).unwrap().leave();
        note_in(&notes, dead_process(), set(&file, "b", "c")).unwrap().leave();
        let alive = note_in(&notes, ProcessId::own().unwrap(), set(&mine, "a", "c")).unwrap();
        let done = restore_in(&notes).unwrap();
        assert_eq!(done.len(), 2);
        assert_eq!(fs::read_to_string(&file).unwrap(), "a");
        assert_eq!(fs::read_to_string(&mine).unwrap(), "c");
        drop(alive);
    }

    #[test]
    fn restore_settings_keeps_files_of_ended_processes() {
        let home = tempfile::tempdir().unwrap();
        let (notes, setting, directory) = (home.path().join("undo"), home.path().join("f"), home.path().join("d"));
        fs::write(&setting, "0").unwrap();
        fs::create_dir(&directory).unwrap();
        note_in(&notes, dead_process(), set(&setting, "128", "0")).unwrap().leave();
        note_in(&notes, dead_process(), Action::remove(&directory)).unwrap().leave();
        assert_eq!(restore_settings_in(&notes).unwrap().len(), 1);
        assert_eq!(fs::read_to_string(&setting).unwrap(), "128");
        assert!(directory.exists());
        assert_eq!(notes_in(&notes).unwrap().len(), 1);
    }

    #[test]
    fn partial_note_of_a_killed_writer_is_removed() {
        let home = tempfile::tempdir().unwrap();
        let notes = home.path().join("undo");
        home::make_directory("testing", &notes).unwrap();
        let of = |pid: u32| notes.join(format!("00000000000000000001-{pid}-0.tmp"));
        // Above the largest process number.
        let dead = (1 << 22) + 1;
        fs::write(of(dead), "{").unwrap();
        fs::write(of(std::process::id()), "{").unwrap();
        assert!(restore_in(&notes).unwrap().is_empty());
        assert!(!of(dead).exists() && of(std::process::id()).exists());
    }

    /// Regression: with umask 0 every user could write a note there, and root executed it.
    #[test]
    fn note_that_others_may_have_written_is_ignored() {
        let home = tempfile::tempdir().unwrap();
        let (notes, file) = (home.path().join("undo"), home.path().join("f"));
        fs::write(&file, "2").unwrap();
        note_in(&notes, dead_process(), set(&file, "0", "2")).unwrap().leave();
        let note = notes_in(&notes).unwrap().remove(0).0;
        let allow = |path: &Path, mode| fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
        for mode in [0o646, 0o664] {
            allow(&note, mode);
            assert!(restore_in(&notes).unwrap().is_empty());
        }
        allow(&note, 0o644);
        if ahead_sys::machine::is_root() {
            std::os::unix::fs::chown(&note, Some(65534), None).unwrap();
            assert!(restore_in(&notes).unwrap().is_empty());
            std::os::unix::fs::chown(&note, Some(0), None).unwrap();
        }
        allow(&notes, 0o777);
        assert!(restore_in(&notes).unwrap_err().is_unavailable());
        assert_eq!(fs::read_to_string(&file).unwrap(), "2");
        allow(&notes, 0o755);
        assert_eq!(restore_in(&notes).unwrap().len(), 1);
        assert_eq!(fs::read_to_string(&file).unwrap(), "0");
    }

    /// Regression: the setting changed under a running process, and the value that this process restored stayed.
    #[test]
    fn setting_that_a_running_process_needs_is_restored_after_it() {
        let home = tempfile::tempdir().unwrap();
        let (notes, setting, other_path) = (home.path().join("undo"), home.path().join("f"), home.path().join("g"));
        fs::write(&setting, "2").unwrap();
        fs::hard_link(&setting, &other_path).unwrap();
        note_in(&notes, dead_process(), set(&setting, "0", "1")).unwrap().leave();
        let running = note_in(&notes, ProcessId::own().unwrap(), set(&other_path, "1", "2")).unwrap();
        assert!(restore_in(&notes).unwrap().is_empty());
        assert_eq!((fs::read_to_string(&setting).unwrap().as_str(), notes_in(&notes).unwrap().len()), ("2", 2));
        drop(running);
        assert_eq!(restore_in(&notes).unwrap().len(), 1);
        assert_eq!((fs::read_to_string(&setting).unwrap().as_str(), notes_in(&notes).unwrap().len()), ("0", 0));
    }

    /// Regression: read-ahead stayed off on a device whose window a running process had set before a recording that was killed.
    #[test]
    fn setting_is_restored_to_the_earlier_value_of_a_running_process() {
        let home = tempfile::tempdir().unwrap();
        let (notes, setting) = (home.path().join("undo"), home.path().join("f"));
        fs::write(&setting, "0").unwrap();
        let running = note_in(&notes, ProcessId::own().unwrap(), set(&setting, "128", "776")).unwrap();
        note_in(&notes, dead_process(), set(&setting, "776", "0")).unwrap().leave();
        assert_eq!(restore_in(&notes).unwrap().len(), 1);
        assert_eq!(fs::read_to_string(&setting).unwrap(), "776");
        // Two processes need the same value: the last of them to end restores it.
        note_in(&notes, dead_process(), set(&setting, "128", "776")).unwrap().leave();
        assert!(restore_in(&notes).unwrap().is_empty());
        drop(running);
    }
}
