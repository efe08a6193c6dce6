//! Available memory and memory pressure, without a system call at each decision.
//!
//! Counting the memory of a control group takes a tenth of a millisecond. So a decision gets the last value, and values that were used are
//! counted again after the decisions that wait are done.

use ahead_model::PAGE_BYTES;
use ahead_sys::memory::{available_bytes, available_bytes_of};
use ahead_sys::pressure::{self, Resource};
use rustc_hash::FxHashMap;
use std::time::{Duration, Instant};

/// A value is counted again after this time.
const VALID: Duration = Duration::from_millis(100);

/// A process without a use of its value is dropped after this time.
const DROPPED: Duration = Duration::from_secs(10);

/// Interval in which waits for memory are measured.
const PRESSURE_EVERY: Duration = Duration::from_millis(250);

/// Pressure: some task waited for memory for more than this share of the interval. Users notice 10 % (systemd-oomd acts at 60 %).
const PRESSURE_SHARE: f64 = 0.1;

/// Memory as decisions see it.
#[derive(Debug)]
pub(super) struct Memory {
    of_process: FxHashMap<u32, Value>,
    overall: u64,
    overall_at: Instant,
    is_pressed: bool,
    pressure_total: Option<Duration>,
    pressure_at: Instant,
}

#[derive(Debug)]
struct Value {
    pages: u64,
    counted: Instant,
    used: Instant,
}

impl Memory {
    pub(super) fn new() -> Memory {
        let now = Instant::now();
        Memory {
            of_process: FxHashMap::default(),
            overall: count_overall(),
            overall_at: now,
            is_pressed: false,
            pressure_total: pressure::total(Resource::Memory).ok(),
            pressure_at: now,
        }
    }

    /// Available pages for what a process reads.
    pub(super) fn of(&mut self, pid: u32) -> u64 {
        let now = Instant::now();
        let new = || Value { pages: count(pid), counted: now, used: now };
        let value = self.of_process.entry(pid).or_insert_with(new);
        value.used = now;
        value.pages
    }

    /// Available pages of the machine.
    pub(super) fn overall(&mut self) -> u64 {
        if self.overall_at.elapsed() > VALID {
            (self.overall, self.overall_at) = (count_overall(), Instant::now());
        }
        self.overall
    }

    /// Whether tasks wait for memory.
    pub(super) fn is_pressed(&mut self) -> bool {
        let elapsed = self.pressure_at.elapsed();
        if elapsed >= PRESSURE_EVERY {
            let total = pressure::total(Resource::Memory).ok();
            let waited = total.zip(self.pressure_total).map(|(now, before)| now.saturating_sub(before));
            self.is_pressed =
                waited.is_some_and(|waited| waited.as_secs_f64() > elapsed.as_secs_f64() * PRESSURE_SHARE);
            (self.pressure_total, self.pressure_at) = (total, Instant::now());
        }
        self.is_pressed
    }

    /// The last result of [`Self::is_pressed`].
    pub(super) fn was_pressed(&self) -> bool {
        self.is_pressed
    }

    /// Counts the values that were used and are old.
    pub(super) fn refresh(&mut self) {
        self.of_process.retain(|_, value| value.used.elapsed() < DROPPED);
        for (pid, value) in &mut self.of_process {
            if value.used > value.counted && value.counted.elapsed() > VALID {
                (value.pages, value.counted) = (count(*pid), Instant::now());
            }
        }
    }
}

fn count(pid: u32) -> u64 {
    available_bytes_of(pid).unwrap_or(0) / PAGE_BYTES
}

fn count_overall() -> u64 {
    available_bytes().unwrap_or(0) / PAGE_BYTES
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_counted_once_and_again_when_it_is_old() {
        let mut memory = Memory::new();
        assert!(memory.overall() > 0 && memory.of(std::process::id()) > 0);
        let past = Instant::now().checked_sub(DROPPED / 2).unwrap();
        let value = memory.of_process.get_mut(&std::process::id()).unwrap();
        (value.pages, value.counted) = (7, past);
        assert_eq!(memory.of(std::process::id()), 7);
        memory.refresh();
        assert!(memory.of(std::process::id()) > 7);
        memory.of_process.get_mut(&std::process::id()).unwrap().used = Instant::now().checked_sub(2 * DROPPED).unwrap();
        memory.refresh();
        assert!(memory.of_process.is_empty());
    }
}
