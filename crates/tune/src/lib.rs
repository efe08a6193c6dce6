//! The read-ahead window of a disk: which one serves it best, and how it stays.
//!
//! ```text
//!     path ──▶ Target: the backing device whose window governs it, and what tells it from all others
//!                 │
//!                 ├─ measuring: each candidate is set (noted first), and jobs with real I/O run under it, cold
//!                 │      one stream · several streams · faults here and there · streams and faults; or what a profile or a trace says
//!                 │      on files that are made for it, or, where nothing may be written, on parts of the device
//!                 │
//!                 ├─ search: coarse, then around the best one, then the best few again, in turn
//!                 │
//!                 ├─ verdict: the geometric mean over the jobs of each one's part of its best; ties go to the smaller window
//!                 │
//!                 └─ keeping: the value that was there is written down, the new one set, and a udev rule, or a systemd unit
//!                        where no udev event tells of the target, sets it again after a restart
//! ```
//!
//! Linux has one number for a device: the longest window of a stream that is read in a row, and the window around a fault of a
//! mapping that is read here and there, where all of it but a page may be for nothing. So each window is a compromise, and the
//! best one depends on the disk: where a transfer takes long by comparison with an access, a fault should bring little.
//!
//! What it must never do: leave a window that it tried; set that of another device than the one named; write a rule that
//! could name another one; call a difference that is noise a gain.

mod below;
mod device;
mod error;
mod ground;
mod identity;
mod keep;
mod measure;
mod program;
mod replay;
mod rule;
mod search;
mod system;
mod target;
mod trace;
mod value;
mod verdict;
mod work;
mod wu;

pub use error::{Error, Result};
pub use identity::Identity;
pub use keep::{Checked, Restored, Set, Settings, Store, Window};
pub use measure::{Measured, Measurement, Plan, Progress, Workload, measure};
pub use search::{CANDIDATES_KB, Depth};
pub use system::System;
pub use target::{Kind, Target, all, find};
pub use verdict::{Candidate, Harm, Job, Verdict};
pub use wu::{Disk, Row};
