//! The errors of a profile, each with its position.

use std::io;
use std::path::PathBuf;
use thiserror::Error;

/// A value that a profile must not contain.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{place}: {reason}")]
#[non_exhaustive]
pub struct Invalid {
    /// The entry: `files[3].extents[0]`.
    pub place: String,
    /// The problem.
    pub reason: String,
}

/// Why bytes are not a profile.
#[derive(Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum DecodeError {
    /// The first bytes are not those of a profile.
    #[error("not an ahead profile (byte 0: the signature is missing); name a file that `ahead record` wrote")]
    NotAProfile,
    /// Written by a newer `ahead`.
    #[error(
        "format version {major}.{minor} is newer than this ahead can read ({}.x); upgrade ahead, or record again \
         with this version",
        crate::layout::MAJOR
    )]
    Newer {
        /// Major version of the file.
        major: u16,
        /// Minor version of the file.
        minor: u16,
    },
    /// A header field has an invalid value.
    #[error("damaged header (byte {offset}: {reason}); record again")]
    Header {
        /// Offset of the field.
        offset: u64,
        /// The problem.
        reason: String,
    },
    /// The file ends too early.
    #[error("truncated at byte {have} of {want}; record again")]
    Truncated {
        /// Length of the file.
        have: u64,
        /// Length in the header (or of the header itself).
        want: u64,
    },
    /// There are bytes after the body.
    #[error("damaged: {extra} bytes follow the end at byte {offset}; record again")]
    Trailing {
        /// End of the profile.
        offset: u64,
        /// Number of bytes after it.
        extra: u64,
    },
    /// The checksum does not match.
    #[error(
        "damaged: bytes 0 to {end} have checksum {computed:08x}, but byte {} says {stored:08x}; record again",
        crate::layout::CHECKSUM_AT
    )]
    Checksum {
        /// Length of the file.
        end: u64,
        /// Checksum in the header.
        stored: u32,
        /// Checksum of the bytes.
        computed: u32,
    },
    /// The file is larger than a profile may be.
    #[error("{bytes} bytes are more than a profile may have ({limit})")]
    TooLarge {
        /// Size found.
        bytes: u64,
        /// Size allowed.
        limit: u64,
    },
    /// The body is not the CBOR of a profile.
    #[error("malformed, so not written by ahead: byte {offset} ({place}): {reason}")]
    Malformed {
        /// Offset in the file.
        offset: u64,
        /// The entry.
        place: String,
        /// The problem.
        reason: String,
    },
    /// Well-formed, but with a value that a profile must not contain.
    #[error("invalid, so not written by ahead: {0}")]
    Invalid(#[from] Invalid),
}

/// Why a profile could not be loaded.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum LoadError {
    /// The file could not be opened or read.
    #[error("cannot read {}: {source}", path.display())]
    Io {
        /// The profile.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The path is a directory, FIFO, device or socket.
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
        /// The problem.
        source: DecodeError,
    },
}

/// Why a profile could not be saved. The file that was at the path before is unchanged, and no other file is left.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum SaveError {
    /// It contains a value that loading would refuse.
    #[error("this profile cannot be saved: {0}")]
    Invalid(#[from] Invalid),
    /// It is larger than loading would accept.
    #[error("this profile would have {bytes} bytes, more than the maximum of {limit}; record a shorter run")]
    TooLarge {
        /// Size of the profile.
        bytes: u64,
        /// Maximum size.
        limit: u64,
    },
    /// No space, or no quota, left.
    #[error("no space left to save {}; free some space, or save elsewhere", path.display())]
    NoSpace {
        /// The path of the profile.
        path: PathBuf,
    },
    /// The path is not a regular file.
    #[error("cannot save to {}: {kind} has that path", path.display())]
    NotAFile {
        /// The path of the profile.
        path: PathBuf,
        /// `a directory`, `a FIFO`.
        kind: &'static str,
    },
    /// The path leads to another directory than before the run.
    #[error("cannot save {}: its directory was moved, replaced or removed during the run; save elsewhere", path.display())]
    Moved {
        /// The path of the profile.
        path: PathBuf,
    },
    /// Any other failure.
    #[error("cannot save {}: {step}: {source}", path.display())]
    Io {
        /// The path of the profile.
        path: PathBuf,
        /// The operation that failed.
        step: &'static str,
        /// The system's error.
        source: io::Error,
    },
}
