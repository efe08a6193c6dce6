//! What the kernel's read-ahead does for the open files of running programs: for `ahead top`.
//!
//! ```text
//!     StateQuery (iter/task_file) ── state of each open file ──┐
//!     Counters (tracepoints) ─────── counts of an interval ────┼──▶ Sampler ──▶ Sample ─┬─▶ sort, limit, as_json
//!     /proc ── command, path, control group ── Filter ─────────┘   totals, files        └─▶ explain ──▶ sentences
//! ```
//!
//! A filter comes in; samples come out, and sentences about a file. Rendering belongs to the command.
//!
//! This crate must never change anything: no window, no advice, no page in the cache, and no open file of a program.

mod explain;
mod filter;
mod json;
mod open_file;
mod page_map;
mod proc;
mod sampler;
mod sort;

pub use ahead_observe::DecisionSource;
pub use explain::{Explanation, explain};
pub use filter::Filter;
pub use json::{file_json, readahead_hit_ratio, totals_json};
pub use open_file::{Advice, Counted, OpenFile, Pattern, Totals, Window, pattern};
pub use page_map::PageMap;
pub use proc::{major_faults, mapping_advice, process_exists};
pub use sampler::{Sample, Sampler};
pub use sort::{SortKey, keep, sort};
