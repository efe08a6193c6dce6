//! The identity of a file. Its path can be given to another file, and inode numbers are reused.

use serde::{Deserialize, Serialize};
use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;
use std::time::UNIX_EPOCH;

/// A file or directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileIdentity {
    /// Device number, as stat(2) encodes it.
    pub device: u64,
    pub inode: u64,
    /// Time of birth, nanoseconds since 1970; `None` if the file system does not report it.
    pub born_ns: Option<u64>,
}

impl FileIdentity {
    /// The identity of the file with this metadata.
    pub fn of(metadata: &Metadata) -> FileIdentity {
        let born = metadata.created().ok().and_then(|time| time.duration_since(UNIX_EPOCH).ok());
        FileIdentity {
            device: metadata.dev(),
            inode: metadata.ino(),
            born_ns: born.and_then(|born| u64::try_from(born.as_nanos()).ok()),
        }
    }
}
