//! What is known of an open file that is tracked.

use crate::refusal::Refusal;
use ahead_policy::steering::{Decision, Kind, OpenFile, Target};
use std::path::PathBuf;
use std::rc::Rc;

/// An open file that another process uses after this time without decisions is probably another one.
const UNSHARED_NS: u64 = 1_000_000_000;

/// An open file.
#[derive(Clone, Debug)]
pub(super) struct File {
    pub target: Target,
    /// What the policy knows of it.
    pub steering: OpenFile,
    pub comm: Rc<[u8]>,
    /// `None`: not looked up yet; `Some(None)`: not known.
    pub path: Option<Option<PathBuf>>,
    /// It is excluded, or the system has refused an act: no further acts, with the reason.
    pub left_alone: Option<Refusal>,
    /// The observer keeps its usual decisions to itself.
    pub is_quiet: bool,
    /// The log says that it has no descriptor.
    pub is_reported: bool,
    /// The window that was set last, and when. `None`: it is unchanged.
    pub window: Option<Set>,
    /// Pages that were fetched, and of these the ones that are in the log.
    pub fetched: Option<Fetched>,
    /// Time of the last act whose effect is not in the log yet.
    pub acted_ns: Option<u64>,
    /// Time of the last decision or sign of life.
    pub seen_ns: u64,
    /// Time of the last check that it is still open.
    pub checked_ns: u64,
    /// Waits at the last decision, for the speed of the disk.
    waits: (u64, u64),
}

/// A window that was set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Set {
    pub pages: u64,
    pub at_ns: u64,
}

/// Fetches for an open file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Fetched {
    pub unlogged_pages: u64,
    pub logged_ns: u64,
}

impl File {
    pub(super) fn new(decision: &Decision, comm: Rc<[u8]>) -> File {
        File {
            target: decision.target,
            steering: OpenFile::new(decision.before.window_pages),
            comm,
            path: None,
            left_alone: None,
            is_quiet: false,
            is_reported: false,
            window: None,
            fetched: None,
            acted_ns: None,
            seen_ns: decision.at_ns,
            checked_ns: decision.at_ns,
            waits: (decision.waits, decision.wait_ns),
        }
    }

    /// The window that it should have now.
    pub(super) fn expected_pages(&self) -> u64 {
        self.window.map_or(self.steering.baseline_window_pages(), |set| set.pages)
    }

    /// Whether something was done about it that has to be undone.
    pub(super) fn is_steered(&self) -> bool {
        self.window.is_some() || self.fetched.is_some()
    }

    /// Whether the decision is about another open file at the same address: of another inode, or one that begins to read, or one that has
    /// the window of the disk although another one was set. (The last may also be a program that has reset its advice.)
    pub(super) fn is_replaced(&self, decision: &Decision) -> bool {
        let (before, now) = (&decision.before, &decision.target);
        let is_first_read = decision.kind == Kind::Miss && before.prev_pos < 0 && before.size == 0 && before.start == 0;
        let is_other_file = now.inode != self.target.inode || now.inode_number != self.target.inode_number;
        let has_disks_window = before.window_pages == decision.disk_window_pages && !before.is_random;
        let is_reset = self.has_other_window(decision) && has_disks_window;
        // One that was left alone in another process: a shared one is used by both all the time.
        let is_other_process = now.pid != self.target.pid && decision.at_ns > self.seen_ns.saturating_add(UNSHARED_NS);
        is_other_file
            || is_first_read
            || is_reset
            || self.left_alone.is_some() && !self.is_steered() && is_other_process
            || self.left_alone == Some(Refusal::Advised) && has_disks_window
    }

    /// Whether the window is another one than was set. A decision from before does not count.
    fn has_other_window(&self, decision: &Decision) -> bool {
        let is_other = |set: Set| decision.at_ns > set.at_ns && decision.before.window_pages != set.pages;
        self.window.is_some_and(is_other)
    }

    /// Errors: it is left alone, its read-ahead is off, or the program has given advice since.
    pub(super) fn check(&self, decision: &Decision) -> Result<(), Refusal> {
        match () {
            () if self.left_alone.is_some() => Err(Refusal::LeftAlone),
            () if decision.disk_window_pages == 0 => Err(Refusal::Off),
            () if self.has_other_window(decision) => Err(Refusal::Advised),
            () => Ok(()),
        }
    }

    pub(super) fn update(&mut self, decision: &Decision) {
        // Addresses are those of a process.
        let known = self.target.mapping.filter(|_| decision.target.pid == self.target.pid);
        self.target = Target { mapping: decision.target.mapping.or(known), ..decision.target };
        self.seen_ns = decision.at_ns;
    }

    /// The waits since the last decision: their number and sum.
    pub(super) fn new_waits(&mut self, decision: &Decision) -> (u64, u64) {
        let before = std::mem::replace(&mut self.waits, (decision.waits, decision.wait_ns));
        (decision.waits.saturating_sub(before.0), decision.wait_ns.saturating_sub(before.1))
    }
}
