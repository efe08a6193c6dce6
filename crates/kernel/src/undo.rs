//! Undo notes: how to take back a change, written down before the change is made.
//!
//! ```text
//!     note (/run/ahead/undo/…json)  →  change  →  …work…  →  undo  →  note removed
//!            │                                      │
//!            └── after SIGKILL or power loss of us ─┴─▶  `ahead restore` reads the note and undoes the change
//! ```
//!
//! A [`Guard`] undoes on drop: success, error and panic are one path, and signals become ordinary returns
//! ([`crate::process::Signals`]). A note names the process that owns the change; while that process lives, `restore`
//! leaves it alone. Undoing never overwrites what somebody else has set since.

use crate::{Error, Result};
use serde::{Deserialize, Serialize};
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Where notes are kept. On a tmpfs: a reboot undoes everything by itself.
pub const NOTES: &str = "/run/ahead/undo";

/// A change and how to take it back.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "action", rename_all = "snake_case")]
pub enum Action {
    /// A kernel file was set from `old` to `new`; it is set back only while it still reads `new`.
    SetFile {
        /// The kernel file.
        path: PathBuf,
        /// Its content before.
        old: String,
        /// What we wrote.
        new: String,
    },
    /// Something was mounted on `target`.
    Unmount {
        /// The mount point.
        target: PathBuf,
    },
    /// `device` was attached to the file `backing`; it is detached only while it still is.
    DetachLoop {
        /// `/dev/loopN`.
        device: PathBuf,
        /// The file behind it.
        backing: PathBuf,
    },
    /// A process of ours runs and is to be ended (SIGTERM, then SIGKILL).
    EndProcess {
        /// Which.
        process: ProcessId,
    },
    /// A file or an empty directory of ours is to be removed.
    Remove {
        /// Which.
        path: PathBuf,
    },
}

/// A process, safe against reuse of its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessId {
    /// Process id.
    pub pid: u32,
    /// Start time in clock ticks since boot (field 22 of `/proc/PID/stat`).
    pub start_ticks: u64,
}

impl ProcessId {
    /// The calling process.
    pub fn own() -> Result<Self> {
        let pid = std::process::id();
        Self::of(pid)?.ok_or_else(|| Error::Parse { path: "/proc/self/stat".into(), text: "starttime".into() })
    }

    /// The process that has this number now, if any.
    pub fn of(pid: u32) -> Result<Option<Self>> {
        let path = format!("/proc/{pid}/stat");
        let text = match fs::read_to_string(&path) {
            Ok(text) => text,
            Err(e) if e.kind() == std::io::ErrorKind::NotFound || e.raw_os_error() == Some(libc::ESRCH) => {
                return Ok(None);
            }
            Err(e) => return Err(Error::io(format!("read {path}"), e)),
        };
        // The command name is in parentheses and may hold anything: count the fields from the last parenthesis.
        let rest = text.rsplit_once(')').map(|(_, rest)| rest.trim_start());
        let mut fields = rest.into_iter().flat_map(str::split_ascii_whitespace);
        let state = fields.next();
        let start_ticks = fields.nth(18).and_then(|field| field.parse().ok());
        match (state, start_ticks) {
            // A zombie holds nothing any more.
            (Some("Z" | "X"), _) => Ok(None),
            (Some(_), Some(start_ticks)) => Ok(Some(ProcessId { pid, start_ticks })),
            _ => Err(Error::Parse { path: path.into(), text }),
        }
    }

    /// Whether it still runs.
    pub fn is_alive(self) -> bool {
        matches!(Self::of(self.pid), Ok(Some(now)) if now == self)
    }
}

/// A note as it is stored.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Note {
    /// Whose change it is.
    pub owner: ProcessId,
    /// Order of changes: later ones are undone first.
    pub sequence: u64,
    /// The change.
    #[serde(flatten)]
    pub action: Action,
}

/// Undoes its action when dropped.
#[derive(Debug)]
pub struct Guard {
    note: PathBuf,
    action: Option<Action>,
}

/// Writes the note for a change that is about to be made. Call it first, then make the change.
pub fn note(action: Action) -> Result<Guard> {
    note_in(Path::new(NOTES), ProcessId::own()?, action)
}

/// The same for a change that another process of ours shall own (a daemon): `restore` waits for that one to end.
pub fn note_for(owner: ProcessId, action: Action) -> Result<Guard> {
    note_in(Path::new(NOTES), owner, action)
}

