//! Slots for requests that are served at the same time.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// The slots of a disk that serves several requests at the same time.
#[derive(Clone, Debug)]
pub(crate) struct Slots {
    /// The time at which each used slot becomes free, the earliest first.
    free_ns: BinaryHeap<Reverse<u64>>,
    count: usize,
}

impl Slots {
    pub(crate) fn new(count: u32) -> Slots {
        Slots { free_ns: BinaryHeap::with_capacity(count as usize), count: count as usize }
    }

    /// The time at which a request that arrives at `now_ns` gets a slot. Must be followed by [`Slots::hold`].
    pub(crate) fn take(&mut self, now_ns: u64) -> u64 {
        if self.free_ns.len() < self.count {
            return now_ns;
        }
        self.free_ns.pop().map_or(now_ns, |Reverse(free_ns)| free_ns.max(now_ns))
    }

    /// Keeps the last slot taken until `end_ns`.
    pub(crate) fn hold(&mut self, end_ns: u64) {
        self.free_ns.push(Reverse(end_ns));
    }
}
