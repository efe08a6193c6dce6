//! The machine: one processor, several processes, one disk, and a policy that reads ahead.
//!
//! ```text
//!     process: operation ─▶ page there? ── yes ─▶ use it: processor time ─▶ next page
//!                              │ no, or marked
//!                              ▼
//!                 policy ─▶ requests ─▶ cache (locked) + queue ─▶ disk … done ─▶ cache (there) ─▶ wakes who waits
//! ```
//!
//! Time advances by what the running process does, or, when nobody can run, to the next request that is done. Whatever the
//! disk has done by then is taken note of before a policy is asked or a page is looked at; so the order of events is that
//! of their times, and the same scenario gives the same figures on every machine.

mod requests;

use crate::cache::{Evicted, Use};
use crate::counters::Counters;
use crate::finished::{Finished, Watch};
use crate::queue::Done;
use crate::workload::{Op, Ops};
use crate::world::World;
use ahead_policy::{
    Access, By, Call, Event, FileId, Found, OpenId, PAGE_BYTES, Page, Policy, Request, Requests, View, Wants, WhenFull,
};
use rustc_hash::FxHashMap;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap, VecDeque};

/// What things cost the processor, nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Costs {
    /// Copying a page out of the cache.
    pub copy_per_page_ns: f64,
    /// A call, besides that.
    pub call_ns: f64,
    /// A fault.
    pub fault_ns: f64,
    /// Taking a page into the cache and asking the disk for it.
    pub request_per_page_ns: f64,
    /// Moving a page from the disk to memory by the processor (programmed input); 0: the disk does it (DMA).
    pub pio_per_page_ns: f64,
}

/// How the machine is run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Settings {
    /// What things cost.
    pub costs: Costs,
    /// How long a process runs while others wait for the processor, nanoseconds.
    pub slice_ns: u64,
    /// A fault maps so many pages around it that are there; 1: only its own.
    pub fault_around_pages: u64,
    /// The run ends here at the latest, nanoseconds.
    pub end_ns: u64,
}

/// What a process is at.
#[derive(Clone, Copy, Debug)]
enum Doing {
    Pages(Pages),
    /// What is left of it.
    Compute {
        left_ns: u64,
    },
}

