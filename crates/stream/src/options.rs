//! How a [`Reader`](crate::Reader) reads.

use crate::budget::Budget;
use crate::pattern::Pattern;

/// Default for the largest distance, bytes: the product of bandwidth and latency of 1.6 GB/s and 10 ms, more than cloud disks have.
const LARGEST_DISTANCE_BYTES: u64 = 16 << 20;

/// How a [`Reader`](crate::Reader) reads.
#[derive(Clone, Debug)]
pub struct ReaderOptions {
    /// Memory for what is read ahead. Default: [`Budget::global`].
    pub budget: Budget,
    /// The order of the reads, if the program knows it. Default: `None`, found from the reads.
    pub pattern: Option<Pattern>,
    /// Reads past the page cache (O_DIRECT), if the file system permits; [`Counters::is_direct`](crate::Counters::is_direct) says so. Default: `false`.
    pub direct: bool,
    /// The largest distance between the program and the last request, bytes. Default: 16 MiB.
    pub largest_distance_bytes: u64,
}

impl Default for ReaderOptions {
    fn default() -> ReaderOptions {
        ReaderOptions {
            budget: Budget::global(),
            pattern: None,
            direct: false,
            largest_distance_bytes: LARGEST_DISTANCE_BYTES,
        }
    }
}
