//! The request queue of a disk: what waits, in which order it goes, what is merged, and when it is served.
//!
//! ```text
//!     add ─▶ plug (one call's requests, merged) ─▶ waiting (merged, sorted by place) ─▶ disk ─▶ done
//!                                                   at most `limit`, then: full
//! ```
//!
//! The elevator goes upwards and begins anew at the lowest place (C-SCAN), but nobody waits longer than the deadline: then
//! the oldest goes first. `none` takes them as they come. As many are handed to the disk as it serves at once.

use ahead_device::{Device, Model, Op, Request};
use ahead_policy::{FileId, Page};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

/// A read that waits longer goes first (mq-deadline: `read_expire` 500 ms).
const DEADLINE_NS: u64 = 500_000_000;

/// In which order requests go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scheduler {
    /// As they come.
    None,
    /// By place, with a deadline.
    Deadline,
}

/// Pages of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    /// The file.
    pub file: FileId,
    /// The first page.
    pub first: Page,
    /// How many.
    pub pages: u64,
}

/// What came of adding a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Added {
    /// It is in the queue, by itself or as a part of another one.
    Yes,
    /// There is no room.
    Full,
}

#[derive(Clone, Debug)]
struct Waiting {
    op: Op,
    offset_bytes: u64,
    length_bytes: u64,
    since_ns: u64,
    /// When it was let go to the disk.
    unplugged_ns: u64,
    ranges: Vec<Range>,
}

impl Waiting {
    fn end_bytes(&self) -> u64 {
        self.offset_bytes + self.length_bytes
    }
}

/// A request that was served.
#[derive(Clone, Debug)]
pub struct Done {
    /// When.
    pub at_ns: u64,
    /// What for.
    pub ranges: Vec<Range>,
    /// Reading or writing.
    pub op: Op,
}

