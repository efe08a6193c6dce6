//! The stream of decisions.

use super::decode::{self, LOST_EVENTS};
use crate::reader::EventStream;
use ahead_policy::steering::Decision;
use ahead_sys::Result;
use libbpf_rs::MapHandle;
use std::os::fd::{AsFd, BorrowedFd};

/// The stream of decisions. It does not borrow [`crate::Counters`], and gets nothing more after that is dropped.
#[derive(Debug)]
pub struct DecisionEvents {
    machine: MapHandle,
    stream: EventStream<Decision>,
}

impl DecisionEvents {
    /// The usual limit of [`Self::take`]: most of what the ring buffer has room for. A caller handles them in some milliseconds.
    pub const MOST_AT_ONCE: usize = 4096;

    pub(super) fn new(map: MapHandle, machine: MapHandle) -> Result<DecisionEvents> {
        Ok(DecisionEvents { machine, stream: EventStream::new(map, decode::event)? })
    }

    /// Calls `each` with the decisions that wait, at most `most` of them: what arrives meanwhile must not keep the caller from its other
    /// work. Returns their number; never blocks. The stream stays readable while decisions wait.
    pub fn take(&mut self, most: usize, each: impl FnMut(&Decision)) -> Result<usize> {
        self.stream.take(most, each)
    }

    /// Events that the ring buffer had no room for, or that could not be decoded.
    pub fn lost(&self) -> u64 {
        let counted = super::tables::machine_counts(&self.machine).map_or(0, |counts| counts[LOST_EVENTS]);
        counted + self.stream.undecodable()
    }
}

impl AsFd for DecisionEvents {
    /// Readable while decisions wait: after misses and faults at once, after markers at the latest with the next miss; poll with a timeout.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}
