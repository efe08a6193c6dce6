//! The loop as a library: watch what a program reads, predict what it will read, fetch it before it is asked for, account for what that
//! cost.
//!
//! ```text
//!     Observation ──▶ record: used pages, paths ──▶ profile
//!     profile ──▶ prefetch: plan ──▶ page cache ──▶ Account
//!     store    where the profile of a command is kept
//!     device_store    where the description of a device is kept
//!     until    when a run of a program that does not end by itself is over
//! ```
//!
//! Profiles come in, pages in the page cache and accounts come out. This crate must never fail or delay the program that it serves, print
//! anything, or leave a byte unaccounted for.

pub mod cold;
pub mod compare;
pub mod device_store;
mod drives;
mod error;
pub mod launch;
mod machine;
pub mod output;
pub mod prefetch;
pub mod record;
pub mod restore;
pub mod stopping;
pub mod store;
pub mod until;

pub use ahead_process::{Command, Signals};
pub use ahead_profile::{Profile, load};
pub use compare::Comparison;
pub use error::{Error, Result, Stopped};
pub use machine::{Notify, wait_for_machine, wait_for_machine_as_root};
pub use prefetch::{Account, Prefetcher};
#[cfg(feature = "observe")]
pub use record::Recorder;
pub use until::Until;
