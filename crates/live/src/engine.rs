//! The engine: a policy, its open files, and its requests to the disk.

use crate::book::{Book, index};
use crate::reader::Reader;
use crate::sending::{Asker, Sent};
use crate::world::World;
use crate::{Error, Result};
use ahead_model::DeviceNumber;
use ahead_policy::{
    DeviceDescription, Event, FileId, Limits, OpenId, PAGE_BYTES, Policy, Request, Requests, Wants, WhenFull,
};
use ahead_sys::{bdi, block, cache, machine};
use std::collections::{HashMap, VecDeque};
use std::fs::{File, OpenOptions};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

/// Queue length if the disk does not report one: that of Linux 2.2 (`NR_REQUEST` in include/linux/blkdev.h), and of the block
/// layer (`BLKDEV_DEFAULT_RQ`).
const QUEUE_LIMIT: u32 = 128;
/// A disk that serves one request at a time gets at most the requests that it transfers in this time. mq-deadline prefers a read that is
/// older than half a second (`read_expire`), which costs seeks. Less than half of that, because the inner tracks of a platter are half
/// as fast.
const LONGEST_QUEUE: Duration = Duration::from_millis(200);
/// Minimum number of requests: the disk serves one, and the scheduler chooses among the others.
const LEAST_QUEUE: u32 = 4;
/// Threads that wait for arrivals. The arrival of this number of requests is noticed in any order; further ones in request order.
const REAPERS: usize = 32;
/// Their stacks, bytes: they call nothing that needs more.
const REAPER_STACK_BYTES: usize = 128 << 10;

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

pub(crate) struct State {
    pub policy: Box<dyn Policy>,
    pub wants: Wants,
    pub world: World,
    pub counters: Counters,
    files: HashMap<(u64, u64), FileId>,
    /// The file of each open file number.
    opened: Vec<Option<FileId>>,
    settings: Settings,
    pub sent: VecDeque<Sent>,
    /// The threads that wait for room in the queue, by ascending ticket numbers.
    pub line: VecDeque<u64>,
    pub next_in_line: u64,
    pub closing: bool,
}

/// The state that readers and reapers share.
pub(crate) struct Shared {
    state: Mutex<State>,
    /// Signalled when there is room in the queue.
    pub room: Condvar,
    /// Signalled when a request was sent.
    pub sent: Condvar,
    /// The thread whose requests are sent without others in between.
    pub row: Mutex<()>,
}

pub(crate) type Locked<'a> = MutexGuard<'a, State>;

/// The shared state with its threads, which end when the last engine and reader are dropped.
pub(crate) struct Running {
    pub shared: Arc<Shared>,
    reapers: Vec<JoinHandle<()>>,
}

/// An engine with its policy. Its readers may be used in any thread, also after the engine was dropped.
pub struct Engine {
    running: Arc<Running>,
}

impl Engine {
    /// Creates an engine for a policy.
    ///
    /// Errors: no thread could be started.
    pub fn new(policy: Box<dyn Policy>, settings: Settings) -> Result<Engine> {
        let state = State {
            wants: policy.wants(),
            policy,
            world: World::new(settings.queue_limit.unwrap_or(0)),
            counters: Counters::default(),
            files: HashMap::new(),
            opened: Vec::new(),
            settings,
            sent: VecDeque::new(),
            line: VecDeque::new(),
            next_in_line: 0,
            closing: false,
        };
        let shared = Arc::new(Shared {
            state: Mutex::new(state),
            room: Condvar::new(),
            sent: Condvar::new(),
            row: Mutex::new(()),
        });
        let mut running = Running { shared: shared.clone(), reapers: Vec::new() };
        for _ in 0..REAPERS {
            let shared = shared.clone();
            let reaper = std::thread::Builder::new().name("arrivals".into()).stack_size(REAPER_STACK_BYTES);
            let refused = |e| ahead_sys::Error::io("start a thread that waits for arrivals (ulimit -u, pids.max)", e);
            running.reapers.push(reaper.spawn(move || shared.reap()).map_err(refused)?);
        }
        Ok(Engine { running: Arc::new(running) })
    }

