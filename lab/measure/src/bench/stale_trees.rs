//! Removes files of jobs before the last boot. After a power cut a job's files are still on the disk, and the notes in `/run` are lost.
//! The next job in the same directory removes these files.

use ahead_process::undo::{FileIdentity, ProcessId};
use ahead_sys::directory::Directory;
use ahead_sys::openat;
use rustix::time::{ClockId, clock_gettime};
use std::ffi::OsStr;
use std::os::unix::fs::MetadataExt;

/// Prefix of the names of trees; the process that made the tree follows, PID-START.
pub(crate) const TREE_PREFIX: &str = "ahead-bench-";

/// Permission bits of a tree, as set by [`Directory::create_directory`].
const TREE_MODE: u32 = 0o700;

/// Removes the trees in `above` that only a job before the last boot can have made. The tree's name has the prefix and its process does not
/// exist. Owner and mode are right, and the tree has not changed since the boot. Only on a local file system: on a shared one (NFS) a job
/// of another machine may be running.
///
/// A tree that cannot be removed stays; the new job does not depend on it.
pub fn remove_stale_trees(above: &Directory) {
    let is_local = openat::file_system_of(above).is_ok_and(|kind| kind.is_on_disk());
    let (true, Ok(names)) = (is_local, above.names()) else { return };
    for name in names {
        if maker(&name).is_some_and(|maker| !maker.is_alive())
            && let Some(tree) = above.directory(&name).ok().and_then(|tree| identity_if_before(&tree, boot_s()))
        {
            let _ = above.remove_tree(&name, tree);
        }
    }
}

/// The process whose id the tree's name has.
fn maker(name: &OsStr) -> Option<ProcessId> {
    let (pid, start_ticks) = name.to_str()?.strip_prefix(TREE_PREFIX)?.split_once('-')?;
    Some(ProcessId { pid: pid.parse().ok()?, start_ticks: start_ticks.parse().ok()? })
}

/// Time of the last boot, seconds since 1970, by the current clock.
fn boot_s() -> i64 {
    clock_gettime(ClockId::Realtime).tv_sec - clock_gettime(ClockId::Boottime).tv_sec
}

fn identity_if_before(tree: &Directory, boot_s: i64) -> Option<FileIdentity> {
    let metadata = tree.metadata().ok()?;
    let is_ours = metadata.uid() == rustix::process::geteuid().as_raw() && metadata.mode() & 0o7777 == TREE_MODE;
    (is_ours && metadata.ctime() < boot_s).then(|| FileIdentity::of(&metadata))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::DirBuilderExt;

    #[test]
    fn trees_made_since_the_boot_and_other_directories_stay() {
        let home = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        let above = Directory::open(home.path()).unwrap();
        let dead = ProcessId { pid: u32::MAX, start_ticks: 1 };
        assert!(!dead.is_alive());
        for name in ["ahead-bench-4294967295-1", "ahead-bench-x-1", "ahead-bench-1", "mine"] {
            std::fs::DirBuilder::new().mode(TREE_MODE).create(home.path().join(name)).unwrap();
        }
        remove_stale_trees(&above);
        assert_eq!(above.names().unwrap().len(), 4);
        assert_eq!(maker("ahead-bench-4294967295-1".as_ref()), Some(dead));
        assert_eq!(maker("ahead-bench-x-1".as_ref()), None);
    }

    #[test]
    fn tree_is_stale_by_time_owner_and_mode() {
        let home = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        let above = Directory::open(home.path()).unwrap();
        let tree = above.create_directory("tree".as_ref()).unwrap();
        let made_s = tree.metadata().unwrap().ctime();
        assert!(identity_if_before(&tree, made_s).is_none());
        assert!(identity_if_before(&tree, made_s + 1).is_some());
        std::fs::DirBuilder::new().mode(0o755).create(home.path().join("other")).unwrap();
        assert!(identity_if_before(&above.directory("other".as_ref()).unwrap(), made_s + 100).is_none());
    }
}
