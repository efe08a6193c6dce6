//! The path of an inode, for file systems that can open an inode by its number.

#![allow(unsafe_code)]

use crate::{Error, Result};
use ahead_model::FileSystemKind;
use ahead_model::file_system_kind::InodeHandle;
use rustix::fs::{Mode, OFlags};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::path::{Path, PathBuf};

/// `FILEID_INO32_GEN` of linux/exportfs.h: 32 bits inode, 32 bits generation (ext2, ext3, ext4, f2fs).
const INODE_32: i32 = 1;
/// XFS's own type: 64 bits inode, 32 bits generation.
const INODE_64: i32 = 0x81;

/// `struct file_handle`, with room for the longer of the two.
#[repr(C)]
struct Handle {
    bytes: u32,
    kind: i32,
    content: [u8; 12],
}

/// The path by which an inode can be reached now, also if the file was renamed since its number was seen. Needs root.
///
/// # Errors
/// The file system cannot open inodes by number; the inode does not exist any more (`ESTALE`); none of its names is cached.
pub fn path_of(mount_point: &Path, fs_type: &str, inode: u64, generation: u32) -> Result<PathBuf> {
    let what = || format!("find inode {inode} of {}", mount_point.display());
    let unsupported = || Error::Unsupported { what: what(), why: format!("{fs_type} cannot open an inode by number") };
    let mut content = [0; 12];
    let (kind, bytes) = match FileSystemKind::named(fs_type).inode_handle {
        Some(InodeHandle::Bits32) => {
            content[..4].copy_from_slice(&u32::try_from(inode).map_err(|_| unsupported())?.to_ne_bytes());
            content[4..8].copy_from_slice(&generation.to_ne_bytes());
            (INODE_32, 8)
        }
        Some(InodeHandle::Bits64) => {
            content[..8].copy_from_slice(&inode.to_ne_bytes());
            content[8..].copy_from_slice(&generation.to_ne_bytes());
            (INODE_64, 12)
        }
        None => return Err(unsupported()),
    };
    let directory = rustix::fs::open(mount_point, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
        .map_err(|e| Error::io(what(), e))?;
    let mut handle = Handle { bytes, kind, content };
    // SAFETY: the handle holds the announced `bytes`, and outlives the call.
    let opened = unsafe {
        libc::open_by_handle_at(directory.as_raw_fd(), (&raw mut handle).cast(), libc::O_PATH | libc::O_CLOEXEC)
    };
    if opened < 0 {
        return Err(Error::io(what(), std::io::Error::last_os_error()));
    }
    // SAFETY: the kernel has just returned this descriptor, and no other object owns it.
    let opened = unsafe { OwnedFd::from_raw_fd(opened) };
    std::fs::read_link(format!("/proc/self/fd/{}", opened.as_raw_fd())).map_err(|e| Error::io(what(), e))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_system_without_file_handles_is_unsupported() {
        let error = path_of(Path::new("/proc"), "proc", 1, 0).unwrap_err();
        assert!(error.is_unavailable(), "{error}");
    }
}
