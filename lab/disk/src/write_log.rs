//! The log of the writes and flushes of a disk, and what a power cut leaves of them.
//!
//! ```text
//!     write A   write B   flush   write C   write D   write E │ cut
//!     ╰───── durable ─────╯       ╰── each kept, lost, torn ──╯
//! ```
//!
//! A write is logged before it is answered, and a flush when it arrives: so a write that was answered before a flush was sent comes before
//! it in the log. A write after the last flush may be lost, in parts of [`PART_BYTES`], and may reach the medium before earlier ones.
//!
//! The file: 8 bytes [`MAGIC`], then for each operation 24 bytes (kind, offset, length; 64 bits each, little-endian) and the bytes of a write.

use crate::{Error, Result};
use ahead_model::random::SplitMix64;
use ahead_sys::locks::IgnorePoison;
use std::fs::File;
use std::io::{self, BufReader, Read, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::sync::Mutex;

/// The start of a log.
pub const MAGIC: &[u8; 8] = b"AHEADWL1";

/// A drive writes a part of this size whole or not at all, bytes: a physical sector.
pub const PART_BYTES: usize = 4096;

/// The longest operation that is read from a log, bytes: requests of a disk have at most 1 MiB.
const MAX_WRITE_BYTES: u64 = 1 << 26;

/// An operation of a log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Operation {
    /// These bytes at this offset.
    Write(u64, Vec<u8>),
    /// Zeros: offset and length, bytes.
    Zero(u64, u64),
    /// Everything before it is durable when it is answered.
    Flush,
}

/// A log that is being written.
#[derive(Debug)]
pub struct WriteLog(Mutex<File>);

impl WriteLog {
    /// A new log.
    ///
    /// # Errors
    /// The file exists, or cannot be made.
    pub fn create(path: &Path) -> Result<WriteLog> {
        let failed = |error| Error::io(format!("make the log of writes {}", path.display()), error);
        let mut file = File::options().write(true).create_new(true).mode(0o600).open(path).map_err(failed)?;
        file.write_all(MAGIC).map_err(failed)?;
        Ok(WriteLog(Mutex::new(file)))
    }

    /// Adds a write.
    pub fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.add(1, offset, data.len() as u64, data)
    }

    /// Adds a range of zeros.
    pub fn zero(&self, offset: u64, length: u64) -> io::Result<()> {
        self.add(2, offset, length, &[])
    }

    /// Adds a flush.
    pub fn flush(&self) -> io::Result<()> {
        self.add(3, 0, 0, &[])
    }

    fn add(&self, kind: u64, offset: u64, length: u64, data: &[u8]) -> io::Result<()> {
        let mut record = Vec::with_capacity(24 + data.len());
        [kind, offset, length].iter().for_each(|number| record.extend_from_slice(&number.to_le_bytes()));
        record.extend_from_slice(data);
        self.0.lock().ignore_poison().write_all(&record)
    }
}

/// Reads a log. A torn last operation is left out.
///
/// # Errors
/// It cannot be read, or is not a log.
pub fn read(path: &Path) -> Result<Vec<Operation>> {
    let failed = |error| Error::io(format!("read {}", path.display()), error);
    let invalid = |why: String| Error::Invalid(format!("{}: {why}", path.display()));
    let mut input = BufReader::new(File::open(path).map_err(failed)?);
    let mut magic = [0; 8];
    input.read_exact(&mut magic).map_err(failed)?;
    if &magic != MAGIC {
        return Err(invalid("not a log of writes".into()));
    }
    let mut operations = Vec::new();
    let mut head = [0; 24];
    while input.read_exact(&mut head).is_ok() {
        let number = |at: usize| u64::from_le_bytes(head[at..at + 8].try_into().expect("eight bytes"));
        let (offset, length) = (number(8), number(16));
        operations.push(match number(0) {
            1 if length <= MAX_WRITE_BYTES => {
                let mut data = vec![0; length as usize];
                if input.read_exact(&mut data).is_err() {
                    break;
                }
                Operation::Write(offset, data)
            }
            2 => Operation::Zero(offset, length),
            3 => Operation::Flush,
            kind => return Err(invalid(format!("operation {}: kind {kind}, {length} bytes", operations.len()))),
        });
    }
    Ok(operations)
}

