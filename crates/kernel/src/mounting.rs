//! Mounting and unmounting file systems.
//!
//! A mount is taken back lazily after a crash ([`unmount_lazy`], which [`crate::undo`] calls): a mount whose device has
//! died can be busy for ever. In the ordinary case it is unmounted for good ([`unmount`]), and busy is an error to tell.

use crate::{Error, Result};
use rustix::fs::{CWD, StatxAttributes, StatxFlags};
use rustix::io::Errno;
use rustix::mount::{MountFlags, UnmountFlags};
use std::ffi::CString;
use std::path::Path;

/// Mounts the block device `source` on the directory `target`. `options` are those of the file system, comma
/// separated, without the generic ones.
pub fn mount(source: &Path, target: &Path, filesystem: &str, read_only: bool, options: &str) -> Result<()> {
    let what = || format!("mount {} ({filesystem}) on {}", source.display(), target.display());
    let options = CString::new(options).map_err(|e| Error::io(what(), std::io::Error::other(e)))?;
    let flags = if read_only { MountFlags::RDONLY } else { MountFlags::empty() };
    rustix::mount::mount(source, target, filesystem, flags, &*options).map_err(|e| match e {
        Errno::PERM | Errno::ACCESS if !crate::machine::is_root() => Error::needs_root(what()),
        Errno::PERM => {
            Error::NotPermitted { what: what(), remedy: "give it CAP_SYS_ADMIN (a privileged container)".into() }
        }
        Errno::NODEV => Error::Unsupported { what: what(), why: format!("this kernel has no {filesystem}") },
        _ => Error::io(what(), e),
    })
}

/// Unmounts for good. A mount in use is an error (`EBUSY`, see [`Error::raw_os_error`]).
pub fn unmount(target: &Path) -> Result<()> {
    rustix::mount::unmount(target, UnmountFlags::NOFOLLOW).map_err(|e| unmount_error(target, e))
}

/// Takes a mount out of the tree now; the kernel cleans it up when its last user is gone. Not mounted is no error.
pub fn unmount_lazy(target: &Path) -> Result<()> {
    match rustix::mount::unmount(target, UnmountFlags::NOFOLLOW | UnmountFlags::DETACH) {
        Ok(()) | Err(Errno::INVAL | Errno::NOENT) => Ok(()),
        Err(e) => Err(unmount_error(target, e)),
    }
}

fn unmount_error(target: &Path, error: Errno) -> Error {
    let what = format!("unmount {}", target.display());
    match error {
        Errno::PERM => Error::needs_root(what),
        _ => Error::io(what, error),
    }
}

/// Whether something is mounted on exactly this directory. Asks the file system nothing: a dead one would not answer.
pub fn is_mount_point(path: &Path) -> Result<bool> {
    // statx with this flag answers from what the kernel has; the attribute comes from the mount, not the file system.
    let flags = rustix::fs::AtFlags::SYMLINK_NOFOLLOW | rustix::fs::AtFlags::STATX_DONT_SYNC;
    let stat = rustix::fs::statx(CWD, path, flags, StatxFlags::empty())
        .map_err(|e| Error::io(format!("stat {}", path.display()), e))?;
    Ok(stat.stx_attributes.contains(StatxAttributes::MOUNT_ROOT))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn root_is_a_mount_point_and_a_new_directory_is_not() {
        assert!(is_mount_point(Path::new("/proc")).unwrap());
        assert!(!is_mount_point(tempfile::tempdir().unwrap().path()).unwrap());
    }

    #[test]
    fn what_is_not_mounted_needs_no_unmounting() {
        let home = tempfile::tempdir().unwrap();
        if crate::machine::is_root() {
            unmount_lazy(home.path()).unwrap();
            unmount_lazy(&home.path().join("missing")).unwrap();
            assert_eq!(unmount(home.path()).unwrap_err().raw_os_error(), Some(libc::EINVAL));
        }
    }

    #[test]
    fn an_unknown_file_system_is_unsupported() {
        let home = tempfile::tempdir().unwrap();
        let error = mount(Path::new("none"), home.path(), "no-such-fs", false, "").unwrap_err();
        assert!(error.is_unavailable(), "{error}");
    }
}
