//! The request queue of a disk: the waiting requests, their order, their merging and the time of their service.
//!
//! ```text
//!     add ─▶ plug (one call's requests, merged) ─▶ waiting (merged, sorted by place) ─▶ disk ─▶ done
//!                                                   at most `limit`, then: full
//! ```
//!
//! `mq-deadline` serves requests upwards and continues at the lowest place. A request that waits longer than the
//! deadline goes first. Reads go before writes; writes get a turn after two batches of reads. `c-scan` (Linux up to
//! 2.4) serves reads and writes alike, in the order of their places. `cfq` gives each process a time slice. `none`
//! serves requests in the order of their arrival. The queue gives the disk as many requests as the disk serves at once.
//! Writes alone can fill only a part of the queue, so that a reader always finds room.

use ahead_device::{Device, Model, Op, Request};
use ahead_policy::{FileId, Page};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

mod slices;
mod sorted;

use slices::Slices;
use sorted::Sorted;

/// A read that waits longer goes first (mq-deadline: `read_expire` 500 ms).
const READ_DEADLINE_NS: u64 = 500_000_000;
/// The same limit for a write (`write_expire` 5 s).
const WRITE_DEADLINE_NS: u64 = 5_000_000_000;
/// Requests of one kind in a row before the queue considers the other kind (`fifo_batch`).
const BATCH: u32 = 16;
/// Batches of reads that are served while writes wait (`writes_starved`).
const WRITES_STARVED: u32 = 2;

/// The order in which requests are served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scheduler {
    /// By arrival.
    None,
    /// By place, reads first, with a deadline (mq-deadline).
    Deadline,
    /// By place, reads and writes alike (the elevator of Linux up to 2.4, without its limit on overtaking).
    CScan,
    /// A time slice for each process (CFQ).
    Cfq,
}

impl Scheduler {
    /// All schedulers by name; the names are those of Linux where Linux has the scheduler.
    pub const NAMED: [(&str, Scheduler); 4] = [
        ("none", Scheduler::None),
        ("mq-deadline", Scheduler::Deadline),
        ("c-scan", Scheduler::CScan),
        ("cfq", Scheduler::Cfq),
    ];
}

/// Consecutive pages of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    /// The file.
    pub file: FileId,
    /// The first page.
    pub first: Page,
    /// The number of pages.
    pub pages: u64,
    /// The process whose time slice the request uses, identified by the file that the process reads. For a block that
    /// contains the places of a file's pages, that file; otherwise `file`.
    pub asker: FileId,
}

/// The result of adding a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Added {
    /// The request is in the queue, alone or merged with another one.
    Yes,
    /// The queue is full.
    Full,
}

#[derive(Clone, Debug)]
struct Waiting {
    op: Op,
    offset_bytes: u64,
    length_bytes: u64,
    since_ns: u64,
    /// The time at which the request was unplugged.
    unplugged_ns: u64,
    ranges: Vec<Range>,
}

impl Waiting {
    /// The process whose time slice the request uses.
    fn asker(&self) -> FileId {
        self.ranges.first().map_or(FileId::default(), |range| range.asker)
    }

    fn end_bytes(&self) -> u64 {
        self.offset_bytes + self.length_bytes
    }
}

/// A request that was served.
#[derive(Clone, Debug)]
pub struct Done {
    /// The time of completion.
    pub at_ns: u64,
    /// The pages.
    pub ranges: Vec<Range>,
    /// Reading or writing.
    pub op: Op,
}

/// The work of the disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Served {
    /// Number of requests.
    pub requests: u64,
    /// Number of bytes.
    pub bytes: u64,
    /// Number of write requests, included in `requests`.
    pub write_requests: u64,
    /// Number of bytes written, included in `bytes`.
    pub write_bytes: u64,
    /// Time in which the disk was busy, nanoseconds.
    pub busy_ns: u64,
    /// Sum over all requests of the time in the queue or in service, nanoseconds. Divided by the duration of the run,
    /// this is the average number of requests.
    pub queued_ns: u64,
    /// Number of movements of the arm.
    pub seeks: u64,
}

