//! Eviction of file data, pages of block devices, dentries and inodes.
//!
//! Nothing here is a guarantee: mapped, dirty and locked pages stay. Callers that need a cold cache check it afterwards
//! ([`crate::cache`]).

#![allow(unsafe_code)]

use crate::mounts::Mount;
use crate::{Error, Result, cache};
use rustix::fs::{Advice, Mode, OFlags, fadvise};
use std::ffi::OsStr;
use std::fs;
use std::num::NonZeroU64;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

const DROP_CACHES: &str = "/proc/sys/vm/drop_caches";
const PAGES_DENTRIES_AND_INODES: &str = "3";

/// `BLKFLSBUF`, `_IO(0x12, 97)` in linux/fs.h: write back and drop a block device's own page cache.
const BLKFLSBUF: libc::c_ulong = 0x1261;

/// `EXT4_IOC_CHECKPOINT`, `_IOW('f', 43, __u32)` in fs/ext4/ext4.h.
const EXT4_IOC_CHECKPOINT: libc::c_ulong = 0x4004_662B;

/// Writes dirty data back, then evicts every clean, unused page, dentry and inode of the whole machine. Needs root.
pub fn everything() -> Result<()> {
    rustix::fs::sync();
    let mounts = crate::mounts::own()?;
    for mount in reachable(&mounts).filter(|mount| mount.fs_type == "ext4" || mount.fs_type == "ext3") {
        let mount_point = Path::new(OsStr::from_bytes(&mount.mount_point));
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let directory = rustix::fs::open(mount_point, flags, Mode::empty());
        if let Err(error) = directory.map_err(|e| Error::io("open a mount point", e)).and_then(journal) {
            tracing::debug!("{error}");
        }
    }
    drop_caches()?;
    // Each processor keeps references to the metadata blocks that it used last; before Linux 6.7 drop_caches skips them.
    for mount in mounts {
        let key = mount.device.key();
        if let Ok(node) = crate::openat::block_device_node(key)
            && let Err(error) = block_device(&node)
        {
            tracing::debug!("{error}");
        }
    }
    Ok(())
}

/// The mounts that their path leads to. Opening the path of a hidden mount would open the file system mounted over it, and a
/// user's FUSE file system may never answer.
fn reachable(mounts: &[Mount]) -> impl Iterator<Item = &Mount> {
    let point = |mount: &Mount| Path::new(OsStr::from_bytes(&mount.mount_point)).to_path_buf();
    mounts.iter().enumerate().filter_map(move |(at, mount)| {
        let own = point(mount);
        let is_hidden = mounts[at + 1..].iter().any(|later| own.starts_with(point(later)));
        (!is_hidden).then_some(mount)
    })
}

/// Checkpoints the journal of the ext3 or ext4 file system of an open file or directory. Until then the metadata blocks in
/// the journal stay in memory, even if clean. Does nothing for other file systems, and before Linux 5.14. Needs root.
pub fn journal(fd: impl AsFd) -> Result<()> {
    let flags: u32 = 0;
    // SAFETY: the request reads one u32, which outlives the call.
    if unsafe { libc::ioctl(fd.as_fd().as_raw_fd(), EXT4_IOC_CHECKPOINT, &raw const flags) } == 0 {
        return Ok(());
    }
    let error = std::io::Error::last_os_error();
    match error.raw_os_error() {
        Some(libc::ENOTTY | libc::EOPNOTSUPP | libc::ENOSYS | libc::EINVAL | libc::ENODEV | libc::EROFS) => Ok(()),
        Some(libc::EACCES | libc::EPERM) => Err(Error::needs_root("checkpointing a journal")),
        _ => Err(Error::io("checkpoint a journal", error)),
    }
}

/// Whether this process may drop the caches of the machine: root in a container or in a user namespace may not.
pub fn may_drop_caches() -> bool {
    rustix::fs::access(DROP_CACHES, rustix::fs::Access::WRITE_OK).is_ok()
}

fn drop_caches() -> Result<()> {
    fs::write(DROP_CACHES, PAGES_DENTRIES_AND_INODES).map_err(|e| match e.kind() {
        std::io::ErrorKind::PermissionDenied => Error::needs_root("dropping caches"),
        std::io::ErrorKind::ReadOnlyFilesystem => Error::Unsupported {
            what: "dropping caches".into(),
            why: format!("{DROP_CACHES} is read-only (in a container?)"),
        },
        _ => Error::io(format!("write {DROP_CACHES}"), e),
    })
}

