//! Sparse files: finding holes, copying only data, punching holes. Files in memory, which no eviction reaches.

use crate::{Error, Result, machine};
use ahead_model::RangeSet;
use rustix::fs::{FallocateFlags, MemfdFlags, SeekFrom, fallocate, memfd_create, seek};
use rustix::io::Errno;
use std::fs::File;
use std::ops::Range;
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;

/// Maximum number of holes that one search finds: as many as a file has extents ([`crate::fiemap::MAX_EXTENTS`]). Two calls find each, of
/// about 1 µs. What follows counts as data.
pub const MAX_HOLES: usize = 65_536;

/// The holes of a range of an open file, as whole pages: their pages are zeros that no device is read for. A range that was allocated and
/// never written is a hole, too. On a file system that does not report holes (FUSE without lseek, older NFS) everything is data.
///
/// The position of the descriptor changes.
pub fn holes(fd: impl AsFd, range: Range<u64>) -> RangeSet {
    find_holes(range, machine::page_size(), |from| seek(&fd, from))
}

fn find_holes(range: Range<u64>, page: u64, mut seek: impl FnMut(SeekFrom) -> rustix::io::Result<u64>) -> RangeSet {
    let mut holes = RangeSet::new();
    let mut add = |start: u64, end: u64| {
        let start = if start == range.start { start } else { start.next_multiple_of(page) };
        let end = if end >= range.end { range.end } else { end / page * page };
        if start < end {
            holes.insert(start..end);
        }
    };
    let mut at = range.start;
    for _ in 0..MAX_HOLES {
        let data = match seek(SeekFrom::Data(at)) {
            Ok(data) if data >= at => data,
            // The end of the file, or only a hole follows.
            Err(Errno::NXIO) => u64::MAX,
            _ => break,
        };
        add(at, data);
        if data >= range.end {
            break;
        }
        match seek(SeekFrom::Hole(data)) {
            Ok(hole) if hole > data && hole < range.end => at = hole,
            // A hostile file system makes no progress.
            _ => break,
        }
    }
    holes
}

/// An anonymous file in memory: one hole of `size_bytes`. Dropping caches does not affect it; it may be swapped.
pub fn memory_file(name: &str, size_bytes: u64) -> Result<File> {
    let file = memfd_create(name, MemfdFlags::CLOEXEC).map_err(|e| Error::io("create a file in memory", e))?;
    let file = File::from(file);
    file.set_len(size_bytes).map_err(|e| Error::io("set the size of a file in memory", e))?;
    Ok(file)
}

/// Start and end of the next data at or after `offset_bytes`. `None`: only a hole follows.
pub fn next_data(file: &File, offset_bytes: u64) -> Result<Option<(u64, u64)>> {
    let start = match seek(file, SeekFrom::Data(offset_bytes)) {
        Ok(start) => start,
        Err(Errno::NXIO) => return Ok(None),
        Err(e) => return Err(Error::io("find data in a file", e)),
    };
    let end = seek(file, SeekFrom::Hole(start)).map_err(|e| Error::io("find a hole in a file", e))?;
    Ok(Some((start, end)))
}

/// Copies the data of `from` to the same offsets in `to`; holes stay holes. Returns the number of bytes copied.
pub fn copy_data(from: &File, to: &File) -> Result<u64> {
    /// Large enough to hide the cost of a call, small enough for the processor's cache. Unit: bytes.
    const CHUNK_BYTES: u64 = 1 << 20;
    let mut buffer = vec![0; CHUNK_BYTES as usize];
    let (mut at, mut copied) = (0, 0);
    while let Some((start, end)) = next_data(from, at)? {
        at = start;
        while at < end {
            let length = (end - at).min(CHUNK_BYTES) as usize;
            let read = from.read_at(&mut buffer[..length], at).map_err(|e| Error::io("read a file", e))?;
            if read == 0 {
                return Ok(copied);
            }
            to.write_all_at(&buffer[..read], at).map_err(|e| Error::io("write a copy", e))?;
            at += read as u64;
            copied += read as u64;
        }
    }
    Ok(copied)
}

