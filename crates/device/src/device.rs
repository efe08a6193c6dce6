//! One disk: a model, its state, and the requests that are handed to it.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::cloud::CloudState;
use crate::flash::FlashState;
use crate::hdd::HddState;
use crate::{Model, Request, Served};

/// Latest time at which a request can be handed over, 73 years.
const MAX_NOW_NS: u64 = 1 << 61;

/// Largest disk, 64 TiB: more than any image; bounds every product below.
pub const MAX_CAPACITY_BYTES: u64 = 1 << 46;

/// A disk of some model and size, with its state: where the head is, what is in the buffer, which channels are taken.
#[derive(Clone, Debug)]
pub struct Device {
    model: Model,
    capacity_bytes: u64,
    last_ns: u64,
    state: State,
}

#[derive(Clone, Debug)]
enum State {
    Hdd(Box<HddState>),
    Flash(FlashState),
    Cloud(CloudState),
}

impl Device {
    /// A disk at rest. `capacity_bytes` is its size, at most 64 TiB (more is cut to that): a rotating disk spreads it
    /// over its whole stroke, unless its model says how large the real disk is.
    pub fn new(model: &Model, capacity_bytes: u64) -> Device {
        let capacity_bytes = capacity_bytes.clamp(1, MAX_CAPACITY_BYTES);
        let state = match model {
            Model::Hdd(hdd) => State::Hdd(Box::new(HddState::new(hdd, capacity_bytes))),
            Model::Flash(flash) => State::Flash(FlashState::new(flash)),
            Model::Cloud(cloud) => State::Cloud(CloudState::new(cloud)),
        };
        Device { model: model.clone(), capacity_bytes, last_ns: 0, state }
    }

    /// Hands a request over at `now_ns` and says when it is served. Requests are served in the order of the calls; a
    /// time before that of the call before is taken for the same time.
    pub fn submit(&mut self, request: &Request, now_ns: u64) -> Served {
        let now_ns = now_ns.min(MAX_NOW_NS).max(self.last_ns);
        self.last_ns = now_ns;
        let offset_bytes = request.offset_bytes.min(self.capacity_bytes);
        let length_bytes = request.length_bytes.min(self.capacity_bytes - offset_bytes);
        let request = Request { op: request.op, offset_bytes, length_bytes };
        match &mut self.state {
            State::Hdd(hdd) => hdd.serve(&request, now_ns),
            State::Flash(flash) => flash.serve(&request, now_ns),
            State::Cloud(cloud) => cloud.serve(&request, now_ns),
        }
    }

    /// Puts it into its state after power-on: the head at the start, nothing in the buffer, no stream followed. So that
    /// measurements one after another all find the same disk. A network volume stays as it is: it has no buffer, and
    /// tokens that were spent come back with time alone, however often the machine is started.
    ///
    /// `ready_ns`: nothing is taken up before this time; what was handed over before has its disk to itself until then.
    pub fn restart(&mut self, ready_ns: u64) {
        self.last_ns = self.last_ns.max(ready_ns.min(MAX_NOW_NS));
        if !matches!(self.state, State::Cloud(_)) {
            *self = Device { last_ns: self.last_ns, ..Device::new(&self.model, self.capacity_bytes) };
        }
    }

    /// What kind of disk it is.
    pub fn model(&self) -> &Model {
        &self.model
    }

    /// Its size in bytes.
    pub fn capacity_bytes(&self) -> u64 {
        self.capacity_bytes
    }
}

/// How long a fresh disk takes for `requests`, in this order, with the queue kept full: each is handed over as soon as
/// a slot is free ([`Model::channels`]). In nanoseconds; 0 for no request. Reads in ascending order, merged where they
/// touch, give a bound of what prefetching them can reach.
pub fn time_for(model: &Model, capacity_bytes: u64, requests: impl Iterator<Item = Request>) -> u64 {
    let mut device = Device::new(model, capacity_bytes);
    let slots = model.channels() as usize;
    let mut in_flight: BinaryHeap<Reverse<u64>> = BinaryHeap::with_capacity(slots);
    let mut now_ns = 0;
    let mut last_end_ns = 0;
    for request in requests {
        if in_flight.len() == slots
            && let Some(Reverse(end_ns)) = in_flight.pop()
        {
            now_ns = now_ns.max(end_ns);
        }
        let end_ns = device.submit(&request, now_ns).end_ns;
        in_flight.push(Reverse(end_ns));
        last_end_ns = last_end_ns.max(end_ns);
    }
    last_end_ns
}
