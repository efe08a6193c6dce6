//! The operations of each process, in their order.

use ahead_policy::{Advice, FileId, OpenId, PAGE_BYTES, Page};
use std::ops::Range;
use std::sync::Arc;

/// The limit on accesses that a clairvoyant policy knows in advance.
const MOST_FORETOLD: usize = 1 << 26;

/// The properties of a mapping.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Mapped {
    /// The advice given with `madvise`.
    pub advice: Advice,
    /// Whether the mapping requests huge pages (`MADV_HUGEPAGE`).
    pub huge: bool,
    /// Whether the mapping contains a program (`VM_EXEC`).
    pub executable: bool,
}

/// One operation of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    /// Opens a file.
    Open {
        /// The number of the opening.
        open: OpenId,
        /// The file.
        file: FileId,
    },
    /// Closes an opening.
    Close {
        /// The number of the opening.
        open: OpenId,
    },
    /// Gives advice on the use of a file.
    Advise {
        /// The opening.
        open: OpenId,
        /// The file.
        file: FileId,
        /// The advice.
        advice: Advice,
    },
    /// Reads by a call.
    Read {
        /// The opening.
        open: OpenId,
        /// The file.
        file: FileId,
        /// Start of the read, bytes.
        offset_bytes: u64,
        /// Length, bytes.
        length_bytes: u64,
    },
    /// Writes by a call. The file grows if it is shorter.
    Write {
        /// The opening.
        open: OpenId,
        /// The file.
        file: FileId,
        /// Start of the write, bytes.
        offset_bytes: u64,
        /// Length, bytes.
        length_bytes: u64,
    },
    /// Moves the file position by a call (`lseek`). The next read or write states its own offset, but kernels that tie
    /// their read-ahead to the file position need this event.
    Seek {
        /// The opening.
        open: OpenId,
        /// The file.
        file: FileId,
        /// The new position, bytes.
        offset_bytes: u64,
    },
    /// Waits until all data written to a file is on the disk (`fsync`).
    Sync {
        /// The file.
        file: FileId,
    },
    /// Touches consecutive mapped pages.
    Touch {
        /// The opening of the mapped file.
        open: OpenId,
        /// The file.
        file: FileId,
        /// The first page.
        first: Page,
        /// The number of pages.
        pages: u64,
        /// The properties of the mapping, which covers the whole file.
        mapped: Mapped,
    },
    /// Computes.
    Compute {
        /// The duration, nanoseconds.
        time_ns: u64,
    },
    /// Sleeps.
    Sleep {
        /// The duration, nanoseconds.
        time_ns: u64,
    },
    /// An operation of a prefetch, or of the program that it serves. Recordings have none.
    Prefetch(PrefetchOp),
}

/// An operation of the workers of a prefetch ([`crate::UsedRanges`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PrefetchOp {
    /// Requests pages by a call (`readahead`). Waits for room in the queue, but not for the pages.
    Request {
        /// The file.
        file: FileId,
        /// The first page.
        first: Page,
        /// The number of pages.
        pages: u64,
    },
    /// Waits until none of these pages is in flight.
    Await {
        /// The file.
        file: FileId,
        /// The first page.
        first: Page,
        /// The number of pages.
        pages: u64,
    },
    /// Ends the head start: programs that wait for it start.
    Release {
        /// The number of the head start.
        gate: u32,
    },
    /// The program waits for the head start.
    AwaitRelease {
        /// The number of the head start.
        gate: u32,
    },
}

/// The operations of a process, in their order.
pub type Ops = Box<dyn Iterator<Item = Op> + Send>;

impl Op {
    /// The file and the pages that the operation reads or touches.
    pub fn pages(&self) -> Option<(FileId, Range<Page>)> {
        match *self {
            Op::Read { file, offset_bytes, length_bytes, .. } => {
                Some((file, offset_bytes / PAGE_BYTES..(offset_bytes + length_bytes).div_ceil(PAGE_BYTES)))
            }
            Op::Touch { file, first, pages, .. } => Some((file, first..first + pages)),
            _ => None,
        }
    }
}

/// All future accesses, if readers take turns call by call. Each reader yields its calls in order, as [`Op::pages`]
/// gives them.
pub fn foretell<I>(readers: impl IntoIterator<Item = I>) -> Arc<[(FileId, Page)]>
where
    I: Iterator<Item = (FileId, Range<Page>)>,
{
    let mut readers: Vec<I> = readers.into_iter().collect();
    let mut future = Vec::new();
    while !readers.is_empty() && future.len() < MOST_FORETOLD {
        readers.retain_mut(|reader| {
            let call = reader.next();
            let room = MOST_FORETOLD - future.len();
            future.extend(call.iter().flat_map(|(file, pages)| pages.clone().map(|page| (*file, page))).take(room));
            call.is_some()
        });
    }
    future.into()
}
