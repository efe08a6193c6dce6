//! Sparse files: copying only data, punching holes. Files in memory, which no eviction reaches.

use crate::{Error, Result};
use rustix::fs::{FallocateFlags, MemfdFlags, SeekFrom, fallocate, memfd_create, seek};
use rustix::io::Errno;
use std::fs::File;
use std::os::unix::fs::FileExt;

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
    fn zeroed_range_is_a_hole() {
        let file = memory_file("file", 1 << 20).unwrap();
        file.write_all_at(&[7; 8192], 0).unwrap();
        zero_range(&file, 0, 4096).unwrap();
        assert_eq!(next_data(&file, 0).unwrap(), Some((4096, 8192)));
    }
}
