//! Read-ahead for a program that knows the order in which it will read its files: data loaders with shuffled files, index scans, builds.
//!
//! ```text
//!     items       0   1   2   3   4   5   6   7   8   9  10  11  12  …
//!                 ├ consumed ─┤ ▲ ├── window: read ahead ──┤├ looked up ┤
//!                               │                          (metadata only)
//!                            taken: the program reads it
//!
//!     program ──next()──▶ item 3          an item that was not read ahead is read by the program as without a Prefetcher
//!        │ hands items over, up to 4,096 ahead
//!        ▼
//!     workers   look up   path, inode, position; which pages are resident          far ahead, cheap to hold
//!               read      the item's range into the page cache                     within the window, in the order of the disk
//! ```
//!
//! The items come out unchanged and in their order. `next()` waits for nothing, with one exception: a rotating disk is read in sweeps, and a read of
//! the program in the middle of one would cost two long moves of the head. There `next()` waits until its item is requested.
//!
//! Taking an item means that the items before it are consumed: their part of the window is free again. The window is filled in batches, when half
//! of it is empty, so that the requests of a batch can be sorted by their position on the disk; while a sweep is under way, at once.
//!
//! ```no_run
//! for item in ahead_read::Prefetcher::new(["a.jpg", "b.jpg", "c.jpg"]) {
//!     let image = std::fs::read(&item.path)?;
//!     // …
//! #   drop(image);
//! }
//! # std::io::Result::Ok(())
//! ```
//!
//! Works for every file system with a page cache. Only regular files are opened; devices, FIFOs and sockets are not. Files that are missing or
//! unreadable are skipped and counted: the program gets its own error when it opens them.
//!
//! If the files are cached already, the workers check only every 64th item until one is not. If a file system does not answer, its items keep
//! the workers that look them up; with all workers blocked nothing more is read ahead, and the iteration goes on as without a Prefetcher.

mod item;
mod iteration;
mod lookup;
mod options;
mod workers;

pub use item::Item;
pub use iteration::Prefetcher;
pub use options::{Counters, PrefetcherOptions, Window};
