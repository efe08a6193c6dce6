//! The disks of this machine: their windows ([`tune`]), and the emulated ones, seen from the programs that use them: lists them, reads their
//! counters, detaches them.
//!
//! ```text
//!     list, find ◀── /run/ahead/disk/NAME.json ◀── the disk's server (laboratory)
//!     Client  ──── a line of JSON each way, over a local socket ────▶ the disk's server: counters, reads, faults
//!     detach  ──▶ unmount ──▶ detach the loop device ──▶ end the server
//! ```
//!
//! Names and requests come in, descriptions and counters go out. The server, which serves reads in the time of a model, belongs
//! to the laboratory. This crate ships, so that `ahead restore` can detach a disk and `ahead compare` can count its reads.
//!
//! This crate must never change a disk that it did not find in `/run/ahead/disk`, and never wait for a server without a timeout.

pub mod accuracy;
mod client;
mod detaching;
mod error;
mod model;
mod name;
pub mod protocol;
pub mod state;
pub mod teardown;
pub mod tune;

pub use accuracy::{Floor, Punctuality};
pub use client::Client;
pub use detaching::{detach, detach_all};
pub use error::{Error, Result};
pub use model::ModelSource;
pub use name::{default_name, is_valid_name};
pub use protocol::{ByteRange, FaultChange, Faults, Lead, Read, Stat};
pub use state::{DiskInfo, find, find_by_device, find_or_only, list};