/// The queue of one disk.
#[derive(Debug)]
pub struct Queue {
    device: Device,
    channels: usize,
    limit: usize,
    longest_bytes: u64,
    scheduler: Scheduler,
    turnaround_ns: u64,
    plug: Vec<Waiting>,
    next_id: u64,
    reads: Sorted,
    writes: Sorted,
    /// The kind of requests served now, the number served in a row, and the number of read batches served while writes
    /// waited.
    direction: Op,
    batch: u32,
    starved: u32,
    slices: Slices,
    head_bytes: u64,
    in_service: BinaryHeap<Reverse<(u64, u64)>>,
    served: BTreeMap<u64, Waiting>,
    busy_until_ns: u64,
    /// Time up to which `queued_ns` is calculated.
    counted_until_ns: u64,
    account: Served,
}

impl Queue {
    /// An empty queue in front of a fresh disk.
    pub fn new(model: &Model, capacity_bytes: u64, limit: u32, longest_bytes: u64, scheduler: Scheduler) -> Queue {
        Queue {
            device: Device::new(model, capacity_bytes),
            channels: model.channels() as usize,
            limit: limit as usize,
            longest_bytes,
            scheduler,
            turnaround_ns: 0,
            plug: Vec::new(),
            next_id: 0,
            reads: Sorted::default(),
            writes: Sorted::default(),
            direction: Op::Read,
            batch: 0,
            starved: 0,
            slices: Slices::default(),
            head_bytes: 0,
            in_service: BinaryHeap::new(),
            served: BTreeMap::new(),
            busy_until_ns: 0,
            counted_until_ns: 0,
            account: Served::default(),
        }
    }

    /// The same queue with a turnaround time. If processes take turns (CFQ) and others wait, a request reaches the disk
    /// this time after the completion of the previous request, nanoseconds.
    pub fn with_turnaround(self, turnaround_ns: u64) -> Queue {
        Queue { turnaround_ns, ..self }
    }

    /// Longest request, bytes.
    pub fn longest_bytes(&self) -> u64 {
        self.longest_bytes
    }

    /// The limit on waiting requests.
    pub fn limit(&self) -> u32 {
        self.limit as u32
    }

    /// Requests that are waiting or in service.
    pub fn requests(&self) -> u32 {
        (self.plug.len() + self.reads.len() + self.writes.len() + self.in_service.len()) as u32
    }

    /// Whether there is room for a write. A write is accepted while less than three quarters of the queue are taken
    /// (`dd_limit_depth` of mq-deadline; in Linux 2.2 and 2.4 the limit was two thirds).
    pub fn takes_writes(&self) -> bool {
        u64::from(self.requests()) < (self.limit as u64 * 3 / 4).max(1)
    }

    /// The work of the disk until now.
    pub fn account(&self) -> Served {
        self.account
    }

    /// Adds the time of the requests since the last call, before their number changes.
    fn count_queued(&mut self, now_ns: u64) {
        let passed_ns = now_ns.saturating_sub(self.counted_until_ns);
        self.account.queued_ns += passed_ns * u64::from(self.requests());
        self.counted_until_ns += passed_ns;
    }

    /// Adds a request to the plug. A request that continues the previous one is merged with it.
    pub fn add(&mut self, op: Op, offset_bytes: u64, range: Range, length_bytes: u64, now_ns: u64) -> Added {
        if let Some(last) = self.plug.last_mut()
            && last.op == op
            && last.end_bytes() == offset_bytes
            && last.length_bytes + length_bytes <= self.longest_bytes
        {
            last.length_bytes += length_bytes;
            match last.ranges.last_mut() {
                Some(before) if before.file == range.file && before.first + before.pages == range.first => {
                    before.pages += range.pages;
                }
                _ => last.ranges.push(range),
            }
            return Added::Yes;
        }
        let request =
            Waiting { op, offset_bytes, length_bytes, since_ns: now_ns, unplugged_ns: now_ns, ranges: vec![range] };
        let Some(request) = self.merged(request) else { return Added::Yes };
        if self.requests() as usize >= self.limit {
            return Added::Full;
        }
        self.count_queued(now_ns);
        self.plug.push(request);
        Added::Yes
    }

