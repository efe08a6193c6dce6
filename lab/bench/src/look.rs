//! How pages are found under the kernel's own read-ahead, which tells nobody: by a look into the cache before each call.
//!
//! `cachestat` counts what is cached or on its way, `mincore` what has arrived. A row of absent pages in a call is one miss,
//! for the kernel brings them by one request, and the rest is there when the reader comes to it; so is a row of pages on
//! their way one wait. A policy's engine counts in the same way.

use crate::Result;
use ahead_policy::PAGE_BYTES;
use ahead_sys::cache;
use std::fs::File;
use std::ops::Range;

/// Accesses to pages, by how they were found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Looked {
    pub hits: u64,
    pub locked: u64,
    pub misses: u64,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    There,
    Coming,
    Absent,
}

impl Looked {
    /// Looks at the pages of a call that is about to be made.
    pub fn look(&mut self, file: &File, offset_bytes: u64, length_bytes: u64) -> Result<()> {
        let pages = offset_bytes / PAGE_BYTES..(offset_bytes + length_bytes).div_ceil(PAGE_BYTES);
        let (first, length) = (pages.start * PAGE_BYTES, (pages.end - pages.start) * PAGE_BYTES);
        let (there, cached) = (cache::present(file, first, length)?, cache::resident(file, first, length)?);
        let holds = |ranges: &[Range<u64>], page: u64| ranges.iter().any(|range| range.contains(&(page * PAGE_BYTES)));
        let states = pages.map(|page| match () {
            () if holds(&there, page) => State::There,
            () if holds(&cached, page) => State::Coming,
            () => State::Absent,
        });
        self.count(states);
        Ok(())
    }

    fn count(&mut self, states: impl Iterator<Item = State>) {
        let mut before = State::There;
        for state in states {
            match state {
                State::Coming if before != State::Coming => self.locked += 1,
                State::Absent if before != State::Absent => self.misses += 1,
                _ => self.hits += 1,
            }
            before = state;
        }
    }

    pub fn add(self, other: Looked) -> Looked {
        Looked { hits: self.hits + other.hits, locked: self.locked + other.locked, misses: self.misses + other.misses }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_is_one_wait() {
        use State::{Absent, Coming, There};
        let mut looked = Looked::default();
        looked.count([There, Coming, Coming, Absent, Absent, There, Absent].into_iter());
        assert_eq!(looked, Looked { hits: 4, locked: 1, misses: 2 });
    }
}
