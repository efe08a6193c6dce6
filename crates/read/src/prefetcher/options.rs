//! Settings and counters of a [`Prefetcher`](crate::prefetcher::Prefetcher).

use ahead_fetch::Budget;
use ahead_policy::schedule::WINDOW_BYTES;
use std::time::Duration;

/// How far ahead of the taken item files are read. At least one item is always read ahead. The budget limits every kind of window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Window {
    /// Bytes of the items, in whole pages. An item larger than half of the window is read ahead in its first part only.
    Bytes(u64),
    /// Number of items, at most 4,096.
    Items(usize),
    /// The items that the program consumes in this time, at the rate that it had so far. At least one, at most 4,096 items.
    Time(Duration),
}

impl Default for Window {
    fn default() -> Window {
        Window::Bytes(WINDOW_BYTES)
    }
}

ahead_model::options! {
    /// Settings of a [`Prefetcher`](crate::prefetcher::Prefetcher).
    #[derive(Clone, Default)]
    pub struct PrefetcherOptions {
        /// How far ahead to read. Default: 32 MiB.
        pub window: Window,
        /// Limit of the bytes that are read ahead and not consumed, shared with other readers. Default: the budget of the process.
        pub budget: Budget,
        /// Largest number of worker threads; 0: 8. They are started as needed: one if everything is cached.
        pub threads: usize,
    }
}

/// What became of the items so far. Each item is counted in at most one of the other numbers of items. In a forked child the counts begin at
/// the fork.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Counters {
    /// Items that the program has taken.
    pub items: u64,
    /// Items whose read-ahead was requested completely before they were taken; for large items, their first part.
    pub prefetched_items: u64,
    /// Bytes requested, in whole pages.
    pub prefetched_bytes: u64,
    /// Items that were found cached completely.
    pub cached_items: u64,
    /// Items without a readable regular file: missing, not permitted, of another kind, or no item for the key.
    pub skipped: u64,
    /// Items that were taken while they were looked up or requested.
    pub late: u64,
    /// Items that were taken before their read-ahead was started. It was not started any more.
    pub consumed_before_start: u64,
    /// Items that were not checked because those that were checked around them were cached.
    pub unchecked: u64,
}
