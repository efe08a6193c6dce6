//! What a disk is asked for, and when it is done.

/// Reading or writing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Op {
    /// From the disk.
    Read,
    /// To the disk.
    Write,
}

/// One request as the disk sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Request {
    /// Reading or writing.
    pub op: Op,
    /// Where it starts on the disk.
    pub offset_bytes: u64,
    /// Its length. Bytes beyond the end of the disk take no time.
    pub length_bytes: u64,
}

/// When a request is served, in nanoseconds of the caller's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Served {
    /// When its service began: after its arrival if the disk served earlier requests first.
    pub start_ns: u64,
    /// When it is complete.
    pub end_ns: u64,
    /// Whether the head had to leave its place (a seek, a turn of the platter, or both). False on flash and cloud.
    pub seeked: bool,
    /// Time from start to end in which the disk was busy with it, including waits for the bus or for tokens.
    pub busy_ns: u64,
}
