//! Which open files are shown: by process, control group, file system and path. The cheap conditions come first, and a path is looked up
//! only for files that meet them.

use crate::{OpenFile, proc};
use ahead_model::DeviceNumber;
use ahead_sys::{Error, Result, mounts};
use std::collections::HashMap;
use std::path::Path;

/// Conditions. Of those of one kind one must hold, and of each kind that has any; an empty filter accepts everything.
#[derive(Clone, Debug, Default)]
pub struct Filter {
    /// Processes.
    pub pids: Vec<u32>,
    paths: Vec<ahead_files::lists::Pattern>,
    devices: Vec<DeviceNumber>,
    groups: Vec<Vec<u8>>,
}

/// Conventional mount point of control groups (file-hierarchy(7)).
const GROUPS: &[u8] = b"/sys/fs/cgroup";

impl Filter {
    /// Adds a pattern of paths. One without a slash at its start may start in any directory.
    ///
    /// Errors: the reason why it is no pattern.
    pub fn add_path(&mut self, pattern: &[u8]) -> std::result::Result<(), &'static str> {
        self.paths.push(ahead_files::lists::Pattern::parse_anywhere(pattern)?);
        Ok(())
    }

    /// Adds the file system that a path lies on.
    pub fn add_mount(&mut self, path: &Path) -> Result<()> {
        let mount = mounts::holding(path)?.ok_or_else(|| Error::Unsupported {
            what: format!("the file system of {}", path.display()),
            why: "it is not in the mount table".into(),
        })?;
        self.devices.push(mount.device);
        Ok(())
    }

    /// Adds a control group with the groups below it: its path, with or without `/sys/fs/cgroup`.
    pub fn add_group(&mut self, path: &[u8]) {
        let path = path.strip_prefix(GROUPS).unwrap_or(path);
        let start = path.iter().position(|byte| *byte != b'/').unwrap_or(path.len());
        let end = path.iter().rposition(|byte| *byte != b'/').map_or(start, |last| last + 1);
        self.groups.push([b"/", &path[start..end]].concat());
    }

    /// Removes refused files. Those that a path decides have theirs afterwards.
    pub fn apply(&self, files: &mut Vec<OpenFile>) {
        let mut in_group = HashMap::new();
        files.retain_mut(|file| {
            let has = |list: &[u32]| list.is_empty() || list.contains(&file.pid);
            has(&self.pids)
                && (self.devices.is_empty() || self.devices.contains(&file.device))
                && (self.groups.is_empty()
                    || *in_group.entry(file.pid).or_insert_with(|| self.has_group(&proc::control_groups(file.pid))))
                && (self.paths.is_empty() || self.has_path(file))
        });
    }

    fn has_group(&self, of_process: &[Vec<u8>]) -> bool {
        let covers = |wanted: &[u8], path: &[u8]| {
            wanted == b"/" || path.strip_prefix(wanted).is_some_and(|rest| rest.is_empty() || rest[0] == b'/')
        };
        of_process.iter().any(|path| self.groups.iter().any(|wanted| covers(wanted, path)))
    }

    fn has_path(&self, file: &mut OpenFile) -> bool {
        file.look_up_path();
        file.path.as_ref().is_some_and(|path| self.paths.iter().any(|pattern| pattern.matches(path)))
    }
}

impl OpenFile {
    /// Looks up the path, unless it is known.
    pub fn look_up_path(&mut self) {
        if self.path.is_none() {
            self.path = match self.descriptor {
                Some(descriptor) => proc::path(self.pid, descriptor),
                None if self.closed_files > 0 => None,
                None => proc::mapped_path(self.pid, self.device, self.inode_number),
            };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files() -> Vec<OpenFile> {
        let file = |pid, path: &str, minor| OpenFile {
            pid,
            path: Some(path.into()),
            device: DeviceNumber::new(8, minor),
            ..OpenFile::default()
        };
        vec![file(1, "/srv/a.db", 1), file(1, "/srv/b/c.log", 1), file(2, "/home/x.db", 2)]
    }

    fn accepted(filter: &Filter) -> Vec<String> {
        let mut files = files();
        filter.apply(&mut files);
        files.into_iter().map(|file| String::from_utf8(file.path.unwrap()).unwrap()).collect()
    }

    #[test]
    fn each_kind_of_condition_must_hold() {
        let mut filter = Filter::default();
        assert_eq!(accepted(&filter).len(), 3);
        filter.add_path(b"*.db").unwrap();
        assert_eq!(accepted(&filter), ["/srv/a.db", "/home/x.db"]);
        filter.pids = vec![1];
        assert_eq!(accepted(&filter), ["/srv/a.db"]);
        filter.devices = vec![DeviceNumber::new(8, 2)];
        assert!(accepted(&filter).is_empty());
        let mut filter = Filter::default();
        filter.add_path(b"/srv/**").unwrap();
        filter.add_path(b"/home/*").unwrap();
        assert_eq!(accepted(&filter).len(), 3);
        assert!(filter.add_path(b"/a/[").is_err());
    }

    #[test]
    fn group_includes_groups_below_it() {
        for given in ["/system.slice", "/sys/fs/cgroup/system.slice/", "system.slice"] {
            let mut filter = Filter::default();
            filter.add_group(given.as_bytes());
            let has = |path: &str| filter.has_group(&[b"/other".to_vec(), path.into()]);
            assert!(has("/system.slice") && has("/system.slice/x.service"), "{given}");
            assert!(!has("/system.slice2") && !has("/"), "{given}");
        }
        let mut all = Filter::default();
        all.add_group(b"/");
        assert!(all.has_group(&[b"/x".to_vec()]) && !all.has_group(&[]));
    }

    #[test]
    fn mount_is_found_by_any_path_on_it() {
        let mut filter = Filter::default();
        filter.add_mount(Path::new("/proc/self")).unwrap();
        assert_eq!(filter.devices.len(), 1);
        assert!(filter.add_mount(Path::new("/no/such/path")).is_err());
    }
}
