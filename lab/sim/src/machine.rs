//! The simulated machine: one processor, several processes, one disk, and a policy that reads ahead.
//!
//! ```text
//!     process: operation ─▶ page cached? ─ yes ─▶ use it: processor time ─▶ next page
//!                              │ no, or marked
//!                              ▼
//!                 policy ─▶ requests ─▶ cache (locked) + queue ─▶ disk … done ─▶ cache (present) ─▶ wakes waiting processes
//! ```
//!
//! Time advances by the work of the running process, or, when no process can run, to the next completion of a
//! request. The machine processes all completions up to that time before it asks a policy or looks at a page. So
//! events happen in the order of their times, and the same scenario gives the same figures on every machine.

mod metadata;
mod pages;
mod prefetch;
mod requests;
mod write;
mod writeback;

use crate::cache::{Evicted, Use};
use crate::counters::{AtWork, Counters, Finished};
use crate::layout::Block;
use crate::queue::Done;
use crate::workload::{Op, Ops};
use crate::world::{METADATA, World};
use ahead_device::Op as DiskOp;
use ahead_policy::{Call, Event, FileId, OpenId, PAGE_BYTES, Page, Policy, Request, Requests, View, Wants, WhenFull};
use pages::Pages;
use rustc_hash::FxHashMap;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap, VecDeque};
use write::Write;
use writeback::Writeback;

pub use writeback::DirtyLimits;

/// Costs in processor time, nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Costs {
    /// Copy of a page out of the cache.
    pub copy_per_page_ns: f64,
    /// A system call, without copying.
    pub call_ns: f64,
    /// A fault.
    pub fault_ns: f64,
    /// Adding a page to the cache and requesting it from the disk.
    pub request_per_page_ns: f64,
    /// Copy of a page from the disk to memory by the processor (programmed input); 0: the disk uses DMA.
    pub pio_per_page_ns: f64,
}

/// The settings of the machine.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Settings {
    /// The costs.
    pub costs: Costs,
    /// The time slice of a process while others wait for the processor, nanoseconds.
    pub slice_ns: u64,
    /// Cached pages that a fault maps around the faulting page; 1: only the page itself.
    pub fault_around_pages: u64,
    /// When dirty pages are written to the disk.
    pub dirty: DirtyLimits,
    /// Time limit of the run, nanoseconds.
    pub end_ns: u64,
}

/// The current operation of a process.
#[derive(Clone, Copy, Debug)]
enum Doing {
    Pages(Pages),
    /// Opens a file, which needs its inode.
    Open {
        open: OpenId,
        file: FileId,
    },
    Write(Write),
    /// Waits until all pages of a file are written.
    Sync {
        file: FileId,
    },
    /// Computes for the rest of the operation.
    Compute {
        left_ns: u64,
    },
    /// Waits until none of these pages is in flight.
    Await {
        file: FileId,
        page: Page,
        end: Page,
    },
}

/// A program.
pub struct Program {
    /// Its operations.
    pub ops: Ops,
    /// The program's own work on each page that it reads or touches, nanoseconds.
    pub user_per_page_ns: f64,
}

struct Process {
    ops: Ops,
    user_per_page_ns: f64,
    doing: Option<Doing>,
    /// Requests that must be submitted before the process continues.
    requests: VecDeque<Request>,
    /// The open file of these requests.
    asks_for: OpenId,
    waits_since_ns: u64,
    waits_for: Option<(OpenId, FileId, Page)>,
    waits_for_writeback: bool,
    /// Whether the machine woke the process for room in the queue, and the process has not submitted yet.
    has_turn: bool,
}

/// The result of submitting requests for pages.
enum Submitted {
    All,
    /// The queue is full.
    NoRoom,
    /// The block that contains the place of the next page has not arrived.
    Needs(Block),
}

enum Step {
    Went,
    Blocked,
    Ended,
}

