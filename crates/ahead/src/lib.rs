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

pub mod device_store;
mod error;
pub mod prefetch;
pub mod record;
pub mod store;
pub mod until;

pub use ahead_profile::Profile;
pub use error::{Error, Result, Stopped};
pub use prefetch::Account;
