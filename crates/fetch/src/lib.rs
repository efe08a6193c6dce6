//! Asks the kernel for pages: the only crate that does.
//!
//! ```text
//!     reader ───────▶ Requests ─▶ Lanes ─▶ one thread with an io_uring ─╮
//!     direct reads ─╮         ╰───────╮                                 ├─▶ calls: WILLNEED in pieces that the kernel does not cut
//!     steer ────────┴▶ Workers ─▶ Lanes ─▶ few threads ─────────────────┤
//!     prefetcher ───╯                                                   │
//!     prefetch ──────▶ WorkerPool ─▶ Workers: waits for its work, gives │
//!                      up devices that do not answer                    │
//!     own thread of a device with mapped regions ───────────────────────╯
//!
//!     before a request    a place in the lane; bytes of the Budget or the Brake; BeforeRequest: a pause for others, or the end
//! ```
//!
//! In: ranges of a file or of memory, and their device. Out: requests that the kernel executes; data only by direct reads. A device has a lane: a
//! bounded queue, and few requests at the same time. One that does not answer holds its lane, and no other one.
//!
//! This crate must never decide what to fetch, wait for the data of a request in the page cache, keep a thread or a ring without work, or touch a
//! lock of the parent in a child made by fork.

mod brake;
mod budget;
pub mod calls;
mod direct_reads;
mod lanes;
pub mod own_program;
mod pool;
mod requests;
mod turns;
mod workers;

pub use brake::{BeforeRequest, Brake, LOOK_INTERVAL, Limit, Stop};
pub use budget::{Budget, Share};
pub use direct_reads::DirectReads;
pub use lanes::RUNNING;
pub use pool::{LONGEST_STILL, NOT_ANSWERING, WorkerPool};
pub use requests::Requests;
pub use turns::Turn;
pub use workers::{Job, Workers};