/// The machine with its processes.
pub struct Machine {
    world: World,
    policy: Box<dyn Policy>,
    wants: Wants,
    settings: Settings,
    processes: Vec<Process>,
    ready: VecDeque<usize>,
    waiting: BTreeMap<(FileId, Page), Vec<usize>>,
    waiting_for_room: VecDeque<usize>,
    sleeping: BinaryHeap<std::cmp::Reverse<(u64, usize)>>,
    /// Pages that were evicted unused, each with a number.
    ghosts: FxHashMap<(FileId, Page), u64>,
    ghosts_in_order: VecDeque<((FileId, Page), u64)>,
    next_ghost: u64,
    counters: Counters,
    /// When the programmed input of the disk ends.
    moved_until_ns: u64,
    /// The activity of the processor, which programmed input interrupts.
    at_work: AtWork,
    /// The programs' work below a nanosecond that is not yet counted.
    user_rest_ns: f64,
    evicted: Vec<Evicted>,
    /// Processes that have not ended.
    alive: BTreeSet<usize>,
    /// Requests that no process waits for. They need a block that contains the places of their pages.
    deferred: BTreeMap<Block, Vec<(OpenId, VecDeque<Request>)>>,
    /// The end of the last read of each open file, bytes.
    positions: Vec<u64>,
    writeback: Writeback,
    /// Head starts that have ended, and the processes that wait for the others.
    released: BTreeSet<u32>,
    held: BTreeMap<u32, Vec<usize>>,
    finished: Option<Vec<Finished>>,
}

impl Machine {
    /// A machine with these processes, all ready to run.
    pub fn new(world: World, policy: Box<dyn Policy>, settings: Settings, programs: Vec<Program>) -> Machine {
        let process = |Program { ops, user_per_page_ns }| Process {
            ops,
            user_per_page_ns,
            doing: None,
            requests: VecDeque::new(),
            asks_for: OpenId::default(),
            waits_since_ns: 0,
            waits_for: None,
            waits_for_writeback: false,
            has_turn: false,
        };
        let processes: Vec<Process> = programs.into_iter().map(process).collect();
        Machine {
            wants: policy.wants(),
            world,
            policy,
            settings,
            ready: (0..processes.len()).collect(),
            alive: (0..processes.len()).collect(),
            processes,
            waiting: BTreeMap::new(),
            waiting_for_room: VecDeque::new(),
            sleeping: BinaryHeap::new(),
            ghosts: FxHashMap::default(),
            ghosts_in_order: VecDeque::new(),
            next_ghost: 0,
            counters: Counters::default(),
            moved_until_ns: 0,
            at_work: AtWork::Idle,
            user_rest_ns: 0.0,
            evicted: Vec::new(),
            deferred: BTreeMap::new(),
            positions: Vec::new(),
            writeback: Writeback::default(),
            released: BTreeSet::new(),
            held: BTreeMap::new(),
            finished: None,
        }
    }

    /// Runs all processes to their ends.
    pub fn run(self) -> Counters {
        self.run_to_end().counters
    }

    /// Runs all processes to their ends, and returns each call and access in the order of their ends.
    pub fn run_with_calls(mut self) -> (Counters, Vec<Finished>) {
        self.finished = Some(Vec::new());
        let machine = self.run_to_end();
        (machine.counters, machine.finished.unwrap_or_default())
    }

    fn run_to_end(mut self) -> Machine {
        while !self.alive.is_empty() && self.world.now_ns < self.settings.end_ns {
            self.settle();
            self.at_work = AtWork::Idle;
            match self.ready.pop_front() {
                Some(process) => self.run_slice(process),
                None => {
                    // A waiting process waits for one of the events.
                    let Some(next_ns) = self.next_event_ns() else {
                        unreachable!("processes wait for nothing");
                    };
                    self.world.now_ns = self.world.now_ns.max(next_ns.min(self.settings.end_ns));
                }
            }
        }
        self.counters.ended = self.alive.is_empty();
        self.counters.elapsed_ns = self.world.now_ns;
        self.counters.unread_pages = self.world.cache.unused_pages();
        self.drain();
        self.counters.unwritten_pages = self.world.cache.dirty_pages() + self.world.cache.writeback_pages();
        self.counters.device = self.world.queue.account();
        self
    }

    /// Lets the disk complete all requests, so that its counters and those of the pages agree; nothing else runs.
    fn drain(&mut self) {
        self.world.queue.unplug(self.world.now_ns);
        while let Some(at_ns) = self.world.queue.next_done_ns().into_iter().chain(self.world.queue.next_turn_ns()).min()
        {
            self.world.now_ns = self.world.now_ns.max(at_ns);
            self.world.queue.turn_at(self.world.now_ns);
            let Some(done) = self.world.queue.take_done(self.world.now_ns, self.world.now_ns) else { continue };
            if done.op == DiskOp::Write {
                done.ranges.iter().for_each(|range| self.written(range));
            }
        }
        self.counters.drained_ns = self.world.now_ns;
    }

