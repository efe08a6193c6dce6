//! Undoing what the dead have noted.
//!
//! ```text
//!     owner        a setting                                  anything else
//!     at work      stays                                      stays
//!     ending       undone: nobody else will any more          stays: it may still be held
//!     gone         undone                                     undone
//! ```
//!
//! A setting that another process at work has set after the dead one, or to the same value, stays for now, and so does the note:
//! set back now, it would be changed under that process, which would in the end set it back to what the dead one had set. What was set
//! before is set back to that.

use super::taking_back::undo_action;
use super::{Action, NOTES, Note, Outcome, ProcessId, TEMPORARY, remove_note};
use crate::home;
use ahead_sys::{Error, Result};
use std::fs;
use std::io::{ErrorKind, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// What [`restore`] did with one note.
#[derive(Debug)]
pub struct Restored {
    /// The change.
    pub action: Action,
    /// Whether undoing it succeeded. The note of a failed one is kept.
    pub outcome: Result<Outcome>,
}

/// Undoes every noted change whose owner is gone, the latest first.
pub fn restore() -> Result<Vec<Restored>> {
    restore_in(Path::new(NOTES))
}

/// Sets back only the settings of the kernel whose changer is gone: with read-ahead off, say, whatever is measured is
/// not what it seems. What was made or mounted is in nobody's way.
pub fn restore_settings() -> Result<Vec<Restored>> {
    restore_settings_in(Path::new(NOTES))
}

/// Whether [`restore_settings`] would find something to look at.
pub fn are_settings_left() -> Result<bool> {
    let is_one = |note: &Note| matches!(note.action, Action::SetFile { .. }) && is_left(note);
    Ok(notes()?.iter().any(|(_, note)| is_one(note)))
}

fn restore_settings_in(directory: &Path) -> Result<Vec<Restored>> {
    restore_where(directory, |note| matches!(note.action, Action::SetFile { .. }))
}

/// The same for a directory of choice, for tests.
pub fn restore_in(directory: &Path) -> Result<Vec<Restored>> {
    restore_where(directory, |_| true)
}

fn restore_where(directory: &Path, concerned: impl Fn(&Note) -> bool) -> Result<Vec<Restored>> {
    undo_where(directory, is_left, concerned)
}

/// Undoes those of the notes that are to be undone and concerned. What the others have set stays, unless they are left, too.
fn undo_where(
    directory: &Path,
    is_undone: impl Fn(&Note) -> bool,
    concerned: impl Fn(&Note) -> bool,
) -> Result<Vec<Restored>> {
    let mut done = Vec::new();
    if !home::look_for_directory(READING, directory)? {
        return Ok(done);
    }
    let _alone = lock(directory)?;
    sweep(directory);
    let (left, kept): (Vec<_>, Vec<_>) = notes_in(directory)?.into_iter().partition(|(_, note)| is_undone(note));
    let is_needed = |note: &Note| {
        let is_in_use = |other: &Note| !is_left(other) && is_built_on(note, other);
        kept.iter().any(|(_, other)| is_in_use(other) && sets_the_same(&note.action, &other.action))
    };
    for (path, note) in left.into_iter().rev().filter(|(_, note)| concerned(note)) {
        if is_needed(&note) {
            continue;
        }
        let outcome = undo_action(&note.action).and_then(|outcome| remove_note(&path).map(|()| outcome));
        done.push(Restored { action: note.action, outcome });
    }
    Ok(done)
}

/// Whether its owner undoes it no more.
fn is_left(note: &Note) -> bool {
    match note.action {
        Action::SetFile { .. } => !note.owner.is_at_work(),
        _ => !note.owner.is_alive(),
    }
}

/// Whether another change of a setting is lost if this one is undone.
fn is_built_on(note: &Note, other: &Note) -> bool {
    let value = |note: &Note| match &note.action {
        Action::SetFile { new, .. } => new.clone(),
        _ => None,
    };
    other.sequence > note.sequence || (value(note).is_some() && value(note) == value(other))
}

/// The path alone does not tell: a file system may be mounted in several places.
fn sets_the_same(one: &Action, other: &Action) -> bool {
    let file = |path: &Path| fs::metadata(path).map(|metadata| (metadata.dev(), metadata.ino())).ok();
    match (one, other) {
        (Action::SetFile { path: one, .. }, Action::SetFile { path: other, .. }) => {
            one == other || file(one).is_some_and(|one| file(other) == Some(one))
        }
        _ => false,
    }
}

/// Removes notes that were being written when their writer was killed: what they were to note was not done yet, or is
/// noted under the final name.
fn sweep(directory: &Path) {
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

/// How long another restorer may take: it may have to end processes, each within ten seconds.
const LOCK_TIME: Duration = Duration::from_secs(120);

/// Two restorers at once would undo the same changes, and each see half of them fail. The lock ends with the file.
fn lock(directory: &Path) -> Result<Option<fs::File>> {
    let path = directory.join("lock");
    match home::open_lock("undoing changes", &path) {
        Ok(file) => home::lock_within(&file, &path, LOCK_TIME, |pause| {
            std::thread::sleep(pause);
            Ok(())
        })
        .map(|()| Some(file)),
        // Who may not lock may not undo either, and is told at the first note.
        Err(error) if error.is_unavailable() => Ok(None),
        Err(error) => Err(error),
    }
}

/// Undoes every change that this process noted, the latest first, once it has ended; while it lives, nothing.
pub fn restore_owned_by(owner: ProcessId) -> Result<Vec<Restored>> {
    restore_where(Path::new(NOTES), |note| note.owner == owner)
}

/// Sets back the settings that were noted for this process while it still lives, for whoever takes down what it is for: of one that
/// has ended, anybody else would take them for left behind.
pub fn restore_settings_of(owner: ProcessId) -> Result<Vec<Restored>> {
    let is_its = |note: &Note| note.owner == owner && matches!(note.action, Action::SetFile { .. });
    undo_where(Path::new(NOTES), is_its, |_| true)
}

/// What it is that cannot be done where notes cannot be relied on.
const READING: &str = "reading undo notes";

/// All notes, the earliest first. A file that is not a note is left alone, and so is one that others may have written: its
/// author could have root write any file.
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
    found.sort_by_key(|(path, note): &(PathBuf, Note)| (note.sequence, path.clone()));
    Ok(found)
}

/// The longest note that is read, bytes: two paths and some numbers.
const NOTE_MAX_BYTES: u64 = 64 << 10;

fn read_note(path: &Path) -> Option<Note> {
    let file = fs::File::open(path).ok()?;
    if !home::is_ours_alone(&file.metadata().ok()?) {
        tracing::warn!("{} is ignored: others than root may have written it", path.display());
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

    fn gone() -> ProcessId {
        ProcessId { pid: std::process::id(), start_ticks: 1 }
    }

    fn set(path: &Path, old: &str, new: &str) -> Action {
        Action::SetFile { path: path.into(), old: old.into(), new: Some(new.into()) }
    }

    #[test]
    fn restore_undoes_the_dead_latest_first_and_spares_the_living() {
        let home = tempfile::tempdir().unwrap();
        let (notes, file, mine) = (home.path().join("undo"), home.path().join("f"), home.path().join("g"));
        fs::write(&file, "c").unwrap();
        fs::write(&mine, "c").unwrap();
        note_in(&notes, gone(), set(&file, "a", "b")).unwrap().leave();
        note_in(&notes, gone(), set(&file, "b", "c")).unwrap().leave();
        let alive = note_in(&notes, ProcessId::own().unwrap(), set(&mine, "a", "c")).unwrap();
        let done = restore_in(&notes).unwrap();
        assert_eq!(done.len(), 2);
        assert_eq!(fs::read_to_string(&file).unwrap(), "a");
        assert_eq!(fs::read_to_string(&mine).unwrap(), "c");
        drop(alive);
    }

    #[test]
    fn settings_of_the_dead_are_set_back_and_what_else_they_left_stays() {
        let home = tempfile::tempdir().unwrap();
        let (notes, setting, directory) = (home.path().join("undo"), home.path().join("f"), home.path().join("d"));
        fs::write(&setting, "0").unwrap();
        fs::create_dir(&directory).unwrap();
        note_in(&notes, gone(), set(&setting, "128", "0")).unwrap().leave();
        note_in(&notes, gone(), Action::remove(&directory)).unwrap().leave();
        assert_eq!(restore_settings_in(&notes).unwrap().len(), 1);
        assert_eq!(fs::read_to_string(&setting).unwrap(), "128");
        assert!(directory.exists());
        assert_eq!(notes_in(&notes).unwrap().len(), 1);
    }

    #[test]
    fn a_note_that_was_being_written_when_its_writer_was_killed_is_swept_away() {
        let home = tempfile::tempdir().unwrap();
        let notes = home.path().join("undo");
        home::make_directory("testing", &notes).unwrap();
        let of = |pid: u32| notes.join(format!("00000000000000000001-{pid}-0.tmp"));
        // Above every number that the kernel gives.
        let dead = (1 << 22) + 1;
        fs::write(of(dead), "{").unwrap();
        fs::write(of(std::process::id()), "{").unwrap();
        assert!(restore_in(&notes).unwrap().is_empty());
        assert!(!of(dead).exists() && of(std::process::id()).exists());
    }

    /// Regression: with umask 0 anybody could put a note there, and root obeyed it.
    #[test]
    fn what_others_may_have_written_is_not_obeyed() {
        let home = tempfile::tempdir().unwrap();
        let (notes, file) = (home.path().join("undo"), home.path().join("f"));
        fs::write(&file, "2").unwrap();
        note_in(&notes, gone(), set(&file, "0", "2")).unwrap().leave();
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

    /// Regression: the setting was taken from under the living one, and what that one set back stayed.
    #[test]
    fn a_setting_that_a_living_one_needs_too_is_set_back_after_it() {
        let home = tempfile::tempdir().unwrap();
        let (notes, setting, other_path) = (home.path().join("undo"), home.path().join("f"), home.path().join("g"));
        fs::write(&setting, "2").unwrap();
        fs::hard_link(&setting, &other_path).unwrap();
        note_in(&notes, gone(), set(&setting, "0", "1")).unwrap().leave();
        let living = note_in(&notes, ProcessId::own().unwrap(), set(&other_path, "1", "2")).unwrap();
        assert!(restore_in(&notes).unwrap().is_empty());
        assert_eq!((fs::read_to_string(&setting).unwrap().as_str(), notes_in(&notes).unwrap().len()), ("2", 2));
        drop(living);
        assert_eq!(restore_in(&notes).unwrap().len(), 1);
        assert_eq!((fs::read_to_string(&setting).unwrap().as_str(), notes_in(&notes).unwrap().len()), ("0", 0));
    }

    /// Regression: read-ahead stayed off on a device whose window a living process had set before a recording that was killed.
    #[test]
    fn a_setting_of_a_living_one_from_before_is_what_it_is_set_back_to() {
        let home = tempfile::tempdir().unwrap();
        let (notes, setting) = (home.path().join("undo"), home.path().join("f"));
        fs::write(&setting, "0").unwrap();
        let living = note_in(&notes, ProcessId::own().unwrap(), set(&setting, "128", "776")).unwrap();
        note_in(&notes, gone(), set(&setting, "776", "0")).unwrap().leave();
        assert_eq!(restore_in(&notes).unwrap().len(), 1);
        assert_eq!(fs::read_to_string(&setting).unwrap(), "776");
        // Two that need the same value: the later of them to end sets it back.
        note_in(&notes, gone(), set(&setting, "128", "776")).unwrap().leave();
        assert!(restore_in(&notes).unwrap().is_empty());
        drop(living);
    }
}