/// Punches a hole: the range reads as zeros, and its space is freed if the file system can. The file size does not change.
pub fn zero_range(file: &File, offset_bytes: u64, length_bytes: u64) -> Result<()> {
    let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    rustix::io::retry_on_intr(|| fallocate(file, flags, offset_bytes, length_bytes))
        .map_err(|e| Error::io("punch a hole in a file", e))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_data_is_copied() {
        let from = memory_file("from", 8 << 20).unwrap();
        from.write_all_at(&[7; 4096], 1 << 20).unwrap();
        from.write_all_at(&[8; 4096], 5 << 20).unwrap();
        let to = memory_file("to", 8 << 20).unwrap();
        assert_eq!(copy_data(&from, &to).unwrap(), 8192);
        let mut page = [0; 4096];
        to.read_exact_at(&mut page, 5 << 20).unwrap();
        assert_eq!(page, [8; 4096]);
        assert_eq!(next_data(&to, 0).unwrap(), Some((1 << 20, (1 << 20) + 4096)));
        assert_eq!(next_data(&to, 6 << 20).unwrap(), None);
    }

    #[test]
    fn holes_are_whole_pages_between_data() {
        let page = machine::page_size();
        let file = memory_file("file", 10 * page).unwrap();
        file.write_all_at(&[7; 10], 2 * page).unwrap();
        file.write_all_at(&[7; 10], 5 * page).unwrap();
        let found = |range| holes(&file, range).iter().cloned().collect::<Vec<_>>();
        assert_eq!(found(0..10 * page), [0..2 * page, 3 * page..5 * page, 6 * page..10 * page]);
        assert_eq!(found(2 * page..3 * page), []);
        assert_eq!(found(page..4 * page), [page..2 * page, 3 * page..4 * page]);
        // Beyond the end, as of a file that has become shorter.
        assert_eq!(found(20 * page..21 * page), [20 * page..21 * page]);
        assert_eq!(found(5..5), []);
    }

    #[test]
    fn blocks_that_are_smaller_than_pages_leave_whole_pages() {
        // Data at 1024..2048 and 9216..10240, pages of 4096.
        let seek = |from| match from {
            SeekFrom::Data(at) if at < 2048 => Ok(at.max(1024)),
            SeekFrom::Data(at) if at < 10_240 => Ok(at.max(9216)),
            SeekFrom::Hole(at) if at < 2048 => Ok(2048),
            SeekFrom::Hole(_) => Ok(10_240),
            _ => Err(Errno::NXIO),
        };
        let found: Vec<_> = find_holes(0..20_000, 4096, seek).iter().cloned().collect();
        assert_eq!(found, [4096..8192, 12_288..20_000]);
    }

    #[test]
    fn unsupported_and_hostile_answers_are_data_and_the_search_ends() {
        let none = |seek: &mut dyn FnMut(SeekFrom) -> rustix::io::Result<u64>| find_holes(4096..1 << 40, 4096, seek);
        assert!(none(&mut |_| Err(Errno::INVAL)).is_empty());
        assert!(none(&mut |_| Ok(0)).is_empty());
        // Data everywhere, in ranges without an end.
        assert!(
            none(&mut |from| if let SeekFrom::Data(at) | SeekFrom::Hole(at) = from { Ok(at) } else { Ok(0) })
                .is_empty()
        );
        let mut calls = 0;
        let many = none(&mut |from| {
            calls += 1;
            match from {
                SeekFrom::Data(at) | SeekFrom::Hole(at) => Ok(at + 4096),
                _ => Err(Errno::INVAL),
            }
        });
        assert_eq!((many.iter().count(), calls), (MAX_HOLES, 2 * MAX_HOLES));
    }

    #[test]
    fn zeroed_range_is_a_hole() {
        let file = memory_file("file", 1 << 20).unwrap();
        file.write_all_at(&[7; 8192], 0).unwrap();
        zero_range(&file, 0, 4096).unwrap();
        assert_eq!(next_data(&file, 0).unwrap(), Some((4096, 8192)));
    }
}