    /// Processes all completions until now.
    fn settle(&mut self) {
        while let Some(std::cmp::Reverse((at_ns, process))) = self.sleeping.peek().copied()
            && at_ns <= self.world.now_ns
        {
            self.sleeping.pop();
            self.ready.push_back(process);
        }
        self.world.queue.turn_at(self.world.now_ns);
        while self.world.queue.next_done_ns().is_some_and(|at_ns| at_ns <= self.world.now_ns) {
            let moved_until_ns = self.move_by_processor();
            let Some(done) = self.world.queue.take_done(self.world.now_ns, moved_until_ns) else { break };
            match done.op {
                DiskOp::Read => self.arrived(&done),
                DiskOp::Write => done.ranges.iter().for_each(|range| self.written(range)),
            }
            self.wake_for_room();
            self.write_back();
        }
        if self.next_expiry_ns().is_some_and(|at_ns| at_ns <= self.world.now_ns) {
            self.write_back();
        }
    }

    /// With programmed input the processor moves the data that has arrived, whichever process is running. The disk
    /// continues afterwards.
    fn move_by_processor(&mut self) -> u64 {
        let per_page_ns = self.settings.costs.pio_per_page_ns;
        let (Some(at_ns), Some(pages)) = (self.world.queue.next_done_ns(), self.world.queue.next_done_pages()) else {
            return 0;
        };
        if per_page_ns == 0.0 {
            return at_ns;
        }
        let took_ns = (per_page_ns * pages as f64) as u64;
        self.counters.system_ns += took_ns;
        self.counters.moved.add(self.at_work, took_ns);
        self.moved_until_ns = self.moved_until_ns.max(at_ns) + took_ns;
        self.world.now_ns = self.world.now_ns.max(at_ns) + took_ns;
        self.moved_until_ns
    }

    fn arrived(&mut self, done: &Done) {
        for range in &done.ranges {
            self.world.cache.arrive(range.file, range.first, range.pages);
            if self.wants.arrivals && range.file != METADATA {
                self.tell(&Event::Arrived { file: range.file, first: range.first, pages: range.pages });
            }
            let (first, end) = ((range.file, range.first), (range.file, range.first + range.pages));
            let woken: Vec<(FileId, Page)> = self.waiting.range(first..end).map(|(page, _)| *page).collect();
            for page in woken {
                self.ready.extend(self.waiting.remove(&page).unwrap_or_default());
            }
            if range.file == METADATA {
                (range.first..range.first + range.pages).for_each(|block| self.resume_deferred(block));
            }
        }
    }

    /// Reports an event to the policy, and submits its requests as far as there is room.
    fn tell(&mut self, event: &Event) {
        let mut requests = Requests::default();
        self.policy.event(event, &self.world, &mut requests);
        self.rescue(&mut requests);
        let list: VecDeque<Request> =
            requests.drain().map(|request| Request { when_full: WhenFull::Drop, ..request }).collect();
        if !list.is_empty() {
            self.counters.decisions += 1;
            self.submit_unattended(list, OpenId::default());
        }
    }

    fn rescue(&mut self, requests: &mut Requests) {
        for (file, first, pages) in requests.take_rescued() {
            self.world.cache.rescue(file, first, pages);
        }
    }

    fn run_slice(&mut self, process: usize) {
        let end_ns = self.world.now_ns + self.settings.slice_ns;
        loop {
            match self.step(process, end_ns) {
                Step::Went if self.world.now_ns >= end_ns => {
                    self.settle();
                    return self.ready.push_back(process);
                }
                Step::Went => self.settle(),
                Step::Blocked => return,
                Step::Ended => {
                    self.alive.remove(&process);
                    return;
                }
            }
        }
    }

    /// Carries fractions of a nanosecond over, so that the same work takes the same time in any division.
    fn user(&mut self, time_ns: f64) {
        self.at_work = AtWork::User;
        let time_ns = time_ns + self.user_rest_ns;
        self.user_rest_ns = time_ns.fract();
        self.world.now_ns += time_ns as u64;
        self.counters.user_ns += time_ns as u64;
    }

