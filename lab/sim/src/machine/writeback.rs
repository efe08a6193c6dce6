//! Writeback of dirty pages: when there are many, when they are old, or when a program calls fsync.
//!
//! ```text
//!     more than the background limit ──┐
//!     dirty for longer than expire_ns ─┼─▶ files in turn, in the order in which they became dirty, each from where the
//!     fsync                           ─┘    last turn ended, in runs as long as a request ─▶ queue, if there is room ─▶ disk
//! ```
//!
//! The model follows the flusher thread of Linux (fs/fs-writeback.c), before it `pdflush`, and before that `bdflush`
//! and `update`. A written page costs the same processor time as a requested page.

use super::{Machine, Step};
use crate::queue::{Added, Range};
use crate::world::METADATA;
use ahead_device::Op as DiskOp;
use ahead_policy::{FileId, PAGE_BYTES, Page};
use std::collections::{BTreeMap, BTreeSet};

/// Pages of a file that are written before the next file's turn (`MAX_WRITEBACK_PAGES`).
const TURN_PAGES: u64 = 1024;

/// When dirty pages are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DirtyLimits {
    /// Writeback begins at this number of dirty pages (`dirty_background_ratio`; `nfract` of bdflush).
    pub background_pages: u64,
    /// The limit for dirty pages and pages under writeback; at this number writers wait (`dirty_ratio`).
    pub most_pages: u64,
    /// Age at which dirty pages are written in any case, nanoseconds (`dirty_expire_centisecs`; `age_buffer`).
    pub expire_ns: u64,
    /// Interval between checks of the age, nanoseconds (`dirty_writeback_centisecs`; `interval` of `update`).
    pub interval_ns: u64,
}

/// A file that has dirty pages.
#[derive(Clone, Copy, Debug)]
struct DirtyFile {
    since_ns: u64,
    /// The place of the file in the order of turns.
    turn: u64,
    /// The page at which writeback continues, and the number of pages left in the turn; 0: it is another file's turn.
    next: Page,
    left: u64,
}

/// The state of all dirty files.
#[derive(Debug, Default)]
pub(super) struct Writeback {
    files: BTreeMap<FileId, DirtyFile>,
    by_age: BTreeSet<(u64, FileId)>,
    turns: BTreeMap<u64, FileId>,
    /// The same for old files. They are written from beginning to end, whatever the limits are.
    old: BTreeMap<u64, FileId>,
    next_turn: u64,
    in_flight: BTreeMap<FileId, u64>,
    syncing: BTreeMap<FileId, Vec<usize>>,
    waiting: Vec<usize>,
}

impl Writeback {
    fn note(&mut self, file: FileId, now_ns: u64) {
        if !self.files.contains_key(&file) {
            self.next_turn += 1;
            self.turns.insert(self.next_turn, file);
            self.by_age.insert((now_ns, file));
            self.files.insert(file, DirtyFile { since_ns: now_ns, turn: self.next_turn, next: 0, left: 0 });
        }
    }

    fn forget(&mut self, file: FileId) {
        if let Some(dirty) = self.files.remove(&file) {
            self.turns.remove(&dirty.turn);
            self.old.remove(&dirty.turn);
            self.by_age.remove(&(dirty.since_ns, file));
        }
    }

    /// Schedules the files that have been dirty since `until_ns` or earlier. Their age counts from `now_ns` again.
    fn expire(&mut self, until_ns: u64, now_ns: u64) {
        while let Some((since_ns, file)) = self.by_age.first().copied()
            && since_ns <= until_ns
            && since_ns < now_ns
        {
            self.by_age.remove(&(since_ns, file));
            self.by_age.insert((now_ns, file));
            if let Some(dirty) = self.files.get_mut(&file) {
                (dirty.since_ns, dirty.next) = (now_ns, 0);
                self.old.insert(dirty.turn, file);
            }
        }
    }

    /// Records that pages of a file were submitted. After a fixed number of pages the turn passes to the next file.
    fn go_on(&mut self, file: FileId, next: Page, sent: u64) {
        if let Some(dirty) = self.files.get_mut(&file) {
            let left = if dirty.left == 0 { TURN_PAGES } else { dirty.left };
            (dirty.next, dirty.left) = (next, left - sent);
            if dirty.left == 0 {
                self.end_turn(file);
            }
        }
    }

    /// Moves the file behind all other files.
    fn end_turn(&mut self, file: FileId) {
        if let Some(dirty) = self.files.get_mut(&file) {
            self.next_turn += 1;
            self.turns.remove(&dirty.turn);
            self.turns.insert(self.next_turn, file);
            if self.old.remove(&dirty.turn).is_some() {
                self.old.insert(self.next_turn, file);
            }
            (dirty.turn, dirty.left) = (self.next_turn, 0);
        }
    }

    fn is_clean(&self, file: FileId) -> bool {
        !self.files.contains_key(&file) && !self.in_flight.contains_key(&file)
    }
}

impl Machine {
    pub(super) fn make_dirty(&mut self, file: FileId, page: Page) {
        let fresh = self.world.cache.make_dirty(file, page, 1);
        self.counters.dirtied_pages += fresh;
        if fresh > 0 {
            self.writeback.note(file, self.world.now_ns);
        }
    }

    fn over_limit(&self) -> bool {
        self.world.cache.dirty_pages() + self.world.cache.writeback_pages() > self.settings.dirty.most_pages
    }

    /// Begins writeback above the background limit. Returns whether the process has to wait because too many pages are
    /// dirty.
    pub(super) fn waits_for_writeback(&mut self, process: usize) -> bool {
        if self.world.cache.dirty_pages() > self.settings.dirty.background_pages {
            self.write_back();
        }
        let waits = self.over_limit();
        if waits {
            self.counters.dirty_waits += 1;
            self.processes[process].waits_since_ns = self.world.now_ns;
            self.processes[process].waits_for_writeback = true;
            self.writeback.waiting.push(process);
        }
        waits
    }

