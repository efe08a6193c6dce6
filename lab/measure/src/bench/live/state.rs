//! What an engine, its readers and the threads that wait for arrivals share.

use crate::bench::live::book::{Book, index};
use crate::bench::live::world::World;
use ahead_fetch::Workers;
use ahead_model::DeviceNumber;
use ahead_policy::{
    DeviceDescription, Event, FileId, Limits, OpenId, Page, Policy, Request, Requests, Wants, WhenFull,
};
use ahead_sys::locks::IgnorePoison;
use std::collections::{HashMap, VecDeque};
use std::fs::File;
use std::ops::Range;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, Weak};

/// Threads that wait for arrivals. The arrival of this number of requests is noticed in any order; further ones in request order.
pub(crate) const REAPERS: usize = 32;

/// The settings of an engine.
#[derive(Clone, Copy, Debug, Default)]
pub struct Settings {
    /// Maximum number of requests in flight; `None`: the queue length of the first file's disk.
    pub queue_limit: Option<u32>,
    /// The window for policies, pages; `None`: the device's `read_ahead_kb`.
    pub window_pages: Option<u64>,
    /// The policy's description of the disk; `None`: the disk was not measured.
    pub device: Option<DeviceDescription>,
}

/// Counters since the engine was created. Units: pages, nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Accesses to cached pages.
    pub hits: u64,
    /// Accesses to pages in flight.
    pub locked: u64,
    /// Accesses to pages that were absent and not in flight.
    pub misses: u64,
    /// Number of waits for room in the queue.
    pub queue_waits: u64,
    /// Sum of the readers' waits for pages.
    pub wait_ns: u64,
    /// Requests of the policy.
    pub decisions: u64,
    /// Requests that were sent, before the block layer joins or cuts them.
    pub requests: u64,
    /// Pages requested from the disk.
    pub issued_pages: u64,
    /// Requested pages that were used.
    pub used_pages: u64,
    /// Requested pages that were evicted before a reader used them, as far as the engine noticed.
    pub wasted_pages: u64,
    /// Requested pages that are cached, or were cached at the close of their file, and that no reader used.
    pub unread_pages: u64,
    /// Requested pages that were dropped because the queue was full.
    pub dropped_pages: u64,
    /// Pages that were evicted before their use.
    pub evicted_pages: u64,
}

/// A request in flight.
pub(crate) struct Sent {
    pub fd: Arc<File>,
    pub file: FileId,
    pub pages: Range<Page>,
}

pub(crate) struct LiveState {
    pub policy: Box<dyn Policy>,
    pub wants: Wants,
    pub world: World,
    pub counters: Counters,
    files: HashMap<(u64, u64), FileId>,
    /// The file of each open file number.
    opened: Vec<Option<FileId>>,
    pub settings: Settings,
    /// The threads that wait for room in the queue, by ascending ticket numbers.
    pub line: VecDeque<u64>,
    pub next_in_line: u64,
}

/// The state that readers and reapers share.
pub(crate) struct Shared {
    state: Mutex<LiveState>,
    /// Signalled when there is room in the queue.
    pub room: Condvar,
    /// The threads that wait for arrivals.
    pub reapers: Arc<Workers<Sent, ()>>,
    /// The thread whose requests are sent without others in between.
    pub row: Mutex<()>,
}

pub(crate) type Locked<'a> = MutexGuard<'a, LiveState>;

/// The shared state with its threads, which end when the last engine and reader are dropped.
pub(crate) struct Running {
    pub shared: Arc<Shared>,
}

impl Drop for Running {
    fn drop(&mut self) {
        self.shared.reapers.finish();
    }
}

impl Shared {
    pub fn new(state: LiveState) -> Arc<Shared> {
        Arc::new_cyclic(|shared: &Weak<Shared>| {
            let shared = shared.clone();
            let reap = move |sent| shared.upgrade().iter().for_each(|shared| shared.reap(&sent));
            let reapers = Workers::new("arrivals", REAPERS, reap);
            Shared { state: Mutex::new(state), room: Condvar::new(), reapers, row: Mutex::new(()) }
        })
    }

    /// After a panic of a thread that held the lock, only counters may be wrong.
    pub fn lock(&self) -> Locked<'_> {
        self.state.lock().ignore_poison()
    }
}

impl LiveState {
    pub fn new(policy: Box<dyn Policy>, settings: Settings) -> LiveState {
        LiveState {
            wants: policy.wants(),
            policy,
            world: World::new(settings.queue_limit.unwrap_or(0)),
            counters: Counters::default(),
            files: HashMap::new(),
            opened: Vec::new(),
            settings,
            line: VecDeque::new(),
            next_in_line: 0,
        }
    }

    /// A file is opened. `key`: its device and inode number; `limits`: the settings of what is below it, needed where it was not open.
    pub fn open(
        &mut self,
        fd: Arc<File>,
        key: (u64, u64),
        size: u64,
        limits: impl FnOnce() -> Limits,
    ) -> (OpenId, FileId) {
        let next = FileId(self.files.len() as u32);
        let file = *self.files.entry(key).or_insert(next);
        let books = &mut self.world.books;
        books.resize_with(books.len().max(index(file) + 1), || None);
        match &mut books[index(file)] {
            Some(book) => book.grow(size),
            none => *none = Some(Book::new(fd, DeviceNumber::from_stat(key.0), size, limits())),
        }
        let free = self.opened.iter().position(Option::is_none).unwrap_or(self.opened.len());
        self.opened.resize(self.opened.len().max(free + 1), None);
        self.opened[free] = Some(file);
        (OpenId(free as u32), file)
    }

    /// Reports an event to the policy, and returns its requests. No thread can wait for room on its behalf.
    pub fn tell(&mut self, event: &Event) -> Vec<Request> {
        let mut requests = Requests::default();
        self.policy.event(event, &self.world, &mut requests);
        self.rescue(&mut requests);
        self.counters.decisions += u64::from(!requests.is_empty());
        requests.drain().map(|request| Request { when_full: WhenFull::Drop, ..request }).collect()
    }

    /// No system call moves pages to the head of the kernel's inactive list, so a policy's `rescue` has no effect.
    pub fn rescue(&mut self, requests: &mut Requests) {
        let _ = requests.take_rescued();
    }

    /// An opening is closed. After the last one of a file, only the number of its unread pages is kept.
    pub fn close(&mut self, open: OpenId, file: FileId) {
        self.opened[open.0 as usize] = None;
        if !self.opened.contains(&Some(file))
            && let Some(book) = self.world.books.get_mut(index(file)).and_then(Option::take)
        {
            self.counters.unread_pages += book.unread();
        }
    }
}
