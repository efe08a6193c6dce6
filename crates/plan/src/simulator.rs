//! A small simulator of a plan and the program beside it: when does the program end? Pure and deterministic.
//!
//! ```text
//!     disk       ├ r0 ┼ r1 ┼ r2 ┼ r3 ┼── demand ──┼ r4 ┼ …           one queue, first in first out
//!     prefetch   submits while its queue is short enough
//!     program    ······ starts ├ computes ┤ waits for r3 ├ computes ┤ reads itself what is not submitted ├ … end
//! ```
//!
//! Threads of the program share the processors. They wait for pages in flight, for a page that they read themselves, and for each other.
//! The disk has the time of its description only: no buffer, no reordering.

use crate::event::{Event, Script, What};
use ahead_model::{DeviceDescription, PAGE_BYTES};
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Processor time of the prefetch for each request, microseconds: opening the file and checking it (15), querying residency and the call
/// (5 to 10). As in the simulated replay of the laboratory.
const REQUEST_CPU_US: f64 = 20.0;

/// Processor time of the prefetch for each page, microseconds: adding it to the page cache.
const PAGE_CPU_US: f64 = 0.3;

/// What the kernel reads for a page that the program needs: its default window, in bytes, around the page.
const DEMAND_BYTES: u64 = 128 << 10;

/// A long request arrives in parts of this size, bytes: requests of most disks are no longer.
const PART_BYTES: u64 = 256 << 10;

/// Mean distance of two random places of the disk on which descriptions are measured (a third of 64 GiB), bytes.
const ACCESS_DISTANCE_BYTES: f64 = 22e9;

/// Mean distance of the hops in a description, bytes.
const HOP_DISTANCE_BYTES: f64 = 64e6;

/// Requests that the block layer of a disk queues: twice the 32 tags of SATA.
const MOST_QUEUED: usize = 64;

/// A piece or a lookup, for the disk.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Item {
    /// Its place on the disk, bytes; `u64::MAX`: unknown.
    pub place: u64,
    /// Its length, bytes.
    pub bytes: u64,
    /// A read by the program itself also brings the items of this range of numbers.
    pub brings: (u32, u32),
}

/// A request of the prefetch.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Request {
    /// The place of its beginning, bytes; `u64::MAX`: unknown.
    pub place: u64,
    /// Its length with gaps, bytes; 0: it needs no read (a lookup beside another one).
    pub bytes: u64,
    /// The numbers of its items: a range of pieces in the order of the file, or one lookup.
    pub items: (u32, u32),
}

/// What came of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Outcome {
    /// When the program has ended, microseconds since the beginning of the prefetch.
    pub end_us: f64,
    /// When it started.
    pub start_us: f64,
    /// Reads that it had to make itself.
    pub demands: u64,
}

/// The disk: first in, first out.
#[derive(Clone, Copy, Debug)]
struct Disk {
    device: DeviceDescription,
    seeks: bool,
    access_us: f64,
    hop_us: f64,
    /// Microseconds for a byte.
    byte_us: f64,
    request_us: f64,
    burst_requests_us: f64,
    burst_bytes_us: f64,
    /// When it is free, or when its limit of bytes allows the next request.
    free_us: f64,
    /// When its limit of requests allows the next one.
    requests_us: f64,
    head: u64,
}

impl Disk {
    fn new(device: &DeviceDescription) -> Disk {
        let byte_us = 1e6 / device.bandwidth_bytes_per_s;
        let request_us = device.request_us();
        let burst = device.burst;
        Disk {
            device: *device,
            seeks: device.seeks(),
            access_us: device.access_us(),
            hop_us: device.hop_us(),
            byte_us,
            request_us: if device.seeks() { 0.0 } else { request_us },
            burst_requests_us: burst.map_or(0.0, |burst| f64::from(burst.requests) * request_us),
            burst_bytes_us: burst.map_or(0.0, |burst| burst.bytes as f64 * byte_us),
            free_us: 0.0,
            requests_us: 0.0,
            head: 0,
        }
    }

    /// Time until the head is there, microseconds.
    fn positioning_us(&self, place: u64) -> f64 {
        if place == u64::MAX {
            return self.hop_us;
        }
        if let Some(passed_us) = place.checked_sub(self.head).and_then(|gap| self.device.pass_us(gap)) {
            return passed_us;
        }
        // The seek grows with the root of the distance, between those of the two times in the description.
        let distance = place.abs_diff(self.head) as f64;
        let (near, far) = (HOP_DISTANCE_BYTES.sqrt(), ACCESS_DISTANCE_BYTES.sqrt());
        let share = ((distance.sqrt() - near) / (far - near)).clamp(-near / (far - near), 1.0);
        self.hop_us + (self.access_us - self.hop_us).max(0.0) * share
    }

