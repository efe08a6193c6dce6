//! Undoing one change, if its object still exists unchanged.

use super::identity::{MountIdentity, MountState, Namespace, metadata_at};
use super::{Action, Outcome, write_setting};
use ahead_sys::block::read_setting;
use ahead_sys::directory::DirectoryEntry;
use ahead_sys::file_identity::FileIdentity;
use ahead_sys::loopdev::{self, Attachment};
use ahead_sys::{Error, Result};
use std::os::unix::fs::FileTypeExt;
use std::path::Path;

/// Undoes one change. Idempotent: a state that is already the earlier one stays.
pub(super) fn undo_action(action: &Action) -> Result<Outcome> {
    match action {
        Action::SetFile { path, old, new } => match read_setting(path) {
            // The device was removed, and its setting with it.
            Err(Error::Io { source, .. }) if source.kind() == std::io::ErrorKind::NotFound => Ok(Outcome::Undone),
            Err(e) => Err(e),
            Ok(now) if now == *old => Ok(Outcome::Undone),
            Ok(now) if new.as_ref().is_some_and(|new| now != *new) => left(format!("its value is {now} now")),
            Ok(_) => write_setting(path, old).map(|()| Outcome::Undone),
        },
        Action::Unmount { target, mount } => unmount(target, mount),
        Action::DetachLoop { device, backing, sequence_of_disk } => {
            match loopdev::detach_if_unchanged(device, backing, *sequence_of_disk)? {
                Attachment::Unchanged | Attachment::Detached => Ok(Outcome::Undone),
                Attachment::Replaced(why) => left(why),
            }
        }
        Action::EndProcess { process } => crate::end(*process).map(|()| Outcome::Undone),
        Action::Remove { path, file } => remove(path, *file),
        Action::RemoveTree { path, directory } => remove_tree(path, *directory),
    }
}

/// Every file below this directory is ours, even if a note does not identify it.
const OWN: &str = crate::undo::home::HOME;

const UNIDENTIFIED: &str = "its note does not identify it (written by a process that was killed while making it); remove it yourself if it is not in use";

fn unmount(target: &Path, mount: &MountIdentity) -> Result<Outcome> {
    match mount.find_namespace()? {
        Namespace::Own => unmount_this(target, mount),
        Namespace::Ended => Ok(Outcome::Undone),
        // An error, so that the note stays.
        Namespace::OfProcess(pid) => {
            let why = format!("it is in another mount namespace; run: sudo nsenter -m -t {pid} ahead restore");
            Err(Error::Unsupported { what: format!("unmounting {}", target.display()), why })
        }
    }
}

/// Finds the mount, and unmounts it relative to its open parent directory, even if that is renamed in the meantime.
fn unmount_this(target: &Path, mount: &MountIdentity) -> Result<Outcome> {
    let entry = DirectoryEntry::of(target)?;
    let state = entry.as_ref().map_or(Ok(MountState::Unmounted), |entry| mount.state_of(entry))?;
    let entry = match (state, entry) {
        (MountState::OnTop(_), Some(entry)) => entry,
        (MountState::Covered, _) => {
            let what =
                format!("unmount {}: another file system is mounted over it; unmount that first", target.display());
            return Err(Error::io(what, std::io::Error::from_raw_os_error(libc::EBUSY)));
        }
        (state, _) => match mount.find_moved()? {
            Some(moved) => moved,
            None if state == MountState::Other => return left("something else is mounted there now"),
            None => return Ok(Outcome::Undone),
        },
    };
    ahead_sys::mounting::unmount_entry(&entry).map(|()| Outcome::Undone)
}

fn remove(path: &Path, file: Option<FileIdentity>) -> Result<Outcome> {
    let Some(metadata) = metadata_at(path)? else { return Ok(Outcome::Undone) };
    // The parent is opened once: its owner may rename files in it at any time.
    let Some(entry) = DirectoryEntry::of(path)? else { return Ok(Outcome::Undone) };
    let (parent, name) = (entry.directory(), entry.name());
    let kind = metadata.file_type();
    match file {
        Some(file) if !parent.holds(name, file) => return left("another file has this path now"),
        Some(_) => {}
        None if path.starts_with(OWN) => {}
        // Below, only an empty directory is removed.
        None if kind.is_dir() => {}
        None if metadata.len() == 0 && (kind.is_file() || kind.is_socket()) => {}
        None => return left(UNIDENTIFIED),
    }
    match if kind.is_dir() { parent.remove_directory(name) } else { parent.remove_file(name) } {
        Err(e) if e.raw_os_error() == Some(libc::ENOTEMPTY) && !path.starts_with(OWN) => {
            left("the directory is not empty any more")
        }
        done => done.map(|()| Outcome::Undone),
    }
}

