//! Checks that reads reach the disk: a read of a hole, or of allocated space without written data, returns zeros without a disk access.

use crate::probe::error::{Error, Result};
use ahead_sys::{fiemap, sparse};
use std::fs::File;
use std::os::unix::fs::MetadataExt;

/// Maximum share of holes in a file: a hundredth of all reads changes a mean or median by at most that share.
const HOLES: f64 = 0.01;
/// Unit of `st_blocks`, bytes.
const SECTOR_BYTES: u64 = 512;
/// Maximum number of data ranges in the search.
const PIECES: usize = 65_536;

/// Why read times of this file are not read times of its disk. `None`: the file is all data, or the file system does not report holes.
/// With `timing_only` the function compares the file's length with its allocated bytes instead.
pub fn missing(file: &File, size_bytes: u64, timing_only: bool) -> Result<Option<String>> {
    let (data_bytes, of_bytes) = match timing_only {
        true => {
            let metadata = file.metadata().map_err(|e| Error::io("look at a file", e))?;
            ((metadata.blocks() * SECTOR_BYTES).min(size_bytes), size_bytes)
        }
        false => match placed(file, size_bytes).or_else(|| between_holes(file, size_bytes)) {
            Some(found) => found,
            None => return Ok(None),
        },
    };
    let is_missing = (data_bytes as f64) < (1.0 - HOLES) * of_bytes as f64;
    Ok(is_missing.then(|| {
        format!(
            "the file has data in only {data_bytes} of {of_bytes} bytes: the rest (holes, or allocated and never written) is \
             read without the disk"
        )
    }))
}

/// Written bytes and checked bytes according to FIEMAP, which distinguishes allocated from written space. `None` if the file system does
/// not support FIEMAP.
fn placed(file: &File, size_bytes: u64) -> Option<(u64, u64)> {
    let pieces = fiemap::extents(file, 0, size_bytes).ok()?;
    let end =
        |piece: &ahead_model::PhysicalExtent| piece.logical_bytes.saturating_add(piece.length_bytes).min(size_bytes);
    let looked_bytes = if pieces.len() < fiemap::MAX_EXTENTS { size_bytes } else { pieces.last().map_or(0, end) };
    let written = pieces.iter().filter(|piece| !piece.unwritten && !piece.inline);
    Some((written.map(|piece| end(piece).saturating_sub(piece.logical_bytes)).sum(), looked_bytes))
}

/// Bytes of data and checked bytes according to SEEK_HOLE. `None` if the file system does not support SEEK_HOLE.
fn between_holes(file: &File, size_bytes: u64) -> Option<(u64, u64)> {
    let (mut data_bytes, mut at) = (0, 0);
    for _ in 0..PIECES {
        match sparse::next_data(file, at).ok()? {
            Some((start, end)) if start < size_bytes => {
                data_bytes += end.min(size_bytes) - start;
                at = end;
            }
            _ => return Some((data_bytes, size_bytes)),
        }
    }
    Some((data_bytes, at))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    const MIB: u64 = 1 << 20;

    /// Regression: a hole of a gigabyte was reported as a disk with 3 us and 20 GB/s.
    #[test]
    fn holes_are_no_data_and_written_bytes_are() {
        let mut file = tempfile::tempfile_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        file.write_all(&vec![7; MIB as usize]).unwrap();
        file.sync_all().unwrap();
        for timing_only in [false, true] {
            assert_eq!(missing(&file, MIB, timing_only).unwrap(), None);
        }
        file.set_len(2 * MIB).unwrap();
        assert_eq!(between_holes(&file, 2 * MIB), Some((MIB, 2 * MIB)));
        for timing_only in [false, true] {
            assert!(missing(&file, 2 * MIB, timing_only).unwrap().unwrap().contains("only 1048576 of 2097152 bytes"));
        }
    }
}
