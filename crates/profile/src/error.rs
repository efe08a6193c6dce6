//! What can be wrong with a profile, always with the place where it is wrong.

use std::io;
use std::path::PathBuf;
use thiserror::Error;

/// A value that no profile may hold, wherever it came from.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{place}: {reason}")]
pub struct Invalid {
    /// Which entry: `files[3].extents[0]`.
    pub place: String,
    /// What is wrong with it.
    pub reason: String,
}

/// Why bytes are not a profile.
#[derive(Debug, PartialEq, Eq, Error)]
pub enum DecodeError {
    /// The first bytes are not those of a profile.
    #[error("not an ahead profile (byte 0: the signature is missing); name a file that `ahead record` wrote")]
    NotAProfile,
    /// Written by a newer `ahead`.
    #[error(
        "format version {major}.{minor} is newer than this ahead can read ({}.x); upgrade ahead, or record again \
         with this one",
        crate::header::MAJOR
    )]
    Newer {
        /// Major version of the file.
        major: u16,
        /// Minor version of the file.
        minor: u16,
    },
    /// A header field has a value that this version never writes.
    #[error("damaged header (byte {offset}: {reason}); record again")]
    Header {
        /// Where the field starts.
        offset: u64,
        /// What is wrong with it.
        reason: String,
    },
    /// The file ends early.
    #[error("truncated: it ends at byte {have} of {want}; record again")]
    Truncated {
        /// Length that was found.
        have: u64,
        /// Length that the header promises (or the header's own).
        want: u64,
    },
    /// There is something behind the body.
    #[error("damaged: it should end at byte {offset}, and goes on for {extra}; record again")]
    Trailing {
        /// Where the profile ends.
        offset: u64,
        /// How many bytes follow.
        extra: u64,
    },
    /// The checksum does not match.
    #[error(
        "damaged: the checksum of bytes 0 to {end} is {computed:08x}, and byte {} says {stored:08x}; record again",
        crate::header::CHECKSUM_AT
    )]
    Checksum {
        /// Length of the file.
        end: u64,
        /// What the header says.
        stored: u32,
        /// What the bytes give.
        computed: u32,
    },
    /// More than a profile may take.
    #[error("{bytes} bytes are more than a profile may have ({limit})")]
    TooLarge {
        /// Size found.
        bytes: u64,
        /// Size allowed.
        limit: u64,
    },
    /// The CBOR of the body is not what it should be.
    #[error("malformed, so not written by ahead: byte {offset} ({place}): {reason}")]
    Malformed {
        /// Offset in the file.
        offset: u64,
        /// Which entry.
        place: String,
        /// What is wrong with it.
        reason: String,
    },
    /// Well-formed, but with a value that no profile may hold.
    #[error("refused, for ahead would not write this: {0}")]
    Invalid(#[from] Invalid),
}

/// Why a profile could not be loaded.
#[derive(Debug, Error)]
pub enum LoadError {
    /// The file could not be opened or read.
    #[error("cannot read {}: {source}", path.display())]
    Io {
        /// The profile.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// It is a directory, FIFO, device or socket.
    #[error("{} is {kind}, not a profile: name a file that `ahead record` wrote", path.display())]
    NotAFile {
        /// The profile.
        path: PathBuf,
        /// `a directory`, `a FIFO`.
        kind: &'static str,
    },
    /// Its contents are not a profile.
    #[error("{}: {source}", path.display())]
    Decode {
        /// The profile.
        path: PathBuf,
        /// What is wrong with it.
        source: DecodeError,
    },
}

/// Why a profile could not be saved. Whatever was at the path before is still there, and nothing else is.
#[derive(Debug, Error)]
pub enum SaveError {
    /// It holds a value that loading would refuse.
    #[error("this profile cannot be saved: {0}")]
    Invalid(#[from] Invalid),
    /// It is larger than loading would accept.
    #[error("this profile would take {bytes} bytes, more than the {limit} a profile may have: record a shorter run")]
    TooLarge {
        /// Size it would have.
        bytes: u64,
        /// Size allowed.
        limit: u64,
    },
    /// No space, or no quota, left.
    #[error("no space left to save {}: free some, or save elsewhere with -o", path.display())]
    NoSpace {
        /// Where it should have gone.
        path: PathBuf,
    },
    /// Something that is no file stands there.
    #[error("cannot save to {}: {kind} is in the way", path.display())]
    NotAFile {
        /// Where it should have gone.
        path: PathBuf,
        /// `a directory`, `a FIFO`.
        kind: &'static str,
    },
    /// The path leads to another directory than before the run.
    #[error("cannot save {}: its directory was moved, replaced or removed during the run: name another place with -o", path.display())]
    Moved {
        /// Where it should have gone.
        path: PathBuf,
    },
    /// Any other failure.
    #[error("cannot save {}: {step}: {source}", path.display())]
    Io {
        /// Where it should have gone.
        path: PathBuf,
        /// What was being done.
        step: &'static str,
        /// The system's error.
        source: io::Error,
    },
}
