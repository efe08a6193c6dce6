//! The least time of a disk for a set of extents: a lower bound for every schedule.
//!
//! In: the model, and all extents that a program uses. Out: for a set of these extents, or of parts of them, a time before which no schedule can
//! have delivered all of it. The bound holds for every order of requests, every split of extents into requests up to the model's
//! longest one, every gap that is read between extents, any number of requests at the same time, and any pause. It starts at the
//! first submission, with an empty buffer, the head at any position, and the full burst of a network volume. Writes are not covered: a drive
//! may serve a read from its write cache.
//!
//! ```text
//!   rotating disk    time in which the bytes pass the head + a share of each extent in the moves of the head    least/head.rs
//!                      moves: arm and platter (least/platter.rs), shares: a linear program (least/potentials.rs, least/cover.rs)
//!   flash, cloud     bytes, requests and the gaps between extents at the best of some prices                   least/requests.rs
//! ```
//!
//! The bounds are relaxations: no schedule may reach them. `tests/least.rs` compares them with exhaustive orders.

mod cover;
mod head;
mod platter;
mod potentials;
mod requests;

use crate::{MAX_CAPACITY_BYTES, Model};
use head::{HeadSet, HeadTimes};
use requests::{RequestSet, RequestTimes};
use std::ops::Range;

/// Lower bounds of the times that a disk needs for sets of extents.
///
/// ```
/// use ahead_device::{LeastTimes, Model};
///
/// let model = Model::builtin("hdd").expect("built in");
/// let times = LeastTimes::new(&model, 4 << 30, &[0..65_536, 1 << 30..(1 << 30) + 8192]);
/// let mut set = times.empty_set();
/// set.add(0, 65_536);
/// let first_ns = set.least_ns();
/// set.add(1, 8192);
/// // The head has to move to the second extent, or back.
/// assert!(first_ns < 500_000 && set.least_ns() > 2_000_000);
/// ```
#[derive(Clone, Debug)]
pub struct LeastTimes {
    kind: Kind,
    lengths: Vec<u64>,
}

#[derive(Clone, Debug)]
enum Kind {
    Head(Box<HeadTimes>),
    Requests(RequestTimes),
}

/// A set of extents, or of parts of them, that grows.
#[derive(Clone, Debug)]
pub struct LeastSet<'a> {
    times: &'a LeastTimes,
    added: Vec<u64>,
    state: State,
    least_ns: u64,
}

#[derive(Clone, Debug)]
enum State {
    Head(HeadSet),
    Requests(RequestSet),
}

impl LeastTimes {
    /// Times of a disk of this model and size, at most 64 TiB.
    ///
    /// `extents`: everything that the program reads from this disk, in bytes: ascending, disjoint, in whole pages, adjacent ones merged. What is
    /// beyond the end of the disk takes no time. A schedule may read other parts of the disk, too, but nothing is gained by it.
    ///
    /// For a rotating disk with thousands of extents this takes seconds.
    pub fn new(model: &Model, capacity_bytes: u64, extents: &[Range<u64>]) -> LeastTimes {
        let capacity_bytes = capacity_bytes.clamp(1, MAX_CAPACITY_BYTES);
        let inside = |extent: &Range<u64>| {
            let start = extent.start.min(capacity_bytes);
            start..extent.end.clamp(start, capacity_bytes)
        };
        let extents: Vec<Range<u64>> = extents.iter().map(inside).collect();
        let max_request_bytes = model.max_request_bytes();
        let kind = match model {
            Model::Hdd(hdd) => Kind::Head(Box::new(HeadTimes::new(hdd, max_request_bytes, capacity_bytes, &extents))),
            Model::Flash(flash) => Kind::Requests(RequestTimes::flash(flash, max_request_bytes, &extents)),
            Model::Cloud(cloud) => Kind::Requests(RequestTimes::cloud(cloud, max_request_bytes, &extents)),
        };
        LeastTimes { kind, lengths: extents.iter().map(|extent| extent.end - extent.start).collect() }
    }

    /// A set without extents.
    pub fn empty_set(&self) -> LeastSet<'_> {
        let state = match &self.kind {
            Kind::Head(_) => State::Head(HeadSet::default()),
            Kind::Requests(times) => State::Requests(times.empty_set()),
        };
        LeastSet { times: self, added: vec![0; self.lengths.len()], state, least_ns: 0 }
    }
}

impl LeastSet<'_> {
    /// Adds `bytes` of extent number `index` that were not added before; more than the rest of it count as the rest. An unknown extent
    /// is ignored.
    pub fn add(&mut self, index: usize, bytes: u64) {
        let Some(&length) = self.times.lengths.get(index) else { return };
        let before = self.added[index];
        let after = before.saturating_add(bytes).min(length);
        if after == before {
            return;
        }
        self.added[index] = after;
        let now_ns = match (&self.times.kind, &mut self.state) {
            (Kind::Head(times), State::Head(set)) => {
                times.grow(set, index, before, after);
                times.least_ns(set)
            }
            (Kind::Requests(times), State::Requests(set)) => {
                times.grow(set, index, before, after);
                times.least_ns(set)
            }
            _ => unreachable!("a set has the kind of its times"),
        };
        // A bound of a part of the set is a bound of the set.
        self.least_ns = self.least_ns.max(now_ns);
    }

    /// The least time from the first submission until the disk has delivered everything that was added, nanoseconds.
    pub fn least_ns(&self) -> u64 {
        self.least_ns
    }
}
