//! How much memory there is for more page cache: on the machine and in the control groups that we are in.
//!
//! Page cache is charged to the group of whoever brings it in. What a group holds of it already can be taken back, so it
//! counts as room.

use crate::{Result, machine};
use std::fs;
use std::path::{Path, PathBuf};

/// Where control groups are mounted by convention (file-hierarchy(7)).
const CGROUPS: &str = "/sys/fs/cgroup";

/// Bytes that can be taken without pushing anybody out: the machine's `MemAvailable`, or less where a control group is
/// limited to less. Groups that cannot be read do not limit.
pub fn available_bytes() -> Result<u64> {
    let own = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let groups = room_in_groups(Path::new(CGROUPS), &own);
    Ok(machine::meminfo_bytes("MemAvailable")?.min(groups.unwrap_or(u64::MAX)))
}

/// The least room in any of the groups that `/proc/self/cgroup` names, and their parents.
fn room_in_groups(mounted: &Path, own: &str) -> Option<u64> {
    let rooms = own.lines().filter_map(|line| {
        // `0::/path` is the one hierarchy of cgroup v2, `7:memory:/path` that of the memory controller of v1.
        let (_, rest) = line.split_once(':')?;
        let (controllers, path) = rest.split_once(':')?;
        let path = Path::new(path).strip_prefix("/").ok()?;
        match controllers {
            "" => room_up_to(mounted, path, &V2).or_else(|| room_up_to(&mounted.join("unified"), path, &V2)),
            _ if controllers.split(',').any(|c| c == "memory") => room_up_to(&mounted.join("memory"), path, &V1),
            _ => None,
        }
    });
    rooms.min()
}

/// The files of a version: limit, usage, and the line of `memory.stat` that counts page cache.
struct Version {
    limit: &'static str,
    usage: &'static str,
    cache: &'static str,
}

const V1: Version = Version { limit: "memory.limit_in_bytes", usage: "memory.usage_in_bytes", cache: "total_cache" };
const V2: Version = Version { limit: "memory.max", usage: "memory.current", cache: "file" };

fn room_up_to(hierarchy: &Path, group: &Path, version: &Version) -> Option<u64> {
    group.ancestors().filter_map(|group| room(&hierarchy.join(group), version)).min()
}

fn room(group: &Path, version: &Version) -> Option<u64> {
    // `max` in v2: no limit; v1 writes a number of exbibytes.
    let limit: u64 = read_number(group.join(version.limit))?;
    let usage: u64 = read_number(group.join(version.usage))?;
    let stat = fs::read_to_string(group.join("memory.stat")).ok()?;
    let cache = stat.lines().find_map(|line| line.strip_prefix(version.cache)?.strip_prefix(' ')?.parse::<u64>().ok());
    Some(limit.saturating_sub(usage.saturating_sub(cache.unwrap_or(0))))
}

fn read_number(path: PathBuf) -> Option<u64> {
    fs::read_to_string(path).ok()?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn group(path: PathBuf, files: &[(&str, &str)]) {
        fs::create_dir_all(&path).unwrap();
        for (name, text) in files {
            fs::write(path.join(name), text).unwrap();
        }
    }

    #[test]
    fn the_tightest_group_on_the_way_up_limits() {
        let home = tempfile::tempdir().unwrap();
        let stat = "anon 500\nfile 300\nfile_dirty 9\n";
        let limited = [("memory.max", "2000\n"), ("memory.current", "800\n"), ("memory.stat", stat)];
        group(home.path().join("a"), &limited);
        group(home.path().join("a/b"), &[("memory.max", "max\n"), ("memory.current", "800\n"), ("memory.stat", stat)]);
        // 500 are in use for good, 300 are cache.
        assert_eq!(room_in_groups(home.path(), "0::/a/b\n"), Some(1500));
        assert_eq!(room_in_groups(home.path(), "0::/elsewhere\n"), None);
        assert_eq!(room_in_groups(home.path(), "nonsense\n1:\n"), None);
    }

    #[test]
    fn the_memory_controller_of_the_first_version_is_found() {
        let home = tempfile::tempdir().unwrap();
        let files = [
            ("memory.limit_in_bytes", "1000"),
            ("memory.usage_in_bytes", "1200"),
            ("memory.stat", "cache 1\ntotal_cache 100\n"),
        ];
        group(home.path().join("memory/x"), &files);
        let own = "12:cpu,cpuacct:/x\n5:memory,hugetlb:/x\n0::/x\n";
        assert_eq!(room_in_groups(home.path(), own), Some(0));
    }

    #[test]
    fn this_machine_has_some_memory() {
        let available = available_bytes().unwrap();
        assert!(available > 0 && available <= machine::meminfo_bytes("MemTotal").unwrap());
    }
}
