//! The stream of decisions.

use super::decode::{self, LOST_EVENTS};
use crate::reader::consumer;
use ahead_policy::steering::Decision;
use ahead_sys::locks::IgnorePoison;
use ahead_sys::{Error, Result};
use libbpf_rs::{MapHandle, RingBuffer};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, Mutex, MutexGuard};
use std::{fmt, io};

/// The stream of decisions. It does not borrow [`crate::Counters`], and gets nothing more after that is dropped.
pub struct DecisionEvents {
    map: MapHandle,
    machine: MapHandle,
    ring: RingBuffer<'static>,
    /// Filled by the callback of `ring`.
    taken: Arc<Mutex<Taken>>,
}

#[derive(Debug, Default)]
struct Taken {
    events: Vec<Decision>,
    undecodable: u64,
}

impl DecisionEvents {
    /// The usual limit of [`Self::take`]: most of what the ring buffer has room for. A caller handles them in some milliseconds.
    pub const MOST_AT_ONCE: usize = 4096;

    pub(super) fn new(map: MapHandle, machine: MapHandle) -> Result<DecisionEvents> {
        let taken = Arc::new(Mutex::new(Taken::default()));
        let filled = Arc::clone(&taken);
        let ring = consumer(&map, move |bytes| {
            let mut taken = lock(&filled);
            match decode::event(bytes) {
                Some(event) => taken.events.push(event),
                None => taken.undecodable += 1,
            }
        })?;
        Ok(DecisionEvents { map, machine, ring, taken })
    }

    /// Calls `each` with the decisions that wait, at most `most` of them: what arrives meanwhile must not keep the caller from its other
    /// work. Returns their number; never blocks. The stream stays readable while decisions wait.
    pub fn take(&mut self, most: usize, mut each: impl FnMut(&Decision)) -> Result<usize> {
        let consumed = self.ring.consume_raw_n(most);
        if consumed < 0 {
            return Err(Error::io("read the ring buffer", io::Error::from_raw_os_error(-consumed)));
        }
        let events = std::mem::take(&mut lock(&self.taken).events);
        events.iter().for_each(&mut each);
        let number = events.len();
        // The allocation is kept for the next time.
        let mut taken = lock(&self.taken);
        taken.events = events;
        taken.events.clear();
        Ok(number)
    }

    /// Events that the ring buffer had no room for, or that could not be decoded.
    pub fn lost(&self) -> u64 {
        let counted = super::tables::machine_counts(&self.machine).map_or(0, |counts| counts[LOST_EVENTS]);
        counted + lock(&self.taken).undecodable
    }
}

fn lock(taken: &Mutex<Taken>) -> MutexGuard<'_, Taken> {
    taken.lock().ignore_poison()
}

impl AsFd for DecisionEvents {
    /// Readable while decisions wait: after misses and faults at once, after markers at the latest with the next miss; poll with a timeout.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.map.as_fd()
    }
}

impl fmt::Debug for DecisionEvents {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DecisionEvents").field("taken", &self.taken).finish_non_exhaustive()
    }
}