    /// Serves a read that is submitted at this time. Returns the time at which its first byte arrives, if that is how the disk works, and that
    /// of its last byte.
    fn serve(&mut self, place: u64, bytes: u64, at_us: f64) -> (f64, f64) {
        let transfer_us = bytes as f64 * self.byte_us;
        if self.seeks {
            let begin_us = self.free_us.max(at_us) + self.positioning_us(place);
            self.free_us = begin_us + transfer_us;
            self.head = if place == u64::MAX { self.head } else { place.saturating_add(bytes) };
            return (begin_us, self.free_us);
        }
        let requests = bytes.div_ceil(PART_BYTES).max(1) as f64;
        self.requests_us = self.requests_us.max(at_us) + requests * self.request_us;
        self.free_us = self.free_us.max(at_us) + transfer_us;
        let allowed_us = (self.requests_us - self.burst_requests_us).max(self.free_us - self.burst_bytes_us).max(at_us);
        let end_us = allowed_us.max(at_us + transfer_us) + self.access_us;
        (end_us - transfer_us, end_us)
    }
}

/// What does not change between the candidates of a plan.
#[derive(Debug)]
pub(crate) struct Simulator<'a> {
    script: &'a Script,
    items: &'a [Item],
    device: &'a DeviceDescription,
    processors: f64,
    state: State,
    /// Events and requests that were simulated, over all runs.
    pub steps: u64,
}

/// The buffers of a run, kept for the next one.
#[derive(Debug, Default)]
struct State {
    /// When each item has arrived, microseconds; infinite: it was not asked for.
    arrived_us: Vec<f64>,
    /// The next event of each thread.
    next: Vec<u32>,
    /// The thread that waits for a signal, or a mark.
    signals: Vec<u32>,
    /// When the requests in the queue arrive, and their time.
    queue: std::collections::VecDeque<(f64, f64)>,
    /// Threads that compute, by the virtual time of their next event.
    running: BinaryHeap<Reverse<(u64, u32)>>,
    /// Threads that wait for the disk or sleep, by time.
    waiting: BinaryHeap<Reverse<(u64, u32)>>,
}

/// A signal for which no thread waits yet.
const NOT_GIVEN: u32 = u32::MAX;
/// A signal that was given.
const GIVEN: u32 = u32::MAX - 1;

/// A plan for the simulator.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Candidate<'a> {
    pub requests: &'a [Request],
    /// Requests after which the program starts.
    pub head_start: usize,
    /// Maximum time of the requests in the queue of the disk, microseconds.
    pub queue_us: f64,
}

impl<'a> Simulator<'a> {
    pub fn new(script: &'a Script, items: &'a [Item], device: &'a DeviceDescription, processors: u32) -> Simulator<'a> {
        let processors = f64::from(processors.max(1));
        Simulator { script, items, device, processors, state: State::default(), steps: 0 }
    }

    /// Runs a candidate.
    pub fn run(&mut self, candidate: &Candidate<'_>) -> Outcome {
        self.state.reset(self.script, self.items.len(), f64::INFINITY);
        let mut prefetch = Prefetch {
            items: self.items,
            candidate,
            disk: Disk::new(self.device),
            next: 0,
            at_us: 0.0,
            queued_us: 0.0,
            demands: 0,
        };
        while prefetch.next < candidate.head_start.min(candidate.requests.len()) {
            prefetch.submit(&mut self.state);
        }
        let start_us = if candidate.head_start == 0 { 0.0 } else { prefetch.at_us };
        let end_us = follow(self.script, &mut self.state, self.processors, start_us, |id, at_us, state| {
            prefetch.advance(at_us, state);
            let arrived_us = state.arrived_us[id as usize];
            if arrived_us < f64::INFINITY { arrived_us } else { prefetch.demand(id, at_us, state) }
        });
        self.steps += (self.script.events.len() + prefetch.next) as u64;
        Outcome { end_us, start_us, demands: prefetch.demands }
    }

    /// When the program ends if everything is cached, microseconds since its start.
    pub fn warm_us(&mut self) -> f64 {
        self.state.reset(self.script, 0, 0.0);
        self.steps += self.script.events.len() as u64;
        follow(self.script, &mut self.state, self.processors, 0.0, |_, _, _| 0.0)
    }
}

/// Inserts sleeps into a script without sleeps, so that no use comes before its recorded time with everything cached.
pub(crate) fn insert_sleeps(script: &mut Script, times_us: &[f64], processors: f64) {
    let mut late: Vec<f64> = vec![0.0; times_us.len()];
    let mut state = State::default();
    state.reset(script, 0, 0.0);
    follow(script, &mut state, processors, 0.0, |id, at_us, _| {
        let time_us = times_us[id as usize];
        late[id as usize] = (time_us - at_us).max(0.0);
        time_us
    });
    let mut events = Vec::with_capacity(script.events.len());
    for thread in 0..script.first.len() - 1 {
        let of = script.of(thread);
        script.first[thread] = events.len() as u32;
        for event in &script.events[of] {
            if let What::Use(id) = event.what
                && late[id as usize] > RESOLUTION_US
            {
                events.push(Event { at_us: event.at_us, what: What::Sleep(late[id as usize] as u32) });
            }
            events.push(*event);
        }
    }
    *script.first.last_mut().expect("the number of events") = events.len() as u32;
    script.events = events;
}

/// Shorter sleeps may come from the rounding of the clocks, microseconds.
const RESOLUTION_US: f64 = 5.0;

struct Prefetch<'a> {
    items: &'a [Item],
    candidate: &'a Candidate<'a>,
    disk: Disk,
    next: usize,
    /// When it can submit the next request.
    at_us: f64,
    queued_us: f64,
    demands: u64,
}

