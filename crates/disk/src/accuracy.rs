//! Timing accuracy of an emulated disk: its server measures it when the disk is attached; it is stored with the disk and
//! reported with results.

use crate::protocol::Lead;
use serde::{Deserialize, Serialize};

/// The speed of the emulation on this machine without a model's delay: the fastest disk that can be emulated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Floor {
    /// Latency of a 4 KiB read, one at a time, nanoseconds: the first quartile, since other programs can only make it longer.
    pub latency_ns: u64,
    /// Reads of 4 KiB with many outstanding, per second.
    pub requests_per_s: f64,
    /// Throughput of the longest reads, several outstanding, bytes per second.
    pub bytes_per_s: f64,
    /// How much earlier than due the server sends answers.
    pub lead: Lead,
}

/// The share of reads that an emulated disk must serve in the model's time, within 5 % or 60 us.
pub const PROMISED_SHARE: f64 = 0.99;

/// The timing accuracy at one queue depth.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Punctuality {
    /// Queue depth.
    pub depth: usize,
    /// The share of reads whose time was the model's within 5 % or 60 us.
    pub share: f64,
    pub reads_per_s: f64,
    /// Deviation from the model's time: first percentile, median and 99th percentile, microseconds.
    pub off_us: [f64; 3],
}

impl Punctuality {
    /// Whether enough reads were accurate.
    pub fn holds(&self) -> bool {
        self.share >= PROMISED_SHARE
    }
}
