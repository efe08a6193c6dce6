//! Read-ahead inside a program, by what the program knows of its reads.
//!
//! ```text
//!     it reads a file                                    [`Reader`], [`Blocks`]    finds the pattern, requests what comes next
//!     it maps a file, and knows how it goes through      [`advise`]                sees which pages are mapped, requests the next group
//!     it knows the order of its files                    [`Prefetcher`]            looks up, sorts, reads within a window
//!                                                             │
//!                                             budget, and ahead_fetch: FADV_WILLNEED by threads, a lane for each device
//! ```
//!
//! Calls of the program come in; requests for pages go out. The bytes, the lengths and the errors that the program gets are those of the
//! standard library: a failure of read-ahead is never one of the program.
//!
//! This crate must never read a byte for the program that the program would not have got, let it wait for a request, keep a thread or a ring for
//! files that are cached, or touch a lock of the parent in a child made by fork.

#![warn(missing_docs)]

pub mod advise;
pub mod prefetcher;
pub mod stream;

pub use advise::{Advised, Behaviour, advise, advise_raw};
pub use prefetcher::{Item, Prefetcher, PrefetcherOptions, Window};
pub use stream::{Block, Blocks, Budget, Pattern, Reader, ReaderOptions};
