//! The position of a file's bytes on its device (`FS_IOC_FIEMAP`).
//!
//! The file system reports the positions. On ext2/3/4 and XFS they are bytes from the start of its block device, on btrfs bytes
//! in its own address space. Use them for ordering, never for access. The call may read metadata from the device (indirect or
//! extent blocks). It needs no privilege, only a file that is open for reading.

#![allow(unsafe_code)]

use crate::{Error, Result};
use ahead_model::PhysicalExtent;
use std::os::fd::{AsFd, AsRawFd};

/// `FS_IOC_FIEMAP`, `_IOWR('f', 11, struct fiemap)` in linux/fs.h.
const FS_IOC_FIEMAP: libc::c_ulong = 0xC020_660B;

/// Extents per call: 4 KiB of answers. Only a badly fragmented file has more.
const EXTENTS_PER_CALL: usize = 72;

/// Maximum number of extents of one file. The position is only a hint for ordering.
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

/// `struct fiemap` of linux/fiemap.h, with room for the extents.
#[repr(C)]
struct FiemapRequest {
    start: u64,
    length: u64,
    flags: u32,
    mapped_extents: u32,
    extent_count: u32,
    reserved: u32,
    extents: [RawExtent; EXTENTS_PER_CALL],
}

const _: () = assert!(std::mem::size_of::<RawExtent>() == 56);
const _: () = assert!(std::mem::offset_of!(FiemapRequest, extents) == 32);

/// The extents of a range of an open file, in file order. Holes have none. The first and the last extent may extend beyond
/// the range.
///
/// Errors: [`Error::Unsupported`] if the file system does not report positions (tmpfs, some overlayfs, FUSE, NFS).
pub fn extents(fd: impl AsFd, offset_bytes: u64, length_bytes: u64) -> Result<Vec<PhysicalExtent>> {
    let mut found: Vec<PhysicalExtent> = Vec::new();
    let end = offset_bytes.saturating_add(length_bytes);
    let mut at = offset_bytes;
    while at < end && found.len() < MAX_EXTENTS {
        let mut request = FiemapRequest {
            start: at,
            length: end - at,
            flags: 0,
            mapped_extents: 0,
            extent_count: EXTENTS_PER_CALL as u32,
            reserved: 0,
            extents: [RawExtent::default(); EXTENTS_PER_CALL],
        };
        // SAFETY: the structure has room for the announced `extent_count` extents, and outlives the call.
        let failed = unsafe { libc::ioctl(fd.as_fd().as_raw_fd(), FS_IOC_FIEMAP, &raw mut request) } != 0;
        if failed {
            return Err(refused(std::io::Error::last_os_error()));
        }
        let answers = &request.extents[..(request.mapped_extents as usize).min(EXTENTS_PER_CALL)];
        found.extend(answers.iter().map(from_raw));
        let Some(last) = answers.last() else { break };
        let next = last.logical.saturating_add(last.length);
        // With a file system that makes no progress this loop would not end.
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
            what: "querying a file's position on its device (FIEMAP)".into(),
            why: "the file system does not report positions".into(),
        },
        _ => Error::io("FIEMAP", error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Seek, SeekFrom, Write};

    /// A file in the source directory: /tmp may be a tmpfs, which has no positions.
    fn file_on_disk() -> std::fs::File {
        tempfile::tempfile_in(env!("CARGO_MANIFEST_DIR")).unwrap()
    }

    #[test]
    fn extents_cover_the_data_and_no_hole() {
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
    fn fragmented_file_needs_several_calls() {
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
    fn pipe_has_no_extents() {
        let (reader, _writer) = std::io::pipe().unwrap();
        assert!(extents(&reader, 0, 4096).unwrap_err().is_unavailable());
    }
}
