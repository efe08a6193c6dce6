//! Who reads what: the BPF observer.
//!
//! In comes a process, a cgroup or the whole machine; out comes every page that it touched, with time, task and file,
//! the paths that it looked up and the programs that it ran ([`Observed`]), and from that a profile ([`to_profile`]).
//!
//! ```text
//!     kernel                                          │ user space
//!     tracepoint ─▶ followed? ─▶ new pages only ─▶ ring buffer ─▶ decode ─▶ collect ─▶ resolve paths ─▶ Profile
//!                      ▲             (bitmaps)        │              │                      ▲
//!     fork, exec, exit ┘                              │            counts of what was lost  └ mount tables, lstat
//! ```
//!
//! `bpf/` tells the kernel's half, `source` which of it fits which kernel, `tracer` how it is run, `collect` what it
//! gives, `resolve` how paths are found, `extents` what counts as used.
//!
//! What it must never do: lose an event without counting it; stay attached after its end; trust a length or a path that
//! comes from the other side; print.

mod arrivals;
mod collect;
mod decisions;
mod event;
mod evictions;
mod objects;
mod source;
mod syscalls;
mod tracer;

pub use arrivals::{Arrival, Arrivals, Arrived};
pub use decisions::Decisions;
pub use event::{DecodeError, Event, decode};
pub use evictions::{Evicted, Evictions};
pub use source::{SOURCES, Source};
pub use tracer::{Options, Scope, Tracer, check_privileges};

/// Now, on the clock of the events (CLOCK_MONOTONIC), nanoseconds.
pub fn now_ns() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}
