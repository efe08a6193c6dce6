//! The generation of an inode. It distinguishes files that had the same inode number one after another.

#![allow(unsafe_code)]

use std::os::fd::{AsFd, AsRawFd};

/// `FS_IOC_GETVERSION`, `_IOR('v', 1, long)` in linux/fs.h.
const FS_IOC_GETVERSION: libc::c_ulong = 0x8008_7601;

/// The generation of an open file. `None` if its file system does not report it (ext2, ext3, ext4, XFS and f2fs do).
pub fn of(fd: impl AsFd) -> Option<u32> {
    // Declared as a long, but every file system writes 32 bits: the other bits must be zero before.
    let mut generation: libc::c_long = 0;
    // SAFETY: the request writes at most one long.
    let failed = unsafe { libc::ioctl(fd.as_fd().as_raw_fd(), FS_IOC_GETVERSION, &raw mut generation) } != 0;
    (!failed).then_some(generation as u32)
}

#[cfg(test)]
mod tests {
    #[test]
    fn generation_is_stable() {
        let file = tempfile::tempfile().unwrap();
        assert_eq!(super::of(&file), super::of(&file));
        assert_eq!(super::of(std::fs::File::open("/proc/self/stat").unwrap()), None);
    }
}
