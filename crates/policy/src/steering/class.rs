//! The class of an open file, and the waits of its readers.

use crate::PAGE_BYTES;
use std::fmt;

/// The pattern of an open file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Class {
    /// Too few decisions.
    #[default]
    Unknown,
    /// Ascending without gaps.
    Sequential,
    /// Descending without gaps.
    Backward,
    /// Equal steps with gaps, in either direction.
    Stride,
    /// Several sequential streams through one open file.
    Interleaved,
    /// Calls in no order.
    RandomRead,
    /// Faults in no order.
    RandomMapped,
    /// Read once from start to end, without a need for more read-ahead.
    OnceOnly,
    /// The program has set its own advice: left alone.
    Advised,
}

impl Class {
    /// All classes.
    pub const ALL: [Class; 9] = [
        Class::Unknown,
        Class::Sequential,
        Class::Backward,
        Class::Stride,
        Class::Interleaved,
        Class::RandomRead,
        Class::RandomMapped,
        Class::OnceOnly,
        Class::Advised,
    ];

    /// Its name in reports: `random mmap`.
    pub fn name(self) -> &'static str {
        match self {
            Class::Unknown => "unknown",
            Class::Sequential => "sequential",
            Class::Backward => "backward",
            Class::Stride => "stride",
            Class::Interleaved => "interleaved",
            Class::RandomRead => "random read",
            Class::RandomMapped => "random mmap",
            Class::OnceOnly => "once-only",
            Class::Advised => "advised",
        }
    }
}

impl fmt::Display for Class {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

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