    /// Adds the rest of a folio whose first part found room.
    pub fn add_beyond(&mut self, op: Op, offset_bytes: u64, range: Range, length_bytes: u64, now_ns: u64) {
        self.count_queued(now_ns);
        self.plug.push(Waiting {
            op,
            offset_bytes,
            length_bytes,
            since_ns: now_ns,
            unplugged_ns: now_ns,
            ranges: vec![range],
        });
    }

    /// The number of pages in the next request to complete.
    pub fn next_done_pages(&self) -> Option<u64> {
        let Reverse((_, id)) = self.in_service.peek()?;
        self.served.get(id).map(|request| request.ranges.iter().map(|range| range.pages).sum())
    }

    /// Releases the plugged requests to the disk.
    pub fn unplug(&mut self, now_ns: u64) {
        self.count_queued(now_ns);
        for mut request in std::mem::take(&mut self.plug) {
            request.unplugged_ns = now_ns;
            if let Some(request) = self.merged(request) {
                self.next_id += 1;
                let id = self.next_id;
                self.sorted(request.op).insert(id, request);
            }
        }
        self.dispatch(now_ns);
    }

    /// The time of the next completion.
    pub fn next_done_ns(&self) -> Option<u64> {
        self.in_service.peek().map(|Reverse((end_ns, _))| *end_ns)
    }

    /// Takes the next request that has completed by `now_ns`, and dispatches further requests. `free_ns`: the time at
    /// which the disk can start them.
    pub fn take_done(&mut self, now_ns: u64, free_ns: u64) -> Option<Done> {
        if self.next_done_ns()? > now_ns {
            return None;
        }
        self.count_queued(self.next_done_ns()?);
        let Reverse((at_ns, id)) = self.in_service.pop()?;
        let request = self.served.remove(&id)?;
        let mut free_ns = free_ns.max(at_ns);
        if self.scheduler == Scheduler::Cfq && request.op == Op::Read {
            let waiting = self.reads.askers();
            self.slices.done(request.asker(), &waiting, at_ns);
            if waiting.iter().any(|who| *who != request.asker()) {
                free_ns += self.turnaround_ns;
            }
        }
        self.dispatch(free_ns);
        Some(Done { at_ns, ranges: request.ranges, op: request.op })
    }

    /// The time at which the disk stops idling for one process while others wait.
    pub fn next_turn_ns(&self) -> Option<u64> {
        let others_wait = self.reads.len() + self.writes.len() > 0;
        self.slices.idle_until_ns().filter(|_| others_wait && self.in_service.is_empty())
    }

    /// Dispatches requests if the idle time of the disk has ended.
    pub fn turn_at(&mut self, now_ns: u64) {
        if self.next_turn_ns().is_some_and(|at_ns| at_ns <= now_ns) {
            self.dispatch(now_ns);
        }
    }

    fn sorted(&mut self, op: Op) -> &mut Sorted {
        match op {
            Op::Read => &mut self.reads,
            Op::Write => &mut self.writes,
        }
    }

    /// Merges the request with a waiting one. Returns the request if none fits.
    fn merged(&mut self, request: Waiting) -> Option<Waiting> {
        let longest_bytes = self.longest_bytes;
        self.sorted(request.op).merged(request, longest_bytes)
    }

    /// Whether a read or a write is next; `None`: no request waits.
    fn next_op(&mut self) -> Option<Op> {
        match (self.reads.oldest(), self.writes.oldest()) {
            (None, None) => None,
            (Some(_), None) => Some(Op::Read),
            (None, Some(_)) => Some(Op::Write),
            (Some(read), Some(write)) => Some(match self.scheduler {
                Scheduler::Deadline => self.turn(),
                Scheduler::None if read < write => Op::Read,
                Scheduler::CScan if self.distance(&self.reads) <= self.distance(&self.writes) => Op::Read,
                Scheduler::None | Scheduler::CScan => Op::Write,
                Scheduler::Cfq => Op::Read,
            }),
        }
    }

