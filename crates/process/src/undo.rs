//! Undo notes: how to undo a change, written before the change is made.
//!
//! ```text
//!     note (/run/ahead/undo/…json)  →  change  →  …work…  →  undo  →  note removed
//!            │                                      │
//!            └── after SIGKILL or power loss ───────┴─▶  `sudo ahead restore` reads the note and undoes the change
//! ```
//!
//! A [`Guard`] undoes on drop: success, error and panic take the same path, and signals become ordinary returns
//! ([`crate::Signals`]). A note names the process that owns the change; while that process lives, [`restore`] skips the
//! note. Undoing never overwrites a value that another process has set since. It never removes a file or mount of another
//! process: [`Guard::made`] records the identity in the note, and only that object is undone.
//!
//! Between the change and [`Guard::made`] the identity is missing. Then only files in
//! `/run/ahead` and empty files and directories are removed. A setting is restored from any value: the kernel may have rounded
//! the value that was written.

pub mod guardian;
pub mod home;
mod identity;
pub mod loops;
pub mod machine_lock;
pub mod mounts;
mod restoring;
mod reverting;
mod trees;

pub use ahead_sys::file_identity::FileIdentity;
pub use ahead_sys::process_id::ProcessId;
use ahead_sys::{Error, Result, block, loopdev};
pub use identity::{MountIdentity, MountNumbers};
use identity::{MountState, metadata_at};
pub use restoring::{
    Restored, forget, has_abandoned_settings, notes, restore, restore_in, restore_owned_by, restore_settings,
    restore_settings_of,
};
use reverting::undo_action;
use serde::{Deserialize, Deserializer, Serialize};
use std::fmt;
use std::fs;
use std::io::{ErrorKind, Write};
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
pub use trees::{create_tree, create_tree_in};

/// The directory of notes, on a tmpfs: a reboot undoes all changes and removes all notes.
pub const NOTES: &str = "/run/ahead/undo";

/// A change and how to take it back.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "action", rename_all = "snake_case")]
pub enum Action {
    /// A kernel file had the value `old` and was set. It is restored only while its value is `new`.
    SetFile {
        /// The kernel file.
        path: PathBuf,
        /// Its value before.
        #[serde(deserialize_with = "trimmed")]
        old: String,
        /// Its value since, which may differ from the value written. `None` until it is set, and if the kernel changes it:
        /// then it is restored whatever its value.
        #[serde(default, deserialize_with = "trimmed_if_set")]
        new: Option<String>,
    },
    /// A file system was mounted on `target`. It is unmounted only while it is mounted there.
    Unmount {
        /// The mount point.
        target: PathBuf,
        mount: MountIdentity,
    },
    /// `device` was attached to the file `backing`. It is detached only while it is attached to that file.
    DetachLoop {
        /// `/dev/loopN`.
        device: PathBuf,
        backing: PathBuf,
        /// The disk sequence number since the attachment. `None` before it, or if the kernel has none.
        sequence_of_disk: Option<u64>,
    },
    /// One of our processes runs, and is to be ended (SIGTERM, then SIGKILL).
    EndProcess { process: ProcessId },
    /// A file or an empty directory that we made is to be removed.
    Remove {
        path: PathBuf,
        /// Its identity. `None` until it is made.
        file: Option<FileIdentity>,
    },
    /// A directory that we made is to be removed with its content.
    RemoveTree {
        path: PathBuf,
        /// Its identity. `None` until it is made.
        directory: Option<FileIdentity>,
    },
}

fn trimmed<'de, D: Deserializer<'de>>(value: D) -> std::result::Result<String, D::Error> {
    String::deserialize(value).map(|text| text.trim_end().to_owned())
}

fn trimmed_if_set<'de, D: Deserializer<'de>>(value: D) -> std::result::Result<Option<String>, D::Error> {
    let value = Option::<String>::deserialize(value)?;
    Ok(value.map(|text| text.trim_end().to_owned()))
}

impl Action {
    /// For a file or directory that is about to be made.
    pub fn remove(path: &Path) -> Action {
        Action::Remove { path: path.into(), file: None }
    }

