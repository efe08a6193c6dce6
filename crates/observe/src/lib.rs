//! The BPF observer: which process reads which pages.
//!
//! Input: a process, a cgroup or the whole machine. Output: an observation, with every touched page (time, task, file), the
//! paths that were looked up and the programs that were executed. `ahead_profile::learn` makes a profile of it.
//!
//! ```text
//!     kernel                                          │ user space
//!     tracepoint ─▶ followed? ─▶ new pages only ─▶ ring buffer ─▶ decode ─▶ collect ─▶ Observation ─▶ ahead_profile::learn
//!                      ▲             (bitmaps)        │              │
//!     fork, exec, exit ┘                              │            lost events are counted
//! ```
//!
//! Beside that, for `ahead top` and `ahead steer`: the kernel's read-ahead state of every open file ([`StateQuery`]), and what it decides,
//! how long readers wait and what is wasted ([`Counters`]).
//! [`Launches`] announces every exec of the machine, and counts how long each start waits for I/O.
//!
//! Where the kernel has no BPF for it, [`nobpf`] makes the same observation.
//!
//! `bpf/` is the kernel's half. `source` selects the programs for this kernel, `tracer` runs them, `collect` collects their
//! events.
//!
//! This crate must never lose an event without counting it, stay attached after its end, trust a length or a path in an event, or
//! print.

mod arrivals;
mod awaited;
mod cached;
pub mod calls;
mod collect;
mod counters;
mod decisions;
mod event;
mod evictions;
mod fields;
mod launches;
#[cfg(test)]
mod layout;
pub mod nobpf;
mod objects;
mod process_files;
mod program_file;
mod progress;
mod reader;
mod source;
mod state;
mod syscalls;
mod tracer;

pub use arrivals::{Arrival, Arrivals, Arrived};
pub use awaited::{AwaitedStart, FirstExec};
pub use cached::cached_files;
pub use counters::{
    AccessCounts, CounterOptions, Counters, DecidedPage, DecisionEvents, DecisionSource, Detail, LAST_PAGES,
    MachineCounters, OpenCounters, Sources, TableIds, Tables,
};
pub use decisions::Decisions;
pub use event::{DecodeError, Event, decode};
pub use evictions::{Evicted, Evictions};
pub use launches::{Launch, LaunchEvent, LaunchLosses, LaunchOptions, Launches, StartAccount, StartId};
pub use process_files::ProcessFiles;
pub use program_file::ProgramFile;
pub use progress::{ProgressEvents, WatchedFile};
pub use source::{SOURCES, Source};
pub use state::{OpenState, StateQuery};
pub use tracer::{Options, Scope, Tracer, check_cgroup, check_privileges};

/// The clock of the events (CLOCK_MONOTONIC). Unit: nanoseconds.
pub fn now_ns() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}
