//! Every system call, ioctl and kernel file that `ahead` uses: the only crate with `unsafe`.
//!
//! In come plain values (file descriptors, ranges, paths); out come plain values and [`Error`]s that say what to do.
//! Nothing here decides anything: no policy, no plan, no format. Whatever changes the system (a setting, a mount, a
//! loop device) goes through [`undo`], which writes down how to take it back *before* it is done.
//!
//! What it must never do: leave the machine changed after success, error, signal or crash; hide an error behind a
//! default; follow a path it was not given.

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
pub mod family;
pub mod fiemap;
pub mod filehandle;
pub mod fsuuid;
pub mod generation;
pub mod holders;
pub mod home;
pub mod local_socket;
pub mod loopdev;
pub mod machine;
pub mod mapping;
pub mod memory;
pub mod mounting;
pub mod mounts;
pub mod openat;
pub mod place;
pub mod pressure;
pub mod priority;
pub mod process;
pub mod sparse;
pub mod tasks;
pub mod undo;
pub mod usage;
pub mod user;
pub mod within;
pub mod worker;
pub mod xfs;

pub use error::{Error, Result};
