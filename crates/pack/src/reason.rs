//! Why the blocks of a file are not moved.

use serde::Serialize;

/// Why the blocks of a file stay where they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
#[allow(missing_docs)]
pub enum Reason {
    Missing,
    Deleted,
    NotRegular,
    Changed,
    NotReadable,
    NotWritable,
    NotExt4,
    Boot,
    SwapFile,
    Immutable,
    AppendOnly,
    Encrypted,
    Verity,
    InlineData,
    Dax,
    JournalsData,
    NoExtents,
    Holes,
    TooFragmented,
    BeingWritten,
    Executing,
    Busy,
    NotExchangeable,
}

impl Reason {
    /// The reason as a phrase after the file.
    pub fn text(self) -> &'static str {
        match self {
            Reason::Missing => "missing, or its path has a symbolic link now",
            Reason::Deleted => "was deleted when it was recorded",
            Reason::NotRegular => "not a regular file",
            Reason::Changed => "changed since it was recorded, or meanwhile",
            Reason::NotReadable => "cannot be read",
            Reason::NotWritable => "cannot be opened for writing",
            Reason::NotExt4 => "not on ext4",
            Reason::Boot => "below /boot: a boot loader may know its blocks",
            Reason::SwapFile => "an active swap file",
            Reason::Immutable => "immutable",
            Reason::AppendOnly => "append-only",
            Reason::Encrypted => "encrypted",
            Reason::Verity => "checked by fs-verity",
            Reason::InlineData => "its data lies in its inode",
            Reason::Dax => "accessed without the page cache (DAX)",
            Reason::JournalsData => "its data goes through the journal",
            Reason::NoExtents => "has a block map of ext2 or ext3, no extents",
            Reason::Holes => "has holes or unwritten ranges where it was used",
            Reason::TooFragmented => "would get too many fragments",
            Reason::BeingWritten => "open or mapped for writing",
            Reason::Executing => "being executed",
            Reason::Busy => "in use by the kernel",
            Reason::NotExchangeable => "of a kind whose blocks the kernel does not exchange",
        }
    }
}
