//! Read-ahead inside a program, for files that it reads itself: a reader that requests what comes next, so that the device works while the program
//! computes.
//!
//! ```text
//!     program ── read, seek, fill_buf ──▶ Reader ──▶ PageCache   RWF_NOWAIT fails if a page is missing
//!                                           │   ╰──▶ Direct      O_DIRECT into own buffers
//!                                           │
//!                 Reading    of ahead_policy  which way, how far, what next
//!                 Budget     one limit for all readers, shared fairly; each reader always makes progress
//!                 Requests   of ahead_fetch   FADV_WILLNEED by threads, never blocking the reader
//! ```
//!
//! Invariants:
//! - The bytes, the lengths and the errors of a [`Reader`] are those of [`std::fs::File`]. Errors of read-ahead are ignored: the read of the program
//!   reports them, at the byte where they are.
//! - What is cached costs one system call and a few comparisons. Before the first missing page nothing is requested.
//! - A child of fork(2) may use the readers of its parent: no lock, ring or thread of the parent is touched.
//! - A process that never misses a page has no thread, ring or descriptor of this crate, except those of its files.
//!
//! The design is that of PostgreSQL's read stream (size apart from depth, depth only on waits), with the shared budget of mountpoint-s3, and the groups
//! of O'Connor and Tracy (2000): one is read while the program uses the other.

mod blocks;
mod counters;
mod direct;
mod options;
mod page_cache;
mod queue;
mod reader;
mod sync;
#[cfg(test)]
mod testing;
mod version;

pub use ahead_fetch::{Budget, Share};
pub use ahead_policy::pattern::Pattern;
pub use blocks::{Block, Blocks};
pub use counters::Counters;
pub use options::ReaderOptions;
pub use reader::Reader;
