//! Undoes changes that a killed `ahead` left behind.

use crate::notify::Notify;
use crate::{Error, Result};
use ahead_disk::DiskInfo;
use ahead_process::undo::machine_lock::MachineLock;
use ahead_process::undo::{Action, FileIdentity, Note, Outcome, ProcessId, Restored};
use rustix::fs::{Access, AtFlags, CWD, accessat};
use rustix::io::Errno;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Length of one wait for the end of a process.
const LONG: Duration = Duration::from_secs(3600);

/// Undoes every noted change whose process has ended, the latest first. A setting that another process has changed since stays.
///
/// # Errors
/// Not permitted; the notes cannot be read.
pub fn everything() -> Result<Vec<Restored>> {
    check_privileges()?;
    let mut done = detach_abandoned(|note| !note.owner.is_alive())?;
    done.extend(ahead_process::undo::restore()?);
    Ok(done)
}

/// Waits for the end of a process without a limit, and undoes its noted changes. A process that ends normally has undone all of them
/// already.
///
/// # Errors
/// The process cannot be waited for; the notes cannot be read.
pub fn after(process: ProcessId) -> Result<()> {
    while !ahead_process::wait_end(process, LONG)? {}
    detach_abandoned(|note| note.owner == process)?;
    ahead_process::undo::restore_owned_by(process)?;
    Ok(())
}

/// Restores kernel settings that a killed process left changed, because they would falsify measurements. With the lock held, no other
/// process needs them.
pub(crate) fn settings(_lock: &MachineLock, notify: Notify<'_>) {
    report(ahead_process::undo::restore_settings(), notify);
}

/// The same for a process that measures without the lock. While another process holds the lock, this changes nothing.
pub fn settings_if_free(notify: Notify<'_>) {
    // A process that finds the lock taken waits and reports that, so it is taken only if there are notes.
    if matches!(ahead_process::undo::has_abandoned_settings(), Ok(false)) {
        return;
    }
    match MachineLock::try_acquire() {
        Ok(Some(lock)) => settings(&lock, notify),
        Ok(None) => {}
        // A caller that may not take the lock may not restore settings either: the remedy is reported, and the work continues.
        Err(_) => report(ahead_process::undo::restore_settings(), notify),
    }
}

fn report(outcome: ahead_sys::Result<Vec<Restored>>, notify: Notify<'_>) {
    match outcome {
        Ok(done) if done.is_empty() => {}
        Ok(done) => match done.iter().filter(|restored| restored.outcome.is_err()).count() {
            0 => notify(&format!("set back {} settings that a killed ahead had left changed", done.len())),
            failed => {
                notify(&format!(
                    "a killed ahead left {failed} settings changed that cannot be set back; run: sudo ahead restore"
                ));
            }
        },
        Err(error) if error.is_unavailable() => {}
        Err(error) => notify(&format!("unknown whether a killed ahead left settings changed: {error}")),
    }
}

/// Checks that the caller may remove notes. Otherwise it may not undo their changes either, and there is one error for all of them.
fn check_privileges() -> Result<()> {
    let may_not = accessat(CWD, ahead_process::undo::NOTES, Access::WRITE_OK, AtFlags::EACCESS) == Err(Errno::ACCESS);
    if may_not && ahead_process::undo::notes()?.iter().any(|(_, note)| !note.owner.is_alive()) {
        let (what, remedy) = ("undoing changes of a killed ahead".into(), "sudo ahead restore".into());
        return Err(Error::Sys(ahead_sys::Error::NotPermitted { what, remedy }));
    }
    Ok(())
}

/// Detaches disks whose image is in a temporary directory of a killed `ahead`, which is to be removed. The daemons of these disks still
/// run, so their notes are not undone, and their mounts would prevent the removal.
fn detach_abandoned(is_left: impl Fn(&Note) -> bool) -> Result<Vec<Restored>> {
    let notes = ahead_process::undo::notes()?;
    let left = notes.iter().filter(|(_, note)| is_left(note));
    // The path of a disk's image has no symbolic links.
    let trees: Vec<PathBuf> = left
        .filter_map(|(_, note)| match &note.action {
            Action::RemoveTree { path, directory: Some(made) } => tree_at(path, *made),
            _ => None,
        })
        .collect();
    if trees.is_empty() {
        return Ok(Vec::new());
    }
    let is_abandoned = |disk: &DiskInfo| disk.is_alive() && trees.iter().any(|tree| disk.image.starts_with(tree));
    let detach = |disk: DiskInfo| {
        let failed = |error| ahead_sys::Error::io(format!("detach the disk {}", disk.name), io::Error::other(error));
        let outcome = ahead_disk::detach(&disk).map(|()| Outcome::Undone).map_err(failed);
        Restored { action: Action::EndProcess { process: disk.daemon }, outcome }
    };
    Ok(ahead_disk::list()?.into_iter().filter(is_abandoned).map(detach).collect())
}

/// The path of a tree that `ahead` has created, without symbolic links. Another user may own its directory: a link in the place of the tree
/// leads to another tree.
fn tree_at(path: &Path, made: FileIdentity) -> Option<PathBuf> {
    let place = fs::canonicalize(path).ok()?;
    let there = fs::symlink_metadata(&place).ok()?;
    (FileIdentity::of(&there) == made).then_some(place)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Regression: a link in the place of a tree led to the images of other disks, and `ahead restore` detached them.
    #[test]
    fn link_in_the_place_of_a_tree_is_not_followed() {
        let home = tempfile::tempdir().unwrap();
        let (tree, away) = (home.path().join("tree"), home.path().join("away"));
        fs::create_dir(&tree).unwrap();
        let made = FileIdentity::of(&fs::symlink_metadata(&tree).unwrap());
        assert_eq!(tree_at(&tree, made), Some(fs::canonicalize(&tree).unwrap()));
        fs::rename(&tree, &away).unwrap();
        assert_eq!(tree_at(&tree, made), None);
        std::os::unix::fs::symlink("/", &tree).unwrap();
        assert_eq!(tree_at(&tree, made), None);
    }
}
