//! The program's own timeline: when each use comes if nothing has to be read from a disk, and what has to happen before.
//!
//! ```text
//!     thread 0   ├─ use ── 12 ms ── use ─┬─ 3 ms ────────┬─ use ──┤        each thread advances by its processor time
//!     thread 1                           └─ use ── use ──┘                started by thread 0 at 12 ms, wakes it at its end
//! ```
//!
//! Times in a cold recording contain the waits for the disk, so they do not say when a use comes if its pages are there already.

use serde::{Deserialize, Serialize};

/// The timeline of one run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Timeline {
    /// Where its times come from.
    pub source: TimelineSource,
    /// From the exec to the program's end with everything cached, microseconds.
    pub warm_us: u64,
    /// Processor time of reading one page, which the clocks of a recording without read-ahead include and a run with everything cached does not
    /// have, nanoseconds. 0: not known.
    #[serde(default)]
    pub reading_ns: u64,
    /// The threads, in the order in which they were started. The first one is the program's first thread: its end is the program's end.
    pub threads: Vec<Thread>,
    /// What one thread does only after another one, in order of time.
    pub wakeups: Vec<Wakeup>,
}

/// Where the times of a timeline come from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TimelineSource {
    /// From the threads' processor clocks, sleeps and wake-ups in a run that waited for the disk: the waits for I/O are left out.
    #[default]
    ProcessorClocks,
    /// From a run with everything cached.
    WarmRun,
}

/// A thread of the program or of a process that it started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Thread {
    /// The thread that started it, as an index that is lower than its own; `None`: unknown, or the first one.
    pub parent: Option<u32>,
    /// The processor time of that thread then, microseconds.
    pub parent_cpu_us: u64,
    /// Its processor time at its end, or at the end of the recording, microseconds.
    pub cpu_us: u64,
}

/// One thread waits, without I/O, until another one wakes it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Wakeup {
    /// The thread that wakes, as an index.
    pub by: u32,
    /// Its processor time then, microseconds.
    pub by_cpu_us: u64,
    /// The thread that is woken, as an index.
    pub woken: u32,
    /// Its processor time then, microseconds.
    pub woken_cpu_us: u64,
}

/// The first use of an extent on the program's own timeline.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WarmUse {
    /// Time since exec with everything cached, microseconds.
    pub time_us: u64,
    /// The thread that used it, an index into [`Timeline::threads`].
    pub thread: u32,
    /// Its processor time then, microseconds.
    pub cpu_us: u64,
}
