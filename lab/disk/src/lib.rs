//! An emulated slow disk: a real block device for the kernel, whose reads take the time of a disk model.
//!
//! Input: an image file and a model (`ahead-device`). Output: `/dev/loopN`, perhaps mounted, with counters, faults and a measurement of its
//! accuracy.
//!
//! ```text
//!   program ─▶ file system ─▶ block layer ─▶ /dev/loopN ─▶ FUSE file "image" ─▶ daemon ─▶ IMAGE
//!              page cache     scheduler,      direct I/O,   up to 1 MiB in one     │
//!              read-ahead     merging         many requests  request, many at once │
//!                                                                                  ▼
//!     reader threads:  request ─▶ arrival time ─▶ model: due at ─▶ data from IMAGE ─▶ queue by due time
//!     answer thread:                                     sleep until due ◀───────────── earliest first ─▶ answer
//! ```
//!
//! There are three processes. The daemon ([`serve`]) is the file server with its timing. It never opens the loop device or the mount: a
//! process that waits for itself cannot be killed. [`create`] and [`attach`] start the daemon, attach the loop device, set its queue, and
//! measure the speed without a model ([`floor`]). Then they make and mount the file system, and let the daemon run alone. [`detach`]
//! undoes this in reverse order. Each step is first noted for the daemon, so that `ahead restore` can undo it after a crash.
//!
//! Reads wait for the model. Writes do not, and flushes are answered at once: only reads are measured, and filling a disk should be fast.
//! The data is in IMAGE as soon as it is written.
//!
//! Reads are served in the order in which the kernel sent them. The block layer merges and sorts as for a real disk, but sends up to 128
//! requests at once to a loop device. A drive that sorts its queue is not emulated.
//!
//! This crate must never answer earlier than the model, hide a late answer, or leave a mount or loop device attached.

pub mod accuracy;
mod daemon_start;
mod filesystem;
pub mod floor;
mod launcher;
mod lifecycle;
pub mod print;
mod server;
pub mod write_log;

pub use ahead_disk::{Error, Result};
pub use filesystem::Filesystem;
pub use launcher::Launcher;
pub use lifecycle::{Attach, Create, attach, create, finish_after};
pub use server::serve;
