//! Steering: acts on the read-ahead of programs that know nothing of it, from the decisions of the kernel.
//!
//! The kernel reports a decision when a reader misses a page or reaches a marker; cached reads cause none. Each open file gets a class
//! from its decisions, and acts if these are better than what the kernel does alone:
//!
//! ```text
//!     decision ─▶ stream ─▶ class           act
//!                           sequential      larger window if the reader waits; back if the waits stay
//!                           interleaved     the same
//!                           backward        fetch ahead; the position of the reader is polled
//!                           stride          the same
//!                           random mmap     window of one page, unless the whole file is in use
//!                           random read     small window, if the kernel reads more than requested
//!                           once-only       none
//!                           advised         none: the program has given advice
//! ```
//!
//! - **What is good is left alone.** A reader that does not wait keeps its window, whatever that is.
//! - **Acts are judged.** A larger window that does not shorten the waits is set back. Fetches that the reader does not use end for a
//!   while.
//! - **One budget.** All windows and fetched pages together stay within a share of the available memory. Beyond it, each open file gets
//!   an equal part. Evicted unread pages and pressure reduce windows at once.
//! - **The program's advice wins.** A window that no act has set, and `POSIX_FADV_RANDOM`, end all acts on that open file.
//!
//! The state is a bounded table. Nothing here does I/O, reads a clock or panics; times and counters may have any value.

mod act;
mod effect;
mod faults;
mod fetching;
mod file;
mod reason;
mod seen;
mod setting;
mod streams;
mod window;

pub use crate::pattern::Class;
pub use act::{Act, Failure};
pub use effect::{Effect, Rate};
pub use reason::Reason;
pub use seen::{Kind, Limits, Machine, Progress, Seen};

use file::{Around, OpenFile, Room};
use std::collections::HashMap;

/// If the table is full, this part of it is dropped: an eighth.
const DROPPED_SHARE: usize = 8;

/// The steering of all open files of a machine.
#[derive(Clone, Debug)]
pub struct Steering {
    limits: Limits,
    files: HashMap<u64, OpenFile>,
    /// Sum of the claims of all active open files, and their number.
    claimed_pages: u64,
    claimants: u64,
    /// Number of the last use of an open file.
    uses: u64,
    now_ns: u64,
}

impl Steering {
    /// A steering with these limits.
    pub fn new(limits: &Limits) -> Steering {
        Steering { limits: *limits, files: HashMap::new(), claimed_pages: 0, claimants: 0, uses: 0, now_ns: 0 }
    }

    /// The kernel has decided about an open file.
    pub fn seen(&mut self, seen: &Seen, machine: &Machine) -> Vec<Act> {
        if self.files.get(&seen.open).is_some_and(|file| !file.is_of(seen)) {
            self.forget(seen.open);
        }
        if !self.files.contains_key(&seen.open) {
            self.make_room();
            self.files.insert(seen.open, OpenFile::new(seen));
        }
        self.change(seen.open, seen.at_ns, machine, |file, around| file.seen(seen, around))
    }

    /// The position of the reader of an open file was polled.
    pub fn progress(&mut self, progress: &Progress, machine: &Machine) -> Vec<Act> {
        self.change(progress.open, progress.at_ns, machine, |file, around| file.progress(progress, around))
    }

    /// Changes the state of an open file, and updates the sum of the claims.
    fn change(
        &mut self,
        open: u64,
        at_ns: u64,
        machine: &Machine,
        change: impl FnOnce(&mut OpenFile, &Around) -> Vec<Act>,
    ) -> Vec<Act> {
        self.now_ns = self.now_ns.max(at_ns);
        let Some(file) = self.files.get_mut(&open) else { return Vec::new() };
        self.uses += 1;
        file.used_at = self.uses;
        let own = file.counted.take();
        self.claimed_pages = self.claimed_pages.saturating_sub(own.unwrap_or(0));
        self.claimants -= u64::from(own.is_some());
        let share = self.limits.memory_share.clamp(0.0, 1.0);
        let budget_pages = (machine.available_pages as f64 * share) as u64;
        let room = Room { budget_pages, others_pages: self.claimed_pages, files: self.claimants + 1 };
        let acts = change(file, &Around { machine, limits: &self.limits, room });
        file.counted = file.claim(self.now_ns);
        self.claimed_pages = self.claimed_pages.saturating_add(file.counted.unwrap_or(0));
        self.claimants += u64::from(file.counted.is_some());
        acts
    }

    /// The time from the last decision or poll of an open file to the next poll, nanoseconds; `None`: no poll is needed.
    pub fn poll_after_ns(&self, open: u64) -> Option<u64> {
        self.files.get(&open)?.poll_after_ns()
    }

    /// The open files that need polls.
    pub fn polled(&self) -> Vec<u64> {
        self.files.iter().filter(|(_, file)| file.poll_after_ns().is_some()).map(|(open, _)| *open).collect()
    }

    /// Shrinks windows under pressure and to equal parts, and ends quiet times; about once per second, and when pressure begins.
    pub fn tick(&mut self, now_ns: u64, machine: &Machine) -> Vec<Act> {
        self.now_ns = self.now_ns.max(now_ns);
        let mut opens: Vec<u64> = self.files.keys().copied().collect();
        opens.sort_unstable();
        let (mut acts, mut claimed, mut claimants) = (Vec::new(), 0u64, 0);
        for open in opens {
            let Some(file) = self.files.get_mut(&open) else { continue };
            acts.extend(file.tick(self.now_ns, (self.claimed_pages, self.claimants), &self.limits, machine));
            file.counted = file.claim(self.now_ns);
            claimed = claimed.saturating_add(file.counted.unwrap_or(0));
            claimants += u64::from(file.counted.is_some());
        }
        (self.claimed_pages, self.claimants) = (claimed, claimants);
        acts
    }

    /// The class of an open file.
    pub fn class(&self, open: u64) -> Class {
        self.files.get(&open).map_or(Class::Unknown, OpenFile::class)
    }

    /// The waits of an open file before and after the last act on it; `None`: no act, or no decision before it
    /// or since.
    pub fn effect(&self, open: u64) -> Option<Effect> {
        self.files.get(&open)?.effect()
    }

    /// The window that an act has set; `None`: unchanged.
    pub fn window(&self, open: u64) -> Option<u64> {
        self.files.get(&open)?.window()
    }

    /// Forgets an open file: it was closed.
    pub fn forget(&mut self, open: u64) {
        if let Some(file) = self.files.remove(&open) {
            self.claimed_pages = self.claimed_pages.saturating_sub(file.counted.unwrap_or(0));
            self.claimants -= u64::from(file.counted.is_some());
        }
    }

    /// The last act on an open file was not carried out.
    pub fn undone(&mut self, open: u64, failure: Failure) {
        match (failure, self.files.get_mut(&open)) {
            (Failure::Gone, _) => self.forget(open),
            (failure, Some(file)) => file.undone(failure == Failure::Refused, failure == Failure::Busy),
            _ => {}
        }
    }

    /// Number of open files with a state.
    pub fn files(&self) -> usize {
        self.files.len()
    }

    /// Drops the least recently used open files, if the table is full.
    fn make_room(&mut self) {
        let most = self.limits.max_files.max(1);
        if self.files.len() < most {
            return;
        }
        let mut order: Vec<(u64, u64)> = self.files.iter().map(|(open, file)| (file.used_at, *open)).collect();
        order.sort_unstable();
        let dropped = (most / DROPPED_SHARE).max(self.files.len() + 1 - most);
        for (_, open) in order.into_iter().take(dropped) {
            self.forget(open);
        }
    }
}
