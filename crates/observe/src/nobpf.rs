//! Which program reads which pages, where the kernel has no BPF for it.
//!
//! Input: a held child, running processes or the whole machine. Output: the same observation as that of the BPF observer, so that `ahead_profile::learn`
//! makes a profile of it.
//!
//! ```text
//!     ftrace       instance of tracefs ─▶ trace_pipe_raw ─▶ page ─▶ event ─▶ collect ─▶ paths ─▶ Observation
//!                  (undo note first)      (per processor)                                ▲
//!                                                                     handles, walk ─────┘
//!     residency    evict ─▶ program runs ─▶ walk ─▶ resident pages of every file ─▶ Observation
//! ```
//!
//! Events of ftrace name a file by device and inode. `paths` finds its path after the run. Residency knows neither
//! the reader nor the time of a page: it is an upper bound, and needs empty caches before.
//!
//! It must never lose an event without counting it, leave an instance of tracefs without an undo note, trust a length or
//! a name in an event, walk a file system without a limit, or print.

mod collect;
mod event;
mod format;
mod ftrace;
mod instance;
mod page;
mod paths;
mod residency;
mod walk;

pub use ftrace::{Ftrace, Options, Scope, Unresolved};
pub use residency::Residency;
pub use walk::roots;
