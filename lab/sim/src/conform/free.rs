//! The free running comparison. The accesses of the programs and the policy's decisions give the state of every open file, the content of
//! the cache and the marks. The trace supplies the accesses, removals from the cache, and additions by other processes.
//!
//! ```text
//!     Read, Fault, Advice ──▶ walk page by page ──▶ the next decision that the policy takes
//!                                                             ║ compared
//!     Sync, Async, Window, Exact ────────────────────────────▶ the decision that the kernel took
//! ```
//!
//! After a mismatch the next record of the open file supplies the state (`stale`), and this is counted. Folios that differ from the
//! expected ones are replaced and counted in the same way. The result of overlapping decisions is uncertain: the next record supplies the
//! state, and the kernel's report decides on a mark.
//!
//! | table | set | cleared |
//! |---|---|---|
//! | `stale` | a decision differs or overlaps; during a read whose pages are not recorded | a record has the state of the open file, or opens it |
//! | `cursors` | a read call starts, or its offset is recorded | it ends |
//! | `tried` | a fault | another operation of the thread |
//! | `mapped` | pages are mapped around a fault | the next fault of the thread |

mod faults;

use crate::conform::judge::{Expected, KernelReport, Pending, expect, state_of};
use crate::conform::ledger::Ledger;
use crate::conform::pages::{Pages, ThreadView};
use crate::conform::position::Positions;
use crate::conform::step::{DONT_NEED, WILL_NEED, whole_pages, will_need_pages};
use crate::conform::tally::{Kind, Tally};
use ahead_policy::policies::on_demand::{Decision, Outcome, Rules, State};
use ahead_policy::traces::{Asked, Cached, Event, MOST_READ, Record, SPANNING, Use};
use ahead_policy::{FileId, Folio, PAGE_BYTES, Page, View};
use rustc_hash::{FxHashMap, FxHashSet};
use std::ops::Range;

/// `POSIX_FADV_NORMAL`, `POSIX_FADV_RANDOM`, `POSIX_FADV_SEQUENTIAL`.
const NORMAL: u32 = 0;
const RANDOM: u32 = 1;
const SEQUENTIAL: u32 = 2;

/// The progress of a read call.
#[derive(Clone, Copy, Debug)]
struct Cursor {
    by: Use,
    offset_bytes: u64,
    /// Its intended end.
    end_bytes: u64,
    next: Page,
    /// Number of its first record.
    begun: u64,
    /// The page after the last requested one.
    end: Page,
    /// The trace does not record its pages.
    is_other: bool,
}

/// A decision of the policy.
struct PolicyDecision {
    kind: Kind,
    page: Page,
    wanted: u64,
    expected: Expected,
    /// The outcomes if a read of another thread had ended before.
    alternatives: Vec<Outcome>,
}

/// Compares a policy with a kernel, from the accesses only.
#[derive(Debug)]
pub struct FreeRunning {
    rules: Rules,
    pages: Pages,
    /// The content of the kernel's cache.
    kernel_pages: Pages,
    states: FxHashMap<u32, State>,
    /// Open files whose state must come from the trace.
    stale: FxHashSet<u32>,
    /// The last record that supplied the state of an open file.
    taken: FxHashMap<u32, u64>,
    cursors: FxHashMap<u32, Cursor>,
    positions: Positions,
    /// The last record of each thread.
    last_records: FxHashMap<u32, u64>,
    /// For each file, the open file of the last fault, and the flags of the mapping.
    faulted: FxHashMap<u32, (u32, u32)>,
    /// The pages that were mapped around a thread's fault, and the previous balance of misses. If the fault itself follows, these pages
    /// did not satisfy the fault.
    mapped: FxHashMap<u32, (u32, Range<Page>, u32)>,
    /// The open file and the page of a thread's last fault: the fault repeats after a wait, and then ignores marks (`FAULT_FLAG_TRIED`).
    tried: FxHashMap<u32, (u32, Page)>,
    ledger: Ledger,
}

impl FreeRunning {
    /// Starts a comparison with these rules.
    pub fn new(rules: Rules) -> FreeRunning {
        FreeRunning {
            rules,
            pages: Pages::default(),
            kernel_pages: Pages::default(),
            states: FxHashMap::default(),
            stale: FxHashSet::default(),
            taken: FxHashMap::default(),
            cursors: FxHashMap::default(),
            positions: Positions::default(),
            last_records: FxHashMap::default(),
            faulted: FxHashMap::default(),
            mapped: FxHashMap::default(),
            tried: FxHashMap::default(),
            ledger: Ledger::default(),
        }
    }

