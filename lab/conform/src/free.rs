//! Running free: the state of every open file, what is cached and what is marked evolve from the program's accesses and the
//! policy's own decisions. From the trace come the accesses, what is removed from the cache, and what others add to it.
//!
//! ```text
//!     Read, Fault, Advice ──▶ walk page by page ──▶ the next decision that the policy takes
//!                                                             ║ compared
//!     Sync, Async, Window, Exact ────────────────────────────▶ the decision that the kernel took
//! ```
//!
//! Where they differ, the state is taken from the trace the next time that the open file is seen there (`stale`), and that is
//! counted; so is what a decision has really brought, where other folios were expected. What two decisions at the same time left
//! behind is doubted: the state is taken anew, a mark holds if the kernel says so.
//!
//! | table | set | cleared |
//! |---|---|---|
//! | `stale` | a decision differs or overlaps; during a read whose pages are not told | the open file is seen with its state, or opened |
//! | `cursors` | a call that reads begins, or is told where it does | it ends |
//! | `tried` | a fault | the thread does something else than wait for it |
//! | `mapped` | pages are mapped around a fault | the thread's next fault |

mod faults;

use crate::judge::{Expected, Pending, Said, expect, state_of};
use crate::ledger::Ledger;
use crate::pages::{Pages, Seen};
use crate::position::Positions;
use crate::step::{DONT_NEED, WILL_NEED, whole_pages, will_need_pages};
use crate::tally::{Kind, Tally};
use ahead_policy::policies::on_demand::{Decision, Outcome, Rules, State};
use ahead_policy::{FileId, Folio, PAGE_BYTES, Page, View};
use ahead_traces::{Asked, Cached, Event, MOST_READ, Record, SPANNING, Use};
use rustc_hash::{FxHashMap, FxHashSet};
use std::ops::Range;

/// `POSIX_FADV_NORMAL`, `POSIX_FADV_RANDOM`, `POSIX_FADV_SEQUENTIAL`.
const NORMAL: u32 = 0;
const RANDOM: u32 = 1;
const SEQUENTIAL: u32 = 2;

/// A call that reads: how far it is.
#[derive(Clone, Copy, Debug)]
struct Cursor {
    by: Use,
    offset_bytes: u64,
    /// It wants to end here.
    end_bytes: u64,
    next: Page,
    /// It began with this record.
    begun: u64,
    /// One after the last page that is asked for.
    end: Page,
    /// Which pages it reads is not known.
    is_other: bool,
}

/// A decision that the policy takes.
struct Taken {
    kind: Kind,
    page: Page,
    wanted: u64,
    expected: Expected,
    /// What it would be if a read of another thread had ended already.
    alternatives: Vec<Outcome>,
}

/// Compares a policy with a kernel, from the accesses alone.
#[derive(Debug)]
pub struct Free {
    rules: Rules,
    pages: Pages,
    /// What is really cached.
    truth: Pages,
    states: FxHashMap<u32, State>,
    /// Open files whose state has to be taken from the trace.
    stale: FxHashSet<u32>,
    /// With which record an open file's state was taken from there last.
    taken: FxHashMap<u32, u64>,
    cursors: FxHashMap<u32, Cursor>,
    positions: Positions,
    /// The record before, by thread.
    heard: FxHashMap<u32, u64>,
    /// The open file through which a file was faulted last, and what was said of the mapping.
    faulted: FxHashMap<u32, (u32, u32)>,
    /// What a thread's fault has just mapped, and the balance of misses before: if the fault itself comes after all, it was not
    /// satisfied by that.
    mapped: FxHashMap<u32, (u32, Range<Page>, u32)>,
    /// The open file and the page that a thread has just faulted: it comes again when it has waited, and passes marks by then
    /// (`FAULT_FLAG_TRIED`).
    tried: FxHashMap<u32, (u32, Page)>,
    ledger: Ledger,
}

impl Free {
    /// A policy with these rules.
    pub fn new(rules: Rules) -> Free {
        Free {
            rules,
            pages: Pages::default(),
            truth: Pages::default(),
            states: FxHashMap::default(),
            stale: FxHashSet::default(),
            taken: FxHashMap::default(),
            cursors: FxHashMap::default(),
            positions: Positions::default(),
            heard: FxHashMap::default(),
            faulted: FxHashMap::default(),
            mapped: FxHashMap::default(),
            tried: FxHashMap::default(),
            ledger: Ledger::default(),
        }
    }

    /// What it comes to.
    pub fn finish(self) -> Tally {
        self.ledger.finish()
    }

