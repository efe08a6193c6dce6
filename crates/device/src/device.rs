//! A disk: its model, its state, and the service of requests.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::cloud::CloudState;
use crate::flash::FlashState;
use crate::hdd::HddState;
use crate::{Model, Request, Served};

/// Latest submission time of a request: 73 years.
const MAX_NOW_NS: u64 = 1 << 61;

/// Largest disk, 64 TiB: more than any image; bounds every product below.
pub const MAX_CAPACITY_BYTES: u64 = 1 << 46;

/// A disk with its model, size and state: position of the head, content of the buffer, busy channels.
#[derive(Clone, Debug)]
pub struct Device {
    model: Model,
    capacity_bytes: u64,
    last_ns: u64,
    state: DeviceState,
}

#[derive(Clone, Debug)]
enum DeviceState {
    Hdd(Box<HddState>),
    Flash(FlashState),
    Cloud(CloudState),
}

impl Device {
    /// A disk after power-on. `capacity_bytes` is its size, at most 64 TiB (a larger size is cut). A rotating disk
    /// spreads it over its whole stroke, unless its model gives the size of the real disk.
    pub fn new(model: &Model, capacity_bytes: u64) -> Device {
        let capacity_bytes = capacity_bytes.clamp(1, MAX_CAPACITY_BYTES);
        let state = match model {
            Model::Hdd(hdd) => DeviceState::Hdd(Box::new(HddState::new(hdd, capacity_bytes))),
            Model::Flash(flash) => DeviceState::Flash(FlashState::new(flash)),
            Model::Cloud(cloud) => DeviceState::Cloud(CloudState::new(cloud)),
        };
        Device { model: model.clone(), capacity_bytes, last_ns: 0, state }
    }

    /// Submits a request at `now_ns`, and returns the times of its service. Requests are served in the order of the calls. An earlier time than
    /// that of the last call counts as the same time.
    pub fn submit(&mut self, request: &Request, now_ns: u64) -> Served {
        let now_ns = now_ns.min(MAX_NOW_NS).max(self.last_ns);
        self.last_ns = now_ns;
        let offset_bytes = request.offset_bytes.min(self.capacity_bytes);
        let length_bytes = request.length_bytes.min(self.capacity_bytes - offset_bytes);
        let request = Request { op: request.op, offset_bytes, length_bytes };
        match &mut self.state {
            DeviceState::Hdd(hdd) => hdd.serve(&request, now_ns),
            DeviceState::Flash(flash) => flash.serve(&request, now_ns),
            DeviceState::Cloud(cloud) => cloud.serve(&request, now_ns),
        }
    }

    /// Resets the disk to its state after power-on: the head at the start, an empty buffer, no stream. So each of several measurements finds
    /// the same disk. A network volume does not change: it has no buffer, and its tokens are refilled by time only.
    ///
    /// `ready_ns`: later requests are served from this time on; until then the disk serves earlier requests only.
    pub fn restart(&mut self, ready_ns: u64) {
        self.last_ns = self.last_ns.max(ready_ns.min(MAX_NOW_NS));
        if !matches!(self.state, DeviceState::Cloud(_)) {
            *self = Device { last_ns: self.last_ns, ..Device::new(&self.model, self.capacity_bytes) };
        }
    }

    /// The model of the disk.
    pub fn model(&self) -> &Model {
        &self.model
    }

    /// Its size in bytes.
    pub fn capacity_bytes(&self) -> u64 {
        self.capacity_bytes
    }
}

/// Time of a disk after power-on for `requests` in this order with a full queue, nanoseconds; 0 without requests. Each request is submitted as
/// soon as a slot is free ([`Model::channels`]). With merged reads in ascending order, this is a lower bound for a prefetch of them.
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
