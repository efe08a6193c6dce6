//! What is known of an open file that is tracked.

use crate::counts::reason;
use crate::world::{Mapped, Target};
use ahead_observe::{DecisionEvent, DecisionKind, MappingAdvice};
use ahead_policy::Advice;
use ahead_policy::steering::{Kind, Seen};
use std::path::PathBuf;
use std::rc::Rc;

/// Unit of positions: bytes of a page.
const PAGE_BYTES: u64 = ahead_model::PAGE_BYTES;

/// An open file that another process uses after this time without decisions is probably another one.
const UNSHARED_NS: u64 = 1_000_000_000;

/// An open file.
#[derive(Clone, Debug)]
pub(super) struct File {
    pub target: Target,
    pub comm: Rc<[u8]>,
    /// `None`: not looked up yet; `Some(None)`: not known.
    pub path: Option<Option<PathBuf>>,
    /// It is excluded, or the system has refused an act: no further acts, with the reason.
    pub left_alone: Option<&'static str>,
    /// The observer keeps its usual decisions to itself.
    pub is_quiet: bool,
    /// The log says that it has no descriptor.
    pub is_reported: bool,
    /// Its window before the first act, pages.
    pub baseline: u64,
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
    pub waits: (u64, u64),
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
    pub(super) fn new(event: &DecisionEvent, comm: Rc<[u8]>) -> File {
        File {
            target: target(event),
            comm,
            path: None,
            left_alone: None,
            is_quiet: false,
            is_reported: false,
            baseline: event.before.window_pages.into(),
            window: None,
            fetched: None,
            acted_ns: None,
            seen_ns: event.time_ns,
            checked_ns: event.time_ns,
            waits: (event.waits, event.wait_ns),
        }
    }

    /// The window that it should have now.
    pub(super) fn expected_pages(&self) -> u64 {
        self.window.map_or(self.baseline, |set| set.pages)
    }

    /// Whether something was done about it that has to be undone.
    pub(super) fn is_steered(&self) -> bool {
        self.window.is_some() || self.fetched.is_some()
    }

    /// Whether the decision is about another open file at the same address: of another inode, or one that begins to read, or one that has
    /// the window of the disk although another one was set. (The last may also be a program that has reset its advice.)
    pub(super) fn is_replaced(&self, event: &DecisionEvent) -> bool {
        let before = &event.before;
        let is_first_read =
            event.kind == DecisionKind::Miss && before.prev_pos < 0 && before.size == 0 && before.start == 0;
        let is_other_file = event.inode != self.target.inode || event.inode_number != self.target.inode_number;
        let has_disks_window = before.window_pages == event.disk_window_pages && !before.is_random;
        let is_reset = self.has_other_window(event) && has_disks_window;
        // One that was left alone in another process: a shared one is used by both all the time.
        let is_other_process = event.pid != self.target.pid && event.time_ns > self.seen_ns.saturating_add(UNSHARED_NS);
        is_other_file
            || is_first_read
            || is_reset
            || self.left_alone.is_some() && !self.is_steered() && is_other_process
            || self.left_alone == Some(reason::ADVISED) && has_disks_window
    }

    /// Whether the window is another one than was set. A decision from before does not count.
    pub(super) fn has_other_window(&self, event: &DecisionEvent) -> bool {
        let is_other = |set: Set| event.time_ns > set.at_ns && u64::from(event.before.window_pages) != set.pages;
        self.window.is_some_and(is_other)
    }

    pub(super) fn update(&mut self, event: &DecisionEvent) {
        // Addresses are those of a process.
        let known = self.target.mapping.filter(|_| event.pid == self.target.pid);
        self.target = Target { mapping: target(event).mapping.or(known), ..target(event) };
        self.seen_ns = event.time_ns;
    }

    /// The waits since the last decision: their number and sum.
    pub(super) fn new_waits(&mut self, event: &DecisionEvent) -> (u64, u64) {
        let before = std::mem::replace(&mut self.waits, (event.waits, event.wait_ns));
        (event.waits.saturating_sub(before.0), event.wait_ns.saturating_sub(before.1))
    }

    /// The decision as the policy sees it.
    pub(super) fn as_seen(&self, event: &DecisionEvent) -> Seen {
        let before = &event.before;
        let kind = match event.kind {
            DecisionKind::Miss => Kind::Miss,
            DecisionKind::Marker => Kind::Marker,
            DecisionKind::Fault => Kind::Fault,
        };
        let advice = event.mapping.map_or(Advice::Normal, |mapping| match mapping.advice {
            MappingAdvice::Normal => Advice::Normal,
            MappingAdvice::Sequential => Advice::Sequential,
            MappingAdvice::Random => Advice::Random,
        });
        Seen {
            at_ns: event.time_ns,
            open: event.open,
            file: event.inode,
            kind,
            page: event.page,
            wanted: event.wanted,
            start: before.start,
            size: before.size.into(),
            async_size: before.async_size.into(),
            window_pages: before.window_pages.into(),
            prev_page: prev_page(before.prev_pos),
            is_random: before.is_random,
            file_pages: event.file_pages,
            disk_window_pages: event.disk_window_pages.into(),
            baseline_window_pages: self.baseline,
            waits: event.waits,
            wait_ns: event.wait_ns,
            issued_pages: event.issued_pages,
            wasted_pages: event.wasted_pages,
            has_descriptor: event.descriptor.is_some(),
            mapping: event.mapping.map(|mapping| (mapping.first_page, mapping.end_page)),
            advice,
        }
    }
}

/// The page of the last byte that was read. `None`: nothing was read.
pub(super) fn prev_page(prev_pos: i64) -> Option<u64> {
    u64::try_from(prev_pos).ok().filter(|end| *end > 0).map(|end| (end - 1) / PAGE_BYTES)
}

fn target(event: &DecisionEvent) -> Target {
    Target {
        pid: event.pid,
        tid: event.tid,
        descriptor: event.descriptor,
        open: event.open,
        inode: event.inode,
        inode_number: event.inode_number,
        device: event.device,
        is_block_device: event.is_block_device,
        mapping: event.mapping.map(|mapping| Mapped {
            first_page: mapping.first_page,
            end_page: mapping.end_page,
            address: mapping.address,
        }),
    }
}