/// A row of pages that a process goes through.
#[derive(Clone, Copy, Debug)]
struct Pages {
    open: OpenId,
    file: FileId,
    by: By,
    page: Page,
    end: Page,
    /// One after the last page that the call wants, in the file or not.
    wanted_end: Page,
    call: Call,
    began_ns: u64,
    /// The program's own work on each of them, nanoseconds.
    user_per_page_ns: f64,
    begins: bool,
    /// The page was counted.
    counted: bool,
    /// The policy was told of the page; after a miss it looks again, for a mark.
    asked: Asked,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Asked {
    No,
    AfterMiss,
    Yes,
}

/// A program.
pub struct Program {
    /// What it does.
    pub ops: Ops,
    /// Its own work on each page that it reads or touches, nanoseconds.
    pub user_per_page_ns: f64,
}

struct Process {
    ops: Ops,
    user_per_page_ns: f64,
    doing: Option<Doing>,
    /// What is still to be asked of the disk before it goes on.
    requests: VecDeque<Request>,
    /// On behalf of this opening.
    asks_for: OpenId,
    waits_since_ns: u64,
    waits_for: Option<(OpenId, FileId, Page)>,
}

enum Step {
    Went,
    Blocked,
    Ended,
}

/// A machine and what it runs.
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
    /// Pages that were evicted unused, each with a number, and in which order.
    ghosts: FxHashMap<(FileId, Page), u64>,
    ghosts_in_order: VecDeque<((FileId, Page), u64)>,
    counters: Counters,
    /// When the disk is free again of programmed input.
    moved_until_ns: u64,
    evicted: Vec<Evicted>,
    /// Processes that have not ended.
    alive: BTreeSet<usize>,
    /// The call that has ended in this step.
    finished: Option<Finished>,
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
            counters: Counters::default(),
            moved_until_ns: 0,
            evicted: Vec::new(),
            finished: None,
        }
    }

    /// Runs everything to its end.
    pub fn run(self) -> Counters {
        self.run_watched(&mut |_| {})
    }

    /// Runs everything to its end, and tells of each call that has ended.
    pub fn run_watched(mut self, watch: Watch<'_>) -> Counters {
        while !self.alive.is_empty() && self.world.now_ns < self.settings.end_ns {
            self.settle();
            match self.ready.pop_front() {
                Some(process) => self.run_slice(process, watch),
                None => {
                    let wakes = self.sleeping.peek().map(|std::cmp::Reverse((at_ns, _))| *at_ns);
                    // Whoever waits, waits for one of these two.
                    let Some(next_ns) = self.world.queue.next_done_ns().into_iter().chain(wakes).min() else {
                        unreachable!("processes wait for nothing");
                    };
                    self.world.now_ns = self.world.now_ns.max(next_ns);
                }
            }
        }
        self.counters.elapsed_ns = self.world.now_ns;
        self.counters.unread_pages = self.world.cache.unused_pages();
        self.counters.device = self.world.queue.account();
        self.counters
    }

    /// Takes note of what has happened until now.
    fn settle(&mut self) {
        while let Some(std::cmp::Reverse((at_ns, process))) = self.sleeping.peek().copied()
            && at_ns <= self.world.now_ns
        {
            self.sleeping.pop();
            self.ready.push_back(process);
        }
        while self.world.queue.next_done_ns().is_some_and(|at_ns| at_ns <= self.world.now_ns) {
            let moved_until_ns = self.move_by_processor();
            let Some(done) = self.world.queue.take_done(self.world.now_ns, moved_until_ns) else { break };
            self.arrived(&done);
        }
    }

    /// With programmed input the processor moves what has come, whoever was running; the disk goes on afterwards.
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
        self.moved_until_ns = self.moved_until_ns.max(at_ns) + took_ns;
        self.world.now_ns = self.world.now_ns.max(at_ns) + took_ns;
        self.moved_until_ns
    }

    fn arrived(&mut self, done: &Done) {
        for range in &done.ranges {
            self.world.cache.arrive(range.file, range.first, range.pages);
            if self.wants.arrivals {
                self.tell(&Event::Arrived { file: range.file, first: range.first, pages: range.pages });
            }
            let (first, end) = ((range.file, range.first), (range.file, range.first + range.pages));
            let woken: Vec<(FileId, Page)> = self.waiting.range(first..end).map(|(page, _)| *page).collect();
            for page in woken {
                self.ready.extend(self.waiting.remove(&page).unwrap_or_default());
            }
        }
        // There is room for a request now.
        if let Some(process) = self.waiting_for_room.pop_front() {
            self.ready.push_back(process);
        }
    }

    /// Tells the policy of an event; what it asks for then goes to the disk as far as there is room.
    fn tell(&mut self, event: &Event) {
        let mut requests = Requests::default();
        self.policy.event(event, &self.world, &mut requests);
        self.rescue(&mut requests);
        let mut list: VecDeque<Request> =
            requests.drain().map(|request| Request { when_full: WhenFull::Drop, ..request }).collect();
        if !list.is_empty() {
            self.counters.decisions += 1;
            self.submit(&mut list, OpenId::default());
            self.world.queue.unplug(self.world.now_ns);
        }
    }

    fn rescue(&mut self, requests: &mut Requests) {
        for (file, first, pages) in requests.take_rescued() {
            self.world.cache.rescue(file, first, pages);
        }
    }

    fn run_slice(&mut self, process: usize, watch: Watch<'_>) {
        let end_ns = self.world.now_ns + self.settings.slice_ns;
        loop {
            let step = self.step(process, end_ns);
            if let Some(finished) = self.finished.take() {
                watch(&finished);
            }
            match step {
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

    fn user(&mut self, time_ns: f64) {
        self.world.now_ns += time_ns as u64;
        self.counters.user_ns += time_ns as u64;
    }

    fn system(&mut self, time_ns: f64) {
        self.world.now_ns += time_ns as u64;
        self.counters.system_ns += time_ns as u64;
    }

    /// The process goes on until something has to be looked at anew.
    fn step(&mut self, process: usize, end_ns: u64) -> Step {
        self.note_end_of_wait(process);
        if !self.submit_for(process) {
            return Step::Blocked;
        }
        match self.processes[process].doing {
            Some(Doing::Pages(pages)) => self.step_pages(process, pages, end_ns),
            Some(Doing::Compute { left_ns }) => {
                let now_ns = left_ns.min(end_ns.saturating_sub(self.world.now_ns).max(1));
                self.user(now_ns as f64);
                let left_ns = left_ns - now_ns;
                self.processes[process].doing = (left_ns > 0).then_some(Doing::Compute { left_ns });
                Step::Went
            }
            None => match self.processes[process].ops.next() {
                Some(op) => self.begin(process, op),
                None => Step::Ended,
            },
        }
    }

    fn note_end_of_wait(&mut self, process: usize) {
        let Some((open, file, page)) = self.processes[process].waits_for.take() else { return };
        let wait_ns = self.world.now_ns - self.processes[process].waits_since_ns;
        self.counters.wait_ns += wait_ns;
        if self.wants.waits {
            self.tell(&Event::Waited { open, file, page, wait_ns });
        }
    }

    /// Asks the disk for what is left to be asked for; false: the queue is full, and the process waits.
    fn submit_for(&mut self, process: usize) -> bool {
        if self.processes[process].requests.is_empty() {
            return true;
        }
        let mut requests = std::mem::take(&mut self.processes[process].requests);
        let all = self.submit(&mut requests, self.processes[process].asks_for);
        self.world.queue.unplug(self.world.now_ns);
        self.processes[process].requests = requests;
        if !all {
            self.counters.queue_waits += 1;
            self.waiting_for_room.push_back(process);
        } else if self.world.queue.requests() < self.world.queue.limit() {
            // It did not need all the room that there is: the next one may try.
            self.ready.extend(self.waiting_for_room.pop_front());
        }
        all
    }

    fn begin(&mut self, process: usize, op: Op) -> Step {
        let now_ns = self.world.now_ns;
        match op {
            Op::Open { open, file } => self.tell(&Event::Opened { open, file }),
            Op::Close { open } => self.tell(&Event::Closed { open }),
            Op::Advise { open, file, advice } => self.tell(&Event::Advised { open, file, advice }),
            Op::Read { open, file, offset_bytes, length_bytes } => {
                let size_bytes = self.world.file_pages(file) * PAGE_BYTES;
                let wanted_end = offset_bytes.saturating_add(length_bytes).div_ceil(PAGE_BYTES);
                let length_bytes = length_bytes.min(size_bytes.saturating_sub(offset_bytes));
                self.system(self.settings.costs.call_ns);
                if length_bytes == 0 {
                    return Step::Went;
                }
                let (page, end) = (offset_bytes / PAGE_BYTES, (offset_bytes + length_bytes).div_ceil(PAGE_BYTES));
                let call = Call { offset_bytes, length_bytes };
                self.begin_pages(process, Pages { call, wanted_end, ..fresh(open, file, By::Read, page, end, now_ns) });
            }
            Op::Touch { open, file, first, pages } => {
                let file_pages = self.world.file_pages(file);
                let by =
                    By::Fault { advice: ahead_policy::Advice::Normal, executable: false, first: 0, end: file_pages };
                let end = first.saturating_add(pages).min(file_pages);
                if first < end {
                    self.begin_pages(process, fresh(open, file, by, first, end, now_ns));
                }
            }
            Op::Compute { time_ns } => {
                self.processes[process].doing = (time_ns > 0).then_some(Doing::Compute { left_ns: time_ns });
            }
            Op::Sleep { time_ns } => {
                self.sleeping.push(std::cmp::Reverse((now_ns + time_ns, process)));
                return Step::Blocked;
            }
        }
        Step::Went
    }

    fn begin_pages(&mut self, process: usize, pages: Pages) {
        let user_per_page_ns = self.processes[process].user_per_page_ns;
        self.processes[process].doing = Some(Doing::Pages(Pages { user_per_page_ns, ..pages }));
    }

    /// The next pages: those that are there at once, or one that is not.
    fn step_pages(&mut self, process: usize, mut pages: Pages, end_ns: u64) -> Step {
        let is_read = pages.by == By::Read;
        if !is_read && self.use_mapped(&mut pages, end_ns) {
            return self.went(process, pages);
        }
        let found = self.world.cache.found(pages.file, pages.page);
        if !pages.counted {
            self.count(&mut pages, found);
        }
        let tells = match pages.asked {
            Asked::No => {
                found == Found::Absent
                    || found.is_marked()
                    || self.wants.pages
                    || (is_read && pages.begins && self.wants.calls)
                    || (!is_read && self.wants.faults)
            }
            Asked::AfterMiss => found == Found::Absent || found.is_marked(),
            Asked::Yes => found == Found::Absent,
        };
        if tells {
            self.ask(process, &mut pages, found);
            self.processes[process].doing = Some(Doing::Pages(pages));
            return Step::Went;
        }
        if found.is_locked() {
            self.processes[process].doing = Some(Doing::Pages(pages));
            return self.wait(process, pages);
        }
        if is_read {
            self.use_read(&mut pages, end_ns);
        } else {
            self.map_around(&mut pages);
        }
        self.went(process, pages)
    }

    fn went(&mut self, process: usize, pages: Pages) -> Step {
        if pages.page >= pages.end {
            let ended_ns = self.world.now_ns;
            self.counters.latency_most_ns = self.counters.latency_most_ns.max(ended_ns - pages.began_ns);
            let Pages { file, call, began_ns, .. } = pages;
            self.finished = Some(Finished { program: process, file, call, began_ns, ended_ns });
            self.processes[process].doing = None;
        } else {
            self.processes[process].doing = Some(Doing::Pages(pages));
        }
        Step::Went
    }

    fn count(&mut self, pages: &mut Pages, found: Found) {
        pages.counted = true;
        match found {
            Found::Absent => {
                self.counters.misses += 1;
                if self.ghosts.remove(&(pages.file, pages.page)).is_some() {
                    self.counters.thrashings += 1;
                }
            }
            Found::Locked { .. } => self.counters.locked += 1,
            Found::Present { .. } => self.counters.hits += 1,
        }
        if pages.by != By::Read {
            self.system(self.settings.costs.fault_ns);
        }
    }

    /// Asks the policy; a page that is absent all the same is asked for by itself.
    fn ask(&mut self, process: usize, pages: &mut Pages, found: Found) {
        let mut requests = Requests::default();
        let access = Access {
            open: pages.open,
            file: pages.file,
            by: pages.by,
            page: pages.page,
            wanted: if pages.by == By::Read { pages.wanted_end - pages.page } else { 1 },
            call: pages.call,
            begins: pages.begins,
            found,
        };
        if pages.asked != Asked::Yes {
            if let Found::Locked { marked: true, folio } | Found::Present { marked: true, folio } = found {
                self.world.cache.unmark(pages.file, folio);
            }
            self.policy.access(&access, &self.world, &mut requests);
            self.rescue(&mut requests);
            self.counters.decisions += u64::from(!requests.is_empty());
        }
        pages.begins = false;
        pages.asked = match (pages.asked, found) {
            (Asked::No, Found::Absent) => Asked::AfterMiss,
            _ => Asked::Yes,
        };
        if found == Found::Absent && !requests.cover(pages.file, pages.page) {
            requests.pages(pages.file, pages.page, 1);
        }
        self.processes[process].asks_for = pages.open;
        self.processes[process].requests.extend(requests.drain());
    }

    fn wait(&mut self, process: usize, pages: Pages) -> Step {
        self.processes[process].waits_since_ns = self.world.now_ns;
        self.processes[process].waits_for = Some((pages.open, pages.file, pages.page));
        self.waiting.entry((pages.file, pages.page)).or_default().push(process);
        self.world.cache.pin(pages.file, pages.page);
        Step::Blocked
    }

    /// Pages that are there are read, as many as the process may run for.
    fn use_read(&mut self, pages: &mut Pages, end_ns: u64) {
        let costs = self.settings.costs;
        let per_page_ns = costs.copy_per_page_ns + pages.user_per_page_ns;
        let run = if self.wants.pages {
            1
        } else {
            let most = ((end_ns.saturating_sub(self.world.now_ns)) as f64 / per_page_ns.max(1.0)) as u64 + 1;
            self.world.cache.clear_run(pages.file, pages.page, pages.end).min(most).max(1)
        };
        self.system(costs.copy_per_page_ns * run as f64);
        self.user(pages.user_per_page_ns * run as f64);
        // The first of them is counted already.
        self.counters.hits += run - 1;
        self.used(pages, run, Use::Read);
    }

    fn used(&mut self, pages: &mut Pages, run: u64, by: Use) {
        self.counters.used_pages += self.world.cache.use_pages(pages.file, pages.page, run, by);
        self.counters.read_bytes += run * PAGE_BYTES;
        pages.page += run;
        (pages.counted, pages.asked, pages.begins) = (false, Asked::No, false);
    }

    /// Goes through pages that are mapped already; false if the next one is not.
    fn use_mapped(&mut self, pages: &mut Pages, end_ns: u64) -> bool {
        if pages.asked != Asked::No || pages.counted {
            return false;
        }
        let per_page_ns = pages.user_per_page_ns;
        let most = (end_ns.saturating_sub(self.world.now_ns) as f64 / per_page_ns.max(1.0)) as u64 + 1;
        let mapped = self.world.cache.mapped_run(pages.file, pages.page, pages.end).min(most);
        if mapped == 0 {
            return false;
        }
        self.user(per_page_ns * mapped as f64);
        self.counters.hits += mapped;
        self.used(pages, mapped, Use::Mapped);
        true
    }

    /// The page is there: it is mapped, and with it what is there around it.
    fn map_around(&mut self, pages: &mut Pages) {
        let around = self.settings.fault_around_pages.max(1);
        let first = pages.page - pages.page % around;
        let end = (first + around).min(self.world.file_pages(pages.file));
        let (mut at, mut mapped, mut before) = (first, 0, 0);
        while at < end {
            let run = self.world.cache.clear_run(pages.file, at, end);
            self.world.cache.map(pages.file, at, run);
            if (at..at + run).contains(&pages.page) {
                before = pages.page - at;
            }
            mapped += run;
            at += run + 1;
        }
        let in_a_row = self.world.cache.clear_run(pages.file, pages.page, end).max(1);
        if around == 1 {
            self.world.cache.map(pages.file, pages.page, 1);
        }
        self.user(pages.user_per_page_ns);
        let (open, by, file, touched) = (pages.open, pages.by, pages.file, pages.page);
        self.used(pages, 1, Use::Mapped);
        if self.wants.faults {
            let mapped = mapped.max(1);
            self.tell(&Event::Mapped { open, by, file, first: touched, pages: in_a_row, before, mapped });
        }
    }
}

fn fresh(open: OpenId, file: FileId, by: By, page: Page, end: Page, began_ns: u64) -> Pages {
    let call = Call { offset_bytes: page * PAGE_BYTES, length_bytes: (end - page) * PAGE_BYTES };
    Pages {
        open,
        file,
        by,
        page,
        end,
        wanted_end: end,
        call,
        began_ns,
        user_per_page_ns: 0.0,
        begins: true,
        counted: false,
        asked: Asked::No,
    }
}
