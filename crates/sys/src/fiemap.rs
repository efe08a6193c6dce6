//! Where a file's bytes lie on its device (`FS_IOC_FIEMAP`).
//!
//! The positions are what the file system tells: bytes from the start of its block device on ext2/3/4 and XFS, bytes in
//! its own address space on btrfs. They are good for order, never for access. Asking may read metadata from the device
//! (indirect or extent blocks) and asks for no privilege, only for a file that is open for reading.

#![allow(unsafe_code)]

use crate::{Error, Result};
use ahead_model::PhysicalExtent;
use std::os::fd::{AsFd, AsRawFd};

/// `FS_IOC_FIEMAP`, `_IOWR('f', 11, struct fiemap)` in linux/fs.h.
const FS_IOC_FIEMAP: libc::c_ulong = 0xC020_660B;

/// Extents asked for in one call: 4 KiB of answers. A file has more only when it is badly fragmented.
const EXTENTS_PER_CALL: usize = 72;

/// Answers taken from one file at most. A position is a hint for order; a file in a million pieces is not worth more.
pub const MAX_EXTENTS: usize = 65_536;

/// `FIEMAP_EXTENT_*` of linux/fiemap.h.
mod flag {
    pub const LAST: u32 = 0x0001;
    pub const UNKNOWN: u32 = 0x0002;
    pub const DELALLOC: u32 = 0x0004;
    pub const ENCODED: u32 = 0x0008;
    pub const DATA_INLINE: u32 = 0x0200;
    pub const UNWRITTEN: u32 = 0x0800;
    pub const MERGED: u32 = 0x1000;
    pub const SHARED: u32 = 0x2000;
}

fn from_raw(raw: &RawExtent) -> PhysicalExtent {
    let has = |bit| raw.flags & bit != 0;
    PhysicalExtent {
        logical_bytes: raw.logical,
        physical_bytes: raw.physical,
        length_bytes: raw.length,
        delayed: has(flag::DELALLOC),
        unknown: has(flag::UNKNOWN),
        encoded: has(flag::ENCODED),
        inline: has(flag::DATA_INLINE),
        unwritten: has(flag::UNWRITTEN),
        merged: has(flag::MERGED),
        shared: has(flag::SHARED),
    }
}

/// `struct fiemap_extent` of linux/fiemap.h.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct RawExtent {
    logical: u64,
    physical: u64,
    length: u64,
    reserved64: [u64; 2],
    flags: u32,
    reserved: [u32; 3],
}

/// `struct fiemap` of linux/fiemap.h with room for the answers.
#[repr(C)]
struct Request {
    start: u64,
    length: u64,
    flags: u32,
    mapped_extents: u32,
    extent_count: u32,
    reserved: u32,
    extents: [RawExtent; EXTENTS_PER_CALL],
}

const _: () = assert!(std::mem::size_of::<RawExtent>() == 56);
const _: () = assert!(std::mem::offset_of!(Request, extents) == 32);

/// The pieces that hold `length_bytes` of the open file from `offset_bytes`, in order of the file. Holes have none. The
/// first and last piece may reach beyond the range that was asked for.
///
/// Errors: [`Error::Unsupported`] where the file system does not tell (tmpfs, overlayfs over some, FUSE, NFS).
pub fn extents(fd: impl AsFd, offset_bytes: u64, length_bytes: u64) -> Result<Vec<PhysicalExtent>> {
    let mut found: Vec<PhysicalExtent> = Vec::new();
    let end = offset_bytes.saturating_add(length_bytes);
    let mut at = offset_bytes;
    while at < end && found.len() < MAX_EXTENTS {
        let mut request = Request {
            start: at,
            length: end - at,
            flags: 0,
            mapped_extents: 0,
            extent_count: EXTENTS_PER_CALL as u32,
            reserved: 0,
            extents: [RawExtent::default(); EXTENTS_PER_CALL],
        };
        // SAFETY: the structure has room for the `extent_count` answers that it announces, and outlives the call.
        let failed = unsafe { libc::ioctl(fd.as_fd().as_raw_fd(), FS_IOC_FIEMAP, &raw mut request) } != 0;
        if failed {
            return Err(refused(std::io::Error::last_os_error()));
        }
        let answers = &request.extents[..(request.mapped_extents as usize).min(EXTENTS_PER_CALL)];
        found.extend(answers.iter().map(from_raw));
        let Some(last) = answers.last() else { break };
        let next = last.logical.saturating_add(last.length);
        // A file system that gives no progress would keep us here for ever.
        if last.flags & flag::LAST != 0 || next <= at {
            break;
        }
        at = next;
    }
    Ok(found)
}

fn refused(error: std::io::Error) -> Error {
    match error.raw_os_error() {
        Some(libc::EOPNOTSUPP | libc::ENOTTY | libc::EINVAL | libc::EBADR) => Error::Unsupported {
            what: "asking where a file lies on its device (FIEMAP)".into(),
            why: "its file system does not tell".into(),
        },
        _ => Error::io("FIEMAP", error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Seek, SeekFrom, Write};

    /// A file in the target directory: /tmp may be a tmpfs, which knows no positions.
    fn file_on_disk() -> std::fs::File {
        tempfile::tempfile_in(env!("CARGO_MANIFEST_DIR")).unwrap()
    }

    #[test]
    fn a_written_file_has_pieces_that_cover_it_and_a_hole_has_none() {
        let mut file = file_on_disk();
        file.write_all(&vec![7; 1 << 20]).unwrap();
        file.seek(SeekFrom::Start(8 << 20)).unwrap();
        file.write_all(&vec![7; 1 << 16]).unwrap();
        file.sync_all().unwrap();
        let found = match extents(&file, 0, u64::MAX) {
            Err(error) if error.is_unavailable() => return eprintln!("skipped: {error}"),
            other => other.unwrap(),
        };
        let covered: u64 = found.iter().map(|piece| piece.length_bytes).sum();
        assert_eq!(covered, (1 << 20) + (1 << 16));
        assert!(found.iter().all(PhysicalExtent::is_placed));
        assert!(extents(&file, 2 << 20, 4 << 20).unwrap().is_empty());
    }

    #[test]
    fn many_pieces_need_more_than_one_call() {
        let mut file = file_on_disk();
        let pieces = EXTENTS_PER_CALL as u64 * 2 + 3;
        for piece in 0..pieces {
            file.seek(SeekFrom::Start(piece * 16_384)).unwrap();
            file.write_all(&[7; 4096]).unwrap();
        }
        file.sync_all().unwrap();
        match extents(&file, 0, u64::MAX) {
            Err(error) if error.is_unavailable() => eprintln!("skipped: {error}"),
            other => assert_eq!(other.unwrap().len() as u64, pieces),
        }
    }

    #[test]
    fn a_pipe_lies_nowhere() {
        let (reader, _writer) = std::io::pipe().unwrap();
        assert!(extents(&reader, 0, 4096).unwrap_err().is_unavailable());
    }
}
