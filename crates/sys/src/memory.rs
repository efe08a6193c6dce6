//! Memory that is available for more page cache: on the machine and in the control groups of a process.
//!
//! ```text
//!     a group     limit  ├─── anonymous, kernel, tmpfs, locked ───┼─ dirty ─┼──── clean file pages ────┼── free ──┤
//!                                                                           ╰────────── available ───────────────╯
//! ```
//!
//! The kernel charges page cache to the group of the process that reads it. Clean file pages of the group can be reclaimed, so
//! they count as available. Files in a tmpfs and shared memory count as page cache, too, but can only be swapped, and no swap
//! is assumed. Locked pages cannot be reclaimed. Only the reclaim lists `active_file` and `inactive_file` hold pages that the
//! kernel can drop.

use crate::cgroup::{self, Version};
use crate::{Result, machine};
use std::fs;
use std::path::{Path, PathBuf};

/// Bytes that can be allocated without evicting others' memory: the machine's `MemAvailable`, or less if a control group
/// has a lower limit. Groups that cannot be read do not limit.
pub fn available_bytes() -> Result<u64> {
    Ok(machine::meminfo_bytes("MemAvailable")?.min(least_room(cgroup::own("memory"))))
}

/// As [`available_bytes`], for another process: the kernel charges what it reads to its groups.
pub fn available_bytes_of(pid: u32) -> Result<u64> {
    Ok(machine::meminfo_bytes("MemAvailable")?.min(least_room(cgroup::of_process(pid, "memory"))))
}

/// The least room of some groups; `u64::MAX` without a limit.
fn least_room(groups: Vec<(Version, PathBuf)>) -> u64 {
    groups.iter().filter_map(|(version, group)| room(*version, group)).min().unwrap_or(u64::MAX)
}

/// The files and lines of one version of control groups.
struct MemoryFiles {
    /// Above any of these the kernel throttles the group or reclaims its memory.
    limits: &'static [&'static str],
    usage: &'static str,
    /// Lines of `memory.stat`: pages that can be reclaimed.
    reclaimable: [&'static str; 2],
    /// Lines of `memory.stat`: reclaimable pages that must be written first.
    unwritten: [&'static str; 2],
}

/// The lines with `total_` include the child groups.
const V1: MemoryFiles = MemoryFiles {
    limits: &["memory.limit_in_bytes"],
    usage: "memory.usage_in_bytes",
    reclaimable: ["total_active_file", "total_inactive_file"],
    unwritten: ["total_dirty", "total_writeback"],
};

/// Above `memory.high` the kernel throttles the group's processes until memory is reclaimed.
const V2: MemoryFiles = MemoryFiles {
    limits: &["memory.max", "memory.high"],
    usage: "memory.current",
    reclaimable: ["active_file", "inactive_file"],
    unwritten: ["file_dirty", "file_writeback"],
};

/// Available bytes in a group. `None`: it has no limit.
fn room(version: Version, group: &Path) -> Option<u64> {
    let files = match version {
        Version::V1 => &V1,
        Version::V2 => &V2,
    };
    let limit = files.limits.iter().filter_map(|file| cgroup::number(group, file)).min()?;
    let usage = cgroup::number(group, files.usage)?;
    let stat = fs::read_to_string(group.join("memory.stat")).unwrap_or_default();
    let line = |key: &str| stat.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(' ')?.parse().ok());
    let sum = |keys: [&str; 2]| keys.iter().filter_map(|key| line(key)).fold(0u64, u64::saturating_add);
    let reclaimable = sum(files.reclaimable).saturating_sub(sum(files.unwritten));
    Some(limit.saturating_sub(usage.saturating_sub(reclaimable)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn group(files: &[(&str, &str)]) -> tempfile::TempDir {
        let home = tempfile::tempdir().unwrap();
        for (name, text) in files {
            fs::write(home.path().join(name), text).unwrap();
        }
        home
    }

    fn room_of(version: Version, files: &[(&str, &str)]) -> Option<u64> {
        room(version, group(files).path())
    }

    const STAT: &str = "anon 300\nfile 500\nshmem 200\nfile_dirty 9\nfile_writeback 1\nactive_file 100\n\
        inactive_file 150\nunevictable 50\n";

    /// Regression: tmpfs files, locked pages and unwritten pages counted as available, because they count as `file`.
    #[test]
    fn only_clean_reclaimable_file_pages_count_as_available() {
        let files = [("memory.max", "2000\n"), ("memory.high", "max\n"), ("memory.current", "800\n")];
        // 250 pages are on the reclaim lists, and 10 of them are not written.
        assert_eq!(room_of(Version::V2, &[&files[..], &[("memory.stat", STAT)]].concat()), Some(2000 - (800 - 240)));
        assert_eq!(room_of(Version::V2, &files), Some(1200));
    }

    /// Regression: only `memory.max` was read.
    #[test]
    fn lower_of_high_and_max_limits() {
        let limits = |max, high| [("memory.max", max), ("memory.high", high), ("memory.current", "100\n")];
        assert_eq!(room_of(Version::V2, &limits("2000\n", "1000\n")), Some(900));
        assert_eq!(room_of(Version::V2, &limits("max\n", "1000\n")), Some(900));
        assert_eq!(room_of(Version::V2, &limits("500\n", "1000\n")), Some(400));
        assert_eq!(room_of(Version::V2, &limits("max\n", "max\n")), None);
        assert_eq!(room_of(Version::V2, &limits("max\n", "50\n")), Some(0));
    }

    /// Regression: `total_cache` includes shared memory.
    #[test]
    fn version_1_includes_child_groups_and_excludes_shared_memory() {
        let stat = "cache 1\nactive_file 7\ntotal_cache 600\ntotal_shmem 400\ntotal_dirty 10\ntotal_writeback 0\n\
            total_inactive_file 50\ntotal_active_file 60\n";
        let files = [("memory.limit_in_bytes", "1000"), ("memory.usage_in_bytes", "900"), ("memory.stat", stat)];
        assert_eq!(room_of(Version::V1, &files), Some(200));
        assert_eq!(room_of(Version::V1, &[]), None);
    }

    #[test]
    fn available_memory_is_positive_and_at_most_the_total() {
        let available = available_bytes().unwrap();
        assert!(available > 0 && available <= machine::meminfo_bytes("MemTotal").unwrap());
        assert!(available_bytes_of(std::process::id()).unwrap() > 0);
    }
}
