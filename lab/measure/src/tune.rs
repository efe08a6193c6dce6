//! Measures which read-ahead window serves a disk best.
//!
//! ```text
//!     Target ──┬─ measure: sets each candidate (after a note for undo) and runs jobs with real I/O under it, cold
//!              │      one stream · several streams · scattered faults · streams and faults; or the reads of a profile or a trace
//!              │      on files made for the jobs, or, where writing is not possible, on regions of the device
//!              │
//!              ├─ search:  coarse, then around the best candidate, then the best few again, interleaved
//!              │
//!              └─ verdict: geometric mean over the jobs of each candidate's share of the best rate; the smaller window wins a tie
//! ```
//!
//! Linux has one number for a device. It limits the window of a sequential stream. It is also the window around a fault in a mapping that
//! is accessed at scattered places. There, all of the window but one page may be wasted. So each window is a compromise. The best window
//! depends on the disk: where a transfer takes long compared with an access, a fault should read little.
//!
//! Input: a target and a workload. Output: a recommendation with its evidence. This crate must never leave a tried window set, and must
//! never report noise as a gain.

mod error;
mod measure;
mod profile_workload;
mod regions;
mod replay;
mod search;
mod trace_workload;
mod verdict;
mod work;
mod wu;

pub use error::{Error, Result};
pub use measure::{Measured, Measurement, Plan, Progress, Workload, measure};
pub use search::{CANDIDATES_KB, Depth};
pub use verdict::{Candidate, Harm, Job, Verdict};
pub use wu::{Disk, Row};
