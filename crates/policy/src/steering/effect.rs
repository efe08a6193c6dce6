//! The waits of the readers of an open file, and what an act changed in them.

use crate::PAGE_BYTES;
use serde::ser::SerializeStruct;
use serde::{Serialize, Serializer};
use std::fmt;

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

/// As JSON: what the readers waited before the act and after it.
impl Serialize for Effect {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut waits = serializer.serialize_struct("Effect", 4)?;
        waits.serialize_field("before_waits_per_mb", &self.before.waits_per_mib())?;
        waits.serialize_field("after_waits_per_mb", &self.after.waits_per_mib())?;
        waits.serialize_field("before_wait_share", &self.before.wait_share())?;
        waits.serialize_field("after_wait_share", &self.after.wait_share())?;
        waits.end()
    }
}

impl fmt::Display for Effect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Effect { before, after } = self;
        write!(f, "waits per MiB {:.1} → {:.1}, ", before.waits_per_mib(), after.waits_per_mib())?;
        let percent = |rate: &Rate| rate.wait_share() * 100.0;
        write!(f, "share of time waiting {:.0} % → {:.0} %", percent(before), percent(after))
    }
}