fn remove_tree(path: &Path, directory: Option<FileIdentity>) -> Result<Outcome> {
    if let Some(directory) = directory
        && let Some(entry) = DirectoryEntry::of(path)?
        && entry.directory().remove_tree(entry.name(), directory)?
    {
        return Ok(Outcome::Undone);
    }
    remove(path, directory)
}

fn left(why: impl Into<String>) -> Result<Outcome> {
    Ok(Outcome::LeftAlone(why.into()))
}

#[cfg(test)]
mod tests {
    use super::super::identity::unique_number;
    use super::super::restoring::notes_in;
    use super::super::{ProcessId, Restored, note_in, restore_in};
    use super::*;
    use ahead_sys::directory::Directory;
    use std::fs;

    fn dead_process() -> ProcessId {
        ProcessId { pid: std::process::id(), start_ticks: 1 }
    }

    fn left_alone(done: &[Restored]) -> bool {
        matches!(done, [Restored { outcome: Ok(Outcome::LeftAlone(_)), .. }])
    }

    #[test]
    fn restore_keeps_a_new_file_at_the_path_of_a_removed_one() {
        let home = tempfile::tempdir().unwrap();
        let (notes, file) = (home.path().join("undo"), home.path().join("x.img"));
        let noted = || {
            fs::write(&file, "ours").unwrap();
            let mut guard = note_in(&notes, dead_process(), Action::remove(&file)).unwrap();
            guard.made().unwrap();
            guard.leave();
        };
        noted();
        // Often with the same inode number, since the file system reuses the number freed last.
        fs::remove_file(&file).unwrap();
        fs::write(&file, "the user's").unwrap();
        assert!(left_alone(&restore_in(&notes).unwrap()));
        assert_eq!(fs::read_to_string(&file).unwrap(), "the user's");
        assert!(notes_in(&notes).unwrap().is_empty());
        fs::remove_file(&file).unwrap();
        noted();
        assert_eq!(restore_in(&notes).unwrap()[0].outcome.as_ref().unwrap(), &Outcome::Undone);
        assert!(!file.exists());
    }

    #[test]
    fn unidentified_file_is_removed_only_if_empty() {
        let home = tempfile::tempdir().unwrap();
        let (notes, file, directory) = (home.path().join("undo"), home.path().join("f"), home.path().join("d"));
        fs::write(&file, "").unwrap();
        fs::create_dir(&directory).unwrap();
        for path in [&file, &directory] {
            note_in(&notes, dead_process(), Action::remove(path)).unwrap().leave();
        }
        assert!(restore_in(&notes).unwrap().iter().all(|done| matches!(done.outcome, Ok(Outcome::Undone))));
        assert!(!file.exists() && !directory.exists());
        fs::create_dir(&directory).unwrap();
        fs::write(&file, "x").unwrap();
        fs::write(directory.join("in"), "").unwrap();
        for path in [&file, &directory] {
            note_in(&notes, dead_process(), Action::remove(path)).unwrap().leave();
            assert!(left_alone(&restore_in(&notes).unwrap()));
            assert!(path.exists());
        }
    }

    #[test]
    fn tree_is_removed_and_another_directory_at_its_path_is_not() {
        let home = tempfile::tempdir().unwrap();
        let (notes, directory, kept) = (home.path().join("undo"), home.path().join("d"), home.path().join("kept"));
        fs::write(&kept, "x").unwrap();
        let noted = || {
            fs::create_dir(&directory).unwrap();
            fs::write(directory.join("in"), "x").unwrap();
            std::os::unix::fs::symlink(&kept, directory.join("link")).unwrap();
            let action = Action::RemoveTree { path: directory.clone(), directory: None };
            let mut guard = note_in(&notes, dead_process(), action).unwrap();
            guard.made().unwrap();
            guard.leave();
        };
        noted();
        assert_eq!(restore_in(&notes).unwrap()[0].outcome.as_ref().unwrap(), &Outcome::Undone);
        assert!(!directory.exists() && kept.exists());
        noted();
        fs::rename(&directory, home.path().join("away")).unwrap();
        fs::create_dir(&directory).unwrap();
        assert!(left_alone(&restore_in(&notes).unwrap()));
        assert!(directory.exists() && home.path().join("away/in").exists());
    }