impl Prefetch<'_> {
    /// Submits everything that is submitted by this time.
    fn advance(&mut self, now_us: f64, state: &mut State) {
        while self.next < self.candidate.requests.len() && self.at_us <= now_us {
            self.submit(state);
        }
    }

    fn submit(&mut self, state: &mut State) {
        let request = &self.candidate.requests[self.next];
        self.next += 1;
        self.at_us += REQUEST_CPU_US + PAGE_CPU_US * (request.bytes / PAGE_BYTES) as f64;
        let arrived_us = &mut state.arrived_us[request.items.0 as usize..request.items.1 as usize];
        let is_needed = arrived_us.contains(&f64::INFINITY);
        if !is_needed {
            return;
        }
        if request.bytes == 0 {
            arrived_us.fill(self.at_us);
            return;
        }
        let was_free_us = self.disk.free_us.max(self.at_us);
        let (first_us, end_us) = self.disk.serve(request.place, request.bytes, self.at_us);
        if request.bytes <= PART_BYTES {
            arrived_us.iter_mut().for_each(|arrived_us| *arrived_us = arrived_us.min(end_us));
        } else {
            let mut bytes_before = 0;
            let items = &self.items[request.items.0 as usize..request.items.1 as usize];
            for (item, arrived_us) in items.iter().zip(arrived_us) {
                // Gaps are left out: it arrives a little early.
                bytes_before = (bytes_before + item.bytes).next_multiple_of(PART_BYTES).min(request.bytes);
                *arrived_us = arrived_us.min((first_us + bytes_before as f64 * self.disk.byte_us).min(end_us));
                bytes_before = bytes_before.saturating_sub(PART_BYTES) + item.bytes % PART_BYTES;
            }
        }
        let takes_us = if self.disk.seeks {
            end_us - was_free_us
        } else {
            self.disk.request_us + request.bytes as f64 * self.disk.byte_us
        };
        state.queue.push_back((end_us, takes_us));
        self.queued_us += takes_us;
        while state.queue.len() > 1 && (self.queued_us > self.candidate.queue_us || state.queue.len() > MOST_QUEUED) {
            let Some((arrives_us, takes_us)) = state.queue.pop_front() else { break };
            self.at_us = self.at_us.max(arrives_us);
            self.queued_us -= takes_us;
        }
    }

    /// The program reads this item itself. Returns when it has it.
    fn demand(&mut self, id: u32, at_us: f64, state: &mut State) -> f64 {
        self.demands += 1;
        let item = self.items[id as usize];
        let (first, end) = (item.brings.0 as usize, item.brings.1 as usize);
        let bytes: u64 = self.items[first..end].iter().map(|item| item.bytes).sum();
        let bytes = bytes.clamp(PAGE_BYTES, DEMAND_BYTES).max(item.bytes.min(DEMAND_BYTES));
        let (_, end_us) = self.disk.serve(item.place, bytes, at_us);
        let brought = &mut state.arrived_us[first..end];
        brought.iter_mut().for_each(|arrived_us| *arrived_us = arrived_us.min(end_us));
        state.arrived_us[id as usize]
    }
}

impl State {
    fn reset(&mut self, script: &Script, items: usize, arrived_us: f64) {
        self.arrived_us.clear();
        self.arrived_us.resize(items, arrived_us);
        self.next.clear();
        self.next.extend_from_slice(&script.first[..script.first.len().saturating_sub(1)]);
        self.signals.clear();
        self.signals.resize(script.signals, NOT_GIVEN);
        self.queue.clear();
        self.running.clear();
        self.waiting.clear();
    }
}

