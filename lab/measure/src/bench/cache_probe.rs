//! Counts hits and misses under the kernel's read-ahead, which does not report them: probes the cache before each call.
//!
//! `cachestat` finds pages that are cached or in flight, `mincore` only pages that have arrived. Adjacent absent pages of a call are one
//! miss. The kernel reads these pages with one request, and all but the first are present when the reader reaches them. Adjacent pages in
//! flight are one wait. The engine of a policy counts in the same way.

use crate::bench::Result;
use ahead_policy::PAGE_BYTES;
use ahead_sys::cache;
use std::fs::File;
use std::ops::Range;

/// Accesses to pages, by their state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct LookupCounts {
    pub hits: u64,
    pub locked: u64,
    pub misses: u64,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum CacheProbeState {
    Present,
    InFlight,
    Absent,
}

impl LookupCounts {
    /// Probes the pages of the next call.
    pub fn probe(&mut self, file: &File, offset_bytes: u64, length_bytes: u64) -> Result<()> {
        let pages = offset_bytes / PAGE_BYTES..(offset_bytes + length_bytes).div_ceil(PAGE_BYTES);
        let (first, length) = (pages.start * PAGE_BYTES, (pages.end - pages.start) * PAGE_BYTES);
        let (present, cached) = (cache::present(file, first, length)?, cache::resident(file, first, length)?);
        let holds = |ranges: &[Range<u64>], page: u64| ranges.iter().any(|range| range.contains(&(page * PAGE_BYTES)));
        let states = pages.map(|page| match () {
            () if holds(&present, page) => CacheProbeState::Present,
            () if holds(&cached, page) => CacheProbeState::InFlight,
            () => CacheProbeState::Absent,
        });
        self.count(states);
        Ok(())
    }

    fn count(&mut self, states: impl Iterator<Item = CacheProbeState>) {
        let mut before = CacheProbeState::Present;
        for state in states {
            match state {
                CacheProbeState::InFlight if before != CacheProbeState::InFlight => self.locked += 1,
                CacheProbeState::Absent if before != CacheProbeState::Absent => self.misses += 1,
                _ => self.hits += 1,
            }
            before = state;
        }
    }

    pub fn add(self, other: LookupCounts) -> LookupCounts {
        LookupCounts {
            hits: self.hits + other.hits,
            locked: self.locked + other.locked,
            misses: self.misses + other.misses,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn adjacent_pages_in_flight_are_one_wait() {
        use CacheProbeState::{Absent, InFlight, Present};
        let mut counts = LookupCounts::default();
        counts.count([Present, InFlight, InFlight, Absent, Absent, Present, Absent].into_iter());
        assert_eq!(counts, LookupCounts { hits: 4, locked: 1, misses: 2 });
    }
}
