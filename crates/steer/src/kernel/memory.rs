//! Available memory and memory pressure, without a system call at a decision.
//!
//! ```text
//!     decision ─▶ last value; wanted ──▶ thread: counts what was wanted, at most every 100 ms ─▶ values for the next decisions
//! ```
//!
//! To count the memory of a control group, the kernel takes locks of all groups and collects the counters of all processors: usually a tenth of
//! a millisecond, and several while groups are made or removed. Decisions do not wait for that. Until the groups of a process are counted, the
//! memory of the machine counts.

use ahead_model::PAGE_BYTES;
use ahead_sys::background;
use ahead_sys::locks::IgnorePoison;
use ahead_sys::memory::{available_bytes, available_bytes_of};
use ahead_sys::pressure::{self, Resource};
use rustc_hash::FxHashMap;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::{Duration, Instant};

/// Shortest interval between two counts.
const EVERY: Duration = Duration::from_millis(100);

/// The usual time after which the value of a process is dropped.
const DROPPED: Duration = Duration::from_secs(10);

/// Interval in which waits for memory are measured.
const PRESSURE_EVERY: Duration = Duration::from_millis(250);

/// Pressure: some task waited for memory for more than this share of the interval. Users notice 10 % (systemd-oomd acts at 60 %).
const PRESSURE_SHARE: f64 = 0.1;

/// Memory as decisions see it.
#[derive(Debug)]
pub(super) struct Memory {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    values: Mutex<Values>,
    wake: Condvar,
}

#[derive(Debug, Default)]
struct Values {
    of_process: FxHashMap<u32, Value>,
    overall: u64,
    is_pressed: bool,
    /// A value was used since the last count.
    is_wanted: bool,
    has_ended: bool,
    /// A process without a use of its value is dropped after this time.
    dropped_after: Duration,
}

#[derive(Debug)]
struct Value {
    /// `None`: not counted yet.
    pages: Option<u64>,
    used: Instant,
    /// It was used since the last count.
    is_wanted: bool,
}

/// The waits for memory so far.
struct Pressure {
    total: Option<Duration>,
    at: Instant,
}

impl Memory {
    /// Counts the memory of the machine, and starts the thread. Without a thread the first values stay.
    pub(super) fn new() -> Memory {
        let values = Values { overall: count(available_bytes()), dropped_after: DROPPED, ..Values::default() };
        let shared = Arc::new(Shared { values: Mutex::new(values), wake: Condvar::new() });
        let counted = shared.clone();
        if let Err(error) = background::spawn("ahead-memory", move || counted.work()) {
            tracing::warn!("available memory is not followed: {error}");
        }
        Memory { shared }
    }

    /// Available pages for what a process reads, and whether tasks wait for memory.
    pub(super) fn of(&self, pid: u32) -> (u64, bool) {
        let mut values = self.shared.wanted();
        let used = Instant::now();
        let value = values.of_process.entry(pid).or_insert(Value { pages: None, used, is_wanted: true });
        (value.used, value.is_wanted) = (used, true);
        let pages = value.pages;
        (pages.unwrap_or(values.overall), values.is_pressed)
    }

    /// As [`Self::of`], for the machine.
    pub(super) fn overall(&self) -> (u64, bool) {
        let values = self.shared.wanted();
        (values.overall, values.is_pressed)
    }

    /// Whether tasks waited for memory at the last count.
    pub(super) fn was_pressed(&self) -> bool {
        self.shared.locked().is_pressed
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        self.shared.locked().has_ended = true;
        self.shared.wake.notify_one();
    }
}

impl Shared {
    fn locked(&self) -> MutexGuard<'_, Values> {
        self.values.lock().ignore_poison()
    }

    /// The values, which are counted again soon.
    fn wanted(&self) -> MutexGuard<'_, Values> {
        let mut values = self.locked();
        if !std::mem::replace(&mut values.is_wanted, true) {
            self.wake.notify_one();
        }
        values
    }

    /// The thread: sleeps while no value is used.
    fn work(&self) {
        let mut pressure = Pressure { total: pressure::total(Resource::Memory).ok(), at: Instant::now() };
        loop {
            let mut values = self.locked();
            while !values.is_wanted && !values.has_ended {
                values = self.wake.wait(values).ignore_poison();
            }
            if values.has_ended {
                return;
            }
            values.is_wanted = false;
            let dropped_after = values.dropped_after;
            values.of_process.retain(|_, value| value.used.elapsed() < dropped_after);
            let wanted = |(pid, value): (&u32, &mut Value)| std::mem::take(&mut value.is_wanted).then_some(*pid);
            let pids: Vec<u32> = values.of_process.iter_mut().filter_map(wanted).collect();
            drop(values);
            let overall = count(available_bytes());
            let counted: Vec<(u32, u64)> = pids.into_iter().map(|pid| (pid, count(available_bytes_of(pid)))).collect();
            let is_pressed = pressure.is_high();
            let mut values = self.locked();
            values.overall = overall;
            values.is_pressed = is_pressed.unwrap_or(values.is_pressed);
            for (pid, pages) in counted {
                if let Some(value) = values.of_process.get_mut(&pid) {
                    value.pages = Some(pages);
                }
            }
            // Only the end interrupts the pause.
            let paused = self.wake.wait_timeout_while(values, EVERY, |values| !values.has_ended);
            drop(paused.ignore_poison());
        }
    }
}

impl Pressure {
    /// `None`: the interval is not over.
    fn is_high(&mut self) -> Option<bool> {
        let elapsed = self.at.elapsed();
        if elapsed < PRESSURE_EVERY {
            return None;
        }
        let total = pressure::total(Resource::Memory).ok();
        let waited = total.zip(self.total).map(|(now, before)| now.saturating_sub(before));
        (self.total, self.at) = (total, Instant::now());
        Some(waited.is_some_and(|waited| waited.as_secs_f64() > elapsed.as_secs_f64() * PRESSURE_SHARE))
    }
}

fn count(available: ahead_sys::Result<u64>) -> u64 {
    available.unwrap_or(0) / PAGE_BYTES
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_of_a_process_is_counted_by_the_thread() {
        let memory = Memory::new();
        let pid = std::process::id();
        let (overall, _) = memory.overall();
        assert!(overall > 0 && memory.of(pid).0 > 0);
        let is_counted = || memory.shared.locked().of_process[&pid].pages.is_some_and(|pages| pages > 0);
        let began = Instant::now();
        while !is_counted() {
            assert!(began.elapsed() < Duration::from_secs(60));
            memory.of(pid);
            std::thread::yield_now();
        }
        memory.shared.locked().dropped_after = Duration::ZERO;
        while !memory.shared.locked().of_process.is_empty() {
            assert!(began.elapsed() < Duration::from_secs(60));
            memory.overall();
            std::thread::yield_now();
        }
        let shared = Arc::downgrade(&memory.shared);
        drop(memory);
        while shared.strong_count() > 0 {
            assert!(began.elapsed() < Duration::from_secs(60), "the thread has not ended");
            std::thread::yield_now();
        }
    }
}