/// What the disk has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Served {
    /// Requests.
    pub requests: u64,
    /// Bytes of them.
    pub bytes: u64,
    /// Time that it was busy, nanoseconds.
    pub busy_ns: u64,
    /// How often the arm moved.
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
    plug: Vec<Waiting>,
    next_id: u64,
    waiting: BTreeMap<u64, Waiting>,
    by_place: BTreeMap<(u64, u64), u64>,
    by_end: BTreeMap<(u64, u64), u64>,
    head_bytes: u64,
    in_service: BinaryHeap<Reverse<(u64, u64)>>,
    served: BTreeMap<u64, Waiting>,
    busy_until_ns: u64,
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
            plug: Vec::new(),
            next_id: 0,
            waiting: BTreeMap::new(),
            by_place: BTreeMap::new(),
            by_end: BTreeMap::new(),
            head_bytes: 0,
            in_service: BinaryHeap::new(),
            served: BTreeMap::new(),
            busy_until_ns: 0,
            account: Served::default(),
        }
    }

    /// Longest request, bytes.
    pub fn longest_bytes(&self) -> u64 {
        self.longest_bytes
    }

    /// Most requests that wait.
    pub fn limit(&self) -> u32 {
        self.limit as u32
    }

    /// Requests that wait or are being served.
    pub fn requests(&self) -> u32 {
        (self.plug.len() + self.waiting.len() + self.in_service.len()) as u32
    }

    /// What was served so far.
    pub fn account(&self) -> Served {
        self.account
    }

    /// Adds a request to the plug, merged with the one before it if it continues it.
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
        if self.plug.len() + self.waiting.len() + self.in_service.len() >= self.limit {
            return Added::Full;
        }
        self.plug.push(request);
        Added::Yes
    }

    /// Adds the rest of something that did find room.
    pub fn add_beyond(&mut self, op: Op, offset_bytes: u64, range: Range, length_bytes: u64, now_ns: u64) {
        self.plug.push(Waiting {
            op,
            offset_bytes,
            length_bytes,
            since_ns: now_ns,
            unplugged_ns: now_ns,
            ranges: vec![range],
        });
    }

    /// How many pages come with the next request that is done.
    pub fn next_done_pages(&self) -> Option<u64> {
        let Reverse((_, id)) = self.in_service.peek()?;
        self.served.get(id).map(|request| request.ranges.iter().map(|range| range.pages).sum())
    }

    /// Lets what was plugged go to the disk.
    pub fn unplug(&mut self, now_ns: u64) {
        for mut request in std::mem::take(&mut self.plug) {
            request.unplugged_ns = now_ns;
            if let Some(request) = self.merged(request) {
                self.insert(request);
            }
        }
        self.dispatch(now_ns);
    }

    /// When the next request is done.
    pub fn next_done_ns(&self) -> Option<u64> {
        self.in_service.peek().map(|Reverse((end_ns, _))| *end_ns)
    }

    /// Takes the next request that is done at that time, and lets others go to the disk; `free_ns`: when the disk may take
    /// them up.
    pub fn take_done(&mut self, now_ns: u64, free_ns: u64) -> Option<Done> {
        if self.next_done_ns()? > now_ns {
            return None;
        }
        let Reverse((at_ns, id)) = self.in_service.pop()?;
        let request = self.served.remove(&id)?;
        self.dispatch(free_ns.max(at_ns));
        Some(Done { at_ns, ranges: request.ranges, op: request.op })
    }

    /// Merges with a request that waits; gives it back if there is none.
    fn merged(&mut self, request: Waiting) -> Option<Waiting> {
        let fits =
            |other: &Waiting| other.op == request.op && other.length_bytes + request.length_bytes <= self.longest_bytes;
        let before = self.by_end.range((request.offset_bytes, 0)..=(request.offset_bytes, u64::MAX)).next();
        if let Some(id) = before.map(|(_, id)| *id)
            && self.waiting.get(&id).is_some_and(fits)
        {
            let mut other = self.remove(id)?;
            other.length_bytes += request.length_bytes;
            other.ranges.extend(request.ranges);
            self.insert_as(id, other);
            return None;
        }
        let end = request.end_bytes();
        let after = self.by_place.range((end, 0)..=(end, u64::MAX)).next();
        if let Some(id) = after.map(|(_, id)| *id)
            && self.waiting.get(&id).is_some_and(fits)
        {
            let mut other = self.remove(id)?;
            other.offset_bytes = request.offset_bytes;
            other.length_bytes += request.length_bytes;
            other.ranges.splice(0..0, request.ranges);
            self.insert_as(id, other);
            return None;
        }
        Some(request)
    }

    fn insert(&mut self, request: Waiting) {
        self.next_id += 1;
        self.insert_as(self.next_id, request);
    }

    fn insert_as(&mut self, id: u64, request: Waiting) {
        self.by_place.insert((request.offset_bytes, id), id);
        self.by_end.insert((request.end_bytes(), id), id);
        self.waiting.insert(id, request);
    }

    fn remove(&mut self, id: u64) -> Option<Waiting> {
        let request = self.waiting.remove(&id)?;
        self.by_place.remove(&(request.offset_bytes, id));
        self.by_end.remove(&(request.end_bytes(), id));
        Some(request)
    }

    /// The request that goes next.
    fn next(&self, now_ns: u64) -> Option<u64> {
        let (oldest, request) = self.waiting.first_key_value()?;
        if self.scheduler == Scheduler::None || request.since_ns + DEADLINE_NS <= now_ns {
            return Some(*oldest);
        }
        let upwards = self.by_place.range((self.head_bytes, 0)..).next();
        upwards.or_else(|| self.by_place.first_key_value()).map(|(_, id)| *id)
    }

    fn dispatch(&mut self, now_ns: u64) {
        while self.in_service.len() < self.channels
            && let Some(id) = self.next(now_ns)
            && let Some(request) = self.remove(id)
        {
            let (op, offset_bytes, length_bytes) = (request.op, request.offset_bytes, request.length_bytes);
            // A completion may be taken note of later than it was: nothing is served before it was there.
            let at_ns = now_ns.max(request.unplugged_ns);
            let served = self.device.submit(&Request { op, offset_bytes, length_bytes }, at_ns);
            self.head_bytes = request.end_bytes();
            self.account.requests += 1;
            self.account.bytes += length_bytes;
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