    /// Ends the comparison.
    pub fn finish(self) -> Tally {
        self.ledger.finish()
    }

    /// Processes the next record.
    pub fn process(&mut self, record: &Record) {
        let task = record.task;
        if !matches!(record.event, Event::Removed(_)) {
            self.pages.end_drop(task);
        }
        if matches!(record.event, Event::Opened(_) | Event::Read { .. } | Event::Advice { .. }) {
            self.tried.remove(&task);
        }
        match &record.event {
            Event::File(seen) => {
                self.pages.add_file(seen);
                self.kernel_pages.add_file(seen);
            }
            Event::Opened(by) => {
                self.pages.settings(by);
                self.close(task);
                self.stale.remove(&by.open);
                self.positions.open(by.open);
                let window_pages = Some(by.disk_window.into());
                self.states.insert(by.open, State { window_pages, ..State::default() });
            }
            Event::Read { by, offset_bytes, length_bytes, is_other, .. } => {
                self.begin_read(task, by, *offset_bytes, *length_bytes, *is_other);
            }
            Event::ReadAt(offset_bytes) => self.move_read(task, *offset_bytes),
            Event::ReadEnd(result) => self.end_read(task, *result),
            Event::Sync(asked) => self.sync(task, asked),
            Event::Async(asked) => self.marked(task, asked),
            Event::Window(window) => {
                self.ledger.add_report(task, KernelReport::Window(*window));
                self.continue_decision(task);
            }
            Event::Exact(exact) => {
                self.ledger.add_report(task, KernelReport::Exact(*exact));
                self.continue_decision(task);
            }
            Event::Fault { by, page, mapping } => self.fault(task, by, *page, mapping.as_ref()),
            Event::Around { file, first, last } => self.around(task, *file, *first, *last),
            Event::Added(cached) => self.added(task, cached),
            Event::Removed(cached) => {
                let folio = Folio { first: cached.first, order: cached.order };
                self.pages.dropped(task, cached.file, folio);
                self.pages.remove(cached.file, folio, cached.special);
                self.kernel_pages.remove(cached.file, folio, cached.special);
                self.kernel_pages.note_removed(cached.file, folio, self.ledger.at);
            }
            Event::Dirtied(cached) => self.pages.doubt_mark(cached.file, cached.first),
            Event::Advice { by, advice, offset_bytes, length_bytes } => {
                self.advised(task, by, *advice, *offset_bytes, *length_bytes);
            }
        }
        self.last_records.insert(task, self.ledger.at);
        self.ledger.at += 1;
    }

    /// The state of an open file, updated from the trace if it is stale.
    fn state(&mut self, by: &Use) -> &mut State {
        if self.stale.remove(&by.open) {
            self.ledger.tally.resynchronised += 1;
            self.states.insert(by.open, state_of(&by.state));
            self.taken.insert(by.open, self.ledger.at);
        }
        let tally = &mut self.ledger.tally;
        self.states.entry(by.open).or_insert_with(|| {
            tally.adopted += 1;
            state_of(&by.state)
        })
    }

    /// Continues a decision. A state that the trace has supplied since the start of the decision does not include its effect.
    fn continue_decision(&mut self, task: u32) {
        if let Some(pending) = self.ledger.pending(task)
            && self.taken.get(&pending.by.open).is_some_and(|taken| *taken > pending.begun)
        {
            self.stale.insert(pending.by.open);
        }
    }

    /// Ends a thread's decision. After a mismatch the kernel's state and pages count. After an overlap the place of the decision's mark
    /// is uncertain: the kernel reads the shared state several times.
    fn close(&mut self, task: u32) {
        let is_overlapped = self.ledger.is_overlapped(task);
        if let Some(pending) = self.ledger.pending(task) {
            let differs = pending.difference().is_some();
            if differs || is_overlapped {
                self.stale.insert(pending.by.open);
            }
            let has_expected_folios = pending.has_expected_folios();
            if differs || is_overlapped || !has_expected_folios {
                let pending = pending.clone();
                self.correct(&pending);
                self.ledger.tally.corrected += u64::from(!has_expected_folios);
            }
        }
        self.ledger.close(task);
    }

