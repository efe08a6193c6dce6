//! Control groups, of either version: with little memory, few processes, or only to name processes.

use super::machine::{needs_root, skip};
use super::program::Program;
use super::wait::wait_until;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

/// A control group. It is removed when dropped, after its last process.
#[derive(Debug)]
pub struct Group(pub PathBuf);

/// Where a controller of cgroup v1 and the hierarchy of v2 are mounted, and the names of a limit in both.
type Limit = [(&'static str, &'static str); 2];

const MEMORY: Limit = [("/sys/fs/cgroup/memory", "memory.limit_in_bytes"), ("/sys/fs/cgroup", "memory.max")];
const PROCESSES: Limit = [("/sys/fs/cgroup/pids", "pids.max"), ("/sys/fs/cgroup", "pids.max")];

/// A path that no other test uses: tests run side by side.
fn fresh(hierarchy: &Path) -> PathBuf {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    hierarchy.join(format!("ahead-test-{}-{}", std::process::id(), NUMBER.fetch_add(1, Ordering::Relaxed)))
}

impl Group {
    /// A group with this much memory. `None`, with the reason printed, where that is impossible.
    pub fn with_memory(limit_bytes: u64) -> Option<Group> {
        Group::limited(&MEMORY, limit_bytes)
    }

    /// The same in cgroup v1, which accounts for cached pages in another way.
    pub fn with_memory_of_v1(limit_bytes: u64) -> Option<Group> {
        Group::limited(&MEMORY[..1], limit_bytes)
    }

    pub fn with_processes(most: u64) -> Option<Group> {
        Group::limited(&PROCESSES, most)
    }

    fn limited(limits: &[(&str, &str)], most: u64) -> Option<Group> {
        needs_root()?;
        for (hierarchy, limit) in limits {
            let (hierarchy, path) = (Path::new(hierarchy), fresh(Path::new(hierarchy)));
            if !hierarchy.join("cgroup.procs").exists() || fs::create_dir(&path).is_err() {
                continue;
            }
            let group = Group(path);
            if fs::write(group.0.join(limit), most.to_string()).is_ok() {
                return Some(group);
            }
        }
        skip(format!("a control group with {} cannot be created", limits[0].1))
    }

    /// A group of cgroup v2 without a limit, by the path of a group above it.
    pub fn of_v2() -> Option<Group> {
        let mounts = ahead_sys::mounts::own().unwrap();
        let Some(mount) = mounts.iter().find(|mount| mount.fs_type == "cgroup2") else {
            eprintln!("skipped in part: no cgroup v2 file system is mounted");
            return None;
        };
        let path = fresh(Path::new(std::str::from_utf8(&mount.mount_point).unwrap()));
        fs::create_dir(&path).unwrap();
        Some(Group(path))
    }

    pub fn add(&self, pid: u32) {
        fs::write(self.0.join("cgroup.procs"), pid.to_string()).unwrap();
    }

    pub fn inner(&self) -> Group {
        let path = self.0.join("inner");
        fs::create_dir(&path).unwrap();
        Group(path)
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let parent = self.0.parent().unwrap().join("cgroup.procs");
        wait_until("the end of the group", || {
            for member in fs::read_to_string(self.0.join("cgroup.procs")).unwrap_or_default().lines() {
                let _ = fs::write(&parent, member);
            }
            fs::remove_dir(&self.0).is_ok()
        });
    }
}

impl Program {
    /// In a control group.
    pub fn in_group(self, group: &Group) -> Program {
        self.by_script(&format!("echo $$ > {}/cgroup.procs; exec \"$@\"", group.0.display()))
    }
}
