//! The `.ahead` file: what was learned about one program's start, and how it is learned ([`learn`]).
//!
//! Input: a recording (accesses with paths, metadata blocks, milestones). Output: a [`Profile`], which `plan` turns into a
//! plan, `show` prints and the next `record --runs` merges. On disk it is CBOR after a fixed header with a version and a CRC.
//!
//! ```text
//!     learn ──▶ Profile ──encode──▶ NAME.ahead ──decode (untrusted until checked)──▶ Profile ──▶ plan, show
//!                  ▲                                                                   │
//!                  └────────────────────────── merge (runs) ◀──────────────────────────┘
//! ```
//!
//! This crate must never open, stat or read a file that a profile names (the prefetcher does, under its rules). It must never
//! panic or allocate without bound on any input, or hide that events were lost.

#![warn(missing_docs)]

mod cbor;
mod check;
mod decode;
mod encode;
mod error;
mod fit;
mod header;
mod layout;
pub mod learn;
mod merge;
mod model;
mod reader;
mod rooted;
mod timeline;

pub use check::{MAX_EXTENTS, MAX_FILES, MAX_PATH_BYTES, check, check_path};
pub use decode::{decode, decode_shared};
pub use encode::encode;
pub use error::{DecodeError, Invalid, LoadError, SaveError};
pub use fit::fit;
pub use layout::{MAGIC, MAX_FILE_BYTES};
pub use merge::{Position, join_extents, merge};
pub use model::*;
pub use rooted::{Outside, relative_to};
pub use timeline::{Thread, Timeline, TimelineSource, Wakeup, WarmUse};