/// The same in a directory of choice, for tests.
pub fn note_in(directory: &Path, owner: ProcessId, action: Action) -> Result<Guard> {
    static COUNTER: AtomicU64 = AtomicU64::new(0);
    fs::create_dir_all(directory).map_err(|e| match e.kind() {
        std::io::ErrorKind::PermissionDenied => Error::needs_root("changing system settings"),
        _ => Error::io(format!("create {}", directory.display()), e),
    })?;
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    let sequence = now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64;
    let name = format!("{sequence:020}-{}-{}.json", std::process::id(), COUNTER.fetch_add(1, Ordering::Relaxed));
    let path = directory.join(name);
    let text = serde_json::to_vec(&Note { owner, sequence, action: action.clone() })
        .map_err(|e| Error::io("encode an undo note", std::io::Error::other(e)))?;
    // Renamed into place: a half-written note would be worse than none.
    let temporary = path.with_extension("tmp");
    let written = fs::File::create(&temporary)
        .and_then(|mut file| file.write_all(&text))
        .and_then(|()| fs::rename(&temporary, &path));
    written.map_err(|e| match e.kind() {
        std::io::ErrorKind::PermissionDenied => Error::needs_root("changing system settings"),
        _ => Error::io(format!("write {}", path.display()), e),
    })?;
    Ok(Guard { note: path, action: Some(action) })
}

impl Guard {
    /// Undoes now and reports what went wrong, where drop could only log it.
    pub fn undo(mut self) -> Result<()> {
        self.undo_once()
    }

    /// The change is not ours any more: the note stays, for `restore` or for the process that took it over.
    pub fn leave(mut self) -> PathBuf {
        self.action = None;
        self.note.clone()
    }

    /// The change is to stay: nothing is undone, now or later.
    pub fn keep(mut self) -> Result<()> {
        self.action = None;
        remove_note(&self.note)
    }

    fn undo_once(&mut self) -> Result<()> {
        let Some(action) = self.action.take() else { return Ok(()) };
        undo_action(&action)?;
        remove_note(&self.note)
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        if let Err(error) = self.undo_once() {
            tracing::warn!("could not undo (ahead restore will try again): {error}");
        }
    }
}

/// Sets a kernel file under a guard: notes, writes, and gives the guard that sets it back.
pub fn set_file(path: &Path, new: &str) -> Result<Guard> {
    let old = read_trimmed(path)?;
    let guard = note(Action::SetFile { path: path.into(), old, new: new.into() })?;
    write_setting(path, new)?;
    Ok(guard)
}

/// How long a kernel file may answer that it is busy.
const BUSY_TIME: Duration = Duration::from_secs(2);

/// How often it is asked again; there is no event to wait for.
const BUSY_EVERY: Duration = Duration::from_millis(2);

/// Writes a kernel file. A disk's queue settings answer `EBUSY` while another change of the queue is under way (Linux 6.17
/// and later): those are asked again for two seconds.
pub(crate) fn write_setting(path: &Path, text: &str) -> Result<()> {
    let deadline = Instant::now() + BUSY_TIME;
    loop {
        match fs::write(path, text) {
            Err(e) if e.raw_os_error() == Some(libc::EBUSY) && Instant::now() < deadline => {
                std::thread::sleep(BUSY_EVERY);
            }
            written => return written.map_err(|e| Error::io(format!("write {text:?} to {}", path.display()), e)),
        }
    }
}

/// What [`restore`] did with one note.
#[derive(Debug)]
pub struct Restored {
    /// The change.
    pub action: Action,
    /// Whether undoing it succeeded. The note of a failed one is kept.
    pub outcome: Result<()>,
}

/// Undoes every noted change whose owner is gone, the latest first.
pub fn restore() -> Result<Vec<Restored>> {
    restore_in(Path::new(NOTES))
}

/// The same for a directory of choice, for tests.
pub fn restore_in(directory: &Path) -> Result<Vec<Restored>> {
    restore_where(directory, |_| true)
}

fn restore_where(directory: &Path, concerned: impl Fn(&Note) -> bool) -> Result<Vec<Restored>> {
    let mut done = Vec::new();
    let _alone = lock(directory)?;
    for (path, note) in notes_in(directory)?.into_iter().rev() {
        if !concerned(&note) || note.owner.is_alive() {
            continue;
        }
        let outcome = undo_action(&note.action).and_then(|()| remove_note(&path));
        done.push(Restored { action: note.action, outcome });
    }
    Ok(done)
}

/// Two restorers at once would undo the same changes, and each see half of them fail. The lock ends with the file.
fn lock(directory: &Path) -> Result<Option<fs::File>> {
    let path = directory.join("lock");
    let locked = fs::File::create(&path).and_then(|file| file.lock().map(|()| file));
    match locked {
        Ok(file) => Ok(Some(file)),
        // Without the directory there are no notes; who may not lock may not undo either, and is told at the first note.
        Err(e) if matches!(e.kind(), std::io::ErrorKind::NotFound | std::io::ErrorKind::PermissionDenied) => Ok(None),
        Err(e) => Err(Error::io(format!("lock {}", path.display()), e)),
    }
}

/// Undoes every change that this process noted, the latest first, once it has ended; while it lives, nothing.
pub fn restore_owned_by(owner: ProcessId) -> Result<Vec<Restored>> {
    restore_where(Path::new(NOTES), |note| note.owner == owner)
}