/// Applies to an image, which holds what was there before the log, what a power cut after `count` operations leaves: everything before the
/// last flush, and of the rest a random part in a random order. Returns the number of operations that were not durable.
///
/// # Errors
/// The image cannot be written.
pub fn cut_power(image: &File, log: &[Operation], count: usize, random: &mut SplitMix64) -> io::Result<usize> {
    let before = &log[..count.min(log.len())];
    let durable = before.iter().rposition(|operation| *operation == Operation::Flush).map_or(0, |flush| flush + 1);
    for operation in &before[..durable] {
        apply(image, operation)?;
    }
    let mut parts: Vec<Operation> = before[durable..].iter().flat_map(parts_of).collect();
    // Any order, as a drive with a write cache may choose it.
    for last in (1..parts.len()).rev() {
        parts.swap(last, random.below(last as u64 + 1) as usize);
    }
    let share = random.below(5);
    for part in parts.iter().filter(|_| random.below(4) < share) {
        apply(image, part)?;
    }
    Ok(before.len() - durable)
}

fn parts_of(operation: &Operation) -> Vec<Operation> {
    match operation {
        Operation::Write(offset, data) => {
            let part =
                |(index, part): (usize, &[u8])| Operation::Write(offset + (index * PART_BYTES) as u64, part.to_vec());
            data.chunks(PART_BYTES).enumerate().map(part).collect()
        }
        other => vec![other.clone()],
    }
}

fn apply(image: &File, operation: &Operation) -> io::Result<()> {
    match operation {
        Operation::Write(offset, data) => image.write_all_at(data, *offset),
        Operation::Zero(offset, length) => {
            ahead_sys::sparse::zero_range(image, *offset, *length).map_err(io::Error::other)
        }
        Operation::Flush => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn logged() -> (tempfile::TempDir, Vec<Operation>) {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("log");
        let log = WriteLog::create(&path).unwrap();
        assert!(WriteLog::create(&path).is_err());
        log.write(0, &[1; 8192]).unwrap();
        log.flush().unwrap();
        log.write(4096, &[2; 8192]).unwrap();
        log.zero(0, 4096).unwrap();
        let operations = read(&path).unwrap();
        (home, operations)
    }

    #[test]
    fn log_is_read_as_it_was_written() {
        let (home, operations) = logged();
        assert_eq!(operations[..2], [Operation::Write(0, vec![1; 8192]), Operation::Flush]);
        assert_eq!(operations[2..], [Operation::Write(4096, vec![2; 8192]), Operation::Zero(0, 4096)]);
        std::fs::write(home.path().join("other"), "AHEADWL1 and no operation of a known kind").unwrap();
        assert!(read(&home.path().join("other")).unwrap_err().to_string().contains("kind"));
    }

    #[test]
    fn flushed_writes_stay_and_later_ones_may_be_lost_in_parts() {
        let (home, log) = logged();
        let mut seen = std::collections::BTreeSet::new();
        for seed in 0..200 {
            let path = home.path().join("image");
            let image = File::options().read(true).write(true).create(true).truncate(true).open(&path).unwrap();
            image.set_len(1 << 16).unwrap();
            let lost = cut_power(&image, &log, log.len(), &mut SplitMix64::new(seed)).unwrap();
            assert_eq!(lost, 2);
            let content = std::fs::read(&path).unwrap();
            seen.insert([content[0], content[4096], content[8192]]);
        }
        let all: Vec<[u8; 3]> =
            [0, 1].iter().flat_map(|a| [1, 2].map(|b| [0, 2].map(|c| [*a, b, c]))).flatten().collect();
        assert_eq!(seen.into_iter().collect::<Vec<_>>(), all);
    }

    #[test]
    fn nothing_is_applied_beyond_the_cut() {
        let (home, log) = logged();
        let path = home.path().join("image");
        let image = File::options().read(true).write(true).create(true).truncate(false).open(&path).unwrap();
        image.set_len(1 << 16).unwrap();
        cut_power(&image, &log, 2, &mut SplitMix64::new(1)).unwrap();
        let content = std::fs::read(&path).unwrap();
        assert_eq!((content[0], content[4096], content[8192]), (1, 1, 0));
    }
}
