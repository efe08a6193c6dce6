//! From an inode back to its path, where the file system can open an inode by its number.

#![allow(unsafe_code)]

use crate::{Error, Result};
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

/// The path by which an inode can be reached now, however its file was renamed since its number became known. Needs
/// root.
///
/// # Errors
/// Of other file systems; where there is no such inode any more (`ESTALE`), or none of its names is in memory.
pub fn path_of(mount_point: &Path, fs_type: &str, inode: u64, generation: u32) -> Result<PathBuf> {
    let what = || format!("find inode {inode} of {}", mount_point.display());
    let unsupported = || Error::Unsupported { what: what(), why: format!("{fs_type} opens no inode by its number") };
    let mut content = [0; 12];
    let (kind, bytes) = match fs_type {
        "ext2" | "ext3" | "ext4" | "f2fs" => {
            content[..4].copy_from_slice(&u32::try_from(inode).map_err(|_| unsupported())?.to_ne_bytes());
            content[4..8].copy_from_slice(&generation.to_ne_bytes());
            (INODE_32, 8)
        }
        "xfs" => {
            content[..8].copy_from_slice(&inode.to_ne_bytes());
            content[8..].copy_from_slice(&generation.to_ne_bytes());
            (INODE_64, 12)
        }
        _ => return Err(unsupported()),
    };
    let directory = rustix::fs::open(mount_point, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
        .map_err(|e| Error::io(what(), e))?;
    let mut handle = Handle { bytes, kind, content };
    // SAFETY: the handle holds the `bytes` that it announces, and outlives the call.
    let opened = unsafe {
        libc::open_by_handle_at(directory.as_raw_fd(), (&raw mut handle).cast(), libc::O_PATH | libc::O_CLOEXEC)
    };
    if opened < 0 {
        return Err(Error::io(what(), std::io::Error::last_os_error()));
    }
    // SAFETY: a descriptor that the kernel just gave us and nobody else has.
    let opened = unsafe { OwnedFd::from_raw_fd(opened) };
    std::fs::read_link(format!("/proc/self/fd/{}", opened.as_raw_fd())).map_err(|e| Error::io(what(), e))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_system_without_numbers_to_open_says_so() {
        let error = path_of(Path::new("/proc"), "proc", 1, 0).unwrap_err();
        assert!(error.is_unavailable(), "{error}");
    }
}
