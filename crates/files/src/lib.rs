//! Files that are written in one step, profiles in files, and lists of files ([`lists`]).
//!
//! ```text
//!     Profile ──encode──▶ bytes ──save──▶ Replacement ──rename──▶ NAME.ahead ──load──▶ bytes ──decode──▶ Profile
//! ```
//!
//! Contents come in, files with their names go out, and back. This crate must never leave a file that is half written under its name, write
//! through a link of another user, or open a FIFO or a device.

pub mod lists;
mod profile;
mod recordings;
mod replacement;

pub use profile::{Access, ProfilePlace, load, save};
pub use recordings::{MERGED, RecordingStore};
pub use replacement::{Replacement, replace_in};
