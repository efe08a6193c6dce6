//! The result of a run.

use crate::bench::live::Counters;
use ahead_sys::diskstats::Reads;
use serde::Serialize;

/// Times until a moment of a run, seconds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Sample {
    /// Time since the beginning.
    pub at_s: f64,
    /// User time of this process until then.
    pub user_s: f64,
    /// System time of this process until then.
    pub system_s: f64,
    /// Bytes read until then.
    pub read_bytes: u64,
}

/// The result of a run. Times in nanoseconds.
#[derive(Clone, Debug, Default)]
pub struct Observed {
    /// From the beginning to the end of the last reader.
    pub elapsed_ns: u64,
    /// User time of the readers and the engine.
    pub user_ns: u64,
    /// System time of the readers and the engine.
    pub system_ns: u64,
    /// Hits, waits and misses; `None` where they are not counted.
    pub found: Option<[u64; 3]>,
    /// Counters of the engine; `None` under the kernel.
    pub counters: Option<Counters>,
    /// Reads of the device; `None` where they are not counted.
    pub reads: Option<Reads>,
    /// Bytes of the files that were evicted during the run; unused ones among them were read twice. `None` without an observer.
    pub evicted_bytes: Option<u64>,
    pub read_bytes: u64,
    /// Bytes written.
    pub write_bytes: u64,
    /// Longest call.
    pub latency_most_ns: u64,
    /// Time of each call, if the caller wants the times.
    pub each_ns: Vec<u64>,
    /// Samples, if the variant requests samples.
    pub timeline: Vec<Sample>,
}
