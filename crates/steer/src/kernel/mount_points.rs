//! Mount points by the number of the mount, for rules. A number is that of one mount in all mount namespaces, and is reused after
//! an unmount.

use ahead_sys::mounts::{Mount, Table};
use ahead_sys::within::Patience;
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
    /// The process whose table was read last for a path, and its mount points.
    last: Option<(u32, Vec<Vec<u8>>)>,
    since: Option<Instant>,
}

impl MountPoints {
    /// The mount point of a mount in the table of a process. `None`: it is not there any more.
    pub(super) fn of(&mut self, pid: u32, mount_id: u32, patience: &mut Patience) -> Option<Vec<u8>> {
        self.begin();
        if !self.known.contains_key(&mount_id) {
            let mounts = table_of(pid, patience)?;
            self.known.extend(mounts.into_iter().map(|mount| (mount.id, mount.mount_point)));
        }
        self.known.get(&mount_id).cloned()
    }

    /// The mount point of a path in the table of a process: where only the path is known. `None`: the process has ended, or its table is too long.
    pub(super) fn of_path(&mut self, pid: u32, path: &Path, patience: &mut Patience) -> Option<Vec<u8>> {
        self.begin();
        if self.last.as_ref().is_none_or(|(of, _)| *of != pid) {
            let points = table_of(pid, patience)?.into_iter().map(|mount| mount.mount_point);
            self.last = Some((pid, points.collect()));
        }
        let (_, points) = self.last.as_ref()?;
        let holding = points.iter().filter(|point| path.starts_with(OsStr::from_bytes(point)));
        holding.max_by_key(|point| point.len()).cloned()
    }

    /// Forgets what is old.
    fn begin(&mut self) {
        if self.since.is_none_or(|since| since.elapsed() > VALID) {
            *self = MountPoints { since: Some(Instant::now()), ..MountPoints::default() };
        }
    }
}

/// The mounts of a process. Any user can make a namespace with 100,000 mounts, whose table takes longer than the thread that watches may wait.
pub(super) fn table_of(pid: u32, patience: &mut Patience) -> Option<Vec<Mount>> {
    patience.ask(move || Table::of_process(pid).and_then(|mut table| table.read()).ok())?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mount_points_of_this_process_are_found() {
        let mounts = ahead_sys::mounts::own().unwrap();
        let (mut points, mut patience) = (MountPoints::default(), Patience::new(Duration::from_secs(60), 1));
        for mount in &mounts {
            assert_eq!(points.of(std::process::id(), mount.id, &mut patience).as_ref(), Some(&mount.mount_point));
        }
        let proc = points.of_path(std::process::id(), Path::new("/proc/self/maps"), &mut patience);
        assert_eq!(proc.as_deref(), Some(&b"/proc"[..]));
        assert_eq!(points.of_path(u32::MAX, Path::new("/"), &mut patience), None);
        assert_eq!(points.of(std::process::id(), u32::MAX, &mut patience), None);
        assert_eq!(MountPoints::default().of(u32::MAX, mounts[0].id, &mut patience), None);
    }
}
