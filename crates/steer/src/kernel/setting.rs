//! The window of a disk, which has another value for microseconds while the window of one open file is set.
//!
//! ```text
//!     note "from X back to OLD" ─▶ write X ─▶ FADV_NORMAL on the taken descriptor ─▶ still X? ─▶ write OLD
//!                                  ╰──────── an open(2) in this time inherits X: measured ────────╯
//! ```
//!
//! FADV_NORMAL gives an open file the window that the disk has at that moment (mm/fadvise.c). If this process is killed in between, its guardian
//! or `ahead restore` writes OLD, but only while the value is X: a value of an administrator stays. After the change the note is settled: from
//! then on an administrator may set X, too.

use crate::refusal::Refusal;
use crate::times::Times;
use ahead_process::undo::{Action, Guard, ProcessId};
use ahead_sys::bdi::OpenSetting;
use ahead_sys::{Error, machine};
use std::path::Path;
use std::time::Instant;

/// The open setting of a disk.
#[derive(Debug)]
pub(super) struct DiskSetting {
    file: OpenSetting,
    /// The note; `None`: nothing may be changed.
    guard: Option<Guard>,
    /// The value that was put back, while the note still says how to undo that change.
    unsettled_kb: Option<u64>,
}

/// A change that is noted and can be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Prepared {
    before_kb: u64,
    kb: u64,
}

/// What a note has as the new value before the first change: no setting has such a value, so that nothing is restored.
const UNCHANGED: &str = "unchanged";

impl DiskSetting {
    pub(super) fn open(path: &Path) -> ahead_sys::Result<DiskSetting> {
        Ok(DiskSetting { file: OpenSetting::open(path)?, guard: None, unsettled_kb: None })
    }

    /// Writes the first note. There is nothing to undo yet, so its value is one that no setting has. Later notes are written over it.
    pub(super) fn with_note(
        mut self,
        note: impl FnOnce(Action) -> ahead_sys::Result<Guard>,
    ) -> ahead_sys::Result<DiskSetting> {
        let (path, old) = (self.file.path().to_owned(), self.file.read_kb()?.to_string());
        let mut guard = note(Action::SetFile { path, old: old.clone(), new: None })?;
        guard.about_to_set(&old, UNCHANGED)?;
        self.guard = Some(guard);
        Ok(self)
    }

    /// Notes the change to a window.
    pub(super) fn prepare(&mut self, pages: u64) -> Result<Prepared, Error> {
        let before_kb = self.file.read_kb()?;
        let kb = pages * kb_per_page();
        if kb != before_kb {
            let no_note = || Error::io("change a disk's setting", std::io::Error::other("it is not noted"));
            self.guard.as_mut().ok_or_else(no_note)?.about_to_set(&before_kb.to_string(), &kb.to_string())?;
        }
        Ok(Prepared { before_kb, kb })
    }

    /// Calls `act` while the disk has the prepared window. `disk_pages`: the window of the disk as the kernel has it for the open file.
    pub(super) fn during(
        &mut self,
        prepared: Prepared,
        disk_pages: u64,
        exposed: &mut Times,
        act: impl FnOnce() -> ahead_sys::Result<()>,
    ) -> Result<(), Refusal> {
        let Prepared { before_kb, kb } = prepared;
        let failed = |error: Error| Refusal::Failed(error.to_string());
        if disk_pages * kb_per_page() != before_kb {
            return Err(Refusal::NoSetting);
        }
        if kb == before_kb {
            return act().map_err(failed);
        }
        let began = Instant::now();
        self.file.write_kb(kb).map_err(failed)?;
        let done = act();
        let put_back = match self.file.read_kb() {
            Ok(now_kb) if now_kb != kb => Ok(()),
            // Also if it cannot be read.
            _ => self.file.write_kb(before_kb),
        };
        exposed.add(began.elapsed());
        // After a failure the note stays: its undo tries again.
        self.unsettled_kb = put_back.is_ok().then_some(before_kb);
        put_back.and(done).map_err(failed)
    }

    /// Notes that nothing has to be undone. Not part of an act, which would take longer.
    pub(super) fn settle(&mut self) {
        if let (Some(before_kb), Some(guard)) = (self.unsettled_kb.take(), &mut self.guard)
            && let Err(error) = guard.about_to_set(&before_kb.to_string(), UNCHANGED)
        {
            tracing::debug!("settle a note: {error}");
        }
    }
}

impl Drop for DiskSetting {
    fn drop(&mut self) {
        self.settle();
    }
}

/// KiB of a page.
fn kb_per_page() -> u64 {
    machine::page_size() / 1024
}

