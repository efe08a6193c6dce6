//! Applies a policy to the real page cache: the same policy object as in the simulator, on a real kernel and a real disk.
//!
//! The kernel's read-ahead is off for the open file. Each page that a reader accesses goes through the engine, as in the
//! simulated machine. The engine submits the policy's requests to the kernel in pieces that the kernel neither cuts nor extends.
//! The *book* has the state of each page for the policy: cached, in flight, marked.
//!
//! ```text
//!     reader ── page ──▶ book: absent | in flight | cached, marked? ──▶ policy ──▶ requests
//!        │                ▲                                                           │ room in the queue? wait, or drop
//!        │                │ arrived                                                   ▼
//!        │             reapers ◀── wait for the last page of each ─── WILLNEED, at most what the kernel reads per call
//!        ▼
//!     read cached pages without waiting; wait for the others  ──▶  hit, locked, miss; time of the wait
//! ```
//!
//! - **Each use checks the book.** Pages that the book has as cached are read with `RWF_NOWAIT`. This fails if the kernel has
//!   evicted the page: the policy gets `Event::Evicted`, and the access is a miss. Pages in flight are tried in the same way: a
//!   reader that comes before the page's reaper records the arrival itself.
//! - **The reader's thread submits**, as in the kernel: the thread of the reader whose access the policy received. Only requests
//!   after an arrival are submitted by a reaper's thread.
//! - **If the queue is full**, the reader waits for room, or the rest of the request is dropped, as the request says. A request
//!   counts until all its pages have arrived. The limit is below that of the block layer, so that no submission blocks there.
//! - **The cache has single pages**, because WILLNEED creates no large folios. The book stores the folios that the policy
//!   requested, so that a policy that decides by folios decides as in a kernel with large folios.
//!
//! This crate must never read a clock or do I/O inside the policy, hold its lock during I/O, panic on an error of the disk
//! (readers get it), or change anything except its own open files.
//!
//! ```
//! use ahead_measure::bench::live::{Engine, Settings};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let path = std::env::current_exe()?;
//! let policy = ahead_policy::named("true-readahead(64)")?.build(&Default::default())?;
//! let engine = Engine::new(policy, Settings::default());
//! let mut reader = engine.open(&path)?;
//! let mut buffer = vec![0; 65_536];
//! let read = reader.read_at(&mut buffer, 0)?;
//! assert_eq!(buffer[..read], std::fs::read(&path)?[..read]);
//! println!("{:?}", engine.counters());
//! # Ok(())
//! # }
//! ```

mod book;
pub mod describe;
mod engine;
mod page_outcome;
mod reader;
mod sending;
mod state;
mod world;

pub use engine::Engine;
pub use reader::Reader;
pub use state::{Counters, Settings};

/// Why a file cannot be read through a policy.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A system call failed, or is not permitted.
    #[error("{0}")]
    Kernel(#[from] ahead_sys::Error),
    /// Opening or reading failed.
    #[error("{0}")]
    Io(#[from] std::io::Error),
    /// Only regular files have pages to read ahead.
    #[error("{0} is not a regular file")]
    NotRegular(String),
}

/// Shorthand.
pub type Result<T> = std::result::Result<T, Error>;
