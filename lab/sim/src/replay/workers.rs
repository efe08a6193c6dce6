//! The threads of a simulated replay, and the queue of its disk.

use super::{Places, ReplayCosts, ReplaySettings, Replayed, calls_of};
use crate::queue::{Added, Queue, Range, Scheduler};
use ahead_device::Op;
use ahead_model::{DeviceDescription, PAGE_BYTES};
use ahead_plan::pacing::{MOST_WAITING, Queued};
use ahead_plan::{Plan, Source, Span, Step};
use ahead_policy::FileId;
use std::collections::{HashSet, VecDeque};

/// The kernel's default window for a disk, bytes. A call reads at least this much.
const WINDOW_BYTES: u64 = 128 << 10;

/// A phase of the plan, up to a step.
#[derive(Clone, Copy, Debug)]
pub(super) struct Run {
    /// The first step after the phase.
    pub end: usize,
    pub workers: usize,
    /// The limit on a worker's queued calls, microseconds of the device's time.
    pub queue_us: f64,
    /// Whether the phase ends only when all its pages have arrived.
    pub waits: bool,
}

/// The reason why a worker is blocked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Held {
    /// Not blocked.
    No,
    /// The queue of the disk is full.
    Room,
    /// A call has not arrived.
    Call(usize),
}

struct Worker {
    at_ns: u64,
    held: Held,
    /// First use of the pages of the current step, microseconds.
    first_use_us: u64,
    /// Calls of the current step that are not yet made.
    calls: VecDeque<(Source, std::ops::Range<u64>)>,
    /// Parts of the current call that are not yet queued: place and length.
    parts: VecDeque<(u64, u64)>,
    /// The current call.
    call: usize,
    /// Calls that were made and not yet awaited.
    queued: Queued<usize>,
    is_over: bool,
}

/// A call that was made.
struct Call {
    /// Pages that have not arrived.
    pages_left: u64,
    pages: u64,
    done_ns: u64,
}

pub(super) struct Workers<'a> {
    plan: &'a Plan,
    places: &'a Places,
    description: &'a DeviceDescription,
    costs: ReplayCosts,
    cap_bytes: u64,
    queue: Queue,
    next_step: usize,
    calls: Vec<Call>,
    opened: HashSet<Source>,
    /// For each call that reads metadata: first use of its pages, microseconds, and the call.
    metadata: Vec<(u64, usize)>,
    now_ns: u64,
    result: Replayed,
    observer: &'a mut dyn FnMut(Source, &std::ops::Range<u64>),
}

