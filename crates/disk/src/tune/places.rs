//! The mounts that a path leads to, and where test files can be created.

use ahead_sys::mounts::{self, Mount};
use ahead_sys::within::{ONE_OF_MANY, within};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

pub(crate) fn point_of(mount: &Mount) -> PathBuf {
    PathBuf::from(OsStr::from_bytes(&mount.mount_point))
}

/// The mount to create test files on: the first writable one, or the first one.
pub(crate) fn best_place<'a>(mounts: &[Mount], candidates: impl Iterator<Item = &'a Mount>) -> Option<&'a Mount> {
    let is_read_only = |mount: &&Mount| {
        let options = [&mount.options, &mount.super_options];
        options.into_iter().any(|options| options.split(|byte| *byte == b',').any(|option| option == b"ro"))
    };
    candidates.filter(|mount| is_place(mounts, mount)).min_by_key(is_read_only)
}

/// Whether test files can be created at a mount point: it is not covered, and is a directory.
pub(crate) fn is_place(mounts: &[Mount], mount: &Mount) -> bool {
    let point = point_of(mount);
    // A server that does not answer must not block the search.
    is_seen(mounts, mount) && within(ONE_OF_MANY, move || point.is_dir()) == Some(true)
}

/// Whether the mount point leads to this mount, not to one that covers it.
pub(crate) fn is_seen(mounts: &[Mount], mount: &Mount) -> bool {
    holding(mounts, &point_of(mount)).is_some_and(|seen| seen.id == mount.id)
}

/// The mount of a path.
pub(crate) fn holding<'a>(mounts: &'a [Mount], path: &Path) -> Option<&'a Mount> {
    mounts::covering(mounts, path.as_os_str().as_bytes()).map(|index| &mounts[index])
}