    /// For a mount that is about to be made.
    pub fn unmount(target: &Path, filesystem: &str, source: &str) -> Action {
        Action::Unmount { target: target.into(), mount: MountIdentity::new(filesystem, source) }
    }
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Action::SetFile { path, old, new: Some(new) } => write!(f, "{} from {new} back to {old}", path.display()),
            Action::SetFile { path, old, new: None } => write!(f, "{} back to {old}", path.display()),
            Action::Unmount { target, .. } => write!(f, "mount on {}", target.display()),
            Action::DetachLoop { device, .. } => write!(f, "loop device {}", device.display()),
            Action::EndProcess { process } => write!(f, "process {}", process.pid),
            Action::Remove { path, .. } => write!(f, "file {}", path.display()),
            Action::RemoveTree { path, .. } => write!(f, "directory {}", path.display()),
        }
    }
}

/// A stored note.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Note {
    /// The owner of the change.
    pub owner: ProcessId,
    /// Order of changes: later ones are undone first.
    pub sequence: u64,
    /// The change.
    #[serde(flatten)]
    pub action: Action,
}

/// Undoes a change when dropped.
#[derive(Debug)]
pub struct Guard {
    path: PathBuf,
    /// `None` after the undo, or if another process has taken it over.
    note: Option<Note>,
    /// Length of the note that [`Guard::about_to_set`] has written last.
    brief_length: Option<usize>,
}

/// Writes the note for a change that is about to be made. Call this first, then make the change, then call
/// [`Guard::made`].
pub fn note(action: Action) -> Result<Guard> {
    note_for(ProcessId::own()?, action)
}

/// As [`note`], for a change that another process (a daemon) owns: `restore` undoes it after that process has ended.
pub fn note_for(owner: ProcessId, action: Action) -> Result<Guard> {
    guardian::begin(owner, &action);
    note_in(Path::new(NOTES), owner, action)
}

/// Width of both values in a note of [`Guard::about_to_set`], filled up with spaces: more than the digits of a window in KiB.
const BRIEF_WIDTH: usize = 12;

/// The operation that needs notes, for messages.
const NOTING: &str = "changing system settings";

/// As [`note_for`], in a given directory, for tests.
pub fn note_in(directory: &Path, owner: ProcessId, action: Action) -> Result<Guard> {
    static COUNTER: AtomicU64 = AtomicU64::new(0);
    home::make_directory(NOTING, directory)?;
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    let sequence = now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64;
    let name = format!("{sequence:020}-{}-{}.json", std::process::id(), COUNTER.fetch_add(1, Ordering::Relaxed));
    let path = directory.join(name);
    let note = Note { owner, sequence, action };
    note.write(&path)?;
    Ok(Guard { path, note: Some(note), brief_length: None })
}

/// Creates a file under a guard that removes it: writes a note, creates, and records the identity. An existing file stays, and is
/// the error `EEXIST`.
pub fn create_file(owner: ProcessId, path: &Path, mode: u32) -> Result<(fs::File, Guard)> {
    let open = || fs::File::options().read(true).write(true).create_new(true).mode(mode).open(path);
    create(owner, path, || open().and_then(|file| Ok((file.metadata()?, file))))
}

/// As [`create_file`], for a directory.
pub fn create_directory(owner: ProcessId, path: &Path) -> Result<Guard> {
    let make = || fs::DirBuilder::new().mode(0o755).create(path).and_then(|()| fs::symlink_metadata(path));
    create(owner, path, || make().map(|metadata| (metadata, ()))).map(|((), guard)| guard)
}

fn create<T>(
    owner: ProcessId,
    path: &Path,
    make: impl FnOnce() -> std::io::Result<(fs::Metadata, T)>,
) -> Result<(T, Guard)> {
    let failed = |e| Error::io(format!("create {}", path.display()), e);
    let action = |file| Action::Remove { path: path.into(), file };
    // Checked first: a kill between note and creation must not leave a note about a file of another process.
    if metadata_at(path)?.is_some() {
        return Err(failed(std::io::Error::from_raw_os_error(libc::EEXIST)));
    }
    let mut guard = note_for(owner, action(None))?;
    match make() {
        Ok((metadata, made)) => {
            guard.identify(action(Some(FileIdentity::of(&metadata))))?;
            Ok((made, guard))
        }
        Err(e) => {
            // Another process has created it: it must not be removed.
            guard.keep()?;
            Err(failed(e))
        }
    }
}

impl Note {
    /// Replaces the content of the file by this note, which has the same length.
    fn write_over(&self, path: &Path) -> Result<()> {
        let file = fs::File::options().write(true).open(path);
        let written = file.and_then(|file| file.write_all_at(&self.text()?, 0));
        written.map_err(|e| Error::unwritable(NOTING, path, e))
    }

