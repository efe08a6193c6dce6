//! Undo notes: how to take back a change, written down before the change is made.
//!
//! ```text
//!     note (/run/ahead/undo/…json)  →  change  →  …work…  →  undo  →  note removed
//!            │                                      │
//!            └── after SIGKILL or power loss of us ─┴─▶  `ahead restore` reads the note and undoes the change
//! ```
//!
//! A [`Guard`] undoes on drop: success, error and panic are one path, and signals become ordinary returns
//! ([`ahead_process::Signals`]). A note names the process that owns the change; while that process lives, [`restore`]
//! leaves it alone. Undoing never overwrites what somebody else has set since, and never takes away what somebody else
//! has put there: once the thing is made, the note says which it is ([`Guard::made`]), and only that one is undone.
//!
//! Between the making and [`Guard::made`], and in notes of older versions, that is missing. Then only what nobody can
//! miss is taken away: what lies in `/run/ahead`, and what is empty. A setting is set back then, whatever it reads: the
//! kernel may have rounded what we wrote.

pub mod guardian;
pub mod home;
mod identity;
pub mod loops;
pub mod machine_lock;
pub mod mounts;
mod restoring;
mod taking_back;
mod trees;

pub use ahead_sys::file_identity::FileIdentity;
pub use ahead_sys::process_id::ProcessId;
use ahead_sys::{Error, Result, block, loopdev};
pub use identity::{MountIdentity, MountNumbers};
use identity::{Mounted, look_at};
pub use restoring::{
    Restored, are_settings_left, notes, restore, restore_in, restore_owned_by, restore_settings, restore_settings_of,
};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::fs;
use std::io::{ErrorKind, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
pub use taking_back::forget;
use taking_back::undo_action;
pub use trees::{create_tree, create_tree_in};

/// Where notes are kept. On a tmpfs: a reboot undoes everything by itself.
pub const NOTES: &str = "/run/ahead/undo";

/// A change and how to take it back.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "action", rename_all = "snake_case")]
pub enum Action {
    /// A kernel file read `old` and was set; it is set back only while it still reads `new`.
    SetFile {
        /// The kernel file.
        path: PathBuf,
        /// Its content before.
        old: String,
        /// What it reads since, which need not be what we wrote. `None` until it is set, and where the kernel moves it by
        /// itself: then it is set back whatever it reads.
        new: Option<String>,
    },
    /// Something was mounted on `target`; it is unmounted only while it still is.
    Unmount {
        /// The mount point.
        target: PathBuf,
        /// Which mount. `None` in notes of older versions.
        #[serde(default)]
        mount: Option<MountIdentity>,
    },
    /// `device` was attached to the file `backing`; it is detached only while it still is.
    DetachLoop {
        /// `/dev/loopN`.
        device: PathBuf,
        /// The file behind it.
        backing: PathBuf,
        /// The device's sequence number since it was attached; `None` before, or where the kernel has none.
        #[serde(default)]
        sequence_of_disk: Option<u64>,
    },
    /// A process of ours runs and is to be ended (SIGTERM, then SIGKILL).
    EndProcess {
        /// Which.
        process: ProcessId,
    },
    /// A file or an empty directory of ours is to be removed.
    Remove {
        /// Where it is.
        path: PathBuf,
        /// Which it is; `None` until it is made, and in notes of older versions.
        #[serde(default)]
        file: Option<FileIdentity>,
    },
    /// A directory of ours is to be removed with all that is in it.
    RemoveTree {
        /// Where it is.
        path: PathBuf,
        /// Which it is; `None` until it is made.
        #[serde(default)]
        directory: Option<FileIdentity>,
    },
}

impl Action {
    /// A file or directory that is about to be made.
    pub fn remove(path: &Path) -> Action {
        Action::Remove { path: path.into(), file: None }
    }

    /// A mount that is about to be made.
    pub fn unmount(target: &Path, filesystem: &str, source: &str) -> Action {
        Action::Unmount { target: target.into(), mount: Some(MountIdentity::new(filesystem, source)) }
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
    path: PathBuf,
    /// `None` once it is undone, or not ours any more.
    note: Option<Note>,
}

/// Writes the note for a change that is about to be made. Call it first, then make the change, then tell the guard
/// ([`Guard::made`]).
pub fn note(action: Action) -> Result<Guard> {
    note_for(ProcessId::own()?, action)
}

/// The same for a change that another process of ours shall own (a daemon): `restore` waits for that one to end.
pub fn note_for(owner: ProcessId, action: Action) -> Result<Guard> {
    guardian::begin(owner, &action);
    note_in(Path::new(NOTES), owner, action)
}

/// What it is that cannot be done where notes cannot be written.
const NOTING: &str = "changing system settings";

/// The same in a directory of choice, for tests.
pub fn note_in(directory: &Path, owner: ProcessId, action: Action) -> Result<Guard> {
    static COUNTER: AtomicU64 = AtomicU64::new(0);
    home::make_directory(NOTING, directory)?;
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    let sequence = now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64;
    let name = format!("{sequence:020}-{}-{}.json", std::process::id(), COUNTER.fetch_add(1, Ordering::Relaxed));
    let path = directory.join(name);
    let note = Note { owner, sequence, action };
    note.write(&path)?;
    Ok(Guard { path, note: Some(note) })
}

/// Makes a file that is not there yet, under a guard that removes it: notes, makes, and notes which it is. What is
/// there already stays, and is the error `EEXIST`.
pub fn create_file(owner: ProcessId, path: &Path, mode: u32) -> Result<(fs::File, Guard)> {
    let open = || fs::File::options().read(true).write(true).create_new(true).mode(mode).open(path);
    create(owner, path, || open().and_then(|file| Ok((file.metadata()?, file))))
}

/// The same for a directory.
pub fn create_directory(owner: ProcessId, path: &Path) -> Result<Guard> {
    let make = || fs::DirBuilder::new().mode(0o755).create(path).and_then(|()| fs::symlink_metadata(path));
    create(owner, path, || make().map(|metadata| (metadata, ()))).map(|((), guard)| guard)
}

fn create<T>(
    owner: ProcessId,
    path: &Path,
    make: impl FnOnce() -> std::io::Result<(fs::Metadata, T)>,
) -> Result<(T, Guard)> {
    create_as(owner, path, |file| Action::Remove { path: path.into(), file }, make)
}

/// `action`: how to remove what is made, once it is known which it is.
fn create_as<T>(
    owner: ProcessId,
    path: &Path,
    action: impl Fn(Option<FileIdentity>) -> Action,
    make: impl FnOnce() -> std::io::Result<(fs::Metadata, T)>,
) -> Result<(T, Guard)> {
    let failed = |e| Error::io(format!("create {}", path.display()), e);
    // Looked for first: a kill between the note and the making must not leave a note of what was there before.
    if look_at(path)?.is_some() {
        return Err(failed(std::io::Error::from_raw_os_error(libc::EEXIST)));
    }
    let mut guard = note_for(owner, action(None))?;
    match make() {
        Ok((metadata, made)) => {
            guard.identify(action(Some(FileIdentity::of(&metadata))))?;
            Ok((made, guard))
        }
        Err(e) => {
            // Not made by us: not ours to remove.
            guard.keep()?;
            Err(failed(e))
        }
    }
}

impl Note {
    /// Renamed into place: a half-written note would be worse than none.
    fn write(&self, path: &Path) -> Result<()> {
        let text = serde_json::to_vec(self).map_err(|e| Error::io("encode an undo note", std::io::Error::other(e)))?;
        let temporary = path.with_extension(TEMPORARY);
        // Whatever the umask: a note that others may write is not obeyed.
        let created = fs::File::options().write(true).create(true).truncate(true).mode(0o644).open(&temporary);
        let written = created.and_then(|mut file| file.write_all(&text)).and_then(|()| fs::rename(&temporary, path));
        written.map_err(|e| {
            // The half of it that may be there is no use to anybody.
            let _ = fs::remove_file(&temporary);
            Error::unwritable(NOTING, path.parent().unwrap_or(path), e)
        })
    }
}

impl Guard {
    /// The change is made: notes which file, mount or attachment it is now, or what the setting reads, so that only that
    /// is undone.
    pub fn made(&mut self) -> Result<()> {
        let Some(note) = &self.note else { return Ok(()) };
        let action = match note.action.clone() {
            Action::SetFile { path, old, .. } => Action::SetFile { new: Some(block::read_setting(&path)?), path, old },
            Action::Remove { path, .. } => {
                let file = look_at(&path)?.map(|metadata| FileIdentity::of(&metadata));
                Action::Remove { path, file }
            }
            Action::RemoveTree { path, .. } => {
                let directory = look_at(&path)?.map(|metadata| FileIdentity::of(&metadata));
                Action::RemoveTree { path, directory }
            }
            Action::Unmount { target, mount: Some(mut mount) } => {
                if let Mounted::This(numbers) = mount.look(&target)? {
                    mount.numbers = Some(numbers);
                }
                Action::Unmount { target, mount: Some(mount) }
            }
            Action::DetachLoop { device, backing, .. } => {
                Action::DetachLoop { sequence_of_disk: loopdev::sequence(&device), device, backing }
            }
            complete => complete,
        };
        self.identify(action)
    }

    /// The same for a mount, made on a directory that is at `target` now.
    pub(crate) fn mounted_on(&mut self, target: PathBuf) -> Result<()> {
        if let Some(Note { action: Action::Unmount { target: noted, .. }, .. }) = &mut self.note {
            *noted = target;
        }
        self.made()
    }

    fn identify(&mut self, action: Action) -> Result<()> {
        self.rewrite(|note| note.action = action)
    }

    /// Another process of ours owns the change from now on; this guard undoes nothing any more.
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

    /// Undoes now and reports what went wrong, where drop could only log it.
    pub fn undo(mut self) -> Result<()> {
        self.undo_once()
    }

    /// The change is not ours any more: the note stays, for `restore` or for the process that took it over.
    pub fn leave(mut self) {
        self.note = None;
    }

    /// The change is to stay: nothing is undone, now or later.
    pub fn keep(mut self) -> Result<()> {
        self.note = None;
        remove_note(&self.path)
    }

    /// From now on only this guard undoes the change: after a kill it stays.
    pub fn drop_note(&self) -> Result<()> {
        remove_note(&self.path)
    }

    fn undo_once(&mut self) -> Result<()> {
        let Some(note) = self.note.take() else { return Ok(()) };
        if let Outcome::LeftAlone(why) = undo_action(&note.action)? {
            tracing::info!("{} is left alone: {why}", note.action);
        }
        remove_note(&self.path)
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        if let Err(error) = self.undo_once() {
            tracing::warn!("could not undo (ahead restore will try again): {error}");
        }
    }
}

/// Sets a kernel file under a guard: notes, writes, notes what came of it, and gives the guard that sets it back.
pub fn set_file(path: &Path, new: &str) -> Result<Guard> {
    set_file_for(ProcessId::own()?, path, new)
}

/// The same for a change that another process of ours shall own.
pub fn set_file_for(owner: ProcessId, path: &Path, new: &str) -> Result<Guard> {
    let mut guard = note_setting(owner, path)?;
    write_setting(path, new)?;
    guard.made()?;
    Ok(guard)
}

/// Notes what a kernel file reads, before it is set. Until [`Guard::made`] it is set back to that whatever it reads then.
pub fn note_setting(owner: ProcessId, path: &Path) -> Result<Guard> {
    note_for(owner, Action::SetFile { path: path.into(), old: block::read_setting(path)?, new: None })
}

/// How long a kernel file may answer that it is busy.
const BUSY_TIME: Duration = Duration::from_secs(2);

/// How often it is asked again; there is no event to wait for.
const BUSY_EVERY: Duration = Duration::from_millis(2);

/// Writes a kernel file. A disk's queue settings answer `EBUSY` while another change of the queue is under way (Linux 6.17
/// and later): those are asked again for two seconds.
pub fn write_setting(path: &Path, text: &str) -> Result<()> {
    let deadline = Instant::now() + BUSY_TIME;
    loop {
        // Not made where it is missing: a setting is the kernel's file.
        let file = fs::File::options().write(true).truncate(true).open(path);
        match file.and_then(|mut file| file.write_all(text.as_bytes())) {
            Err(e) if e.raw_os_error() == Some(libc::EBUSY) && Instant::now() < deadline => {
                std::thread::sleep(BUSY_EVERY);
            }
            written => return written.map_err(|e| Error::io(format!("write {text:?} to {}", path.display()), e)),
        }
    }
}

/// How a change ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It is taken back, or was gone already.
    Undone,
    /// Something else is there now, and stays; why, in words. The note is dropped.
    LeftAlone(String),
}

/// Ending of a note that is being written.
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

    fn gone() -> ProcessId {
        ProcessId { pid: std::process::id(), start_ticks: 1 }
    }

    #[test]
    fn a_guard_sets_back_and_removes_its_note() {
        let home = tempfile::tempdir().unwrap();
        let file = home.path().join("read_ahead_kb");
        fs::write(&file, "0\n").unwrap();
        let notes = home.path().join("undo");
        let action = Action::SetFile { path: file.clone(), old: "128".into(), new: Some("0".into()) };
        drop(note_in(&notes, ProcessId::own().unwrap(), action).unwrap());
        assert_eq!(fs::read_to_string(&file).unwrap(), "128");
        assert!(notes_in(&notes).unwrap().is_empty());
    }

    /// Regression: half of it stayed, for `restore` to find.
    #[test]
    fn a_note_that_cannot_be_written_leaves_nothing() {
        let home = tempfile::tempdir().unwrap();
        let taken = home.path().join("note.json");
        fs::create_dir(&taken).unwrap();
        let note = Note { owner: gone(), sequence: 1, action: Action::remove(Path::new("/x")) };
        note.write(&taken).unwrap_err();
        assert_eq!(fs::read_dir(home.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_setting_changed_by_somebody_else_is_left_alone() {
        let home = tempfile::tempdir().unwrap();
        let file = home.path().join("read_ahead_kb");
        fs::write(&file, "512\n").unwrap();
        let action = Action::SetFile { path: file.clone(), old: "128".into(), new: Some("0".into()) };
        note_in(&home.path().join("undo"), ProcessId::own().unwrap(), action).unwrap().undo().unwrap();
        assert_eq!(fs::read_to_string(&file).unwrap(), "512\n");
    }

    /// Regression: what the kernel had made of our value seemed to be somebody else's.
    #[test]
    fn a_setting_is_set_back_though_the_kernel_rounded_it() {
        let home = tempfile::tempdir().unwrap();
        let (file, notes) = (home.path().join("read_ahead_kb"), home.path().join("undo"));
        let pending = || Action::SetFile { path: file.clone(), old: "128".into(), new: None };
        // Killed before what came of it was noted.
        fs::write(&file, "1000\n").unwrap();
        note_in(&notes, gone(), pending()).unwrap().leave();
        assert_eq!(restore_in(&notes).unwrap()[0].outcome.as_ref().unwrap(), &Outcome::Undone);
        assert_eq!(fs::read_to_string(&file).unwrap(), "128");
        // Noted: from then on it is told from what somebody else sets.
        for (since, left) in [("1000\n", "128"), ("512\n", "512\n")] {
            fs::write(&file, "1000\n").unwrap();
            let mut guard = note_in(&notes, gone(), pending()).unwrap();
            guard.made().unwrap();
            fs::write(&file, since).unwrap();
            drop(guard);
            assert_eq!(fs::read_to_string(&file).unwrap(), left);
        }
    }

    #[test]
    fn the_chosen_word_of_a_choice_is_read() {
        let home = tempfile::tempdir().unwrap();
        let file = home.path().join("scheduler");
        fs::write(&file, "none [mq-deadline] kyber\n").unwrap();
        assert_eq!(block::read_setting(&file).unwrap(), "mq-deadline");
    }

    #[test]
    fn own_process_is_alive_and_a_reused_number_is_not() {
        let own = ProcessId::own().unwrap();
        assert!(own.is_alive() && own.is_at_work());
        assert!(!gone().is_alive() && !gone().is_at_work());
    }

    #[test]
    fn notes_of_older_versions_are_read() {
        let note = |rest: &str| {
            let text = format!(r#"{{"owner":{{"pid":1,"start_ticks":2}},"sequence":3,{rest}}}"#);
            serde_json::from_str::<Note>(&text).unwrap().action
        };
        assert_eq!(note(r#""action":"remove","path":"/x""#), Action::remove(Path::new("/x")));
        let set = Action::SetFile { path: "/x".into(), old: "1".into(), new: Some("2".into()) };
        assert_eq!(note(r#""action":"set_file","path":"/x","old":"1","new":"2""#), set);
        let unmount = Action::Unmount { target: "/x".into(), mount: None };
        assert_eq!(note(r#""action":"unmount","target":"/x""#), unmount);
        let (device, backing) = ("/dev/loop9".into(), "/x".into());
        let detach = Action::DetachLoop { device, backing, sequence_of_disk: None };
        assert_eq!(note(r#""action":"detach_loop","device":"/dev/loop9","backing":"/x""#), detach);
    }

    #[test]
    fn a_file_that_is_there_already_is_neither_made_nor_noted() {
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
