//! Where a file's data lies on its disk.

/// A piece of a file and where it lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PhysicalExtent {
    /// Offset in the file, bytes.
    pub logical_bytes: u64,
    /// Offset on the device (on btrfs: in the file system's own address space), bytes. Without meaning where `is_placed()` is false.
    pub physical_bytes: u64,
    pub length_bytes: u64,
    /// Not on the device yet: written, but no place chosen (delayed allocation).
    pub delayed: bool,
    /// The position is unknown.
    pub unknown: bool,
    /// Compressed or encrypted: the position is that of the whole encoded piece.
    pub encoded: bool,
    /// The data lies inside metadata (a small file in its inode): reading the metadata brings it.
    pub inline: bool,
    /// Allocated, never written: reads as zeros without the device.
    pub unwritten: bool,
    /// The file system knows blocks, not extents, and has put them together for the answer.
    pub merged: bool,
    /// Shared with other files (reflink, snapshot).
    pub shared: bool,
}

impl PhysicalExtent {
    /// Whether reading this piece makes the device read at `physical_bytes`.
    pub fn is_placed(&self) -> bool {
        !(self.delayed || self.unknown || self.unwritten)
    }
}