    /// Takes the folios of a decision from the kernel's cache; their marks are uncertain.
    fn correct(&mut self, pending: &Pending) {
        let file = pending.by.file;
        self.take_kernel_pages(file, &pending.expected);
        for folio in &pending.added {
            if self.kernel_pages.folio(FileId(file), folio.first) == Some(*folio) {
                self.pages.add(file, *folio, false);
                self.pages.doubt(file, *folio);
            }
        }
    }

    /// Replaces expected folios by those in the kernel's cache; their marks are uncertain.
    fn take_kernel_pages(&mut self, file: u32, expected: &Expected) {
        for (folio, _) in &expected.folios {
            if self.kernel_pages.folio(FileId(file), folio.first) != Some(*folio) {
                self.pages.remove(file, *folio, false);
                for actual in folio.range().filter_map(|page| self.kernel_pages.folio(FileId(file), page)) {
                    self.pages.add(file, actual, false);
                    self.pages.doubt(file, actual);
                }
            }
            self.pages.doubt(file, *folio);
        }
    }

    /// Undoes a decision that the kernel did not take: its folios and its mark.
    fn take_back(&mut self, file: u32, taken: &PolicyDecision) {
        self.take_kernel_pages(file, &taken.expected);
        match (taken.kind, self.kernel_pages.folio(FileId(file), taken.page)) {
            (Kind::Mark, Some(folio)) => self.pages.doubt(file, folio),
            (_, None) => self.pages.remove(file, Folio::single(taken.page), false),
            _ => {}
        }
    }