    fn text(&self) -> std::io::Result<Vec<u8>> {
        serde_json::to_vec(self).map_err(std::io::Error::other)
    }

    /// Writes a temporary file and renames it, because a partial note would be worse than none.
    fn write(&self, path: &Path) -> Result<()> {
        let text = self.text().map_err(|e| Error::io("encode an undo note", e))?;
        let temporary = path.with_extension(TEMPORARY);
        // Set explicitly, since the umask may differ: a note that other users may write is ignored.
        let created = fs::File::options().write(true).create(true).truncate(true).mode(0o644).open(&temporary);
        let written = created.and_then(|mut file| file.write_all(&text)).and_then(|()| fs::rename(&temporary, path));
        written.map_err(|e| {
            // Removes a partial note.
            let _ = fs::remove_file(&temporary);
            Error::unwritable(NOTING, path.parent().unwrap_or(path), e)
        })
    }
}

impl Guard {
    /// Call after the change is made: records the identity of the file, mount or attachment, or the value of the setting, so
    /// that only that is undone.
    pub fn made(&mut self) -> Result<()> {
        let Some(note) = &self.note else { return Ok(()) };
        let action = match note.action.clone() {
            Action::SetFile { path, old, .. } => Action::SetFile { new: Some(block::read_setting(&path)?), path, old },
            Action::Remove { path, .. } => {
                let file = metadata_at(&path)?.map(|metadata| FileIdentity::of(&metadata));
                Action::Remove { path, file }
            }
            Action::RemoveTree { path, .. } => {
                let directory = metadata_at(&path)?.map(|metadata| FileIdentity::of(&metadata));
                Action::RemoveTree { path, directory }
            }
            Action::Unmount { target, mut mount } => {
                if let MountState::OnTop(numbers) = mount.state_at(&target)? {
                    mount.numbers = Some(numbers);
                }
                Action::Unmount { target, mount }
            }
            Action::DetachLoop { device, backing, .. } => {
                Action::DetachLoop { sequence_of_disk: loopdev::sequence(&device), device, backing }
            }
            complete => complete,
        };
        self.identify(action)
    }

    /// For a setting that is changed for microseconds, again and again, under one note: the value before and the value that is about to be set.
    /// If this process is killed meanwhile, the setting is restored only while it has that value. Call it before each change to another value.
    ///
    /// A note of the same length is written over the one before: a new file and a rename would take ten times as long as the change. A kill does
    /// not cut a write of less than a page.
    pub fn about_to_set(&mut self, before: &str, value: &str) -> Result<()> {
        let Some(note) = &mut self.note else { return Ok(()) };
        let Action::SetFile { old, new, .. } = &mut note.action else { return Ok(()) };
        if old == before && new.as_deref() == Some(value) {
            return Ok(());
        }
        (*old, *new) = (before.into(), Some(value.into()));
        let mut padded = note.clone();
        if let Action::SetFile { old, new: Some(new), .. } = &mut padded.action {
            (*old, *new) = (format!("{before:BRIEF_WIDTH$}"), format!("{value:BRIEF_WIDTH$}"));
        }
        let length = padded.text().map_or(0, |text| text.len());
        if self.brief_length.replace(length) == Some(length) {
            return padded.write_over(&self.path);
        }
        padded.write(&self.path)
    }

    /// As [`Self::made`], for a mount on a directory whose path is `target` now.
    pub(crate) fn mounted_on(&mut self, target: PathBuf) -> Result<()> {
        if let Some(Note { action: Action::Unmount { target: noted, .. }, .. }) = &mut self.note {
            *noted = target;
        }
        self.made()
    }

    fn identify(&mut self, action: Action) -> Result<()> {
        self.rewrite(|note| note.action = action)
    }

    /// Transfers the change to another process of ours; this guard does not undo it any more.
    pub fn give_to(mut self, owner: ProcessId) -> Result<()> {
        self.rewrite(|note| note.owner = owner)?;
        self.leave();
        Ok(())
    }

    fn rewrite(&mut self, change: impl FnOnce(&mut Note)) -> Result<()> {
        let Some(note) = &mut self.note else { return Ok(()) };
        change(note);
        note.write(&self.path)
    }

    /// Undoes now and returns the error, which drop could only log.
    pub fn undo(mut self) -> Result<()> {
        self.undo_once()
    }

