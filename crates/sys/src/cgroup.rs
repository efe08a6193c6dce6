//! The control groups of a process, for limits of memory and tasks.

use std::fs;
use std::path::{Component, Path, PathBuf};

/// Conventional mount point of control groups (file-hierarchy(7)).
const MOUNTED: &str = "/sys/fs/cgroup";

/// The version of control groups that a directory belongs to: file names differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Version {
    /// One hierarchy for one or several controllers.
    V1,
    /// The unified hierarchy.
    V2,
}

/// The directories of the groups that limit this process by `controller` (`memory`, `pids`): its own group and all ancestors,
/// in each hierarchy that may have the controller.
pub fn own(controller: &str) -> Vec<(Version, PathBuf)> {
    let groups = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    directories(Path::new(MOUNTED), &groups, controller)
}

/// As [`own`], for another process. Empty: it has ended.
pub fn of_process(pid: u32, controller: &str) -> Vec<(Version, PathBuf)> {
    let groups = fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap_or_default();
    directories(Path::new(MOUNTED), &groups, controller)
}

/// As [`own`], for the given content of `/proc/self/cgroup`, with the hierarchies mounted below `mounted`.
pub fn directories(mounted: &Path, groups: &str, controller: &str) -> Vec<(Version, PathBuf)> {
    let mut found = Vec::new();
    for line in groups.lines() {
        // `0::/path` is the hierarchy of version 2, `7:memory:/path` one of version 1.
        let Some((controllers, path)) = line.split_once(':').and_then(|(_, rest)| rest.split_once(':')) else {
            continue;
        };
        let Ok(path) = Path::new(path).strip_prefix("/") else { continue };
        // A group outside of our namespace is shown with `..`: its directory cannot be reached.
        if path.components().any(|component| component == Component::ParentDir) {
            continue;
        }
        let hierarchies = match controllers {
            // The only hierarchy, or mounted next to hierarchies of version 1.
            "" => vec![(Version::V2, mounted.to_owned()), (Version::V2, mounted.join("unified"))],
            _ if controllers.split(',').any(|c| c == controller) => vec![(Version::V1, mounted.join(controller))],
            _ => continue,
        };
        for (version, hierarchy) in hierarchies {
            found.extend(path.ancestors().map(|group| (version, hierarchy.join(group))));
        }
    }
    found
}

/// The number in a file. `None`: there is no such file, or it holds a word (`max`: no limit).
pub fn number(directory: &Path, file: &str) -> Option<u64> {
    fs::read_to_string(directory.join(file)).ok()?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_group_and_its_ancestors_are_found_in_both_versions() {
        let groups = "12:cpu,cpuacct:/x\n5:memory,hugetlb:/a/b\n0::/c\nnonsense\n1:\n";
        let found = directories(Path::new("/g"), groups, "memory");
        let found: Vec<_> = found.iter().map(|(version, path)| (*version, path.to_str().unwrap())).collect();
        let v1 = ["/g/memory/a/b", "/g/memory/a", "/g/memory/"].map(|path| (Version::V1, path));
        let v2 = ["/g/c", "/g/", "/g/unified/c", "/g/unified/"].map(|path| (Version::V2, path));
        assert_eq!(found, [&v1[..], &v2[..]].concat());
    }

    #[test]
    fn group_outside_of_the_namespace_is_skipped() {
        assert_eq!(directories(Path::new("/g"), "0::/../../x\n", "memory"), []);
    }
}
