//! What the example programs share: the way in which a file is read, the processor time of each block, and the report.
//!
//! ```text
//!     file ── Source: plain | fadvise | ahead | ahead-direct ──▶ block ──▶ the program's work
//!                                                                 │
//!                                  Compute: processor time per MiB, set by a benchmark
//!                                                                 ▼
//!     Stopwatch ── elapsed, processor time ──▶ Report ──▶ one line of JSON with --json
//! ```
//!
//! Each program does the same work in each way, so that a difference in time is the difference of the ways.

mod compute;
mod mapped;
mod report;
mod source;
pub mod sqlite;

pub use compute::Compute;
pub use mapped::map;
pub use report::{Report, Stopwatch, finish, late_items, peak_memory_bytes};
pub use source::{Memory, Source, Way};

/// Parses a size as in `64K` or `1G`, for the options of the programs.
///
/// Errors: a sentence for the user.
pub fn size(text: &str) -> Result<u64, String> {
    ahead_model::quantity::parse_size(text)
}
