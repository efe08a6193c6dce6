//! XFS inodes by ranges of numbers (`XFS_IOC_BULKSTAT`, Linux 5.3).
//!
//! XFS keeps its metadata in private buffers, which no read of the block device fills. A query for a range of inodes
//! makes it
//! read ahead: the blocks of up to 32 chunks at once, each chunk as one request. The results are ignored; later `open` and
//! `stat` calls need the buffers that the query has filled.

#![allow(unsafe_code)]

use crate::{Error, Result};
use ahead_model::xfs::MAX_PREFETCH_INODES;
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd};

/// `_IOR('X', 127, struct xfs_bulkstat_req)` of fs/xfs/libxfs/xfs_fs.h; the size is the header's alone.
const XFS_IOC_BULKSTAT: libc::c_ulong = 0x8040_587F;

/// `struct xfs_bulk_ireq`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Header {
    /// In: the first inode requested. Out: the number after the last inode found.
    next: u64,
    flags: u32,
    wanted: u32,
    found: u32,
    group: u32,
    reserved: [u64; 5],
}

/// Size of `struct xfs_bulkstat`, in units of eight bytes.
const ANSWER_WORDS: usize = 192 / 8;

/// Size of [`Header`], in the same units.
const HEADER_WORDS: usize = size_of::<Header>() / 8;

/// Whether inodes can be read by number through this descriptor: on XFS, with CAP_SYS_ADMIN. Reads nothing.
pub fn may_read_inodes(fd: impl AsFd) -> bool {
    // The kernel checks the capability before it rejects a request for no inodes.
    let answer = bulkstat(fd, &mut [0; HEADER_WORDS], Header::default());
    answer.is_err_and(|error| error.raw_os_error() == Some(libc::EINVAL))
}

/// Reads the blocks of the existing inodes in a range of numbers into the file system's buffers, and returns the number of
/// inodes. `fd`: any open file of the file system. The kernel reads `at_a_time` inodes ahead (at most [`MAX_PREFETCH_INODES`])
/// before it waits for the first; it may read as many beyond the end of the range.
///
/// Errors: [`may_read_inodes`] is `false`; a block cannot be read.
pub fn read_inodes(fd: impl AsFd, numbers: Range<u64>, at_a_time: u32) -> Result<u64> {
    let wanted = at_a_time.clamp(1, MAX_PREFETCH_INODES);
    let mut buffer = vec![0; HEADER_WORDS + wanted as usize * ANSWER_WORDS];
    let (mut next, mut found) = (numbers.start, 0);
    while next < numbers.end {
        let request = Header { next, wanted, ..Header::default() };
        let answer = bulkstat(&fd, &mut buffer, request).map_err(|e| Error::io("read inodes by number", e))?;
        // The last inode was found, or the kernel makes no progress.
        if answer.found == 0 || answer.next <= next {
            break;
        }
        found += u64::from(answer.found);
        next = answer.next;
    }
    Ok(found)
}

/// Position of `bs_gen` in `struct xfs_bulkstat`, in units of eight bytes: the first half of the unit.
const GENERATION_WORD: usize = 8;

/// The generation of an inode by its number. `None`: no such inode, not XFS, or no CAP_SYS_ADMIN. `fd`: any open file of the file
/// system.
pub fn generation(fd: impl AsFd, inode: u64) -> Option<u32> {
    let mut buffer = [0; HEADER_WORDS + ANSWER_WORDS];
    let answer = bulkstat(fd, &mut buffer, Header { next: inode, wanted: 1, ..Header::default() }).ok()?;
    let found = &buffer[HEADER_WORDS..];
    // Without such an inode the kernel returns the next one.
    let [a, b, c, d, ..] = found[GENERATION_WORD].to_ne_bytes();
    (answer.found == 1 && found[0] == inode).then(|| u32::from_ne_bytes([a, b, c, d]))
}

/// `buffer`: room for the header and `wanted` results. Returns the header that the kernel has written.
fn bulkstat(fd: impl AsFd, buffer: &mut [u64], header: Header) -> std::io::Result<Header> {
    assert!(buffer.len() >= HEADER_WORDS + header.wanted as usize * ANSWER_WORDS, "room for all answers");
    // SAFETY: the buffer is aligned for u64, has room for a header, and no other code refers to it.
    unsafe { buffer.as_mut_ptr().cast::<Header>().write(header) };
    // SAFETY: the kernel reads the header, and writes it and at most `wanted` results of 192 bytes after it. The assertion
    // guarantees the room. The buffer outlives the call.
    if unsafe { libc::ioctl(fd.as_fd().as_raw_fd(), XFS_IOC_BULKSTAT, buffer.as_mut_ptr()) } != 0 {
        return Err(std::io::Error::last_os_error());
    }
    // SAFETY: as above; every bit pattern is a valid header.
    Ok(unsafe { buffer.as_ptr().cast::<Header>().read() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn header_has_the_kernels_size() {
        assert_eq!(size_of::<Header>(), 64);
    }

    #[test]
    fn other_file_systems_are_refused() {
        let here = std::fs::File::open("/proc/version").unwrap();
        assert!(!may_read_inodes(&here));
        assert!(read_inodes(&here, 1..65, 64).is_err());
        assert_eq!(read_inodes(&here, 1..1, 64).unwrap(), 0);
        assert_eq!(generation(&here, 1), None);
    }
}
