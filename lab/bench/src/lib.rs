//! Jobs with real I/O: what the papers' programs did, on real files, under the kernel's own read-ahead or under any policy.
//!
//! ```text
//!     Job ──▶ variants ──▶ readers: each a thread with its parts, told by the operations that the simulator runs
//!                                │
//!        files, cold  ───────────┤   under: the kernel, a policy (ahead-live) with n pages, or direct reads
//!        the device's counts ────┤
//!                                ▼
//!                         Observed: times, how pages were found, what the device did
//!                                │   rounds: every combination once in each, there and back
//!                                ▼
//!                              Row: medians, spread, and the ratio to the first one of the same round
//! ```
//!
//! A run is cold unless it is asked to be warm: its own files are evicted, which is checked, and an emulated drive is put into its state
//! after power-on. Nothing else of the machine is touched. How pages were found is counted by the engine where a policy
//! reads; the kernel tells nobody, so under it each call is preceded by a look into the cache, in a run of its own whose
//! times do not count.
//!
//! What it must never do: leave its files behind ([`Files`]); fill a disk; hide a run that was not cold.

mod device;
mod direct;
mod doer;
mod earlier;
mod error;
mod files;
mod gate;
mod job;
mod look;
mod rounds;
mod row;
mod run;
mod spread;

pub mod jobs;

pub use device::Device;
pub use doer::in_file;
pub use error::{Error, Result};
pub use files::{Extra, Files};
pub use gate::Gate;
pub use job::{Job, Part, Variant, Work};
pub use rounds::{Plan, Step, measure};
pub use row::Row;
pub use run::{Evicted, How, Observed, Sample, Setting, Under, UnknownWay, run, run_under_kernel};
pub use spread::Spread;
