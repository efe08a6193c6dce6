//! Checks whether the probed file or device is cold, with the permitted queries to the kernel.
//!
//! ```text
//!     Counted    cachestat counts 0 pages: none is cached or in flight, for a file of any size
//!     Mincore    cachestat is missing or wrong for this file: mincore checks the pages that reads use
//!     Timing     without queries to the kernel: waits for the duration of reads in flight, then evicts
//! ```

use crate::probe::error::Result;
use ahead_model::PAGE_BYTES;
use ahead_sys::cache;
use std::cell::Cell;
use std::fs::File;
use std::time::Duration;

/// Time for reads in flight until their duration is known: several accesses of any disk. Only for probes by timing alone.
pub const UNKNOWN: Duration = Duration::from_millis(50);

/// How [`crate::probe::Subject::make_cold`] checks that no page is cached.
#[derive(Debug)]
pub enum ColdCheck {
    /// With cachestat.
    Counted,
    /// With mincore, if it works.
    Mincore,
    /// Without a check: waits for reads that may be in flight.
    Timing {
        /// The time to wait.
        given: Cell<Duration>,
        /// Whether a read has begun since the last wait.
        is_under_way: Cell<bool>,
    },
}

impl ColdCheck {
    /// The check that works for this file, found with a page that was just read. cachestat may be missing or refused. For a file of
    /// overlayfs, whose pages belong to a file of another file system, cachestat counts no page.
    pub fn of(file: &File, exact: &File, timing_only: bool) -> Result<ColdCheck> {
        if timing_only {
            return Ok(ColdCheck::Timing { given: Cell::new(UNKNOWN), is_under_way: Cell::new(true) });
        }
        cache::wait_for(exact, 0)?;
        match cache::cachestat(file, 0, PAGE_BYTES).is_ok_and(|stat| stat.cached_pages > 0) {
            true => Ok(ColdCheck::Counted),
            false => Ok(ColdCheck::Mincore),
        }
    }
}
