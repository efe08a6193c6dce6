//! An emulated slow disk: a real block device on which the kernel does everything that it does with a real disk, and
//! whose reads take the time that a model says.
//!
//! In: an image file and a model (`ahead-device`). Out: `/dev/loopN`, perhaps mounted, with counters, faults and a
//! measure of how true its times are.
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
//! Three processes take part. The daemon ([`serve`]) is nothing but the file server and its timing: it never opens the
//! loop device or the mount, because a process that waits for itself cannot be killed. [`create`] and [`attach`] start
//! it, attach the loop device, set its queue, measure how fast the whole rig is without a model ([`floor`]), make and
//! mount the file system, and only then let the daemon go on alone. [`detach`] takes everything down in the opposite
//! order. Each step is noted first as the daemon's, so that `ahead restore` takes everything down after a crash.
//!
//! Reads wait for the model. Writes do not, and flushes are answered at once: what is measured here is reading, and
//! filling a disk should be quick. The data is in IMAGE as soon as it is written.
//!
//! Reads are served in the order in which the kernel sent them. The block layer above merges and sorts as it does for a
//! real disk, but gives a loop device up to 128 requests at once; a drive that sorts its own queue is not emulated.
//!
//! What it must never do: answer earlier than the model because its data happened to be cached; hide that it was late;
//! leave a mount or loop device behind.

mod filesystem;
pub mod floor;
mod lifecycle;
pub mod punctual;
mod server;
mod starting;

pub use ahead_disk::{Error, Result};
pub use filesystem::Filesystem;
pub use lifecycle::{Attach, Create, Launcher, attach, create, finish_after};
pub use server::serve;
