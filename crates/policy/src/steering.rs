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
//! Who observes keeps the table of open files ([`OpenFile`]), and drops them. Nothing here does I/O, reads a clock or panics; times and counters
//! may have any value.

mod act;
mod decision;
mod effect;
mod faults;
mod fetching;
mod file;
mod reason;
mod setting;
mod streams;
mod window;

pub use crate::pattern::Class;
pub use act::{Act, Failure};
pub use decision::{Decision, Kind, Limits, Machine, Mapped, Progress, Readahead, Target};
pub use effect::{Effect, Rate};
pub use file::OpenFile;
pub use reason::Reason;

use file::{Around, Room};

/// What all open files of a machine share: limits, and the memory of their windows and fetched pages.
#[derive(Clone, Debug)]
pub struct Steering {
    limits: Limits,
    /// Sum of the claims of all active open files, and their number.
    claimed_pages: u64,
    claimants: u64,
    now_ns: u64,
}

impl Steering {
    /// A steering with these limits.
    pub fn new(limits: &Limits) -> Steering {
        Steering { limits: *limits, claimed_pages: 0, claimants: 0, now_ns: 0 }
    }

    /// The kernel has decided about an open file.
    pub fn decide(&mut self, file: &mut OpenFile, decision: &Decision, machine: &Machine) -> Vec<Act> {
        let room = self.room(file, decision.at_ns, machine);
        let acts = file.decide(decision, &Around { machine, limits: &self.limits, room });
        self.claim(file);
        acts
    }

    /// The position of the reader of an open file was polled.
    pub fn progress(&mut self, file: &mut OpenFile, progress: &Progress, machine: &Machine) -> Option<Act> {
        let room = self.room(file, progress.at_ns, machine);
        let act = file.progress(progress, &Around { machine, limits: &self.limits, room });
        self.claim(file);
        act
    }

    /// The pages that an open file may claim. Its present claim is taken out of the sum.
    fn room(&mut self, file: &mut OpenFile, at_ns: u64, machine: &Machine) -> Room {
        self.now_ns = self.now_ns.max(at_ns);
        self.release(file);
        let share = self.limits.memory_share.clamp(0.0, 1.0);
        let budget_pages = (machine.available_pages as f64 * share) as u64;
        Room { budget_pages, others_pages: self.claimed_pages, files: self.claimants + 1 }
    }

    /// Adds the claim of an open file to the sum.
    fn claim(&mut self, file: &mut OpenFile) {
        file.counted = file.claim(self.now_ns);
        self.claimed_pages = self.claimed_pages.saturating_add(file.counted.unwrap_or(0));
        self.claimants += u64::from(file.counted.is_some());
    }

    /// Takes the claim of an open file out of the sum.
    fn release(&mut self, file: &mut OpenFile) {
        let own = file.counted.take();
        self.claimed_pages = self.claimed_pages.saturating_sub(own.unwrap_or(0));
        self.claimants -= u64::from(own.is_some());
    }

    /// Shrinks windows under pressure and to equal parts, and ends quiet times; about once per second, and when pressure begins. `files`: all.
    pub fn tick<'a>(
        &mut self,
        files: impl IntoIterator<Item = &'a mut OpenFile>,
        now_ns: u64,
        machine: &Machine,
    ) -> Vec<Act> {
        self.now_ns = self.now_ns.max(now_ns);
        let (mut acts, mut claimed, mut claimants) = (Vec::new(), 0u64, 0);
        for file in files {
            acts.extend(file.tick(self.now_ns, (self.claimed_pages, self.claimants), &self.limits, machine));
            file.counted = file.claim(self.now_ns);
            claimed = claimed.saturating_add(file.counted.unwrap_or(0));
            claimants += u64::from(file.counted.is_some());
        }
        (self.claimed_pages, self.claimants) = (claimed, claimants);
        acts
    }

    /// Forgets what is known of an open file except its window before the first act: it was closed, or has to be met again.
    pub fn forget(&mut self, file: &mut OpenFile) {
        self.release(file);
        file.forget();
    }

    /// The last act on an open file was not carried out.
    pub fn undone(&mut self, file: &mut OpenFile, failure: Failure) {
        match failure {
            Failure::Gone => self.forget(file),
            failure => file.undone(failure == Failure::Refused, failure == Failure::Busy),
        }
    }
}
