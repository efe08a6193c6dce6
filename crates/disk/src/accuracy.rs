//! How true the times of an emulated disk are: measured by its server when it is attached, stored with the disk, reported with results.

use crate::protocol::Lead;
use serde::{Deserialize, Serialize};

/// The speed of the emulation itself on this machine, without a model's delay. No disk faster than that can be emulated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Floor {
    /// A read of 4 KiB, one at a time, nanoseconds: the first quartile, since other programs can only make it longer.
    pub latency_ns: u64,
    /// Reads of 4 KiB, many at once, per second.
    pub requests_per_s: f64,
    /// The longest read the disk is sent, several at once, bytes per second.
    pub bytes_per_s: f64,
    /// How much earlier than the model says answers are sent.
    pub lead: Lead,
}

/// The share of reads that an emulated disk promises to serve in the model's time, within 5 % or 60 us.
pub const PROMISED_SHARE: f64 = 0.99;

/// How well reads were timed at one queue depth.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Punctuality {
    /// Reads kept outstanding.
    pub depth: usize,
    /// The share of reads whose time was the model's within 5 % or 60 us.
    pub share: f64,
    /// Reads per second.
    pub reads_per_s: f64,
    /// How much longer reads took than by the model: first percentile, median and 99th percentile, microseconds.
    pub off_us: [f64; 3],
}

impl Punctuality {
    /// Whether the promise is kept.
    pub fn holds(&self) -> bool {
        self.share >= PROMISED_SHARE
    }
}
