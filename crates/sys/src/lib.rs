//! Every system call, ioctl and kernel file that `ahead` uses: the only crate with `unsafe`.
//!
//! Plain values go in (file descriptors, ranges, paths); plain values come out, and [`Error`]s that say what to do. Nothing here decides
//! anything: no policy, no plan, no format, and no change of the system is noted here. A change that has to be undone goes through
//! `ahead-undo`, which notes how to undo it *before* it is made.
//!
//! What this crate must never do: hide an error behind a default; follow a path that its caller did not give.

pub mod allocation;
pub mod bdi;
pub mod block;
pub mod cache;
pub mod cgroup;
pub mod daemon;
pub mod direct;
pub mod directory;
pub mod diskstats;
mod error;
pub mod errors_stream;
pub mod evict;
pub mod exec;
pub mod fiemap;
pub mod file_identity;
pub mod filehandle;
pub mod fork;
pub mod fsuuid;
pub mod generation;
pub mod holders;
pub mod local_socket;
pub mod loopdev;
pub mod machine;
pub mod mapping;
pub mod memory;
pub mod mounting;
pub mod mounts;
pub mod openat;
pub mod place;
pub mod polling;
pub mod pressure;
pub mod priority;
pub mod process_id;
pub mod signals;
pub mod sparse;
pub mod tasks;
pub mod usage;
pub mod user;
pub mod within;
pub mod xfs;

pub use error::{Error, Result};
