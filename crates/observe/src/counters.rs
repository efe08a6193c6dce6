//! Counts read-ahead decisions, waits and waste of every open file, and sends the decisions (`bpf/counters.bpf.c`).

mod types;

pub use types::*;

use ahead_sys::{Error, Result};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// A running observer. Dropping it detaches every program.
#[derive(Debug)]
pub struct Counters {
    sources: Sources,
    ring: OwnedFd,
}

impl Counters {
    /// Loads and attaches the programs. Needs root, or CAP_BPF and CAP_PERFMON.
    ///
    /// # Errors
    /// [`Error::NotPermitted`] and [`Error::Unsupported`], with what is missing. Then no program stays attached.
    pub fn start(_options: &CounterOptions) -> Result<Counters> {
        Err(Error::Unsupported { what: "observing read-ahead".into(), why: "it is not written yet".into() })
    }

    /// What this kernel shows.
    pub fn sources(&self) -> &Sources {
        &self.sources
    }

    /// The counts of every open file that was seen.
    pub fn per_open(&self) -> Result<Vec<OpenCounters>> {
        Ok(Vec::new())
    }

    /// The counts of one open file.
    pub fn of_open(&self, _open: u64) -> Result<Option<OpenCounters>> {
        Ok(None)
    }

    /// The counts of the machine.
    pub fn machine(&self) -> Result<MachineCounters> {
        Ok(MachineCounters::default())
    }

    /// The decisions from now on. One reader at a time.
    pub fn events(&self) -> Result<DecisionEvents> {
        Ok(DecisionEvents { ring: self.ring.try_clone().map_err(|e| Error::io("duplicate a descriptor", e))? })
    }

    /// Sends no more decisions of this open file, except those that thrash, and those of another pattern than its last one: a jump after
    /// sequential pages, or sequential pages after jumps. Counts continue.
    pub fn set_quiet(&self, _open: u64, _quiet: bool) -> Result<()> {
        Ok(())
    }

    /// Removes the counts of an open file.
    pub fn forget(&self, _open: u64) {}
}

/// The stream of decisions. It does not borrow [`Counters`], and gets nothing more after that is dropped.
#[derive(Debug)]
pub struct DecisionEvents {
    ring: OwnedFd,
}

impl DecisionEvents {
    /// Calls `each` with every decision that waits. Returns their number; never blocks.
    pub fn take(&mut self, _each: impl FnMut(&DecisionEvent)) -> Result<usize> {
        Ok(0)
    }

    /// Events that the ring buffer had no room for, or that could not be decoded.
    pub fn lost(&self) -> u64 {
        0
    }
}

impl AsFd for DecisionEvents {
    /// Readable while decisions wait: after misses and faults at once, after markers at the latest with the next miss; poll with a timeout.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.ring.as_fd()
    }
}
