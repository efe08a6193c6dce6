//! The calls that are held, and what their arguments say.

use crate::syscalls::{self, Shape};
use ahead_sys::held_calls::{Held, HeldCall, read_memory};
use std::ops::Range;

/// What a call does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// It looks a path up, or lists a directory.
    LooksUp(Shape),
    /// As the former, and starts a program.
    Executes(Shape),
    Reads(Reading),
    /// It maps a file.
    Maps,
    Unmaps,
    Ends,
}

/// The arguments of a call that reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Reading {
    descriptor: usize,
    offset: Offset,
    length: Length,
}

/// Where a call reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Offset {
    /// At the position of the open file.
    Position,
    /// At this argument; -1: at the position (preadv2).
    At(usize),
    /// At the number to which this argument points, if it is no null pointer.
    Behind(usize),
}

/// How much a call reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Length {
    Bytes(usize),
    /// The sum of the vectors at this argument, whose number is the next argument.
    Vectors(usize),
}

/// A read of an open file. `None` as the offset: at its position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct CallRead {
    pub descriptor: i32,
    pub offset_bytes: Option<u64>,
    pub length_bytes: u64,
}

impl CallRead {
    /// The pages that it reads of a file.
    pub(super) fn pages(&self, position_bytes: u64, size_bytes: u64, page_bytes: u64) -> Range<u64> {
        let start = self.offset_bytes.unwrap_or(position_bytes).min(size_bytes);
        let end = start.saturating_add(self.length_bytes).min(size_bytes);
        if start < end { start / page_bytes..end.div_ceil(page_bytes) } else { 0..0 }
    }
}

/// `IOV_MAX` (linux/uio.h): more vectors are an error.
const VECTORS: u64 = 1024;
/// Bytes of `struct iovec`.
const VECTOR_BYTES: usize = 16;

impl Reading {
    /// `None`: the memory of the process cannot be read.
    pub(super) fn of(self, call: &HeldCall) -> Option<CallRead> {
        let arguments = &call.arguments;
        let offset_bytes = match self.offset {
            Offset::Position => None,
            Offset::At(index) => Some(arguments[index]).filter(|offset| *offset != u64::MAX),
            Offset::Behind(index) if arguments[index] == 0 => None,
            Offset::Behind(index) => {
                Some(u64::from_ne_bytes(read_memory(call.tid, arguments[index], 8).try_into().ok()?))
            }
        };
        let length_bytes = match self.length {
            Length::Bytes(index) => arguments[index],
            Length::Vectors(index) => {
                let count = arguments[index + 1].min(VECTORS) as usize;
                let vectors = read_memory(call.tid, arguments[index], count * VECTOR_BYTES);
                let (vectors, _) = vectors.as_chunks::<VECTOR_BYTES>();
                let length = |vector: &[u8; VECTOR_BYTES]| vector.as_chunks::<8>().0[1];
                vectors.iter().map(|vector| u64::from_ne_bytes(length(vector))).fold(0, u64::saturating_add)
            }
        };
        Some(CallRead { descriptor: arguments[self.descriptor] as i32, offset_bytes, length_bytes })
    }
}

/// Every held call, and what it does.
pub(super) fn calls() -> Vec<(Held, Kind)> {
    // Of an open file: fstat.
    let empty_path = libc::AT_EMPTY_PATH as u32;
    let unless = |number| match number {
        libc::SYS_newfstatat => Some((3, empty_path)),
        libc::SYS_statx => Some((2, empty_path)),
        libc::SYS_mmap => Some((3, libc::MAP_ANONYMOUS as u32)),
        _ => None,
    };
    let kind = |number, shape| match number {
        libc::SYS_execve | libc::SYS_execveat => Kind::Executes(shape),
        _ => Kind::LooksUp(shape),
    };
    let named = syscalls::calls().into_iter().map(|(number, shape)| (i64::from(number), kind(number.into(), shape)));
    let others = [(libc::SYS_mmap, Kind::Maps), (libc::SYS_munmap, Kind::Unmaps), (libc::SYS_exit_group, Kind::Ends)];
    let reads = reads().into_iter().map(|(number, reading)| (number, Kind::Reads(reading)));
    let held = |number| Held { number, unless: unless(number) };
    named.chain(others).chain(reads).map(|(number, kind)| (held(number), kind)).collect()
}

fn reads() -> Vec<(i64, Reading)> {
    use Length::{Bytes, Vectors};
    use Offset::{At, Behind, Position};
    let reading = |descriptor, offset, length| Reading { descriptor, offset, length };
    vec![
        (libc::SYS_read, reading(0, Position, Bytes(2))),
        (libc::SYS_pread64, reading(0, At(3), Bytes(2))),
        (libc::SYS_readv, reading(0, Position, Vectors(1))),
        (libc::SYS_preadv, reading(0, At(3), Vectors(1))),
        (libc::SYS_preadv2, reading(0, At(3), Vectors(1))),
        (libc::SYS_sendfile, reading(1, Behind(2), Bytes(3))),
        (libc::SYS_copy_file_range, reading(0, Behind(1), Bytes(4))),
        (libc::SYS_splice, reading(0, Behind(1), Bytes(4))),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_are_clipped_to_the_file_and_to_pages() {
        let read = |offset_bytes, length_bytes| CallRead { descriptor: 3, offset_bytes, length_bytes };
        assert_eq!(read(None, 100).pages(4090, 10_000, 4096), 0..2);
        assert_eq!(read(Some(8192), u64::MAX).pages(0, 10_000, 4096), 2..3);
        assert!(read(Some(10_000), 1).pages(0, 10_000, 4096).is_empty() && read(None, 0).pages(7, 9, 4096).is_empty());
    }

    #[test]
    fn each_call_is_held_once() {
        let mut numbers: Vec<i64> = calls().into_iter().map(|(held, _)| held.number).collect();
        let count = numbers.len();
        numbers.sort_unstable();
        numbers.dedup();
        assert_eq!(numbers.len(), count);
    }
}
