//! What was learned about one program's start: the `.ahead` file.
//!
//! In comes what `trace` saw (accesses with paths, metadata blocks, milestones); out goes a [`Profile`] that `fetch`
//! turns into a plan, `show` explains and the next `record --runs` merges with. On disk it is CBOR behind a fixed
//! header with a version and a CRC.
//!
//! ```text
//!     trace ──▶ Profile ──encode──▶ NAME.ahead ──decode (hostile until checked)──▶ Profile ──▶ fetch, show
//!                  ▲                                                                  │
//!                  └────────────────────────── merge (runs) ◀─────────────────────────┘
//! ```
//!
//! What it must never do: open, stat or read a file that a profile names (that is `fetch`'s work, under its rules);
//! panic or allocate without bound on any input; hide that events were lost.

mod cbor;
mod check;
mod decode;
mod encode;
mod error;
mod file;
mod fit;
mod header;
mod merge;
mod model;
mod reader;
mod replacement;

pub use check::{MAX_PATH_BYTES, check, check_path};
pub use decode::decode;
pub use encode::encode;
pub use error::{DecodeError, Invalid, LoadError, SaveError};
pub use file::{Place, load, save};
pub use fit::fit;
pub use header::{MAGIC, MAX_FILE_BYTES};
pub use merge::{Position, merge};
pub use model::*;
pub use replacement::Replacement;