    /// The next record.
    pub fn take(&mut self, record: &Record) {
        let task = record.task;
        if !matches!(record.event, Event::Removed(_)) {
            self.pages.end_drop(task);
        }
        if matches!(record.event, Event::Opened(_) | Event::Read { .. } | Event::Advice { .. }) {
            self.tried.remove(&task);
        }
        match &record.event {
            Event::File(seen) => {
                self.pages.see(seen);
                self.truth.see(seen);
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
                self.ledger.say(task, Said::Window(*window));
                self.goes_on(task);
            }
            Event::Exact(exact) => {
                self.ledger.say(task, Said::Exact(*exact));
                self.goes_on(task);
            }
            Event::Fault { by, page, mapping } => self.fault(task, by, *page, mapping.as_ref()),
            Event::Around { file, first, last } => self.around(task, *file, *first, *last),
            Event::Added(cached) => self.added(task, cached),
            Event::Removed(cached) => {
                let folio = Folio { first: cached.first, order: cached.order };
                self.pages.dropped(task, cached.file, folio);
                self.pages.remove(cached.file, folio, cached.special);
                self.truth.remove(cached.file, folio, cached.special);
                self.truth.note_gone(cached.file, folio, self.ledger.at);
            }
            Event::Dirtied(cached) => self.pages.doubt_mark(cached.file, cached.first),
            Event::Advice { by, advice, offset_bytes, length_bytes } => {
                self.advised(task, by, *advice, *offset_bytes, *length_bytes);
            }
        }
        self.heard.insert(task, self.ledger.at);
        self.ledger.at += 1;
    }

    /// The state of an open file, brought up to date with the trace where it has to be.
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

    /// A decision goes on. If the state was taken from the trace since it began, it was that before what the decision does.
    fn goes_on(&mut self, task: u32) {
        if let Some(pending) = self.ledger.pending(task)
            && self.taken.get(&pending.by.open).is_some_and(|taken| *taken > pending.begun)
        {
            self.stale.insert(pending.by.open);
        }
    }

    /// A thread's decision has ended. If the kernel took another one, its state and its pages count; if another thread's was under
    /// way, where its mark is cannot be told: the kernel reads the shared state again and again.
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

    /// What a decision has brought is what is really cached, and whether it is marked is not known.
    fn correct(&mut self, pending: &Pending) {
        let file = pending.by.file;
        self.take_truth(file, &pending.expected);
        for folio in &pending.added {
            if self.truth.folio(FileId(file), folio.first) == Some(*folio) {
                self.pages.add(file, *folio, false);
                self.pages.doubt(file, *folio);
            }
        }
    }

    /// Of what was expected, what is really there counts, and whether it is marked is not known.
    fn take_truth(&mut self, file: u32, expected: &Expected) {
        for (folio, _) in &expected.folios {
            if self.truth.folio(FileId(file), folio.first) != Some(*folio) {
                self.pages.remove(file, *folio, false);
                for really in folio.range().filter_map(|page| self.truth.folio(FileId(file), page)) {
                    self.pages.add(file, really, false);
                    self.pages.doubt(file, really);
                }
            }
            self.pages.doubt(file, *folio);
        }
    }