    fn system(&mut self, time_ns: f64) {
        self.at_work = AtWork::System;
        self.world.now_ns += time_ns as u64;
        self.counters.system_ns += time_ns as u64;
    }

    /// Runs the process until the machine has to process events. A process that had the turn to use the queue, or has
    /// added requests, can leave room in the queue. Then the next process that waits for room may try: no other event
    /// would wake that process.
    fn step(&mut self, process: usize, end_ns: u64) -> Step {
        let tries = self.processes[process].has_turn || !self.processes[process].requests.is_empty();
        let step = self.go_on(process, end_ns);
        self.processes[process].has_turn = false;
        let (queue, line) = (&self.world.queue, &self.waiting_for_room);
        if tries && queue.requests() < queue.limit() && ![line.front(), line.back()].contains(&Some(&process)) {
            self.wake_for_room();
        }
        step
    }

    fn go_on(&mut self, process: usize, end_ns: u64) -> Step {
        self.note_end_of_wait(process);
        self.note_end_of_writeback_wait(process);
        if !self.submit_for(process) {
            return Step::Blocked;
        }
        match self.processes[process].doing {
            Some(Doing::Pages(pages)) => self.step_pages(process, pages, end_ns),
            Some(Doing::Write(write)) => self.step_write(process, write, end_ns),
            Some(Doing::Sync { file }) => self.step_sync(process, file),
            Some(Doing::Open { open, file }) => self.step_open(process, open, file),
            Some(Doing::Await { file, page, end }) => self.step_await(process, file, page..end),
            Some(Doing::Compute { left_ns }) => {
                let now_ns = left_ns.min(end_ns.saturating_sub(self.world.now_ns).max(1));
                self.user(now_ns as f64);
                let left_ns = left_ns - now_ns;
                self.processes[process].doing = (left_ns > 0).then_some(Doing::Compute { left_ns });
                Step::Went
            }
            None => self.next_ops(process, end_ns),
        }
    }

    /// Executes the next operations: reads of cached pages, up to an operation that takes longer.
    fn next_ops(&mut self, process: usize, end_ns: u64) -> Step {
        let quiet_until_ns = self.next_event_ns().unwrap_or(u64::MAX).min(end_ns);
        loop {
            match self.processes[process].ops.next() {
                Some(op) if self.read_at_once(process, op, quiet_until_ns) => {
                    if self.processes[process].doing.is_some() {
                        return Step::Went;
                    }
                }
                Some(op) => return self.begin(process, op),
                None => return Step::Ended,
            }
        }
    }

    /// Time of the next event: a request completes, the disk's time slice passes to another reader, a sleep ends, or
    /// dirty pages expire.
    fn next_event_ns(&self) -> Option<u64> {
        let done = self.world.queue.next_done_ns();
        let wakes = self.sleeping.peek().map(|std::cmp::Reverse((at_ns, _))| *at_ns);
        let expires = self.next_expiry_ns().filter(|at_ns| *at_ns > self.world.now_ns);
        let turn = self.world.queue.next_turn_ns();
        done.into_iter().chain(turn).chain(wakes).chain(expires).min()
    }

    fn note_end_of_wait(&mut self, process: usize) {
        let Some((open, file, page)) = self.processes[process].waits_for.take() else { return };
        let wait_ns = self.world.now_ns - self.processes[process].waits_since_ns;
        self.counters.wait_ns += wait_ns;
        if file == METADATA {
            self.counters.metadata_wait_ns += wait_ns;
            // The requests that need this block are submitted next.
            self.world.cache.use_pages(METADATA, page, 1, Use::Again);
        } else if self.wants.waits {
            self.tell(&Event::Waited { open, file, page, wait_ns });
        }
    }

    /// Submits the remaining requests. False: the process waits for room in the queue, or for the block that contains
    /// the place of the next page.
    fn submit_for(&mut self, process: usize) -> bool {
        if self.processes[process].requests.is_empty() {
            return true;
        }
        let mut requests = std::mem::take(&mut self.processes[process].requests);
        let submitted = self.submit(&mut requests, self.processes[process].asks_for);
        self.processes[process].requests = requests;
        match submitted {
            Submitted::All => {
                self.world.queue.unplug(self.world.now_ns);
                self.processes[process].has_turn = false;
                true
            }
            Submitted::NoRoom => {
                self.wait_for_room(process);
                false
            }
            Submitted::Needs(block) => {
                let asker = self.processes[process].requests.front().map_or(METADATA, |request| request.file);
                self.wait_for_metadata(process, block, asker);
                false
            }
        }
    }

