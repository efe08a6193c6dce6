//! A policy drives the real page cache: the very object that the simulator runs, on a real kernel and a real disk.
//!
//! The kernel's own read-ahead is switched off for the open file; what a reader wants goes through here page by page, as in
//! the simulator's machine. What the policy asks for is asked of the kernel in pieces that it neither cuts nor extends, and
//! the book tells the policy what is cached, what is on its way, and where it set its marks.
//!
//! ```text
//!     reader ── page ──▶ book: absent | on its way | there, marked? ──▶ policy ──▶ requests
//!        │                ▲                                                           │ room in the queue? wait, or drop
//!        │                │ arrived                                                   ▼
//!        │             reapers ◀── wait for the last page of each ──── WILLNEED, no longer than the kernel takes at once
//!        ▼
//!     read what is there without waiting; wait for what is not  ──▶  hit, locked, miss; waited so long
//! ```
//!
//! - **The book is checked by use.** What it calls present is read with `RWF_NOWAIT`, which fails where the kernel has evicted
//!   the page meanwhile: then the policy hears of that (`Event::Evicted`), and it is a miss. What it calls locked is tried in
//!   the same way: a reader that comes before the page's reaper notes the arrival itself.
//! - **The asking thread submits**, as in the kernel: the thread of the reader whose access the policy received. Only requests
//!   at an arrival go out from a reaper's thread.
//! - **A full queue** makes the reader wait for room or loses the rest of the request, as the request says; requests are
//!   counted until all their pages have arrived. Its limit is below the block layer's own, so that no submission blocks there.
//! - **The cache holds single pages**, for WILLNEED brings no large folios. The book keeps those that a policy asked for, so that one
//!   that decides by folios decides as the kernel would that has them.
//!
//! What it must never do: read a clock or do I/O on a policy's behalf inside the policy; hold its lock during I/O; panic on
//! an error of the disk (readers get it); change anything beyond its own open files.
//!
//! ```
//! use ahead_live::{Engine, Settings};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let path = std::env::current_exe()?;
//! let policy = ahead_policy::named("true-readahead(64)")?.build(&Default::default())?;
//! let engine = Engine::new(policy, Settings::default())?;
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
