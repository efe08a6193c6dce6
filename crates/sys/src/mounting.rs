//! Mounting and unmounting file systems. `ahead_process::undo` mounts under a guard.
//!
//! After a crash a mount is undone lazily ([`unmount_lazy`]): the mount of a dead device can stay busy without end. In the ordinary
//! case [`unmount`] is used, and a busy mount is an error.

use crate::directory::DirectoryEntry;
use crate::mounts::{self, Mount};
use crate::{Error, Result};
use rustix::fs::{AtFlags, CWD, StatxAttributes, StatxFlags};
use rustix::io::Errno;
use rustix::mount::{MountFlags, UnmountFlags};
use std::ffi::CString;
use std::os::fd::AsFd;
use std::path::Path;

/// Flags of every mount: an image may hold set-uid programs and device nodes.
const ALWAYS: MountFlags = MountFlags::NOSUID.union(MountFlags::NODEV);

/// Mounts the block device `source` on the directory `target`, always with `nosuid,nodev`. `options`: comma-separated options of
/// the file system, without the generic ones.
pub fn mount(source: &Path, target: &Path, filesystem: &str, read_only: bool, options: &str) -> Result<()> {
    let flags = if read_only { MountFlags::RDONLY } else { MountFlags::empty() };
    mount_with(source, target, filesystem, flags, options.as_bytes())
}

fn mount_with(source: &Path, target: &Path, filesystem: &str, flags: MountFlags, options: &[u8]) -> Result<()> {
    let what = || format!("mount {} ({filesystem}) on {}", source.display(), target.display());
    let options = CString::new(options).map_err(|e| Error::io(what(), std::io::Error::other(e)))?;
    rustix::mount::mount(source, target, filesystem, flags | ALWAYS, &*options).map_err(|e| match e {
        Errno::PERM | Errno::ACCESS if !crate::machine::is_root() => Error::needs_root(what()),
        Errno::PERM => {
            Error::NotPermitted { what: what(), remedy: "give it CAP_SYS_ADMIN (a privileged container)".into() }
        }
        Errno::NODEV => Error::Unsupported { what: what(), why: format!("this kernel has no {filesystem}") },
        _ => Error::io(what(), e),
    })
}

/// Mounts a block device on `target` with the type and options of an earlier mount, as the mount table showed them.
pub fn mount_like(source: &Path, target: &Path, before: &Mount) -> Result<()> {
    let (flags, options) = flags_and_options(before);
    mount_with(source, target, &before.fs_type, flags, &options)
}

/// The options that mount(2) takes as flags; all others belong to the file system.
const GENERIC: [(&[u8], MountFlags); 13] = [
    (b"rw", MountFlags::empty()),
    (b"ro", MountFlags::RDONLY),
    (b"nosuid", MountFlags::NOSUID),
    (b"nodev", MountFlags::NODEV),
    (b"noexec", MountFlags::NOEXEC),
    (b"nosymfollow", MountFlags::NOSYMFOLLOW),
    (b"noatime", MountFlags::NOATIME),
    (b"nodiratime", MountFlags::NODIRATIME),
    (b"relatime", MountFlags::RELATIME),
    (b"sync", MountFlags::SYNCHRONOUS),
    (b"dirsync", MountFlags::DIRSYNC),
    (b"lazytime", MountFlags::LAZYTIME),
    (b"mand", MountFlags::PERMIT_MANDATORY_FILE_LOCKING),
];

/// The arguments of mount(2) for an entry of the mount table.
fn flags_and_options(mount: &Mount) -> (MountFlags, Vec<u8>) {
    let words = |text: &[u8]| -> Vec<Vec<u8>> { text.split(|byte| *byte == b',').map(mounts::unescape).collect() };
    let flag = |word: &Vec<u8>| GENERIC.iter().find(|(name, _)| name == word).map(|(_, flag)| *flag);
    let (of_mount, mut of_filesystem) = (words(&mount.options), words(&mount.super_options));
    let mut flags: MountFlags = of_mount.iter().chain(&of_filesystem).filter_map(flag).collect();
    if !flags.intersects(MountFlags::NOATIME | MountFlags::RELATIME) {
        // Without any of these flags the kernel uses `relatime`.
        flags |= MountFlags::STRICTATIME;
    }
    of_filesystem.retain(|word| flag(word).is_none());
    (flags, of_filesystem.join(&b','))
}

