//! What programs do: the operations of each process, one after the other.

use ahead_policy::{Advice, FileId, OpenId, PAGE_BYTES, Page};
use std::ops::Range;
use std::sync::Arc;

/// Most accesses that a clairvoyant policy knows in advance.
const MOST_FORETOLD: usize = 1 << 26;

/// What was said of a mapping (`madvise`), and what it holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Mapped {
    /// How it will be used.
    pub advice: Advice,
    /// It wants huge pages (`MADV_HUGEPAGE`).
    pub huge: bool,
    /// It holds a program (`VM_EXEC`).
    pub executable: bool,
}

/// One thing that a process does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    /// Opens a file.
    Open {
        /// By this number.
        open: OpenId,
        /// This one.
        file: FileId,
    },
    /// Closes it.
    Close {
        /// The number.
        open: OpenId,
    },
    /// Says how the file will be used.
    Advise {
        /// Through this opening.
        open: OpenId,
        /// Of this file.
        file: FileId,
        /// What.
        advice: Advice,
    },
    /// Reads by a call.
    Read {
        /// Through this opening.
        open: OpenId,
        /// Of this file.
        file: FileId,
        /// From here on, bytes.
        offset_bytes: u64,
        /// Length, bytes.
        length_bytes: u64,
    },
    /// Writes by a call; the file grows if it is shorter.
    Write {
        /// Through this opening.
        open: OpenId,
        /// To this file.
        file: FileId,
        /// From here on, bytes.
        offset_bytes: u64,
        /// Length, bytes.
        length_bytes: u64,
    },
    /// Goes to another place by a call (`lseek`): what the next read or write does, which says itself where it begins.
    /// Kernels that keep their read-ahead by the file position hear of it.
    Seek {
        /// In this opening.
        open: OpenId,
        /// Of this file.
        file: FileId,
        /// To here, bytes.
        offset_bytes: u64,
    },
    /// Waits until everything that was written to a file is on the disk (`fsync`).
    Sync {
        /// This one.
        file: FileId,
    },
    /// Touches mapped pages, one after the other.
    Touch {
        /// Through a mapping of this opening.
        open: OpenId,
        /// Of this file.
        file: FileId,
        /// From this page on.
        first: Page,
        /// Their number.
        pages: u64,
        /// What was said of the mapping, which is one of the whole file.
        mapped: Mapped,
    },
    /// Computes.
    Compute {
        /// So long, nanoseconds.
        time_ns: u64,
    },
    /// Does nothing for a while.
    Sleep {
        /// So long, nanoseconds.
        time_ns: u64,
    },
}

/// The operations of a process, in their order.
pub type Ops = Box<dyn Iterator<Item = Op> + Send>;

impl Op {
    /// The pages that it reads or touches, and of which file.
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

/// Every access that will come, if readers take turns call by call. What each of them reads, in its order, is given as
/// [`Op::pages`] tells it.
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