    /// Waits until a file is written, and then until the blocks that contain the places of its pages are written.
    pub(super) fn step_sync(&mut self, process: usize, file: FileId) -> Step {
        let Some(file) = [file, METADATA].into_iter().find(|file| !self.writeback.is_clean(*file)) else {
            self.processes[process].doing = None;
            return Step::Went;
        };
        self.processes[process].waits_since_ns = self.world.now_ns;
        self.processes[process].waits_for_writeback = true;
        self.writeback.syncing.entry(file).or_default().push(process);
        self.write_back();
        Step::Blocked
    }

    /// The time at which dirty pages will be old enough to be written; `None`: there are none.
    pub(super) fn next_expiry_ns(&self) -> Option<u64> {
        let (since_ns, _) = self.writeback.by_age.first()?;
        let limits = self.settings.dirty;
        Some(since_ns.saturating_add(limits.expire_ns.max(1)).next_multiple_of(limits.interval_ns))
    }

    /// The next file to write, and its next pages. First come files that a process waits for, then old pages. Above the
    /// background limit the files follow in turn. A page that is dirtied under writeback is written again afterwards.
    fn next_to_write(&mut self) -> Option<(FileId, Page, u64)> {
        let from_anywhere = |file: FileId| self.sendable(file).or_else(|| self.sendable_from(file, 0));
        if let Some(awaited) = self.writeback.syncing.keys().find_map(|file| from_anywhere(*file)) {
            return Some(awaited);
        }
        while let Some((turn, file)) = self.writeback.old.first_key_value().map(|(turn, file)| (*turn, *file)) {
            if let Some(sendable) = self.sendable(file) {
                return Some(sendable);
            }
            self.writeback.old.remove(&turn);
        }
        let last_turn = self.writeback.next_turn;
        while let Some((turn, file)) = self.writeback.turns.first_key_value().map(|(turn, file)| (*turn, *file))
            && turn <= last_turn
        {
            let goes_on = self.writeback.files.get(&file).is_some_and(|dirty| dirty.left > 0);
            if !goes_on && self.world.cache.dirty_pages() <= self.settings.dirty.background_pages {
                return None;
            }
            match self.sendable(file).or_else(|| self.sendable_from(file, 0)) {
                Some(sendable) => return Some(sendable),
                None => self.writeback.end_turn(file),
            }
        }
        None
    }

    /// The next writable pages of a file, from where its last turn ended.
    fn sendable(&self, file: FileId) -> Option<(FileId, Page, u64)> {
        self.sendable_from(file, self.writeback.files.get(&file)?.next)
    }

    fn sendable_from(&self, file: FileId, from: Page) -> Option<(FileId, Page, u64)> {
        let left = self.writeback.files.get(&file)?.left;
        let most = if left == 0 { TURN_PAGES } else { left };
        self.world.cache.next_dirty(file, from, most).map(|(first, pages)| (file, first, pages))
    }

    /// Submits dirty pages until the queue is full.
    pub(super) fn write_back(&mut self) {
        if self.writeback.files.is_empty() {
            return;
        }
        let (limits, now_ns) = (self.settings.dirty, self.world.now_ns);
        let tick_ns = now_ns - now_ns % limits.interval_ns;
        if let Some(until_ns) = tick_ns.checked_sub(limits.expire_ns.max(1)) {
            self.writeback.expire(until_ns, now_ns);
        }
        let longest = (self.world.queue.longest_bytes() / PAGE_BYTES).max(1);
        while self.world.queue.takes_writes()
            && let Some((file, first, pages)) = self.next_to_write()
        {
            let place = self.world.place(file, first);
            let pages = pages.min(longest).min(place.pages);
            let (range, now_ns) = (Range { file, first, pages, asker: file }, self.world.now_ns);
            let added =
                self.world.queue.add(DiskOp::Write, place.block * PAGE_BYTES, range, pages * PAGE_BYTES, now_ns);
            if added == Added::Full {
                break;
            }
            self.world.cache.begin_writeback(file, first, pages);
            *self.writeback.in_flight.entry(file).or_default() += pages;
            self.system(self.settings.costs.request_per_page_ns * pages as f64);
            self.writeback.go_on(file, first + pages, pages);
            if !self.world.cache.has_dirty(file) {
                self.writeback.forget(file);
            }
        }
        self.world.queue.unplug(self.world.now_ns);
    }

    /// Ends the writeback of pages, and wakes the processes that waited for them.
    pub(super) fn written(&mut self, range: &Range) {
        let written = self.world.cache.end_writeback(range.file, range.first, range.pages);
        self.counters.written_pages += written;
        if range.file == METADATA {
            self.counters.written_metadata_pages += written;
        }
        if let Some(in_flight) = self.writeback.in_flight.get_mut(&range.file) {
            *in_flight -= range.pages.min(*in_flight);
            if *in_flight == 0 {
                self.writeback.in_flight.remove(&range.file);
            }
        }
        if self.writeback.is_clean(range.file) {
            self.ready.extend(self.writeback.syncing.remove(&range.file).unwrap_or_default());
        }
        if !self.over_limit() {
            self.ready.extend(self.writeback.waiting.drain(..));
        }
    }

    /// Counts the time of a wait for writeback that has ended.
    pub(super) fn note_end_of_writeback_wait(&mut self, process: usize) {
        if std::mem::take(&mut self.processes[process].waits_for_writeback) {
            self.counters.writeback_wait_ns += self.world.now_ns - self.processes[process].waits_since_ns;
        }
    }
}