    /// A directory on which a test mounts. Dropping it unmounts.
    struct MountPoint(tempfile::TempDir);

    impl MountPoint {
        fn mount(&self, source: &str) {
            ahead_sys::mounting::mount(Path::new(source), self.0.path(), "tmpfs", false, "").unwrap();
        }
    }

    impl Drop for MountPoint {
        fn drop(&mut self) {
            while ahead_sys::mounting::unmount(self.0.path()).is_ok() {}
        }
    }

    #[test]
    fn restore_keeps_another_mount_at_the_same_path() {
        if !ahead_sys::machine::is_root() {
            eprintln!("skipped: needs root");
            return;
        }
        let (home, place) = (tempfile::tempdir().unwrap(), MountPoint(tempfile::tempdir().unwrap()));
        let (notes, target) = (home.path().join("undo"), place.0.path());
        let noted = || {
            let mut guard = note_in(&notes, dead_process(), Action::unmount(target, "tmpfs", "ours")).unwrap();
            place.mount("ours");
            guard.made().unwrap();
            guard.leave();
        };
        let mounted = || ahead_sys::mounting::is_mount_point(target).unwrap();
        noted();
        ahead_sys::mounting::unmount(target).unwrap();
        // The same source and, since it was freed last, the same mount id.
        place.mount("ours");
        let done = restore_in(&notes).unwrap();
        // Linux 6.8 and later distinguish them.
        if unique_number(target).is_some() {
            assert!(left_alone(&done) && mounted(), "{done:?}");
        }
        while mounted() {
            ahead_sys::mounting::unmount(target).unwrap();
        }
        noted();
        place.mount("the user's");
        let done = restore_in(&notes).unwrap();
        assert!(done[0].outcome.is_err() && mounted(), "{done:?}");
        ahead_sys::mounting::unmount(target).unwrap();
        assert_eq!(restore_in(&notes).unwrap()[0].outcome.as_ref().unwrap(), &Outcome::Undone);
        assert!(!mounted() && notes_in(&notes).unwrap().is_empty());
        // Killed before the note had the mount's numbers: source and type decide.
        note_in(&notes, dead_process(), Action::unmount(target, "tmpfs", "ours")).unwrap().leave();
        place.mount("the user's");
        assert!(left_alone(&restore_in(&notes).unwrap()) && mounted());
        ahead_sys::mounting::unmount(target).unwrap();
        note_in(&notes, dead_process(), Action::unmount(target, "tmpfs", "ours")).unwrap().leave();
        place.mount("ours");
        assert_eq!(restore_in(&notes).unwrap()[0].outcome.as_ref().unwrap(), &Outcome::Undone);
        assert!(!mounted());
    }

    /// Regression: the owner of a directory above the mount point could move it away, and the note was dropped; or replace it
    /// by a link, and another mount was unmounted.
    #[test]
    fn mount_that_was_moved_with_its_directory_is_unmounted() {
        if !ahead_sys::machine::is_root() {
            eprintln!("skipped: needs root");
            return;
        }
        let home = tempfile::tempdir().unwrap();
        let (notes, theirs) = (home.path().join("undo"), MountPoint(tempfile::tempdir_in(home.path()).unwrap()));
        let (before, after) = (home.path().join("before"), home.path().join("after"));
        let target = before.join("mnt");
        fs::create_dir_all(&target).unwrap();
        theirs.mount("ours");
        let point = Directory::open(&target).unwrap();
        let mount = |target: &Path| ahead_sys::mounting::mount(Path::new("ours"), target, "tmpfs", false, "");
        mount(&point.descriptor_path()).unwrap();
        let mut guard = note_in(&notes, dead_process(), Action::unmount(&target, "tmpfs", "ours")).unwrap();
        guard.made().unwrap();
        guard.leave();
        fs::rename(&before, &after).unwrap();
        let is_mounted = |path: &Path| ahead_sys::mounting::is_mount_point(path).unwrap();
        assert!(is_mounted(&after.join("mnt")));
        if unique_number(&after.join("mnt")).is_none() {
            ahead_sys::mounting::unmount(&after.join("mnt")).unwrap();
            return eprintln!("skipped: this kernel does not distinguish mounts (before Linux 6.8)");
        }
        fs::create_dir(&before).unwrap();
        std::os::unix::fs::symlink(theirs.0.path(), before.join("mnt")).unwrap();
        assert_eq!(restore_in(&notes).unwrap()[0].outcome.as_ref().unwrap(), &Outcome::Undone);
        let left = is_mounted(&after.join("mnt"));
        if left {
            ahead_sys::mounting::unmount(&after.join("mnt")).unwrap();
        }
        assert!(!left && is_mounted(theirs.0.path()));
    }

