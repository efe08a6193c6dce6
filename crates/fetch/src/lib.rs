//! Asks the kernel for pages: the only crate that does.
//!
//! ```text
//!     reader ───────▶ Requests ─╮
//!     direct reads ─────────────┤  (by an io_uring where they may)
//!     steer ────────────────────┼▶ Workers ─▶ Lanes ─▶ few threads ─╮
//!     prefetcher ───────────────┤                                   ├─▶ calls: BeforeRequest, then WILLNEED in pieces
//!     prefetch ───▶ WorkerPool ─╯                                   │   that the kernel does not cut
//!     own thread of a device with mapped regions ───────────────────╯
//!
//!     a request    bytes of the Budget or the Brake ─▶ a place in the lane ─▶ BeforeRequest: others go first ─▶ the call
//! ```
//!
//! In: ranges of a file or of memory, and their device. Out: requests that the kernel executes; data only by direct reads. A device has a lane: a
//! bounded queue, and few requests at the same time. One that does not answer holds its lane, and no other one. [`YieldToReaders`] lets all other
//! programs read first.
//!
//! This crate must never decide what to fetch, wait for the data of a request in the page cache (but a block's), keep a thread without work, or touch a
//! lock of the parent in a child made by fork.

mod before_request;
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
mod yielding;

pub use before_request::{BeforeRequest, is_paused, set_before_request};
pub use brake::{Brake, LOOK_INTERVAL, Limit, Stop};
pub use budget::{Budget, Share};
pub use direct_reads::DirectReads;
pub use lanes::RUNNING;
pub use pool::{LONGEST_STILL, NOT_ANSWERING, WorkerPool};
pub use requests::Requests;
pub use turns::Turn;
pub use workers::{Job, Workers};
pub use yielding::YieldToReaders;
