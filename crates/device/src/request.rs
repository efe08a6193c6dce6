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
    /// How long it is. What lies beyond the end of the disk takes no time.
    pub length_bytes: u64,
}

/// When a request is served, in nanoseconds of the caller's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Served {
    /// When the disk took it up; after its arrival if earlier requests had to be finished.
    pub start_ns: u64,
    /// When it is done.
    pub end_ns: u64,
    /// The head had to leave what it was reading (a seek, a turn of the platter, or both). Never on flash or cloud.
    pub seeked: bool,
    /// How much of the time from start to end the disk itself was busy with it, its turn on the bus or for tokens
    /// included.
    pub busy_ns: u64,
}