    fn wait_for(&mut self, process: usize, open: OpenId, file: FileId, page: Page) {
        self.processes[process].waits_since_ns = self.world.now_ns;
        self.processes[process].waits_for = Some((open, file, page));
        self.waiting.entry((file, page)).or_default().push(process);
        self.world.cache.pin(file, page);
    }

    /// Ends a call or access.
    fn finish(&mut self, process: usize, call: Call, began_ns: u64) {
        let ended_ns = self.world.now_ns;
        self.processes[process].doing = None;
        self.counters.latency_most_ns = self.counters.latency_most_ns.max(ended_ns - began_ns);
        let (user_ns, system_ns) = (self.counters.user_ns, self.counters.system_ns);
        let Call { offset_bytes, length_bytes } = call;
        if let Some(finished) = &mut self.finished {
            finished.push(Finished { process, offset_bytes, length_bytes, began_ns, ended_ns, user_ns, system_ns });
        }
    }

    fn wait_for_room(&mut self, process: usize) {
        self.world.queue.unplug(self.world.now_ns);
        self.counters.queue_waits += 1;
        // A process that waits for room for all of its requests stays first. Otherwise others would use up the room
        // piece by piece.
        let asks = &self.processes[process];
        let for_all = asks.requests.front().is_some_and(|request| request.when_full == WhenFull::WaitForAll);
        if asks.has_turn && for_all {
            self.waiting_for_room.push_front(process);
        } else {
            self.waiting_for_room.push_back(process);
        }
    }

    /// Wakes the process that has waited longest for room in the queue.
    fn wake_for_room(&mut self) {
        if let Some(process) = self.waiting_for_room.pop_front() {
            self.processes[process].has_turn = true;
            self.ready.push_back(process);
        }
    }

    fn begin(&mut self, process: usize, op: Op) -> Step {
        let now_ns = self.world.now_ns;
        match op {
            Op::Open { open, file } => self.processes[process].doing = Some(Doing::Open { open, file }),
            Op::Close { open } => {
                self.set_position(open, 0);
                self.tell(&Event::Closed { open });
            }
            Op::Advise { open, file, advice } => self.tell(&Event::Advised { open, file, advice }),
            Op::Read { open, file, offset_bytes, length_bytes } => {
                self.system(self.settings.costs.call_ns);
                let size_bytes = self.world.file_pages(file) * PAGE_BYTES;
                if let Some(pages) = Pages::read(open, file, offset_bytes, length_bytes, size_bytes) {
                    self.begin_pages(process, pages, now_ns);
                }
            }
            Op::Touch { open, file, first, pages, mapped } => {
                let file_pages = self.world.file_pages(file);
                let pages = first..first.saturating_add(pages);
                if let Some(pages) = Pages::touch(open, file, pages, mapped, file_pages) {
                    self.begin_pages(process, pages, now_ns);
                }
            }
            Op::Write { open, file, offset_bytes, length_bytes } => {
                self.system(self.settings.costs.call_ns);
                if length_bytes > 0 {
                    let write = Write::new(open, file, Call { offset_bytes, length_bytes }, now_ns);
                    self.processes[process].doing = Some(Doing::Write(write));
                }
            }
            Op::Seek { open, file, offset_bytes } => {
                self.system(self.settings.costs.call_ns);
                self.tell(&Event::Sought { open, file, offset_bytes });
            }
            Op::Sync { file } => {
                self.system(self.settings.costs.call_ns);
                self.processes[process].doing = Some(Doing::Sync { file });
            }
            Op::Compute { time_ns } => {
                self.processes[process].doing = (time_ns > 0).then_some(Doing::Compute { left_ns: time_ns });
            }
            Op::Sleep { time_ns } => {
                self.sleeping.push(std::cmp::Reverse((now_ns + time_ns, process)));
                return Step::Blocked;
            }
            Op::Prefetch(op) => return self.begin_prefetch(process, op),
        }
        Step::Went
    }
}
