//! Jobs with real I/O: the programs of the papers, on real files, under the kernel's read-ahead or under any policy.
//!
//! ```text
//!     Job ──▶ variants ──▶ readers: each a thread with its parts, which are streams of the simulator
//!                                │
//!        files, cold  ───────────┤   read-ahead: the kernel, a policy ([`live`]) with n pages, or direct reads
//!        the device's counts ────┤
//!                                ▼
//!                         Observed: times, hits and misses, requests of the device
//!                                │   rounds: every combination once in each, in alternating order
//!                                ▼
//!                              Row: medians, spread, and the ratio to the first one of the same round
//! ```
//!
//! A run is cold unless the caller requests a warm one. The files of a cold run are evicted, with a check, and an emulated disk returns
//! to its state after power-on. A run changes nothing else on the machine. With a policy the engine counts hits and misses. The kernel
//! does not report these counts: an extra run, whose times do not count, probes the cache before each call.
//!
//! This crate must never leave its files on the disk ([`Files`]), fill a disk, or hide a run that was not cold.

mod cache_probe;
mod device;
mod direct;
mod error;
mod files;
mod gate;
mod job;
mod observed;
mod reader_thread;
mod rounds;
mod row;
mod run;
mod stale_trees;
mod traits;

pub mod jobs;
pub mod live;
pub mod report;

pub use device::Device;
pub use error::{Error, Result};
pub use files::{ExtraFile, Files};
pub use gate::Gate;
pub use job::{Job, Part, Variant, Work};
pub use observed::{Observed, Sample};
pub use reader_thread::in_file;
pub use rounds::{Plan, Step, measure};
pub use row::Row;
pub use run::{Evicted, Method, ReadAhead, RunSettings, UnknownMethod, run, run_under_kernel};
pub use traits::measure_traits;
