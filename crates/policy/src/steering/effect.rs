//! The waits of the readers of an open file, and what an act changed in them.

use crate::PAGE_BYTES;

/// Waits of the readers of an open file per advanced page.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Rate {
    /// Pages by which the readers advanced.
    pub advanced_pages: u64,
    /// Number of waits meanwhile.
    pub waits: u64,
    /// Sum of these waits, nanoseconds.
    pub wait_ns: u64,
    /// Time meanwhile, nanoseconds.
    pub elapsed_ns: u64,
}

/// Pages of a mebibyte.
const PAGES_PER_MIB: f64 = ((1 << 20) / PAGE_BYTES) as f64;

impl Rate {
    /// Waits per MiB.
    pub fn waits_per_mib(&self) -> f64 {
        self.waits as f64 * PAGES_PER_MIB / self.advanced_pages.max(1) as f64
    }

    /// Wait time per MiB, nanoseconds.
    pub fn wait_ns_per_mib(&self) -> f64 {
        self.wait_ns as f64 * PAGES_PER_MIB / self.advanced_pages.max(1) as f64
    }

    /// Share of the time spent waiting: from 0 to 1, or more with several readers.
    pub fn wait_share(&self) -> f64 {
        self.wait_ns as f64 / self.elapsed_ns.max(1) as f64
    }
}

/// The waits of an open file before and after the last act on it.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Effect {
    /// Before the act.
    pub before: Rate,
    /// After the act.
    pub after: Rate,
}