    /// Opens a file to be read through the policy.
    ///
    /// Errors: the file cannot be opened, or is not a regular file.
    pub fn open(&self, path: &Path) -> Result<Reader> {
        self.open_as(path, OpenOptions::new().read(true))
    }

    /// Opens a file to be read through the policy and written.
    ///
    /// Errors: the file cannot be opened, or is not a regular file.
    pub fn open_to_write(&self, path: &Path) -> Result<Reader> {
        self.open_as(path, OpenOptions::new().read(true).write(true))
    }

    fn open_as(&self, path: &Path, how: &OpenOptions) -> Result<Reader> {
        self.take(how.open(path)?, path)
    }

    /// Takes an open file, to be read through the policy, and written if it was opened for that. No other code may use this open file,
    /// because the engine switches its read-ahead off. `path`: the file's name in messages.
    ///
    /// Errors: the file is not a regular file.
    pub fn take(&self, file: File, path: &Path) -> Result<Reader> {
        let fd = Arc::new(file);
        let metadata = fd.metadata()?;
        if !metadata.is_file() {
            return Err(Error::NotRegular(path.display().to_string()));
        }
        cache::exact_reads(&*fd)?;
        let device = DeviceNumber::from_stat(metadata.dev());
        let mut state = self.running.shared.lock();
        if state.world.queue.limit == 0 {
            state.world.queue.limit = queue_limit(device, state.settings.device);
        }
        let (open, file) = state.open(fd.clone(), (metadata.dev(), metadata.ino()), metadata.size(), device);
        let state = self.running.shared.tell(state, &Event::Opened { open, file });
        drop(state);
        Ok(Reader::new(self.running.clone(), fd, open, file, metadata.size()))
    }

    /// Waits until no request is in flight and the arrival of each is recorded.
    pub fn settle(&self) {
        let shared = &self.running.shared;
        drop(shared.room.wait_while(shared.lock(), |state| state.world.queue.requests > 0));
    }

    /// The counters.
    pub fn counters(&self) -> Counters {
        let state = self.running.shared.lock();
        let unread: u64 = state.world.books.iter().flatten().map(Book::unread).sum();
        Counters { unread_pages: state.counters.unread_pages + unread, ..state.counters }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.shared.lock().closing = true;
        self.shared.sent.notify_all();
        for reaper in self.reapers.drain(..) {
            // The panic of a reaper has printed its message already.
            let _ = reaper.join();
        }
    }
}

/// Maximum number of requests in the disk's queue that do not wait too long.
fn queue_limit(device: DeviceNumber, traits: Option<DeviceDescription>) -> u32 {
    let setting = block::disk_setting(device, "nr_requests").and_then(|text| text.parse().ok());
    in_time(setting.unwrap_or(QUEUE_LIMIT).max(1), request_kb(device) * 1024, traits)
}

/// `slots`, or fewer on a disk that serves one request at a time: the requests of `request_bytes` bytes that it transfers within
/// [`LONGEST_QUEUE`], at least [`LEAST_QUEUE`].
fn in_time(slots: u32, request_bytes: u64, traits: Option<DeviceDescription>) -> u32 {
    let one_by_one = traits.filter(|traits| traits.parallelism == 1);
    one_by_one.map_or(slots, |traits| {
        let bytes = traits.bandwidth_bytes_per_s * LONGEST_QUEUE.as_secs_f64();
        slots.min((bytes / request_bytes.max(1) as f64) as u32).max(LEAST_QUEUE.min(slots))
    })
}

/// Longest request of one call, KiB.
fn request_kb(device: DeviceNumber) -> u64 {
    let cap_kb = cache::read_ahead_cap_bytes(device) / 1024;
    let most_kb = block::disk_setting(device, "max_sectors_kb").and_then(|text| text.parse().ok());
    most_kb.unwrap_or(cap_kb).min(cap_kb)
}