    /// Leaves the change without undoing it: the note stays, for `restore` or for a process that took the change over.
    pub fn leave(mut self) {
        self.note = None;
    }

    /// Makes the change permanent: it is undone neither now nor later.
    pub fn keep(mut self) -> Result<()> {
        self.note = None;
        remove_note(&self.path)
    }

    /// Removes the note: from now on only this guard undoes the change. After a kill the change stays.
    pub fn drop_note(&self) -> Result<()> {
        remove_note(&self.path)
    }

    fn undo_once(&mut self) -> Result<()> {
        let Some(note) = self.note.take() else { return Ok(()) };
        if let Outcome::LeftAlone(why) = undo_action(&note.action)? {
            tracing::info!("not undone: {}: {why}", note.action);
        }
        remove_note(&self.path)
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        if let Err(error) = self.undo_once() {
            tracing::warn!("cannot undo a change (run `sudo ahead restore` to try again): {error}");
        }
    }
}

/// Sets a kernel file under a guard that restores it: writes a note, sets the file, and records the new value.
pub fn set_file(path: &Path, new: &str) -> Result<Guard> {
    set_file_for(ProcessId::own()?, path, new)
}

/// As [`set_file`], for a change that another process of ours owns.
pub fn set_file_for(owner: ProcessId, path: &Path, new: &str) -> Result<Guard> {
    let mut guard = note_setting(owner, path)?;
    write_setting(path, new)?;
    guard.made()?;
    Ok(guard)
}

/// Writes a note with the value of a kernel file that is about to be set. Until [`Guard::made`] it is restored whatever its value.
pub fn note_setting(owner: ProcessId, path: &Path) -> Result<Guard> {
    note_for(owner, Action::SetFile { path: path.into(), old: block::read_setting(path)?, new: None })
}

/// Timeout for a kernel file that returns EBUSY.
const BUSY_TIME: Duration = Duration::from_secs(2);

/// Interval between attempts; there is no event to wait for.
const BUSY_EVERY: Duration = Duration::from_millis(2);

/// Writes a kernel file. Queue settings of a disk return `EBUSY` during another change of the queue (Linux 6.17 and later): the
/// write is repeated for two seconds.
pub fn write_setting(path: &Path, text: &str) -> Result<()> {
    let deadline = Instant::now() + BUSY_TIME;
    loop {
        // Never created: a setting is a file of the kernel.
        let file = fs::File::options().write(true).truncate(true).open(path);
        match file.and_then(|mut file| file.write_all(text.as_bytes())) {
            Err(e) if e.raw_os_error() == Some(libc::EBUSY) && Instant::now() < deadline => {
                std::thread::sleep(BUSY_EVERY);
            }
            written => return written.map_err(|e| Error::io(format!("write {text:?} to {}", path.display()), e)),
        }
    }
}

/// The result of an undo.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The change is undone, or was gone already.
    Undone,
    /// Another process has changed or replaced the object since, and it stays; with the reason. The note is removed.
    LeftAlone(String),
}

/// File name extension of a note that is being written.
const TEMPORARY: &str = "tmp";

