//! All regions of this process, and the helper threads that look after them.
//!
//! ```text
//!     advise ──▶ Registry ──▶ one helper thread for each device ──▶ Follower, Fetcher: one for each region
//!     drop   ──▶ guards: the kernel's own read-ahead is put back
//! ```
//!
//! A request may block a helper thread while the queue of its device is full, or permanently if the device hangs: only regions of the same device
//! wait. A helper thread ends when it has no region.
//!
//! A child made by fork has no helper threads, and its copy of a lock may be locked permanently. So it uses another registry.

use crate::advise::fetcher::Fetcher;
use crate::advise::follower::Follower;
use crate::advise::region::Region;
use ahead_model::DeviceNumber;
use ahead_sys::advice::{Guard, KernelAdvice};
use ahead_sys::background;
use ahead_sys::fork_count::PerProcess;
use ahead_sys::locks::IgnorePoison;
use ahead_sys::pagemap::Pagemap;
use ahead_sys::reserve;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

/// Longest sleep of a helper thread; a new region and a dropped one wake it.
const LONGEST_SLEEP: Duration = Duration::from_secs(1);

/// Memory for the lists of one look at most, bytes: of a group of [`ahead_policy::groups::LARGEST_GROUP_UNITS`].
const LOOK_BYTES: usize = 256 << 10;

/// Time until the next look of a process without memory.
const WITHOUT_MEMORY: Duration = Duration::from_millis(100);

/// What a helper thread does for a region.
#[derive(Debug)]
pub enum Task {
    /// Follows its reader.
    Follow(Box<Follower>),
    /// Requests all of it.
    Fetch(Box<Fetcher>),
}

impl Task {
    fn region(&self) -> &Region {
        match self {
            Task::Follow(follower) => follower.region(),
            Task::Fetch(fetcher) => fetcher.region(),
        }
    }

    /// Time until the next look; `None`: it is done.
    fn look(&mut self, pagemap: Option<&Pagemap>) -> ahead_sys::Result<Option<Duration>> {
        match self {
            Task::Follow(follower) => follower.look(pagemap).map(Some),
            Task::Fetch(fetcher) => fetcher.look(),
        }
    }
}

/// A region whose kernel advice is changed, newest last.
struct Live {
    region: Arc<Region>,
    guard: Guard,
}

struct Helper {
    /// Set by the thread itself before its first look.
    thread: Arc<OnceLock<Thread>>,
    new: Vec<Task>,
}

struct State {
    live: Vec<Live>,
    helpers: BTreeMap<DeviceNumber, Helper>,
}

/// The regions of one process.
pub struct Registry {
    state: Mutex<State>,
    pagemap: OnceLock<Option<Pagemap>>,
}

impl Registry {
    /// That of this process.
    pub fn current() -> &'static Registry {
        static CURRENT: PerProcess<Registry> = PerProcess::new();
        CURRENT.get(|| Registry {
            state: Mutex::new(State { live: Vec::new(), helpers: BTreeMap::new() }),
            pagemap: OnceLock::new(),
        })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().ignore_poison()
    }

    /// The page table of this process. `None`: it cannot be read, so that readers are found only if the program reports their progress.
    pub fn pagemap(&self) -> Option<&Pagemap> {
        self.pagemap.get_or_init(|| Pagemap::open().ok()).as_ref()
    }

    /// Changes the kernel's read-ahead of a region, until [`Registry::end`].
    ///
    /// Errors: the region is not mapped; the process has too many mappings.
    pub fn advise_kernel(&self, region: &Arc<Region>, advice: KernelAdvice) -> io::Result<()> {
        let mut state = self.lock();
        let guard = Guard::new(region.addresses.clone(), advice).map_err(crate::advise::io_error)?;
        state.live.push(Live { region: region.clone(), guard });
        Ok(())
    }

    /// Gives a task to the helper thread of the region's device.
    ///
    /// Errors: no thread can be started.
    pub fn start(&'static self, region: &Region, task: Task) -> io::Result<()> {
        let device = region.device;
        let mut state = self.lock();
        let helper = match state.helpers.entry(device) {
            Entry::Occupied(helper) => helper.into_mut(),
            Entry::Vacant(place) => {
                let thread = Arc::new(OnceLock::new());
                let own = thread.clone();
                background::spawn("ahead-advise", move || self.help(device, &own))?;
                place.insert(Helper { thread, new: Vec::new() })
            }
        };
        region.set_helper(helper.thread.clone());
        helper.new.push(task);
        region.wake();
        Ok(())
    }

    /// Ends the read-ahead of a region, and puts the kernel's back. Other values for the same pages keep theirs.
    pub fn end(&self, region: &Region) {
        region.stop();
        let mut state = self.lock();
        let Some(index) = state.live.iter().position(|live| std::ptr::eq(&*live.region, region)) else { return };
        drop(state.live.remove(index));
        let range = &region.addresses;
        let overlap =
            |other: &&Live| other.region.addresses.start < range.end && range.start < other.region.addresses.end;
        for other in state.live.iter().filter(overlap) {
            // It fails if the other region is not mapped any more: then its helper thread ends it.
            let _ = other.guard.renew();
        }
    }

    /// The helper thread of a device.
    fn help(&self, device: DeviceNumber, own: &OnceLock<Thread>) {
        let _ = own.set(thread::current());
        let _ended = Ended { registry: self, device };
        let mut tasks: Vec<(Task, Instant)> = Vec::new();
        while self.take_new(device, &mut tasks) {
            let mut next = Instant::now() + LONGEST_SLEEP;
            tasks.retain_mut(|(task, due)| {
                let is_due = *due <= Instant::now() || task.region().take_reported();
                if is_due && !has_memory() {
                    *due = Instant::now() + WITHOUT_MEMORY;
                } else if is_due {
                    match task.look(self.pagemap()) {
                        Ok(Some(interval)) => *due = Instant::now() + interval,
                        Ok(None) => return false,
                        Err(_) => {
                            self.end(task.region());
                            return false;
                        }
                    }
                }
                next = next.min(*due);
                true
            });
            thread::park_timeout(next.saturating_duration_since(Instant::now()));
        }
    }

    /// Takes new tasks over and drops those whose region was stopped. `false`: there is none, and the thread is not registered any more.
    fn take_new(&self, device: DeviceNumber, tasks: &mut Vec<(Task, Instant)>) -> bool {
        tasks.retain(|(task, _)| !task.region().is_stopped());
        let mut state = self.lock();
        if let Some(helper) = state.helpers.get_mut(&device) {
            tasks.extend(helper.new.drain(..).map(|task| (task, Instant::now())));
        }
        if tasks.is_empty() {
            state.helpers.remove(&device);
        }
        !tasks.is_empty()
    }
}

/// Whether there is memory for the lists of a look.
fn has_memory() -> bool {
    !reserve::is_low() && reserve::zeroed(LOOK_BYTES).is_ok()
}

/// Removes the entry of a helper thread that panics: the next region gets another.
struct Ended<'a> {
    registry: &'a Registry,
    device: DeviceNumber,
}

impl Drop for Ended<'_> {
    fn drop(&mut self) {
        if thread::panicking() {
            self.registry.lock().helpers.remove(&self.device);
        }
    }
}