    fn decide(
        &mut self,
        task: u32,
        by: &Use,
        decide: impl FnOnce(&mut Decision<'_>, &mut State) -> Outcome,
    ) -> Expected {
        let mut state = *self.state(by);
        let view = ThreadView { pages: &self.pages, kernel_pages: &self.kernel_pages, task };
        let expected = expect(&self.rules, &view, by.file, |decision| decide(decision, &mut state));
        self.states.insert(by.open, state);
        for (folio, marked) in &expected.folios {
            self.pages.add(by.file, *folio, *marked);
            self.pages.note_added(by.file, *folio, self.ledger.at, task);
        }
        expected
    }

    fn begin(&mut self, task: u32, by: &Use, taken: PolicyDecision, objection: Option<String>) {
        let PolicyDecision { kind, page, wanted, expected, alternatives } = taken;
        let (begun, last) = (self.ledger.at, self.ledger.at);
        let begun_so =
            Pending { kind, by: *by, page, wanted, begun, last, expected, alternatives, ..Pending::default() };
        let pending = Pending { objection, ..begun_so };
        self.ledger.begin(task, pending);
    }

    fn begin_read(&mut self, task: u32, by: &Use, offset_bytes: u64, length_bytes: u64, is_other: bool) {
        self.pages.settings(by);
        self.close(task);
        self.state(by);
        self.place_read(task, by, offset_bytes, length_bytes, is_other);
    }

    fn place_read(&mut self, task: u32, by: &Use, offset_bytes: u64, length_bytes: u64, is_other: bool) {
        let end_bytes = offset_bytes.saturating_add(length_bytes.min(MOST_READ));
        let (next, end) = (offset_bytes / PAGE_BYTES, end_bytes.div_ceil(PAGE_BYTES));
        self.cursors
            .insert(task, Cursor { by: *by, offset_bytes, end_bytes, next, begun: self.ledger.at, end, is_other });
        if is_other {
            self.stale.insert(by.open);
        }
    }

    /// Restarts a read at this offset: the read had waited for a lock. The state in the record of its start is old by now.
    fn move_read(&mut self, task: u32, offset_bytes: u64) {
        if let Some(cursor) = self.cursors.get(&task).copied() {
            let length_bytes = cursor.end_bytes - cursor.offset_bytes;
            self.close(task);
            self.place_read(task, &cursor.by, offset_bytes, length_bytes, cursor.is_other);
        }
    }

    fn end_read(&mut self, task: u32, result: i64) {
        self.close(task);
        let Some(mut cursor) = self.cursors.get(&task).copied() else { return };
        if cursor.is_other {
            self.stale.insert(cursor.by.open);
        } else if result > 0 && self.pages.is_known(cursor.by.file) {
            let reached = cursor.offset_bytes.saturating_add(result as u64);
            cursor.end = cursor.end.min(reached.div_ceil(PAGE_BYTES));
            self.cursors.insert(task, cursor);
            // Only the first decision counts: it may have caused the others.
            if let Some(taken) = self.advance(task, None) {
                let objection = format!("expected {:?}, the kernel did nothing", taken.expected.outcome);
                self.begin(task, &cursor.by, taken, Some(objection));
            }
        }
        self.close(task);
        self.cursors.remove(&task);
        if result > 0 && !cursor.is_other {
            let state = self.states.entry(cursor.by.open).or_insert_with(|| state_of(&cursor.by.state));
            state.prev_pos = cursor.offset_bytes.saturating_add(result as u64) as i64;
            let position = state.prev_pos;
            self.positions.end(cursor.by.open, cursor.begun, self.ledger.at, position);
            let FreeRunning { ledger, rules, pages, kernel_pages, .. } = self;
            ledger.add_alternatives(task, cursor.by.open, position, |task, pending, mut state| {
                let view = ThreadView { pages, kernel_pages, task };
                expect(rules, &view, pending.by.file, |decision| {
                    decision.sync(&mut state, pending.page, pending.wanted)
                })
                .outcome
            });
        }
    }

    /// Continues a thread's read until the policy makes a decision (`filemap_get_pages`). `asked`: the page of the kernel's decision.
    fn advance(&mut self, task: u32, asked: Option<Page>) -> Option<PolicyDecision> {
        let mut cursor = *self.cursors.get(&task)?;
        let file = FileId(cursor.by.file);
        let taken = loop {
            if cursor.next >= cursor.end.min(self.pages.file_pages(file)) {
                break None;
            }
            match self.folio(task, &cursor) {
                // The page was removed during the call, after the call had passed the page.
                None if asked != Some(cursor.next)
                    && self.kernel_pages.is_removed_after(cursor.by.file, cursor.next, cursor.begun) =>
                {
                    cursor.next += 1;
                }
                None => {
                    let (page, wanted) = (cursor.next, cursor.end - cursor.next);
                    let alternatives = self.alternatives(task, &cursor.by, page, wanted);
                    let expected = self.decide(task, &cursor.by, |decision, state| decision.sync(state, page, wanted));
                    if self.pages.folio(file, page).is_none() {
                        self.pages.add(cursor.by.file, Folio::single(page), false);
                    }
                    break Some(PolicyDecision { kind: Kind::Read, page, wanted, expected, alternatives });
                }
                Some(folio) => {
                    cursor.next = folio.range().end;
                    // The folio was added during this call, perhaps after the call had passed the place: then the call did not see the
                    // mark.
                    let is_later = self.pages.is_added_after(cursor.by.file, folio, cursor.begun, task);
                    let is_met = match self.pages.is_marked(cursor.by.file, folio) {
                        Some(is_marked) => is_marked && (!is_later || asked == Some(folio.first)),
                        None => asked == Some(folio.first),
                    };
                    if !is_later || is_met {
                        self.pages.unmark(cursor.by.file, folio);
                    }
                    if is_met {
                        let (page, wanted) = (folio.first, cursor.end - folio.first);
                        let expected = self
                            .decide(task, &cursor.by, |decision, state| decision.marked(state, page, folio, wanted));
                        break Some(PolicyDecision {
                            kind: Kind::Mark,
                            page,
                            wanted,
                            expected,
                            alternatives: Vec::new(),
                        });
                    }
                }
            }
        };
        self.cursors.insert(task, cursor);
        taken
    }

    /// The next folio of a call, without expected folios of other threads that the kernel did not add.
    fn folio(&self, task: u32, cursor: &Cursor) -> Option<Folio> {
        ThreadView { pages: &self.pages, kernel_pages: &self.kernel_pages, task }
            .folio(FileId(cursor.by.file), cursor.next)
    }

    /// The outcomes of a read if a current read of another thread had ended before.
    fn alternatives(&self, task: u32, by: &Use, page: Page, wanted: u64) -> Vec<Outcome> {
        let Some(state) = self.states.get(&by.open) else { return Vec::new() };
        let others = self.cursors.iter().filter(|(other, cursor)| **other != task && cursor.by.open == by.open);
        let decide = |(_, cursor): (&u32, &Cursor)| {
            let mut state = State { prev_pos: cursor.end_bytes.min(by.file_bytes) as i64, ..*state };
            let decide = |decision: &mut Decision<'_>| decision.sync(&mut state, page, wanted);
            let view = ThreadView { pages: &self.pages, kernel_pages: &self.kernel_pages, task };
            expect(&self.rules, &view, by.file, decide).outcome
        };
        others.filter_map(decide).collect()
    }

    /// Handles overlapping decisions of other threads on the file: their marks are uncertain, and so is the state of the same open file.
    fn doubt_others(&mut self, task: u32, by: &Use) {
        for pending in self.ledger.doubtful(task, by.file) {
            if pending.by.open == by.open && !pending.is_settled {
                self.stale.insert(by.open);
            }
            self.correct(&pending);
        }
    }

    /// Takes the end position of the last read of a shared open file from the trace, if another thread's read may have stored it. The
    /// trace records the end of that read earlier or later.
    fn take_position(&mut self, task: u32, by: &Use) {
        let traced = by.state.prev_pos;
        let ends_there = |(other, cursor): (&u32, &Cursor)| {
            let end_bytes = cursor.end_bytes.min(cursor.by.file_bytes) as i64;
            *other != task && cursor.by.open == by.open && end_bytes == traced
        };
        let may_be = self.cursors.iter().any(ends_there) || self.positions.may_be(by.open, traced);
        if let Some(state) = self.states.get_mut(&by.open).filter(|state| may_be && state.prev_pos != traced) {
            state.prev_pos = traced;
            self.ledger.tally.resynchronised += 1;
        }
    }

    /// Whether decisions on this file can be compared. Counts a decision that cannot.
    fn is_comparable(&mut self, task: u32, by: &Use) -> bool {
        self.pages.settings(by);
        let is_known = self.pages.is_known(by.file);
        if !is_known {
            self.close(task);
            self.ledger.tally.excluded += 1;
            self.stale.remove(&by.open);
            self.states.insert(by.open, state_of(&by.state));
        }
        is_known
    }

    /// Whether the thread reads this open file, and the trace records its pages.
    fn is_reading(&self, task: u32, by: &Use) -> bool {
        self.cursors.get(&task).is_some_and(|cursor| cursor.by.open == by.open && !cursor.is_other)
    }

    fn sync(&mut self, task: u32, asked: &Asked) {
        let by = &asked.by;
        if !self.is_comparable(task, by) {
            return;
        }
        if self.is_reading(task, by) {
            self.close(task);
            return self.compare(task, Kind::Read, asked);
        }
        // A fault in a sequential mapping continues like a read: the decision has started already.
        if !self.ledger.pending(task).is_some_and(|before| before.kind == Kind::Fault && before.reported.is_empty()) {
            self.close(task);
            self.follow(task, Kind::Read, asked, None);
            self.stale.insert(by.open);
        }
    }

    fn marked(&mut self, task: u32, asked: &Asked) {
        let by = &asked.by;
        if !self.is_comparable(task, by) {
            return;
        }
        if self.is_reading(task, by) {
            self.close(task);
            return self.compare(task, Kind::Mark, asked);
        }
        // The decision of a fault has started with the fault.
        let has_begun = |before: &mut Pending| before.kind == Kind::Mark && before.reported.is_empty();
        if self.cursors.contains_key(&task) || !self.ledger.pending(task).is_some_and(has_begun) {
            self.close(task);
            let folio = self.pages.folio(FileId(by.file), asked.page);
            let is_marked = folio.map_or(Some(false), |folio| self.pages.is_marked(by.file, folio));
            let objection = "the kernel found a mark, and none was expected";
            self.follow(task, Kind::Mark, asked, (is_marked == Some(false)).then(|| objection.into()));
            self.stale.insert(by.open);
        }
    }

    /// Compares a decision of the kernel in a read with the next one of the policy.
    fn compare(&mut self, task: u32, kind: Kind, asked: &Asked) {
        let is_late = kind == Kind::Read && self.is_added_since_check(task, asked);
        self.doubt_others(task, &asked.by);
        self.take_position(task, &asked.by);
        if let Some(cursor) = self.cursors.get_mut(&task) {
            cursor.by = asked.by;
        }
        match self.advance(task, Some(asked.page)) {
            Some(taken) if (taken.kind, taken.page, taken.wanted) == (kind, asked.page, asked.wanted) => {
                self.begin(task, &asked.by, taken, None);
            }
            other => {
                let expected = other.as_ref().map(|taken| (taken.kind, taken.page, taken.wanted));
                let found = (kind, asked.page, asked.wanted);
                let objection = format!("expected a decision at {expected:?}, the kernel decided at {found:?}");
                if let Some(taken) = &other {
                    self.take_back(asked.by.file, taken);
                }
                self.follow(task, kind, asked, Some(objection));
                if let Some(cursor) = self.cursors.get_mut(&task) {
                    cursor.next = asked.page;
                }
            }
        }
        if let Some(pending) = self.ledger.pending(task) {
            pending.is_late |= is_late;
        }
    }

    /// Whether another thread has added the absent page of this decision since the last record of this thread. Then the thread checked
    /// before the addition, and the trace recorded its decision after.
    fn is_added_since_check(&self, task: u32, asked: &Asked) -> bool {
        let last_record = self.last_records.get(&task).copied().unwrap_or(0);
        let folio = self.kernel_pages.folio(FileId(asked.by.file), asked.page);
        folio.is_some_and(|folio| self.kernel_pages.is_added_after(asked.by.file, folio, last_record, task))
    }

    /// Lets the policy decide at the place of the kernel's decision, which the policy's walk did not reach.
    fn follow(&mut self, task: u32, kind: Kind, asked: &Asked, objection: Option<String>) {
        if objection.is_some() {
            self.stale.insert(asked.by.open);
        }
        let (page, wanted) = (asked.page, asked.wanted);
        let folio = self.pages.folio(FileId(asked.by.file), page).unwrap_or(Folio::single(page));
        let expected = self.decide(task, &asked.by, |decision, state| match kind {
            Kind::Mark => decision.marked(state, page, folio, wanted),
            _ => decision.sync(state, page, wanted),
        });
        if kind == Kind::Mark {
            self.pages.unmark(asked.by.file, folio);
        }
        self.begin(
            task,
            &asked.by,
            PolicyDecision { kind, page, wanted, expected, alternatives: Vec::new() },
            objection,
        );
    }

    fn added(&mut self, task: u32, cached: &Cached) {
        let folio = Folio { first: cached.first, order: cached.order };
        if cached.special {
            self.ledger.add(task, cached);
            self.continue_decision(task);
        }
        self.kernel_pages.add(cached.file, folio, false);
        self.kernel_pages.note_added(cached.file, folio, self.ledger.at, task);
        if self.pages.folio(FileId(cached.file), folio.first) != Some(folio) {
            self.pages.add(cached.file, folio, false);
            // The mark is uncertain if the current decision was corrected or differs, or is not compared.
            let is_compared = self.pages.is_known(cached.file);
            let is_under_way = self.ledger.pending(task).is_some_and(|pending| pending.by.file == cached.file);
            if cached.special && (is_under_way || !is_compared) {
                self.pages.doubt(cached.file, folio);
            }
        }
    }

    fn advised(&mut self, task: u32, by: &Use, advice: u32, offset_bytes: u64, length_bytes: u64) {
        self.pages.settings(by);
        self.close(task);
        let window = u64::from(by.disk_window);
        let state = self.state(by);
        match advice {
            NORMAL => (state.window_pages, state.random) = (Some(window), false),
            SEQUENTIAL => (state.window_pages, state.random) = (Some(2 * window), false),
            RANDOM => state.random = true,
            advice if advice & SPANNING != 0 => self.ledger.tally.excluded += 1,
            DONT_NEED => self.pages.begin_drop(task, by.file, whole_pages(offset_bytes, length_bytes)),
            WILL_NEED if self.is_comparable(task, by) => {
                let (page, wanted) = will_need_pages(offset_bytes, length_bytes);
                let expected = self.decide(task, by, |decision, state| decision.forced(state, page, wanted));
                self.begin(
                    task,
                    by,
                    PolicyDecision { kind: Kind::Advice, page, wanted, expected, alternatives: Vec::new() },
                    None,
                );
            }
            _ => {}
        }
    }
}