/// Largest folio of a file system with large folios, as a power of two: a huge page on x86-64 (`MAX_PAGECACHE_ORDER`).
const LARGE_FOLIO: u8 = 9;
/// File systems with large folios, with the first kernel that supports them: XFS; ext2 to ext4, which share a magic number.
const TAKE_LARGE: [(u64, (u32, u32)); 2] = [(0x5846_5342, (5, 18)), (0xef53, (6, 16))];

/// Largest folio that the kernel's own read-ahead would use for a file.
fn folio_order(fd: &File) -> u8 {
    let magic = rustix::fs::fstatfs(fd).map_or(0, |stat| stat.f_type as u64);
    let release = machine::kernel_release();
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(|digits| digits.parse().unwrap_or(0));
    let version = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    let takes_large = TAKE_LARGE.iter().any(|(of, since)| *of == magic && version >= *since);
    if takes_large { LARGE_FOLIO } else { 0 }
}

/// The settings of a file's device and file system. A request is at most as long as one call reads.
fn limits(fd: &File, device: DeviceNumber, window_pages: Option<u64>) -> Limits {
    let window_kb = || bdi::read_ahead_kb(device).unwrap_or(0);
    Limits {
        window_pages: window_pages.unwrap_or_else(|| window_kb() * 1024 / PAGE_BYTES),
        request_pages: (request_kb(device) * 1024 / PAGE_BYTES).max(1),
        folio_order: folio_order(fd),
    }
}

impl State {
    fn open(&mut self, fd: Arc<File>, key: (u64, u64), size: u64, device: DeviceNumber) -> (OpenId, FileId) {
        let next = FileId(self.files.len() as u32);
        let file = *self.files.entry(key).or_insert(next);
        let books = &mut self.world.books;
        books.resize_with(books.len().max(index(file) + 1), || None);
        match &mut books[index(file)] {
            Some(book) => book.grow(size),
            none => {
                let limits = limits(&fd, device, self.settings.window_pages);
                *none = Some(Book::new(fd, size, limits));
            }
        }
        let free = self.opened.iter().position(Option::is_none).unwrap_or(self.opened.len());
        self.opened.resize(self.opened.len().max(free + 1), None);
        self.opened[free] = Some(file);
        (OpenId(free as u32), file)
    }

    fn close(&mut self, open: OpenId, file: FileId) {
        self.opened[open.0 as usize] = None;
        if !self.opened.contains(&Some(file))
            && let Some(book) = self.world.books.get_mut(index(file)).and_then(Option::take)
        {
            self.counters.unread_pages += book.unread();
        }
    }
}

impl Shared {
    /// After a panic of a thread that held the lock, only counters may be wrong.
    pub fn lock(&self) -> Locked<'_> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reports an event to the policy, and sends its requests as far as there is room.
    pub fn tell<'a>(&'a self, mut state: Locked<'a>, event: &Event) -> Locked<'a> {
        let requests = state.tell(event);
        if requests.is_empty() { state } else { self.submit(state, requests, &mut Asker::default()) }
    }

    /// Closes an open file.
    pub fn close(&self, open: OpenId, file: FileId) {
        let mut state = self.tell(self.lock(), &Event::Closed { open });
        state.close(open, file);
    }
}

impl State {
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
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_disk_with_a_head_is_given_no_more_than_it_reads_before_requests_expire() {
        let hdd = DeviceDescription {
            access_ns: 8_000_000,
            bandwidth_bytes_per_s: 160e6,
            parallelism: 1,
            request_ns: 0,
            ..DeviceDescription::WU_2010
        };
        assert_eq!(in_time(64, 1 << 20, Some(hdd)), 30);
        assert_eq!((in_time(64, 64 << 20, Some(hdd)), in_time(2, 64 << 20, Some(hdd))), (4, 2));
        let ssd = DeviceDescription { parallelism: 8, ..hdd };
        assert_eq!((in_time(64, 1 << 20, Some(ssd)), in_time(64, 1 << 20, None)), (64, 64));
    }
}
