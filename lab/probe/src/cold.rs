//! Making what is probed cold: none of its pages is cached, and none is on its way.
//!
//! ```text
//!     counted     cachestat says 0: nothing is there, nothing under way, however large it is
//!     looked at   no cachestat, or none that tells the truth: mincore, where reads go
//!     untold      by timing alone nobody is asked: evicted after reads under way have had the time that they take
//! ```

use crate::Watcher;
use crate::error::{Error, Result};
use crate::subject::{PAGE_BYTES, Subject};
use ahead_sys::{cache, evict};
use std::cell::Cell;
use std::fs::File;
use std::ops::Range;
use std::time::Duration;

/// How often eviction is tried again while reads are under way: each time the read that is waited for has ended.
const EVICTIONS: u32 = 1000;
/// Of more than twice this only so much of the beginning and around the middle is looked at by mincore, bytes: readers begin there,
/// and read no further than some windows. A look at a terabyte takes 40 seconds.
const LOOKED_BYTES: u64 = 256 << 20;
/// By timing alone reads under way are given so long before it is known how long they take: some accesses of any disk.
const UNKNOWN: Duration = Duration::from_millis(50);

/// How it is known that nothing is cached.
#[derive(Debug)]
pub enum Told {
    /// By cachestat.
    Counted,
    /// By mincore, if at all.
    Looked,
    /// By nothing: what may be under way is given so long.
    Untold {
        /// How long.
        given: Cell<Duration>,
        /// Since somebody read nothing has been given time yet.
        is_under_way: Cell<bool>,
    },
}

impl Told {
    /// What tells it of this file. cachestat is tried with a page that was just read: it may be missing or refused, and of a file
    /// of overlayfs, whose pages belong to a file of another file system, it sees none.
    pub fn of(file: &File, exact: &File, timing_only: bool) -> Result<Told> {
        if timing_only {
            return Ok(Told::Untold { given: Cell::new(UNKNOWN), is_under_way: Cell::new(true) });
        }
        cache::wait_for(exact, 0)?;
        match cache::cachestat(file, 0, PAGE_BYTES).is_ok_and(|stat| stat.cached_pages > 0) {
            true => Ok(Told::Counted),
            false => Ok(Told::Looked),
        }
    }
}

impl Subject {
    /// Whether the kernel may be asked, and counts what is cached.
    pub fn is_counted(&self) -> bool {
        matches!(self.told, Told::Counted)
    }

    /// Whether nothing but times may be looked at.
    pub fn is_untold(&self) -> bool {
        matches!(self.told, Told::Untold { .. })
    }

    /// Somebody will read, and the kernel ahead of him.
    pub(crate) fn is_read(&self) {
        if let Told::Untold { is_under_way, .. } = &self.told {
            is_under_way.set(true);
        }
    }

    /// What may have been under way was given so long to arrive, which is enough: eviction needs not wait once more.
    pub fn has_settled(&self, took: Duration) {
        if let Told::Untold { given, is_under_way } = &self.told {
            // Until something is known it is a guess.
            let known = if given.get() == UNKNOWN { Duration::ZERO } else { given.get() };
            given.set(known.max(took));
            is_under_way.set(false);
        }
    }

    /// Evicts all of its pages. What is on its way is waited for by reading it.
    pub fn make_cold(&self, watcher: &dyn Watcher) -> Result<()> {
        if let Told::Untold { given, is_under_way } = &self.told {
            if is_under_way.replace(false) {
                std::thread::sleep(given.get());
            }
            return Ok(evict::file(self.held())?);
        }
        for _ in 0..EVICTIONS {
            evict::file(self.held())?;
            let left = match self.left() {
                Ok(left) => left,
                // Nobody tells us what is there: one more eviction after what was under way is all that can be done.
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
        let why = "its pages cannot be evicted: somebody else uses them (has them mapped or locked, writes them), or they lie in memory";
        Err(Error::Unsuitable(format!("{}: {why}", self.shown())))
    }

    /// What is cached still.
    fn left(&self) -> Result<Vec<Range<u64>>> {
        let all_bytes = self.pages() * PAGE_BYTES;
        match self.told {
            Told::Counted if cache::cachestat(self.held(), 0, all_bytes)?.cached_pages == 0 => Ok(Vec::new()),
            Told::Counted => Ok(cache::resident(self.held(), 0, all_bytes)?),
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
