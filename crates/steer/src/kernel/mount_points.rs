//! Mount points by the number of the mount, for rules. A number is that of one mount in all mount namespaces, and is reused after
//! an unmount.

use ahead_sys::mounts::Table;
use rustc_hash::FxHashMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::{Duration, Instant};

/// The mount tables are read again after this time: a number may have been reused. A table takes a tenth of a millisecond.
const VALID: Duration = Duration::from_secs(1);

/// Mount points that were looked up.
#[derive(Debug, Default)]
pub(super) struct MountPoints {
    known: FxHashMap<u32, Vec<u8>>,
    since: Option<Instant>,
}

impl MountPoints {
    /// The mount point of a mount in the table of a process. `None`: it is not there any more.
    pub(super) fn of(&mut self, pid: u32, mount_id: u32) -> Option<Vec<u8>> {
        if self.since.is_none_or(|since| since.elapsed() > VALID) {
            self.known.clear();
            self.since = Some(Instant::now());
        }
        if !self.known.contains_key(&mount_id) {
            let mounts = Table::of_process(pid).and_then(|mut table| table.read()).ok()?;
            self.known.extend(mounts.into_iter().map(|mount| (mount.id, mount.mount_point)));
        }
        self.known.get(&mount_id).cloned()
    }
}

/// The mount point of a path in the table of a process: where only the path is known. `None`: the process has ended.
pub(super) fn of_path(pid: u32, path: &Path) -> Option<Vec<u8>> {
    let mounts = Table::of_process(pid).and_then(|mut table| table.read()).ok()?;
    let points = mounts.into_iter().map(|mount| mount.mount_point);
    points.filter(|point| path.starts_with(OsStr::from_bytes(point))).max_by_key(Vec::len)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mount_points_of_this_process_are_found() {
        let mounts = ahead_sys::mounts::own().unwrap();
        let mut points = MountPoints::default();
        for mount in &mounts {
            assert_eq!(points.of(std::process::id(), mount.id).as_ref(), Some(&mount.mount_point));
        }
        let proc = of_path(std::process::id(), Path::new("/proc/self/maps"));
        assert_eq!(proc.as_deref(), Some(&b"/proc"[..]));
        assert_eq!(of_path(u32::MAX, Path::new("/")), None);
        assert_eq!(points.of(std::process::id(), u32::MAX), None);
        assert_eq!(MountPoints::default().of(u32::MAX, mounts[0].id), None);
    }
}
