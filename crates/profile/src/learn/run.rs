//! The observed run and its machine.

use crate::PathBytes;
use ahead_model::{DeviceNumber, Mount};
use std::collections::BTreeSet;
use std::time::{Duration, SystemTime};

/// The observed run.
#[derive(Clone, Debug)]
pub struct Run {
    /// The command, one entry per argument; empty if none was started.
    pub command: Vec<Vec<u8>>,
    /// Its working directory.
    pub directory: PathBytes,
    /// Time of its release to exec, on CLOCK_MONOTONIC.
    pub started_ns: u64,
    /// Time of its end, on CLOCK_MONOTONIC. What was read later does not count.
    pub ended_ns: u64,
    /// Time at which it was ready, as requested, on CLOCK_MONOTONIC; `None`: it was not.
    pub ready_ns: Option<u64>,
    /// The wall clock at `started_ns`.
    pub started: SystemTime,
    /// Processor time of the program and its descendants; zero if unknown.
    pub cpu: Duration,
    /// Whether all caches were evicted before.
    pub cold: bool,
    /// Whether it was cold, and exactly the used pages are seen: the read-ahead of every device was at 0, or each fault mapped one page
    /// and accesses to cached pages are seen.
    pub precise: bool,
    /// Whether the read-ahead of every device was at 0, so that every page added to the cache was used.
    pub read_ahead_off: bool,
    /// Smallest folio that one fault maps completely, pages. Its other pages may be used without an event.
    pub mapped_folio_pages: u64,
    /// Whether each fault mapped only one page.
    pub single_faults: bool,
}

/// The machine of the run.
#[derive(Clone, Debug, Default)]
pub struct Host {
    /// Release of its kernel.
    pub kernel: String,
    /// Processors and memory, as text.
    pub machine: String,
    /// Size of a page, bytes.
    pub page_bytes: u64,
    /// Memory limit, bytes: [`crate::learn::memory_limit_bytes`].
    pub memory_bytes: usize,
    /// The mount table of the recorder.
    pub mounts: Vec<Mount>,
    /// Files that the recorder itself has mapped, by device and inode number. Before its exec the program is a copy of the
    /// recorder, and may add their pages to the cache.
    pub own_files: BTreeSet<(DeviceNumber, u64)>,
    /// Time of the evaluation, on CLOCK_MONOTONIC.
    pub now_ns: u64,
}