    /// A decision that the kernel did not take has brought nothing, and met no mark.
    fn take_back(&mut self, file: u32, taken: &Taken) {
        self.take_truth(file, &taken.expected);
        match (taken.kind, self.truth.folio(FileId(file), taken.page)) {
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
        let seen = Seen { pages: &self.pages, truth: &self.truth, task };
        let expected = expect(&self.rules, &seen, by.file, |decision| decide(decision, &mut state));
        self.states.insert(by.open, state);
        for (folio, marked) in &expected.folios {
            self.pages.add(by.file, *folio, *marked);
            self.pages.note(by.file, *folio, self.ledger.at, task);
        }
        expected
    }

    fn begin(&mut self, task: u32, by: &Use, taken: Taken, objection: Option<String>) {
        let Taken { kind, page, wanted, expected, alternatives } = taken;
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
        let end_bytes = offset_bytes.saturating_add(length_bytes.min(MOST_READ));
        let (next, end) = (offset_bytes / PAGE_BYTES, end_bytes.div_ceil(PAGE_BYTES));
        self.cursors
            .insert(task, Cursor { by: *by, offset_bytes, end_bytes, next, begun: self.ledger.at, end, is_other });
        if is_other {
            self.stale.insert(by.open);
        }
    }

    /// A read has waited for its turn, and begins only now.
    fn move_read(&mut self, task: u32, offset_bytes: u64) {
        if let Some(cursor) = self.cursors.get(&task).copied() {
            let length_bytes = cursor.end_bytes - cursor.offset_bytes;
            self.begin_read(task, &cursor.by, offset_bytes, length_bytes, cursor.is_other);
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
            // One is enough: what comes after it, it may have caused.
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
            let Free { ledger, rules, pages, truth, .. } = self;
            ledger.ended_before(task, cursor.by.open, position, |task, pending, mut state| {
                let seen = Seen { pages, truth, task };
                expect(rules, &seen, pending.by.file, |decision| {
                    decision.sync(&mut state, pending.page, pending.wanted)
                })
                .outcome
            });
        }
    }

    /// Goes on in a thread's read until the policy decides something (`filemap_get_pages`). `asked`: the kernel
    /// decided here.
    fn advance(&mut self, task: u32, asked: Option<Page>) -> Option<Taken> {
        let mut cursor = *self.cursors.get(&task)?;
        let file = FileId(cursor.by.file);
        let taken = loop {
            if cursor.next >= cursor.end.min(self.pages.file_pages(file)) {
                break None;
            }
            match self.folio(task, &cursor) {
                // It went while the call was under way, behind it.
                None if asked != Some(cursor.next)
                    && self.truth.is_gone_after(cursor.by.file, cursor.next, cursor.begun) =>
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
                    break Some(Taken { kind: Kind::Read, page, wanted, expected, alternatives });
                }
                Some(folio) => {
                    cursor.next = folio.range().end;
                    // It came while this call was under way, perhaps behind it: then it did not meet the mark.
                    let is_later = self.pages.is_brought_after(cursor.by.file, folio, cursor.begun, task);
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
                        break Some(Taken { kind: Kind::Mark, page, wanted, expected, alternatives: Vec::new() });
                    }
                }
            }
        };
        self.cursors.insert(task, cursor);
        taken
    }

    /// The folio that a call comes to. One that another thread's decision should have brought, but has not, is not there.
    fn folio(&self, task: u32, cursor: &Cursor) -> Option<Folio> {
        Seen { pages: &self.pages, truth: &self.truth, task }.folio(FileId(cursor.by.file), cursor.next)
    }

    /// What a read would come to if one of the other threads' that are under way had ended before.
    fn alternatives(&self, task: u32, by: &Use, page: Page, wanted: u64) -> Vec<Outcome> {
        let Some(state) = self.states.get(&by.open) else { return Vec::new() };
        let others = self.cursors.iter().filter(|(other, cursor)| **other != task && cursor.by.open == by.open);
        let decide = |(_, cursor): (&u32, &Cursor)| {
            let mut state = State { prev_pos: cursor.end_bytes.min(by.file_bytes) as i64, ..*state };
            let decide = |decision: &mut Decision<'_>| decision.sync(&mut state, page, wanted);
            let seen = Seen { pages: &self.pages, truth: &self.truth, task };
            expect(&self.rules, &seen, by.file, decide).outcome
        };
        others.filter_map(decide).collect()
    }

    /// Other threads' decisions on the file that overlapped, and have not yet been accounted for, have left marks, and through the same
    /// open file a state, that cannot be told.
    fn doubt_others(&mut self, task: u32, by: &Use) {
        for pending in self.ledger.doubtful(task, by.file) {
            if pending.by.open == by.open && !pending.is_settled {
                self.stale.insert(by.open);
            }
            self.correct(&pending);
        }
    }

    /// Where the last read of a shared open file ended: another thread's has ended already, though that is told later, or was told
    /// before.
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

    /// Whether decisions on this file can be compared; otherwise one more is left out.
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

    /// The read of a thread, if it is one of this open file and its pages are told.
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
        // A fault of a sequential mapping goes on as if it were a read: its decision has begun.
        if !self.ledger.pending(task).is_some_and(|before| before.kind == Kind::Fault && before.said.is_empty()) {
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
        // A fault's decision has begun with the fault.
        let has_begun = |before: &mut Pending| before.kind == Kind::Mark && before.said.is_empty();
        if self.cursors.contains_key(&task) || !self.ledger.pending(task).is_some_and(has_begun) {
            self.close(task);
            let folio = self.pages.folio(FileId(by.file), asked.page);
            let is_marked = folio.map_or(Some(false), |folio| self.pages.is_marked(by.file, folio));
            let objection = "the kernel met a mark, where none was expected";
            self.follow(task, Kind::Mark, asked, (is_marked == Some(false)).then(|| objection.into()));
            self.stale.insert(by.open);
        }
    }

    /// The kernel decides in a read: the policy goes on until it decides, too.
    fn compare(&mut self, task: u32, kind: Kind, asked: &Asked) {
        let is_late = kind == Kind::Read && self.came_meanwhile(task, asked);
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
                let objection = format!("expected to decide at {expected:?}, the kernel did at {found:?}");
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

    /// Whether another thread has brought the page that this thread found absent, since this thread was heard of last: it looked
    /// before, and its decision is told after.
    fn came_meanwhile(&self, task: u32, asked: &Asked) -> bool {
        let heard = self.heard.get(&task).copied().unwrap_or(0);
        let folio = self.truth.folio(FileId(asked.by.file), asked.page);
        folio.is_some_and(|folio| self.truth.is_brought_after(asked.by.file, folio, heard, task))
    }

    /// Decides where the kernel decided, though the walk did not lead there.
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
        self.begin(task, &asked.by, Taken { kind, page, wanted, expected, alternatives: Vec::new() }, objection);
    }

    fn added(&mut self, task: u32, cached: &Cached) {
        let folio = Folio { first: cached.first, order: cached.order };
        if cached.special {
            self.ledger.add(task, cached);
            self.goes_on(task);
        }
        self.truth.add(cached.file, folio, false);
        self.truth.note(cached.file, folio, self.ledger.at, task);
        if self.pages.folio(FileId(cached.file), folio.first) != Some(folio) {
            self.pages.add(cached.file, folio, false);
            // Of a decision that is under way, and was corrected or differs, or that is not compared: whether this is what it marks
            // is not known.
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
                    Taken { kind: Kind::Advice, page, wanted, expected, alternatives: Vec::new() },
                    None,
                );
            }
            _ => {}
        }
    }
}