    /// Regression: `nosuid` and `nodev`, which make set-uid programs and device nodes of an image harmless, were missing.
    #[test]
    fn mount_has_nosuid_and_nodev() {
        if !ahead_sys::machine::is_root() {
            eprintln!("skipped: needs root");
            return;
        }
        let place = MountPoint(tempfile::tempdir().unwrap());
        place.mount("ours");
        let path = fs::canonicalize(place.0.path()).unwrap();
        let is_it = |mount: &ahead_sys::mounts::Mount| mount.mount_point == path.as_os_str().as_encoded_bytes();
        let mount = ahead_sys::mounts::own().unwrap().into_iter().find(is_it).unwrap();
        let options = String::from_utf8(mount.options).unwrap();
        assert!(["nosuid", "nodev"].iter().all(|option| options.split(',').any(|set| set == *option)), "{options}");
    }

    /// Regression: a mount in another namespace was considered gone, and its note was dropped.
    #[test]
    fn restore_skips_mounts_of_another_namespace() {
        if !ahead_sys::machine::is_root() {
            eprintln!("skipped: needs root");
            return;
        }
        let (home, target) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let notes = home.path().join("undo");
        let mut inside = std::process::Command::new("unshare")
            .args(["-m", "--propagation", "private", "sh", "-c", "mount -t tmpfs ours $0 && echo ready; read end"])
            .arg(target.path())
            .stdin(std::process::Stdio::piped())
            .stdout(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        let mut ready = [0; 6];
        std::io::Read::read_exact(inside.stdout.as_mut().unwrap(), &mut ready).unwrap();
        let namespace = ahead_sys::mounts::namespace(Some(inside.id())).unwrap();
        let mount = MountIdentity { namespace: Some(namespace), ..MountIdentity::new("tmpfs", "ours") };
        note_in(&notes, dead_process(), Action::Unmount { target: target.path().into(), mount }).unwrap().leave();
        let done = restore_in(&notes).unwrap();
        assert!(done[0].outcome.as_ref().is_err_and(|e| e.to_string().contains("another mount namespace")), "{done:?}");
        assert_eq!(notes_in(&notes).unwrap().len(), 1);
        drop(inside.stdin.take());
        inside.wait().unwrap();
        assert_eq!(restore_in(&notes).unwrap()[0].outcome.as_ref().unwrap(), &Outcome::Undone);
        assert!(notes_in(&notes).unwrap().is_empty());
    }

    #[test]
    fn restore_keeps_a_loop_device_that_was_attached_again() {
        let (home, file) = (tempfile::tempdir().unwrap(), tempfile::NamedTempFile::new().unwrap());
        let notes = home.path().join("undo");
        file.as_file().set_len(1 << 20).unwrap();
        let attached = match crate::undo::loops::attach(ProcessId::own().unwrap(), file.path(), false, true) {
            Ok(attached) => attached,
            Err(error) if error.is_unavailable() => return eprintln!("skipped: {error}"),
            Err(error) => panic!("{error}"),
        };
        let (device, backing) = (attached.device.clone(), file.path().to_path_buf());
        let Some(now) = loopdev::sequence(&device) else {
            return eprintln!("skipped: this kernel has no disk sequence numbers");
        };
        let restored = |sequence_of_disk| {
            let action = Action::DetachLoop { device: device.clone(), backing: backing.clone(), sequence_of_disk };
            note_in(&notes, dead_process(), action).unwrap().leave();
            restore_in(&notes).unwrap()
        };
        assert!(left_alone(&restored(Some(now - 1))));
        assert!(ahead_sys::loopdev::status(&device).unwrap().is_some_and(|status| status.backing == backing));
        assert_eq!(restored(Some(now))[0].outcome.as_ref().unwrap(), &Outcome::Undone);
        // udev, or a process that another test has just forked, may have the device open: it is detached at the last close.
        let began = std::time::Instant::now();
        while ahead_sys::loopdev::status(&device).unwrap().is_some_and(|status| status.backing == backing) {
            assert!(began.elapsed() < std::time::Duration::from_secs(60), "the device is still attached");
            std::thread::yield_now();
        }
        attached.detach().unwrap();
    }
}