fn remove_note(path: &Path) -> Result<()> {
    match fs::remove_file(path) {
        Err(e) if e.kind() != ErrorKind::NotFound => Err(Error::io(format!("remove {}", path.display()), e)),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::restoring::notes_in;
    use super::*;

    fn dead_process() -> ProcessId {
        ProcessId { pid: std::process::id(), start_ticks: 1 }
    }

    #[test]
    fn guard_restores_the_setting_and_removes_its_note() {
        let home = tempfile::tempdir().unwrap();
        let file = home.path().join("read_ahead_kb");
        fs::write(&file, "0\n").unwrap();
        let notes = home.path().join("undo");
        let action = Action::SetFile { path: file.clone(), old: "128".into(), new: Some("0".into()) };
        drop(note_in(&notes, ProcessId::own().unwrap(), action).unwrap());
        assert_eq!(fs::read_to_string(&file).unwrap(), "128");
        assert!(notes_in(&notes).unwrap().is_empty());
    }

    /// Regression: a partial note stayed, and `restore` found it.
    #[test]
    fn failed_write_of_a_note_leaves_no_file() {
        let home = tempfile::tempdir().unwrap();
        let taken = home.path().join("note.json");
        fs::create_dir(&taken).unwrap();
        let note = Note { owner: dead_process(), sequence: 1, action: Action::remove(Path::new("/x")) };
        note.write(&taken).unwrap_err();
        assert_eq!(fs::read_dir(home.path()).unwrap().count(), 1);
    }

    #[test]
    fn setting_changed_by_another_process_is_not_undone() {
        let home = tempfile::tempdir().unwrap();
        let file = home.path().join("read_ahead_kb");
        fs::write(&file, "512\n").unwrap();
        let action = Action::SetFile { path: file.clone(), old: "128".into(), new: Some("0".into()) };
        note_in(&home.path().join("undo"), ProcessId::own().unwrap(), action).unwrap().undo().unwrap();
        assert_eq!(fs::read_to_string(&file).unwrap(), "512\n");
    }

    /// An administrator's value survives, set before or after a change that a kill interrupted.
    #[test]
    fn brief_change_is_undone_only_while_its_value_is_there() {
        let home = tempfile::tempdir().unwrap();
        let (file, notes) = (home.path().join("read_ahead_kb"), home.path().join("undo"));
        for (before, since, left) in
            [("128", "4", "128"), ("128", "512", "512"), ("256", "4", "256"), ("128", "128", "128")]
        {
            fs::write(&file, since).unwrap();
            let action = Action::SetFile { path: file.clone(), old: "128".into(), new: Some("128".into()) };
            let mut guard = note_in(&notes, dead_process(), action).unwrap();
            for value in ["8", "1024", "8", "4"] {
                guard.about_to_set(before, value).unwrap();
            }
            guard.leave();
            assert_eq!(restore_in(&notes).unwrap().len(), 1);
            assert_eq!(fs::read_to_string(&file).unwrap(), left);
        }
    }

    /// Regression: a value that the kernel had rounded counted as a value of another process.
    #[test]
    fn setting_that_the_kernel_rounded_is_restored() {
        let home = tempfile::tempdir().unwrap();
        let (file, notes) = (home.path().join("read_ahead_kb"), home.path().join("undo"));
        let pending = || Action::SetFile { path: file.clone(), old: "128".into(), new: None };
        // Killed before the resulting value was recorded.
        fs::write(&file, "1000\n").unwrap();
        note_in(&notes, dead_process(), pending()).unwrap().leave();
        assert_eq!(restore_in(&notes).unwrap()[0].outcome.as_ref().unwrap(), &Outcome::Undone);
        assert_eq!(fs::read_to_string(&file).unwrap(), "128");
        // Recorded: from then on another value is another process's.
        for (since, left) in [("1000\n", "128"), ("512\n", "512\n")] {
            fs::write(&file, "1000\n").unwrap();
            let mut guard = note_in(&notes, dead_process(), pending()).unwrap();
            guard.made().unwrap();
            fs::write(&file, since).unwrap();
            drop(guard);
            assert_eq!(fs::read_to_string(&file).unwrap(), left);
        }
    }

    #[test]
    fn selected_alternative_of_a_setting_is_read() {
        let home = tempfile::tempdir().unwrap();
        let file = home.path().join("scheduler");
        fs::write(&file, "none [mq-deadline] kyber\n").unwrap();
        assert_eq!(block::read_setting(&file).unwrap(), "mq-deadline");
    }

    #[test]
    fn own_process_is_alive_and_a_reused_number_is_not() {
        let own = ProcessId::own().unwrap();
        assert!(own.is_alive() && own.is_executing());
        assert!(!dead_process().is_alive() && !dead_process().is_executing());
    }

    #[test]
    fn existing_file_is_neither_created_nor_noted() {
        if !ahead_sys::machine::is_root() {
            eprintln!("skipped: needs root");
            return;
        }
        let home = tempfile::tempdir().unwrap();
        let own = ProcessId::own().unwrap();
        let file = home.path().join("x");
        let (_, guard) = create_file(own, &file, 0o600).unwrap();
        let again = create_file(own, &file, 0o600).unwrap_err();
        assert_eq!(again.raw_os_error(), Some(libc::EEXIST));
        let noted = || {
            notes()
                .unwrap()
                .iter()
                .filter(|(_, n)| matches!(&n.action, Action::Remove { path, .. } if *path == file))
                .count()
        };
        assert_eq!(noted(), 1);
        drop(guard);
        assert!(!file.exists());
        drop(create_directory(own, &file).unwrap());
        assert!(!file.exists() && noted() == 0);
    }
}