/// Evicts the clean pages of an open file. Writes its dirty pages back first, if there may be any: without need the file of another
/// process is not synced, and neither is one whose pages the kernel does not report to this user.
pub fn file(fd: impl AsFd) -> Result<()> {
    let is_clean = match cache::cachestat(&fd, 0, u64::MAX) {
        Ok(pages) => pages.dirty_pages + pages.writeback_pages == 0,
        Err(_) => !cache::reports_residency(&fd).unwrap_or(false),
    };
    if !is_clean {
        // A file that is open for reading cannot always be synced.
        let _ = rustix::fs::fdatasync(&fd);
    }
    fadvise(fd, 0, None, Advice::DontNeed).map_err(|e| Error::io("evict a file", e))
}

/// Evicts the clean pages of a part of an open file.
pub fn range(fd: impl AsFd, offset_bytes: u64, length_bytes: u64) -> Result<()> {
    let length = NonZeroU64::new(length_bytes);
    fadvise(fd, offset_bytes, length, Advice::DontNeed).map_err(|e| Error::io("evict a part of a file", e))
}

/// `EXT4_IOC_CLEAR_ES_CACHE`, `_IO('f', 40)` in fs/ext4/ext4.h (Linux 5.4).
const EXT4_IOC_CLEAR_ES_CACHE: libc::c_ulong = 0x6628;

/// Evicts ext4's cached block map of a file (also of ext2 and ext3 mounted by ext4). The next read looks the blocks up
/// again. Does nothing for other file systems: they have no such cache, or cannot evict it. Needs the file's owner or
/// root.
pub fn block_map(fd: impl AsFd) -> Result<()> {
    // SAFETY: the request takes no argument.
    if unsafe { libc::ioctl(fd.as_fd().as_raw_fd(), EXT4_IOC_CLEAR_ES_CACHE, 0) } == 0 {
        return Ok(());
    }
    let error = std::io::Error::last_os_error();
    match error.raw_os_error() {
        Some(libc::ENOTTY | libc::EOPNOTSUPP | libc::ENOSYS | libc::EINVAL) => Ok(()),
        _ => Err(Error::io("evict the block map of a file", error)),
    }
}

/// Evicts the page cache of a block device (the metadata of ext2, ext3 and ext4). Needs read permission on the device and
/// CAP_SYS_ADMIN.
pub fn block_device(path: &Path) -> Result<()> {
    let device = rustix::fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())
        .map_err(|e| Error::io(format!("open {}", path.display()), e))?;
    // SAFETY: the request takes no argument.
    if unsafe { libc::ioctl(device.as_raw_fd(), BLKFLSBUF, 0) } != 0 {
        let error = std::io::Error::last_os_error();
        return Err(match error.raw_os_error() {
            Some(libc::EACCES | libc::EPERM) => Error::needs_root(format!("evicting {}", path.display())),
            _ => Error::io(format!("BLKFLSBUF on {}", path.display()), error),
        });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn written_file_can_be_evicted() {
        let mut file = tempfile::tempfile().unwrap();
        std::io::Write::write_all(&mut file, &[1; 8192]).unwrap();
        super::file(&file).unwrap();
    }

    /// Regression: a mount point was opened although an unresponsive FUSE file system was mounted over it.
    #[test]
    fn hidden_mounts_are_not_opened() {
        let table = ["/", "/home", "/home/eva/disk", "/srv", "/home/eva", "/srv", "/srv2", "/home/eva/new"];
        let of = |point: &&str| Mount { mount_point: point.as_bytes().to_vec(), ..Mount::default() };
        let mounts: Vec<Mount> = table.iter().map(of).collect();
        let found: Vec<&[u8]> = reachable(&mounts).map(|mount| &mount.mount_point[..]).collect();
        let expected: [&[u8]; 6] = [b"/", b"/home", b"/home/eva", b"/srv", b"/srv2", b"/home/eva/new"];
        assert_eq!(found, expected);
    }

    #[test]
    fn regular_file_is_not_a_block_device() {
        let file = tempfile::NamedTempFile::new().unwrap();
        assert!(block_device(file.path()).is_err());
    }
}