/// Writes the note of this process.
pub(super) fn note(action: Action) -> ahead_sys::Result<Guard> {
    ahead_process::undo::note_for(ProcessId::own()?, action)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    struct Disk {
        home: tempfile::TempDir,
        setting: DiskSetting,
    }

    impl Disk {
        fn new(kb: &str) -> Disk {
            let home = tempfile::tempdir().unwrap();
            fs::write(home.path().join("read_ahead_kb"), kb).unwrap();
            let notes = home.path().join("undo");
            let note = |action| ahead_process::undo::note_in(&notes, ProcessId::own().unwrap(), action);
            let setting = DiskSetting::open(&home.path().join("read_ahead_kb")).unwrap().with_note(note).unwrap();
            Disk { home, setting }
        }

        fn prepare(&mut self, pages: u64) -> Prepared {
            self.setting.prepare(pages).unwrap()
        }

        fn value(&self) -> String {
            value_in(self.home.path())
        }

        fn note(&self) -> String {
            let notes = fs::read_dir(self.home.path().join("undo")).unwrap().map(|entry| entry.unwrap().path());
            notes.map(|path| fs::read_to_string(path).unwrap()).collect()
        }
    }

    fn value_in(home: &Path) -> String {
        let text = fs::read_to_string(home.join("read_ahead_kb")).unwrap();
        text.lines().next().unwrap().to_owned()
    }

    #[test]
    fn disk_has_the_window_during_the_act_and_its_own_after_it() {
        let mut disk = Disk::new("128");
        let prepared = disk.prepare(256);
        assert!(disk.note().contains("\"new\":\"1024 "), "{}", disk.note());
        let mut exposed = Times::default();
        let mut during = String::new();
        let act = || {
            during = value_in(disk.home.path());
            Ok(())
        };
        assert_eq!(disk.setting.during(prepared, 32, &mut exposed, act), Ok(()));
        assert_eq!((during.as_str(), disk.value().as_str(), exposed.count()), ("1024", "128", 1));
        drop(disk.setting.guard.take());
        assert_eq!(disk.note(), "");
    }

    #[test]
    fn value_is_put_back_after_a_failed_act() {
        let mut disk = Disk::new("128");
        let prepared = disk.prepare(1);
        let failed = || Err(Error::io("advise", std::io::Error::other("x")));
        assert!(matches!(disk.setting.during(prepared, 32, &mut Times::default(), failed), Err(Refusal::Failed(_))));
        assert_eq!(disk.value(), "128");
    }

    #[test]
    fn value_of_an_administrator_stays_and_is_noted_at_the_next_act() {
        let mut disk = Disk::new("128");
        let prepared = disk.prepare(1);
        let path = disk.home.path().join("read_ahead_kb");
        let administrator = || {
            fs::write(&path, "512").unwrap();
            Ok(())
        };
        assert_eq!(disk.setting.during(prepared, 32, &mut Times::default(), administrator), Ok(()));
        assert_eq!(disk.value(), "512");
        let prepared = disk.prepare(1);
        assert!(disk.note().contains("\"old\":\"512 ") && disk.note().contains("\"new\":\"4 "));
        assert_eq!(disk.setting.during(prepared, 128, &mut Times::default(), || Ok(())), Ok(()));
        assert_eq!(disk.value(), "512");
    }

    /// Regression: an administrator's value was undone at the end, if an act had set the same value before.
    #[test]
    fn value_of_an_administrator_stays_where_an_earlier_act_has_set_the_same() {
        let mut disk = Disk::new("128");
        let prepared = disk.prepare(256);
        assert_eq!(disk.setting.during(prepared, 32, &mut Times::default(), || Ok(())), Ok(()));
        disk.setting.settle();
        assert!(disk.note().contains(UNCHANGED), "{}", disk.note());
        fs::write(disk.home.path().join("read_ahead_kb"), "1024").unwrap();
        let Disk { home, setting } = disk;
        drop(setting);
        assert_eq!(fs::read_to_string(home.path().join("read_ahead_kb")).unwrap(), "1024");
        assert_eq!(fs::read_dir(home.path().join("undo")).unwrap().count(), 0);
    }

    #[test]
    fn window_of_the_disk_needs_no_change_and_another_disk_is_refused() {
        let mut disk = Disk::new("128");
        let (prepared, mut exposed) = (disk.prepare(32), Times::default());
        assert_eq!(disk.setting.during(prepared, 32, &mut exposed, || Ok(())), Ok(()));
        assert_eq!(exposed.count(), 0);
        let refused = Err(Refusal::NoSetting);
        assert_eq!(disk.setting.during(prepared, 64, &mut exposed, || panic!("acted")), refused);
        // In a dry run nothing is noted, and nothing can be changed.
        drop(disk.setting.guard.take());
        assert!(disk.setting.prepare(1).is_err() && disk.setting.prepare(32).is_ok());
    }
}
