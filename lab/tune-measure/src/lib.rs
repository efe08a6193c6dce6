//! Which read-ahead window serves a disk best, measured.
//!
//! ```text
//!     Target ──┬─ measure: each candidate is set (noted first), and jobs with real I/O run under it, cold
//!              │      one stream · several streams · scattered faults · streams and faults; or what a profile or a trace contains
//!              │      on files that are made for it, or, where nothing may be written, on parts of the device
//!              │
//!              ├─ search:  coarse, then around the best one, then the best few again, interleaved
//!              │
//!              └─ verdict: the geometric mean over the jobs of each candidate's share of the best rate; ties go to the smaller window
//! ```
//!
//! Linux has one number for a device: the longest window of a sequential stream, and the window around a fault of a mapping that is
//! accessed at scattered places, where all of it but one page may be wasted. So each window is a compromise, and the best one depends on
//! the disk: where a transfer takes long compared with an access, a fault should read little.
//!
//! A target and a workload come in, a recommendation with its evidence comes out. This crate must never leave a window set that it tried, or
//! call a difference that is noise a gain.

mod error;
mod ground;
mod measure;
mod program;
mod replay;
mod search;
mod trace;
mod verdict;
mod work;
mod wu;

pub use error::{Error, Result};
pub use measure::{Measured, Measurement, Plan, Progress, Workload, measure};
pub use search::{CANDIDATES_KB, Depth};
pub use verdict::{Candidate, Harm, Job, Verdict};
pub use wu::{Disk, Row};
