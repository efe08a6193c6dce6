//! Learns what a run has used: converts observed events to a profile.
//!
//! ```text
//!     Observation ──┬─ accesses by file ──▶ used pages ──▶ extents, in order of first use, with their places on the disk ──┐
//!     (events)      ├─ files ──▶ paths that can be opened, and the paths that the program saw                              ├──▶ Profile
//!                   ├─ lookups ──▶ paths whose metadata is needed                                                          │
//!                   ├─ execs ──▶ milestones ───────────────────────────────────────────────────────────────────────────────┤
//!                   └─ threads ──▶ the program's own timeline, without waits for the disk ─────────────────────────────────┘
//!                                     ▲
//!                          FileSystem: stat, names of a directory, positions of blocks (a trait: the machine, or a test's table)
//! ```
//!
//! Events and answers of a file system come in; a profile and counts of omitted items go out. This crate makes no system call:
//! it queries the machine only through [`FileSystem`].
//!
//! It must never trust a path, a number or a length in an event, keep more than [`Host::memory_bytes`] allows, or omit
//! something without counting it.

mod extents;
mod filesystem;
mod first_start;
mod lookups;
mod memory_limit;
mod observation;
mod profile;
mod renamed;
mod resolve;
mod run;
#[cfg(test)]
mod testing;
mod timeline;

pub use extents::split_by_position;
pub use filesystem::{FileSystem, Names, Stat};
pub use first_start::written_files;
pub use memory_limit::{MemoryLimit, memory_limit_bytes};
pub use observation::{
    Access, AccessKind, Counters, ExecSeen, FileSeen, LookupSeen, Observation, ThreadChange, ThreadSeen,
};
pub use profile::{LeftOut, to_profile};
pub use resolve::{FilePlace, Resolver, places};
pub use run::{Host, Run};