    /// The distance to the head: upwards from its position, then from the lowest place.
    fn distance(&self, sorted: &Sorted) -> (bool, u64) {
        let (wraps, next) = match sorted.upwards(self.head_bytes) {
            Some(next) => (false, Some(next)),
            None => (true, sorted.first()),
        };
        (wraps, next.map_or(u64::MAX, |(place, _)| place))
    }

    /// Removes and returns the next request to serve.
    fn take_next(&mut self, now_ns: u64) -> Option<(u64, Waiting)> {
        if self.scheduler == Scheduler::Cfq
            && let Some(next) = self.take_in_slice(now_ns)
        {
            return next;
        }
        let op = self.next_op()?;
        self.batch = if op == self.direction { self.batch + 1 } else { 1 };
        self.direction = op;
        let (scheduler, head_bytes) = (self.scheduler, self.head_bytes);
        let deadline_ns = if op == Op::Read { READ_DEADLINE_NS } else { WRITE_DEADLINE_NS };
        let sorted = self.sorted(op);
        let (oldest, since_ns) = sorted.oldest()?;
        let expired = scheduler == Scheduler::Deadline && since_ns.saturating_add(deadline_ns) <= now_ns;
        let id = if scheduler == Scheduler::None || expired {
            oldest
        } else {
            sorted.upwards(head_bytes).or_else(|| sorted.first())?.1
        };
        Some((id, sorted.remove(id)?))
    }

    /// A read of the process that has the slice. `Some(None)`: the disk idles for that process. `None`: no process
    /// reads.
    fn take_in_slice(&mut self, now_ns: u64) -> Option<Option<(u64, Waiting)>> {
        match self.slices.next(&self.reads.askers(), now_ns) {
            Some(who) => {
                let id = self.reads.next_of(who, self.head_bytes)?;
                Some(self.reads.remove(id).map(|request| (id, request)))
            }
            None => self.slices.idle_until_ns().map(|_| None),
        }
    }

    /// Whether reads or writes are next when both wait. The current batch ends first. Then reads follow, but writes
    /// after a fixed number of read batches.
    fn turn(&mut self) -> Op {
        let going = if self.direction == Op::Read { &self.reads } else { &self.writes };
        if self.batch < BATCH && going.upwards(self.head_bytes).is_some() {
            return self.direction;
        }
        self.batch = 0;
        if self.starved < WRITES_STARVED {
            self.starved += 1;
            return Op::Read;
        }
        self.starved = 0;
        Op::Write
    }

    fn dispatch(&mut self, now_ns: u64) {
        while self.in_service.len() < self.channels
            && let Some((id, request)) = self.take_next(now_ns)
        {
            let (op, offset_bytes, length_bytes) = (request.op, request.offset_bytes, request.length_bytes);
            // The machine can process a completion late. No request is served before it was added.
            let at_ns = now_ns.max(request.unplugged_ns);
            let served = self.device.submit(&Request { op, offset_bytes, length_bytes }, at_ns);
            self.head_bytes = request.end_bytes();
            self.account.requests += 1;
            self.account.bytes += length_bytes;
            if op == Op::Write {
                self.account.write_requests += 1;
                self.account.write_bytes += length_bytes;
            }
            self.account.seeks += u64::from(served.seeked);
            // Time that several requests share counts once.
            let from_ns = served.end_ns.saturating_sub(served.busy_ns).max(self.busy_until_ns);
            self.account.busy_ns += served.end_ns.saturating_sub(from_ns);
            self.busy_until_ns = self.busy_until_ns.max(served.end_ns);
            self.in_service.push(Reverse((served.end_ns, id)));
            self.served.insert(id, request);
        }
    }
}
