//! `ahead restore`: undoes what a killed `ahead` left changed.

use ahead_disk::DiskInfo;
use ahead_report::text::printable;
use ahead_undo::machine_lock::MachineLock;
use ahead_undo::{Action, FileIdentity, Note, Outcome, ProcessId, Restored};
use anyhow::bail;
use clap::Args;
use rustix::fs::{Access, AtFlags, CWD, accessat};
use rustix::io::Errno;
use serde_json::json;
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

/// Undo what an ahead that was killed left behind
///
/// Settings, mounts and loop devices are noted in /run/ahead before they are changed. This undoes every noted change
/// whose process is gone, the latest first. What somebody else has changed since, or put at the same path, is left
/// alone.
#[derive(Debug, Args)]
pub struct Restore {
    /// Print what was undone as JSON
    #[arg(long)]
    json: bool,
    /// Wait for the end of this process, and undo in silence what is noted for it
    #[arg(long, hide = true, num_args = 2, value_names = ["PID", "START"], conflicts_with = "json")]
    after: Vec<u64>,
}

/// How long the end of a process is waited for before it is waited for again.
const LONG: Duration = Duration::from_secs(3600);

impl Restore {
    /// Runs it.
    pub fn run(self) -> anyhow::Result<ExitCode> {
        if let &[pid, start_ticks] = self.after.as_slice() {
            return undo_after(ProcessId { pid: u32::try_from(pid)?, start_ticks });
        }
        let done = undo_left()?;
        let count = |wanted: fn(&Restored) -> bool| done.iter().filter(|restored| wanted(restored)).count();
        let failed = count(|restored| restored.outcome.is_err());
        let left = count(|restored| matches!(restored.outcome, Ok(Outcome::LeftAlone(_))));
        let lines: Vec<String> = if self.json {
            let rows: Vec<_> = done.iter().map(as_json).collect();
            let undone = done.len() - failed - left;
            vec![json!({ "undone": undone, "left_alone": left, "failed": failed, "changes": rows }).to_string()]
        } else if done.is_empty() {
            vec!["nothing to undo".into()]
        } else {
            done.iter().map(|restored| printable(as_line(restored).as_bytes())).collect()
        };
        let printed = writeln!(std::io::stdout(), "{}", lines.join("\n"));
        if failed > 0 {
            bail!("{failed} of {} changes could not be undone", done.len());
        }
        printed?;
        Ok(ExitCode::SUCCESS)
    }
}

/// The guardian's life. Whoever ends well has undone everything by then.
fn undo_after(process: ProcessId) -> anyhow::Result<ExitCode> {
    let ready = std::io::stdout().write_all(b"\n").and_then(|()| std::io::stdout().flush());
    // It has been killed already: then nobody reads.
    tracing::debug!("ready: {ready:?}");
    while !ahead_process::wait_end(process, LONG)? {}
    detach_abandoned(|note| note.owner == process)?;
    ahead_undo::restore_owned_by(process)?;
    Ok(ExitCode::SUCCESS)
}

/// Undoes all that killed processes of ours have left.
fn undo_left() -> anyhow::Result<Vec<Restored>> {
    check_rights()?;
    let mut done = detach_abandoned(|note| !note.owner.is_alive())?;
    done.extend(ahead_undo::restore()?);
    Ok(done)
}

/// The same for a command that takes back more than that: what is undone is told on standard error.
pub fn left_by_killed() -> anyhow::Result<()> {
    let done = undo_left()?;
    for restored in &done {
        let _ = writeln!(std::io::stderr(), "ahead: {}", printable(as_line(restored).as_bytes()));
    }
    match done.iter().filter(|restored| restored.outcome.is_err()).count() {
        0 => Ok(()),
        failed => bail!("{failed} of {} changes could not be undone", done.len()),
    }
}

