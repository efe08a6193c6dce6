//! The requests to a disk, and the times of their service.

/// Reading or writing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Op {
    /// From the disk.
    Read,
    /// To the disk.
    Write,
}

/// A request to a disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Request {
    /// Reading or writing.
    pub op: Op,
    /// Start offset on the disk.
    pub offset_bytes: u64,
    /// Its length. Bytes beyond the end of the disk take no time.
    pub length_bytes: u64,
}

/// The service times of a request, in nanoseconds of the caller's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Served {
    /// The start of its service: after its arrival if the disk served earlier requests first.
    pub start_ns: u64,
    /// Its completion.
    pub end_ns: u64,
    /// Whether the head had to move or wait (a seek, a turn of the platter, or both). False on flash and cloud.
    pub seeked: bool,
    /// Time from start to end in which the disk was busy with it, including waits for the bus or for tokens.
    pub busy_ns: u64,
}
