//! Makes the probed file or device cold: none of its pages is cached, and no read of them is under way.

use crate::Watcher;
use crate::cold_check::{ColdCheck, UNKNOWN};
use crate::error::{Error, Result};
use crate::subject::{PAGE_BYTES, Subject};
use ahead_sys::{cache, evict};
use std::ops::Range;
use std::time::Duration;

/// Most evictions while reads are under way. Before each retry the read that eviction waits for has ended.
const EVICTIONS: u32 = 1000;
/// In a file larger than twice this, mincore looks at this much of the beginning and around the middle, bytes: readers begin
/// there and read no further than some windows. To look at a terabyte takes 40 seconds.
const LOOKED_BYTES: u64 = 256 << 20;

impl Subject {
    /// Whether the kernel may be asked, and counts what is cached.
    pub fn is_counted(&self) -> bool {
        matches!(self.cold_check, ColdCheck::Counted)
    }

    /// Whether only times may be looked at.
    pub fn is_timing_only(&self) -> bool {
        matches!(self.cold_check, ColdCheck::Timing { .. })
    }

    /// Notes that a read follows, and the kernel's read-ahead with it.
    pub(crate) fn is_read(&self) {
        if let ColdCheck::Timing { is_under_way, .. } = &self.cold_check {
            is_under_way.set(true);
        }
    }

    /// Notes that reads under way had time `took` to end, which is enough: the next eviction does not wait again.
    pub fn has_settled(&self, took: Duration) {
        if let ColdCheck::Timing { given, is_under_way } = &self.cold_check {
            // Until something is known it is a guess.
            let known = if given.get() == UNKNOWN { Duration::ZERO } else { given.get() };
            given.set(known.max(took));
            is_under_way.set(false);
        }
    }

    /// Evicts all pages. For a page that is under way it waits by touching the page.
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
                // The kernel does not report cached pages: one more eviction after the reads under way is all that is possible.
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

    /// Waits until the page at this place is there, and reads nothing else. A read would: of what is under way a page carries the
    /// mark that makes the kernel read on, whatever was advised for the file, and eviction would chase that to the file's end.
    /// Where files are not mapped there is no other way.
    fn wait_for(&self, offset_bytes: u64) -> Result<()> {
        match self.map_exact(self.held()) {
            Ok(mapping) => mapping.fault(offset_bytes as usize)?,
            Err(_) => {
                cache::wait_for(self.held(), offset_bytes)?;
            }
        }
        Ok(())
    }

    /// Evicts the block device's own pages, too, those of a file system's metadata, and what is remembered of where blocks lie.
    /// `false`: we may not.
    pub fn make_metadata_cold(&self, watcher: &dyn Watcher) -> Result<bool> {
        self.make_cold(watcher)?;
        let Some(device) = self.block_device() else { return Ok(false) };
        // Blocks that the journal holds stay, be they clean.
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

/// Where mincore looks.
fn looked_at(all_bytes: u64) -> Vec<Range<u64>> {
    if all_bytes <= 2 * LOOKED_BYTES {
        return vec![0..all_bytes];
    }
    let around = (all_bytes / 2 - LOOKED_BYTES / 2) & !(PAGE_BYTES - 1);
    let middle = around.max(LOOKED_BYTES)..(around + LOOKED_BYTES).min(all_bytes);
    vec![0..LOOKED_BYTES, middle]
}