/// Who may not take the notes away may not undo what they say either: told once, not for each change.
fn check_rights() -> anyhow::Result<()> {
    let may_not = accessat(CWD, ahead_undo::NOTES, Access::WRITE_OK, AtFlags::EACCESS) == Err(Errno::ACCESS);
    if may_not && ahead_undo::notes()?.iter().any(|(_, note)| !note.owner.is_alive()) {
        let (what, remedy) = ("undoing what a killed ahead has left".into(), "sudo ahead restore".into());
        bail!(ahead_sys::Error::NotPermitted { what, remedy });
    }
    Ok(())
}

/// Detaches disks whose image lies in a directory that a killed `ahead` made for itself and that is to be removed with all that
/// is in it. Their daemons live, so nothing of theirs is undone otherwise; and what is mounted in the directory keeps it.
fn detach_abandoned(is_left: impl Fn(&Note) -> bool) -> anyhow::Result<Vec<Restored>> {
    let notes = ahead_undo::notes()?;
    let left = notes.iter().filter(|(_, note)| is_left(note));
    // A disk's image is told without symbolic links.
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

/// Where a tree that was made lies, without symbolic links. Its directory may be another user's: a link that he has put in its place leads
/// to what is none of ours.
fn tree_at(path: &Path, made: FileIdentity) -> Option<PathBuf> {
    let place = fs::canonicalize(path).ok()?;
    let there = fs::symlink_metadata(&place).ok()?;
    (FileIdentity::of(&there) == made).then_some(place)
}

/// Sets back the kernel's settings that a killed `ahead` left changed, and says so: with them, results would mean nothing.
/// Only now that nobody else has the right to change them is it sure that they are left, and that nobody needs them so.
pub fn set_back(_lock: &MachineLock) {
    tell(ahead_undo::restore_settings());
}

/// The same for who measures beside others. While another process has that right, everything stays as it is.
pub fn try_set_back() {
    // Who finds the lock taken waits, and says so: it is not taken for nothing.
    if matches!(ahead_undo::has_abandoned_settings(), Ok(false)) {
        return;
    }
    match MachineLock::try_acquire() {
        Ok(Some(alone)) => set_back(&alone),
        Ok(None) => {}
        // Who may not lock may not set anything back either. He is told what to do, and is kept from nothing.
        Err(_) => tell(ahead_undo::restore_settings()),
    }
}

fn tell(outcome: ahead_sys::Result<Vec<Restored>>) {
    let told = match outcome {
        Ok(done) if done.is_empty() => return,
        Ok(done) => match done.iter().filter(|restored| restored.outcome.is_err()).count() {
            0 => format!("set back {} settings that a killed ahead had left changed", done.len()),
            failed => {
                format!("a killed ahead left {failed} settings changed that cannot be set back; see: ahead restore")
            }
        },
        Err(error) if error.is_unavailable() => return,
        Err(error) => format!("whether a killed ahead left something changed is not known: {error}"),
    };
    // Standard error may be closed.
    let _ = writeln!(std::io::stderr(), "ahead: {}", printable(told.as_bytes()));
}

fn as_line(Restored { action, outcome }: &Restored) -> String {
    match outcome {
        Ok(Outcome::Undone) => format!("undone: {action}"),
        Ok(Outcome::LeftAlone(why)) => format!("left alone: {action}: {why}"),
        Err(error) => format!("NOT undone: {action}: {error}"),
    }
}

fn as_json(restored: &Restored) -> serde_json::Value {
    let mut row = json!(restored.action);
    row["error"] = json!(restored.outcome.as_ref().err().map(ToString::to_string));
    row["left_alone"] = match &restored.outcome {
        Ok(Outcome::LeftAlone(why)) => json!(why),
        _ => serde_json::Value::Null,
    };
    row
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Regression: a link in the place of a tree led to where other disks' images lay, and `ahead restore` detached them.
    #[test]
    fn a_link_in_the_place_of_a_tree_is_no_tree_of_ours() {
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
