//! Records the pages that a program reads, prefetches them before its next start, and accounts for the cost.
//!
//! ```text
//!     program ──▶ Recorder ──▶ Profile ──▶ store
//!                                            │
//!     program ◀── Launch ◀── Replay ◀────┘      plan ──▶ page cache ──▶ Account
//!                                                    ▲
//!     Comparison: cold, with ahead, warm             └── device_store: description of the disk
//!     Until: the end of a run that does not end by itself
//! ```
//!
//! Programs and profiles come in; pages in the page cache, profiles and accounts come out. This crate must never fail or delay the program
//! that it serves, print anything (messages for the user go to a [`Notify`]), or leave a byte out of the account.
//!
//! Besides the loop it has read-ahead inside a program (docs/guide/library.md): [`Reader`] for files that the program reads, [`advise`] for files that it maps, [`Prefetcher`] for files that it will read in an order that it knows.
//!
//! The feature `observe` (default) has recording by BPF, the comparison of programs and windows that follow a program; without it, the crate
//! only prefetches.

#![warn(missing_docs)]

#[cfg(feature = "observe")]
pub mod cold;
#[cfg(feature = "observe")]
pub mod compare;
pub mod device_store;
#[cfg(feature = "observe")]
mod drives;
mod error;
mod launch;
mod machine;
mod notify;
pub mod output;
pub mod prefetch;
#[cfg(feature = "observe")]
pub mod record;
pub mod restore;
mod stopping;
pub mod store;
#[cfg(feature = "observe")]
mod until;

pub use ahead_files::load;
pub use ahead_process::{Command, Signals};
pub use ahead_profile::Profile;
pub use ahead_read::advise::{Advised, Behaviour, Counters as AdvisedCounters, advise, advise_raw};
pub use ahead_read::prefetcher::{Counters as PrefetcherCounters, Item, Prefetcher, PrefetcherOptions, Window};
pub use ahead_read::stream::{Block, Blocks, Budget, Counters as ReaderCounters, Pattern, Reader, ReaderOptions};
#[cfg(feature = "observe")]
pub use compare::Comparison;
pub use error::{Error, Result, Stopped};
pub use launch::{Launch, Launched};
pub use machine::wait_for_machine_as_root;
pub use notify::Notify;
pub use prefetch::{Account, Replay};
#[cfg(feature = "observe")]
pub use record::Recorder;
pub use stopping::check_stopped;
#[cfg(feature = "observe")]
pub use until::Until;