/// Follows the threads of a program that starts at `start_us`. `need`: the program needs an item at this time; returns when it has it. Returns
/// when its first thread ends.
///
/// Threads that compute at the same time share the processors equally. So one virtual time applies to all of them.
fn follow(
    script: &Script,
    state: &mut State,
    processors: f64,
    start_us: f64,
    mut need: impl FnMut(u32, f64, &mut State) -> f64,
) -> f64 {
    let mut clock = Clock { now_us: start_us, virtual_us: 0.0, running: 0, is_contradictory: false };
    for thread in &script.roots {
        resume(script, state, &mut clock, *thread);
    }
    loop {
        let rate = if clock.running as f64 <= processors { 1.0 } else { processors / clock.running as f64 };
        let next = state.running.peek().map(|Reverse((bits, thread))| (f64::from_bits(*bits), *thread));
        let due_us = next.map_or(f64::INFINITY, |(at_us, _)| clock.now_us + (at_us - clock.virtual_us).max(0.0) / rate);
        if let Some(&Reverse((bits, thread))) = state.waiting.peek()
            && f64::from_bits(bits) <= due_us
        {
            let wakes_us = f64::from_bits(bits).max(clock.now_us);
            clock.virtual_us += (wakes_us - clock.now_us) * rate;
            clock.now_us = wakes_us;
            state.waiting.pop();
            resume(script, state, &mut clock, thread);
            continue;
        }
        let Some((at_us, thread)) = next else {
            // Threads wait for signals only: the timeline contradicts itself. From here on no thread waits for another.
            if std::mem::replace(&mut clock.is_contradictory, true) {
                return clock.now_us;
            }
            for signal in 0..state.signals.len() {
                let waits = state.signals[signal];
                if waits < GIVEN {
                    state.signals[signal] = GIVEN;
                    resume(script, state, &mut clock, waits);
                }
            }
            continue;
        };
        clock.now_us = due_us;
        clock.virtual_us = clock.virtual_us.max(at_us);
        state.running.pop();
        clock.running -= 1;
        if step(script, state, &mut clock, thread, &mut need) && thread == 0 {
            return clock.now_us;
        }
    }
}

#[derive(Debug)]
struct Clock {
    now_us: f64,
    virtual_us: f64,
    /// Threads that compute.
    running: usize,
    /// The signals of the timeline do not come.
    is_contradictory: bool,
}

/// The thread computes until its next event.
fn resume(script: &Script, state: &mut State, clock: &mut Clock, thread: u32) {
    let next = state.next[thread as usize] as usize;
    let of = script.of(thread as usize);
    let before_us = if next > of.start { script.events[next - 1].at_us } else { 0.0 };
    let own_us = (script.events[next].at_us - before_us).max(0.0);
    state.running.push(Reverse(((clock.virtual_us + own_us).to_bits(), thread)));
    clock.running += 1;
}

/// The thread is at its next event. Continues while its events come at once. Returns whether it has ended.
fn step(
    script: &Script,
    state: &mut State,
    clock: &mut Clock,
    thread: u32,
    need: &mut impl FnMut(u32, f64, &mut State) -> f64,
) -> bool {
    let end = script.of(thread as usize).end;
    loop {
        let index = state.next[thread as usize] as usize;
        let event: Event = script.events[index];
        state.next[thread as usize] += 1;
        match event.what {
            What::End => return true,
            What::Start(child) => resume(script, state, clock, child),
            What::Signal(signal) => {
                let waits = std::mem::replace(&mut state.signals[signal as usize], GIVEN);
                if waits < GIVEN {
                    resume(script, state, clock, waits);
                }
            }
            What::Await(signal) => {
                let given = &mut state.signals[signal as usize];
                if *given != GIVEN && !clock.is_contradictory {
                    *given = thread;
                    return false;
                }
            }
            What::Sleep(sleep_us) => {
                state.waiting.push(Reverse(((clock.now_us + f64::from(sleep_us)).to_bits(), thread)));
                return false;
            }
            What::Use(id) => {
                let has_us = need(id, clock.now_us, state);
                if has_us > clock.now_us {
                    state.waiting.push(Reverse((has_us.to_bits(), thread)));
                    return false;
                }
            }
        }
        debug_assert!(index + 1 < end, "the last event is the end");
        // The next event is due: no queue.
        if script.events[index + 1].at_us > event.at_us {
            resume(script, state, clock, thread);
            return false;
        }
    }
}