impl<'a> Workers<'a> {
    pub fn new(
        settings: &ReplaySettings,
        description: &'a DeviceDescription,
        plan: &'a Plan,
        places: &'a Places,
        capacity_bytes: u64,
        observer: &'a mut dyn FnMut(Source, &std::ops::Range<u64>),
    ) -> Workers<'a> {
        let model = &settings.model;
        let scheduler = if model.scheduler() == "none" { Scheduler::None } else { Scheduler::Deadline };
        let longest_bytes = model.max_request_bytes();
        Workers {
            plan,
            places,
            description,
            costs: settings.costs,
            cap_bytes: longest_bytes.max(WINDOW_BYTES),
            queue: Queue::new(model, capacity_bytes, model.nr_requests(), longest_bytes, scheduler),
            next_step: 0,
            calls: Vec::new(),
            opened: HashSet::new(),
            metadata: Vec::new(),
            now_ns: settings.costs.start_ns,
            result: Replayed { over_budget_bytes: plan.over_budget_bytes, ..Replayed::default() },
            observer,
        }
    }

    /// Executes a phase of the plan.
    pub fn run(&mut self, run: &Run) {
        let worker = || Worker {
            at_ns: self.now_ns,
            held: Held::No,
            first_use_us: 0,
            calls: VecDeque::new(),
            parts: VecDeque::new(),
            call: 0,
            queued: Queued::new(run.queue_us),
            is_over: self.next_step >= run.end,
        };
        let mut workers: Vec<Worker> = (0..run.workers).map(|_| worker()).collect();
        let first_call = self.calls.len();
        while workers.iter().any(|worker| !worker.is_over) {
            let ready = workers.iter_mut().filter(|worker| !worker.is_over && worker.held == Held::No);
            let ready = ready.min_by_key(|worker| worker.at_ns);
            let done_ns = self.queue.next_done_ns();
            match ready {
                Some(worker) if done_ns.is_none_or(|done_ns| worker.at_ns <= done_ns) => self.step(worker, run),
                _ => self.arrive(&mut workers),
            }
        }
        self.now_ns = workers.iter().map(|worker| worker.at_ns).fold(self.now_ns, u64::max);
        if run.waits {
            while self.calls[first_call..].iter().any(|call| call.pages_left > 0) {
                self.arrive(&mut []);
            }
            let last_ns = self.calls[first_call..].iter().map(|call| call.done_ns).max();
            self.now_ns = self.now_ns.max(last_ns.unwrap_or(0) + self.costs.wake_ns);
        }
    }

    /// Waits until all pages have arrived, and detects them in the order of issue.
    pub fn finish(mut self) -> Replayed {
        while self.queue.next_done_ns().is_some() {
            self.arrive(&mut []);
        }
        let mut at_ns = self.now_ns;
        for call in &self.calls {
            if call.done_ns > at_ns {
                at_ns = call.done_ns + self.costs.wake_ns;
            }
            at_ns += call.pages * self.costs.see_ns;
        }
        Replayed { arrived_ns: at_ns, submitted_ns: self.now_ns, device: self.queue.account(), ..self.result }
    }

    /// Processes the next completion.
    fn arrive(&mut self, workers: &mut [Worker]) {
        let Some(at_ns) = self.queue.next_done_ns() else { return };
        let Some(done) = self.queue.take_done(at_ns, at_ns) else { return };
        for range in done.ranges {
            let call = &mut self.calls[range.file.0 as usize];
            call.pages_left -= range.pages;
            call.done_ns = at_ns;
        }
        for worker in workers {
            let is_free = match worker.held {
                Held::No => false,
                Held::Room => true,
                Held::Call(call) => self.calls[call].pages_left == 0,
            };
            if is_free {
                worker.held = Held::No;
                worker.at_ns = worker.at_ns.max(at_ns + self.costs.wake_ns);
            }
        }
    }

    /// Executes the next action of a worker that is not blocked.
    fn step(&mut self, worker: &mut Worker, run: &Run) {
        if !worker.parts.is_empty() {
            return self.queue_parts(worker);
        }
        if let Some(&call) = worker.queued.overdue(MOST_WAITING) {
            if self.calls[call].pages_left > 0 {
                worker.held = Held::Call(call);
            } else {
                worker.queued.pop();
            }
            return;
        }
        if let Some((source, range)) = worker.calls.pop_front() {
            return self.call(worker, source, &range);
        }
        match self.plan.steps.get(self.next_step).filter(|_| self.next_step < run.end) {
            None => worker.is_over = true,
            Some(step) => {
                self.next_step += 1;
                self.take(worker, step);
            }
        }
    }

    fn take(&mut self, worker: &mut Worker, step: &Step) {
        match step {
            Step::Fetch(span) => {
                if self.opened.insert(span.source) {
                    worker.at_ns += self.costs.open_ns;
                    worker.held = self.opening_waits_for(span);
                }
                let calls = calls_of(step, self.cap_bytes);
                worker.first_use_us = span.first_use_us;
                // Nothing is resident: what is not used is bridged.
                let called_bytes: u64 = calls.iter().map(|range| range.end - range.start).sum();
                self.result.bridged_bytes += called_bytes - span.used_bytes();
                worker.calls.extend(calls.into_iter().map(|range| (span.source, range)));
            }
            Step::LookUp(_) | Step::Open(_) | Step::ReadInodes(_) => {
                self.result.lookups += 1;
                worker.at_ns += self.costs.look_up_ns;
            }
        }
    }

    /// Opening a file needs the blocks of its directories and its inode. So it waits for the metadata calls in flight
    /// whose first use was before that of the file's data.
    fn opening_waits_for(&self, span: &Span) -> Held {
        let is_on_its_way = |call: &usize| self.calls.get(*call).is_some_and(|call| call.pages_left > 0);
        let before = self.metadata.iter().filter(|(first_use_us, _)| *first_use_us <= span.first_use_us);
        let last = before.map(|(_, call)| *call).filter(is_on_its_way).max();
        last.filter(|_| !span.source.is_metadata()).map_or(Held::No, Held::Call)
    }

    fn call(&mut self, worker: &mut Worker, source: Source, range: &std::ops::Range<u64>) {
        let bytes = range.end - range.start;
        (self.observer)(source, range);
        self.result.requests += 1;
        self.result.issued_bytes += bytes;
        let stretches = self.places.stretches(source, range);
        let pages = stretches.iter().map(|(_, length)| length.div_ceil(PAGE_BYTES)).sum();
        if source.is_metadata() {
            self.metadata.push((worker.first_use_us, self.calls.len()));
        }
        self.calls.push(Call { pages_left: pages, pages, done_ns: 0 });
        worker.at_ns += self.costs.call_ns + pages * self.costs.page_ns;
        // No request is longer than the disk's limit.
        let longest = self.queue.longest_bytes();
        worker.parts = stretches
            .into_iter()
            .flat_map(|(place, length)| {
                (0..length.div_ceil(longest)).map(move |part| {
                    let start = part * longest;
                    // The last page of a file is read whole.
                    (place + start, longest.min(length - start).next_multiple_of(PAGE_BYTES))
                })
            })
            .collect();
        worker.call = self.calls.len() - 1;
        worker.queued.push(worker.call, self.description.step_us(bytes));
        self.queue_parts(worker);
    }

    fn queue_parts(&mut self, worker: &mut Worker) {
        while let Some(&(place, length)) = worker.parts.front() {
            let file = FileId(worker.call as u32);
            // The order of the pages does not matter, but adjacent ranges must not be merged into one.
            let range = Range { file, first: place / PAGE_BYTES, pages: length.div_ceil(PAGE_BYTES), asker: file };
            if self.queue.add(Op::Read, place, range, length, worker.at_ns) == Added::Full {
                worker.held = Held::Room;
                break;
            }
            worker.parts.pop_front();
        }
        self.queue.unplug(worker.at_ns);
    }
}
