//! Every system call, ioctl and kernel file that `ahead` uses: the only crate with `unsafe`.
//!
//! Plain values go in (file descriptors, ranges, paths); plain values and [`Error`]s come out. No policy, plan or format is in
//! this crate, and no change of the system is noted here. A change that has to be undone goes through `ahead_process::undo`, which
//! writes a note *before* the change.
//!
//! This crate must never hide an error behind a default, and never follow a path that its caller did not give.

pub mod advice;
pub mod allocation;
pub mod background;
pub mod bdi;
pub mod block;
pub mod cache;
pub mod cgroup;
pub mod daemon;
pub mod descriptors;
pub mod direct;
pub mod directory;
pub mod diskstats;
mod error;
pub mod errors_stream;
pub mod evict;
pub mod exec;
pub mod exec_call;
pub mod ext4;
pub mod fanotify;
pub mod fiemap;
pub mod file_identity;
pub mod filehandle;
pub mod fork;
pub mod fork_count;
pub mod fsuuid;
pub mod generation;
pub mod held_calls;
pub mod holders;
pub mod large_folio;
pub mod local_socket;
pub mod locks;
pub mod loopdev;
pub mod machine;
pub mod mapping;
pub mod maps;
pub mod memory;
pub mod mounting;
pub mod mounts;
pub mod openat;
pub mod other_process;
mod own_pow;
pub mod pagemap;
pub mod polling;
pub mod pressure;
pub mod priority;
pub mod process_id;
pub mod reserve;
pub mod ring;
pub mod root;
mod rooted;
pub mod seccomp;
pub mod signals;
pub mod sparse;
pub mod tasks;
pub mod trusted;
pub mod usage;
pub mod user;
pub mod walk;
pub mod within;
pub mod xfs;

pub use error::{Error, Result};
