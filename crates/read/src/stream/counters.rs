//! What one reader did.

/// Counts of one [`crate::stream::Reader`] since it was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Counters {
    /// Reads of the program.
    pub reads: u64,
    /// Bytes that the program has received.
    pub bytes: u64,
    /// Waits for the device. In a file system that cannot tell: calls that took longer than 100 us.
    pub waits: u64,
    /// Time of the waits, microseconds.
    pub waited_us: u64,
    /// Requests to read ahead.
    pub requests: u64,
    /// Bytes that were requested ahead.
    pub requested_bytes: u64,
    /// Requests that were not submitted, because their pages were cached already.
    pub cached_requests: u64,
    /// Bytes that were requested, and given up because the program went elsewhere, or the file changed. Some of them are in the page cache.
    pub abandoned_bytes: u64,
    /// How far ahead of the program requests may end now, bytes.
    pub distance_bytes: u64,
    /// Whether the file is read past the page cache. `false` for `direct: true`: the file system refuses it.
    pub is_direct: bool,
}