/// The mount id of an entry (`STATX_MNT_ID`, Linux 5.8), as in the mount table. `None`: unknown.
pub fn mount_number(entry: &DirectoryEntry) -> Option<u32> {
    let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::STATX_DONT_SYNC;
    let stat = rustix::fs::statx(CWD, entry.path(), flags, StatxFlags::MNT_ID).ok()?;
    let is_known = stat.stx_mask & StatxFlags::MNT_ID.bits() != 0;
    is_known.then_some(stat.stx_mnt_id).and_then(|id| u32::try_from(id).ok())
}

/// Unmounts. A busy mount is an error ([`Error::is_busy`]).
pub fn unmount(target: &Path) -> Result<()> {
    rustix::mount::unmount(target, UnmountFlags::NOFOLLOW).map_err(|e| unmount_error(target, e))
}

/// Detaches a mount from the tree at once; the kernel unmounts it after its last use. A path that is not mounted is not an error.
pub fn unmount_lazy(target: &Path) -> Result<()> {
    detach(target).map_err(|e| unmount_error(target, e))
}

/// As [`unmount_lazy`], in a directory that is kept open.
pub fn unmount_entry(entry: &DirectoryEntry) -> Result<()> {
    detach(&entry.path()).map_err(|e| match entry.current_path() {
        Ok(target) => unmount_error(&target, e),
        Err(error) => error,
    })
}

fn detach(target: &Path) -> std::result::Result<(), Errno> {
    match rustix::mount::unmount(target, UnmountFlags::NOFOLLOW | UnmountFlags::DETACH) {
        Err(Errno::INVAL | Errno::NOENT) => Ok(()),
        done => done,
    }
}

fn unmount_error(target: &Path, error: Errno) -> Error {
    let what = format!("unmount {}", target.display());
    match error {
        Errno::PERM => Error::needs_root(what),
        _ => Error::io(what, error),
    }
}

/// Whether a file system is mounted on exactly this directory. Does not ask the file system: a dead one would not answer.
pub fn is_mount_point(path: &Path) -> Result<bool> {
    // With this flag statx answers from cached data; the attribute belongs to the mount, not to the file system.
    let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::STATX_DONT_SYNC;
    let stat = rustix::fs::statx(CWD, path, flags, StatxFlags::empty())
        .map_err(|e| Error::io(format!("stat {}", path.display()), e))?;
    Ok(stat.stx_attributes.contains(StatxAttributes::MOUNT_ROOT))
}

/// Whether an open directory is the root of a mounted file system. As [`is_mount_point`], without a path.
pub fn is_mount_root(directory: impl AsFd) -> Result<bool> {
    let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
    let stat = rustix::fs::statx(directory, "", flags, StatxFlags::empty()).map_err(|e| Error::io("statx", e))?;
    Ok(stat.stx_attributes.contains(StatxAttributes::MOUNT_ROOT))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn proc_is_a_mount_point_and_a_new_directory_is_not() {
        assert!(is_mount_point(Path::new("/proc")).unwrap());
        assert!(is_mount_root(std::fs::File::open("/proc").unwrap()).unwrap());
        assert!(!is_mount_root(std::fs::File::open("/proc/self").unwrap()).unwrap());
        assert!(!is_mount_point(tempfile::tempdir().unwrap().path()).unwrap());
    }

    #[test]
    fn flags_and_options_follow_the_mount_table() {
        let described = |options: &str, super_options: &str| {
            let (options, super_options) = (options.into(), super_options.into());
            let (flags, options) = flags_and_options(&Mount { options, super_options, ..Mount::default() });
            (flags, String::from_utf8(options).unwrap())
        };
        let flags = MountFlags::NOSUID | MountFlags::RELATIME;
        assert_eq!(
            described("rw,nosuid,relatime", "rw,commit=30,data=journal"),
            (flags, "commit=30,data=journal".into())
        );
        assert_eq!(described("ro,noatime", "ro"), (MountFlags::RDONLY | MountFlags::NOATIME, String::new()));
        assert_eq!(described("rw", "rw,sync"), (MountFlags::STRICTATIME | MountFlags::SYNCHRONOUS, String::new()));
    }

    #[test]
    fn lazy_unmount_of_an_unmounted_path_succeeds() {
        let home = tempfile::tempdir().unwrap();
        if crate::machine::is_root() {
            unmount_lazy(home.path()).unwrap();
            unmount_lazy(&home.path().join("missing")).unwrap();
            assert_eq!(unmount(home.path()).unwrap_err().raw_os_error(), Some(libc::EINVAL));
        }
    }

    #[test]
    fn unknown_file_system_is_unsupported() {
        let home = tempfile::tempdir().unwrap();
        let error = mount(Path::new("none"), home.path(), "no-such-fs", false, "").unwrap_err();
        assert!(error.is_unavailable(), "{error}");
    }
}
