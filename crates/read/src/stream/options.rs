//! How a [`Reader`](crate::stream::Reader) reads.

use ahead_fetch::Budget;
use ahead_policy::pattern::Pattern;
use ahead_policy::reading::LARGEST_DISTANCE_BYTES;

ahead_model::options! {
    /// How a [`Reader`](crate::stream::Reader) reads.
    #[derive(Clone, Debug)]
    pub struct ReaderOptions {
        /// Memory for what is read ahead. Default: [`Budget::global`].
        pub budget: Budget,
        /// The order of the reads, if the program knows it. Default: `None`, found from the reads.
        pub pattern: Option<Pattern>,
        /// Reads past the page cache (O_DIRECT), if the file system permits; [`Counters::is_direct`](crate::stream::Counters::is_direct) says so. Default: `false`.
        ///
        /// A read returns what a write has written that ended before it: what was read ahead is dropped when size, mtime or ctime of the file have
        /// changed, which costs each read a call of fstat(2). Not seen are a direct write that began before the read ahead and ended after it, and
        /// changes by other machines before the file system shows them.
        pub direct: bool,
        /// The largest distance between the program and the last request, bytes. Default: 16 MiB.
        pub largest_distance_bytes: u64,
    }
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