/// All notes, the earliest first. A file that is not a note is left alone.
pub fn notes() -> Result<Vec<(PathBuf, Note)>> {
    notes_in(Path::new(NOTES))
}

fn notes_in(directory: &Path) -> Result<Vec<(PathBuf, Note)>> {
    let entries = match fs::read_dir(directory) {
        Ok(entries) => entries,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(e) if e.kind() == std::io::ErrorKind::PermissionDenied => {
            return Err(Error::needs_root("reading undo notes"));
        }
        Err(e) => return Err(Error::io(format!("list {}", directory.display()), e)),
    };
    let mut found: Vec<(PathBuf, Note)> = entries
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| path.extension().is_some_and(|e| e == "json"))
        .filter_map(|path| Some((path.clone(), serde_json::from_slice(&fs::read(&path).ok()?).ok()?)))
        .collect();
    found.sort_by_key(|(path, note): &(PathBuf, Note)| (note.sequence, path.clone()));
    Ok(found)
}

fn remove_note(path: &Path) -> Result<()> {
    match fs::remove_file(path) {
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => Err(Error::io(format!("remove {}", path.display()), e)),
        _ => Ok(()),
    }
}

/// Takes one change back. Idempotent: what is already as it was is left alone.
fn undo_action(action: &Action) -> Result<()> {
    match action {
        Action::SetFile { path, old, new } => match read_trimmed(path) {
            // The device is gone, and its setting with it.
            Err(Error::Io { source, .. }) if source.kind() == std::io::ErrorKind::NotFound => Ok(()),
            Err(e) => Err(e),
            Ok(now) if now != *new => Ok(()),
            Ok(_) => write_setting(path, old),
        },
        Action::Unmount { target } => crate::mounting::unmount_lazy(target),
        Action::DetachLoop { device, backing } => crate::loopdev::detach_if_backed_by(device, backing),
        Action::EndProcess { process } => crate::process::end(*process),
        Action::Remove { path } => {
            let removed = if path.is_dir() { fs::remove_dir(path) } else { fs::remove_file(path) };
            match removed {
                Err(e) if e.kind() != std::io::ErrorKind::NotFound => {
                    Err(Error::io(format!("remove {}", path.display()), e))
                }
                _ => Ok(()),
            }
        }
    }
}

/// A kernel file's content without the newline; of a choice (`none [mq-deadline]`) the chosen word.
pub(crate) fn read_trimmed(path: &Path) -> Result<String> {
    let text = fs::read_to_string(path).map_err(|e| Error::io(format!("read {}", path.display()), e))?;
    let chosen = text.split_once('[').and_then(|(_, rest)| rest.split_once(']')).map(|(word, _)| word);
    Ok(chosen.unwrap_or(&text).trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gone() -> ProcessId {
        ProcessId { pid: std::process::id(), start_ticks: 1 }
    }

    #[test]
    fn a_guard_sets_back_and_removes_its_note() {
        let home = tempfile::tempdir().unwrap();
        let file = home.path().join("read_ahead_kb");
        fs::write(&file, "0\n").unwrap();
        let notes = home.path().join("undo");
        let action = Action::SetFile { path: file.clone(), old: "128".into(), new: "0".into() };
        drop(note_in(&notes, ProcessId::own().unwrap(), action).unwrap());
        assert_eq!(fs::read_to_string(&file).unwrap(), "128");
        assert!(notes_in(&notes).unwrap().is_empty());
    }

    #[test]
    fn a_setting_changed_by_somebody_else_is_left_alone() {
        let home = tempfile::tempdir().unwrap();
        let file = home.path().join("read_ahead_kb");
        fs::write(&file, "512\n").unwrap();
        let action = Action::SetFile { path: file.clone(), old: "128".into(), new: "0".into() };
        note_in(&home.path().join("undo"), ProcessId::own().unwrap(), action).unwrap().undo().unwrap();
        assert_eq!(fs::read_to_string(&file).unwrap(), "512\n");
    }

    #[test]
    fn restore_undoes_the_dead_latest_first_and_spares_the_living() {
        let home = tempfile::tempdir().unwrap();
        let (notes, file, mine) = (home.path().join("undo"), home.path().join("f"), home.path().join("g"));
        fs::write(&file, "c").unwrap();
        fs::write(&mine, "c").unwrap();
        let set =
            |path: &Path, old: &str, new: &str| Action::SetFile { path: path.into(), old: old.into(), new: new.into() };
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
    fn the_chosen_word_of_a_choice_is_read() {
        let home = tempfile::tempdir().unwrap();
        let file = home.path().join("scheduler");
        fs::write(&file, "none [mq-deadline] kyber\n").unwrap();
        assert_eq!(read_trimmed(&file).unwrap(), "mq-deadline");
    }

    #[test]
    fn own_process_is_alive_and_a_reused_number_is_not() {
        assert!(ProcessId::own().unwrap().is_alive());
        assert!(!gone().is_alive());
    }
}
