//! Makes the probed file or device cold: none of its pages is cached or in flight.

use crate::probe::Watcher;
use crate::probe::cold_check::{ColdCheck, UNKNOWN};
use crate::probe::error::{Error, Result};
use crate::probe::subject::{PAGE_BYTES, Subject};
use ahead_sys::{cache, evict};
use std::ops::Range;
use std::time::Duration;

/// Maximum number of evictions while reads are in flight. Before each retry, a read has ended.
const EVICTIONS: u32 = 1000;
/// In a file larger than twice this, mincore checks only this many bytes at the beginning and around the middle. The probe's reads begin
/// there and extend over a few windows. A check of a terabyte takes 40 seconds.
const LOOKED_BYTES: u64 = 256 << 20;

impl Subject {
    /// Whether the kernel may be queried and counts cached pages.
    pub fn is_counted(&self) -> bool {
        matches!(self.cold_check, ColdCheck::Counted)
    }

    /// Whether only times may be used.
    pub fn is_timing_only(&self) -> bool {
        matches!(self.cold_check, ColdCheck::Timing { .. })
    }

    /// Records that a read with the kernel's read-ahead follows.
    pub(crate) fn is_read(&self) {
        if let ColdCheck::Timing { is_under_way, .. } = &self.cold_check {
            is_under_way.set(true);
        }
    }

    /// Records that reads in flight had the time `took` to end, so that the next eviction need not wait.
    pub fn has_settled(&self, took: Duration) {
        if let ColdCheck::Timing { given, is_under_way } = &self.cold_check {
            // A guess until the duration is measured.
            let known = if given.get() == UNKNOWN { Duration::ZERO } else { given.get() };
            given.set(known.max(took));
            is_under_way.set(false);
        }
    }

    /// Evicts all pages. Waits for a page in flight by accessing it.
    pub fn make_cold(&self, watcher: &dyn Watcher) -> Result<()> {
        if let ColdCheck::Timing { given, is_under_way } = &self.cold_check {
            if is_under_way.replace(false) {
                std::thread::sleep(given.get());
            }
            return Ok(evict::file(self.held())?);
        }
        for _ in 0..EVICTIONS {
            evict::file(self.held())?;
            let left = match self.left() {
                Ok(left) => left,
                // The kernel does not report cached pages. The only remedy is another eviction after the reads in flight.
                Err(Error::Kernel(error)) if error.is_unavailable() => return Ok(evict::file(self.held())?),
                Err(error) => return Err(error),
            };
            if left.is_empty() {
                return Ok(());
            }
            for range in left {
                watcher.go_on("wait until nothing is cached")?;
                self.wait_for(range.start)?;
                self.wait_for(range.end - 1)?;
            }
        }
        let why = "its pages cannot be evicted: another process uses them (has them mapped or locked, writes them), or they are only \
                   in memory";
        Err(Error::Unsuitable(format!("{}: {why}", self.shown())))
    }

    /// Ranges that are still cached, bytes.
    fn left(&self) -> Result<Vec<Range<u64>>> {
        let all_bytes = self.pages() * PAGE_BYTES;
        match self.cold_check {
            ColdCheck::Counted if cache::cachestat(self.held(), 0, all_bytes)?.cached_pages == 0 => Ok(Vec::new()),
            ColdCheck::Counted => Ok(cache::resident(self.held(), 0, all_bytes)?),
            _ => {
                let mut left = Vec::new();
                for range in looked_at(all_bytes) {
                    left.extend(cache::present(self.held(), range.start, range.end - range.start)?);
                }
                Ok(left)
            }
        }
    }

    /// Waits until the page at this offset has arrived, without further reads. A read call would trigger read-ahead: one of the pages in
    /// flight has the kernel's mark, which works with any advice. Eviction would then follow read-ahead to the end of the file. If files
    /// cannot be mapped, a read call is the only way.
    fn wait_for(&self, offset_bytes: u64) -> Result<()> {
        match self.map_exact(self.held()) {
            Ok(mapping) => mapping.fault(offset_bytes as usize)?,
            Err(_) => {
                cache::wait_for(self.held(), offset_bytes)?;
            }
        }
        Ok(())
    }

    /// Also evicts the block device's pages (metadata of the file system), and cached block mappings. `false`: not permitted.
    pub fn make_metadata_cold(&self, watcher: &dyn Watcher) -> Result<bool> {
        self.make_cold(watcher)?;
        let Some(device) = self.block_device() else { return Ok(false) };
        // Blocks that the journal references stay cached, also clean ones.
        let evicted = evict::journal(self.held())
            .and_then(|()| evict::block_map(self.held()))
            .and_then(|()| evict::block_device(device));
        match evicted {
            Ok(()) => Ok(true),
            Err(error) if error.is_unavailable() => Ok(false),
            Err(error) => Err(error.into()),
        }
    }
}

/// The ranges that mincore checks.
fn looked_at(all_bytes: u64) -> Vec<Range<u64>> {
    if all_bytes <= 2 * LOOKED_BYTES {
        return vec![0..all_bytes];
    }
    let around = (all_bytes / 2 - LOOKED_BYTES / 2) & !(PAGE_BYTES - 1);
    let middle = around.max(LOOKED_BYTES)..(around + LOOKED_BYTES).min(all_bytes);
    vec![0..LOOKED_BYTES, middle]
}
