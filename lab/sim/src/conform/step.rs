//! The step by step comparison: the state before each decision and the content of the cache come from the trace.

use crate::conform::judge::{KernelReport, Pending, expect, fault_access, state_of};
use crate::conform::ledger::Ledger;
use crate::conform::pages::Pages;
use crate::conform::tally::{Kind, Tally};
use ahead_policy::policies::on_demand::{Decision, Outcome, Rules, State};
use ahead_policy::traces::{Asked, Event, Mapping, Record, SPANNING, Use};
use ahead_policy::{FileId, Folio, Found, PAGE_BYTES, Page, View};
use rustc_hash::FxHashMap;

/// `POSIX_FADV_WILLNEED`.
pub(crate) const WILL_NEED: u32 = 3;

/// `POSIX_FADV_DONTNEED`.
pub(crate) const DONT_NEED: u32 = 4;

/// Compares a policy with a kernel, each decision from the state in the trace.
#[derive(Debug)]
pub struct StepByStep {
    rules: Rules,
    pages: Pages,
    ledger: Ledger,
    /// The current read call of each thread.
    reads: FxHashMap<u32, Reading>,
}

/// A read call.
#[derive(Clone, Copy, Debug)]
struct Reading {
    open: u32,
    length_bytes: u64,
    file_bytes: u64,
    /// Its intended end.
    end_bytes: u64,
}

impl Reading {
    fn at(self, offset_bytes: u64) -> Reading {
        Reading { end_bytes: offset_bytes.saturating_add(self.length_bytes).min(self.file_bytes), ..self }
    }
}

impl StepByStep {
    /// Starts a comparison with these rules.
    pub fn new(rules: Rules) -> StepByStep {
        StepByStep { rules, pages: Pages::default(), ledger: Ledger::default(), reads: FxHashMap::default() }
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
        match &record.event {
            Event::File(seen) => self.pages.add_file(seen),
            Event::Opened(by) => {
                self.pages.settings(by);
                self.ledger.close(task);
            }
            Event::Read { by, offset_bytes, length_bytes, .. } => {
                self.pages.settings(by);
                self.ledger.close(task);
                let (length_bytes, file_bytes) = (*length_bytes, by.file_bytes);
                let reading = Reading { open: by.open, length_bytes, file_bytes, end_bytes: 0 };
                self.reads.insert(task, reading.at(*offset_bytes));
            }
            Event::ReadAt(offset_bytes) => {
                self.reads.entry(task).and_modify(|reading| *reading = reading.at(*offset_bytes));
            }
            Event::ReadEnd(_) => {
                self.ledger.close(task);
                self.end_read(task);
            }
            Event::Sync(asked) => self.sync(task, asked),
            Event::Async(asked) => self.marked(task, asked),
            Event::Window(window) => self.ledger.add_report(task, KernelReport::Window(*window)),
            Event::Exact(exact) => self.ledger.add_report(task, KernelReport::Exact(*exact)),
            Event::Fault { by, page, mapping } => self.fault(task, by, *page, mapping.as_ref()),
            Event::Around { .. } | Event::Dirtied(_) => {}
            Event::Added(cached) => {
                if cached.special {
                    self.ledger.add(task, cached);
                }
                self.pages.add(cached.file, Folio { first: cached.first, order: cached.order }, false);
            }
            Event::Removed(cached) => {
                let folio = Folio { first: cached.first, order: cached.order };
                self.pages.dropped(task, cached.file, folio);
                self.pages.remove(cached.file, folio, cached.special);
            }
            Event::Advice { by, advice, offset_bytes, length_bytes } => {
                self.pages.settings(by);
                self.ledger.close(task);
                match *advice {
                    WILL_NEED => self.will_need(task, by, *offset_bytes, *length_bytes),
                    advice if advice & SPANNING != 0 => self.ledger.tally.excluded += 1,
                    DONT_NEED => self.pages.begin_drop(task, by.file, whole_pages(*offset_bytes, *length_bytes)),
                    _ => {}
                }
            }
        }
        self.ledger.at += 1;
    }

    fn begin(
        &mut self,
        task: u32,
        kind: Kind,
        by: &Use,
        page: Page,
        wanted: u64,
        expected: crate::conform::judge::Expected,
    ) {
        let (begun, last) = (self.ledger.at, self.ledger.at);
        let pending = Pending { kind, by: *by, page, wanted, begun, last, expected, ..Pending::default() };
        self.ledger.begin(task, pending);
    }

    /// Ends a read. A current decision of another thread may have started after it.
    fn end_read(&mut self, task: u32) {
        let Some(Reading { open, end_bytes, .. }) = self.reads.remove(&task) else { return };
        let StepByStep { ledger, rules, pages, .. } = self;
        ledger.add_alternatives(task, open, end_bytes as i64, |_, pending, mut state| {
            expect(rules, pages, pending.by.file, |decision| decision.sync(&mut state, pending.page, pending.wanted))
                .outcome
        });
    }

    /// The outcomes of a read if a current read of another thread had ended before.
    fn alternatives(&self, task: u32, asked: &Asked) -> Vec<Outcome> {
        let by = &asked.by;
        let others = self.reads.iter().filter(|(other, reading)| **other != task && reading.open == by.open);
        let decide = |(_, reading): (&u32, &Reading)| {
            let mut state = State { prev_pos: reading.end_bytes as i64, ..state_of(&by.state) };
            let decide = |decision: &mut Decision<'_>| decision.sync(&mut state, asked.page, asked.wanted);
            expect(&self.rules, &self.pages, by.file, decide).outcome
        };
        others.filter_map(decide).collect()
    }

    /// Whether decisions on this file can be compared: the content of the file's cache must be known. Counts a decision that cannot.
    fn is_comparable(&mut self, task: u32, by: &Use) -> bool {
        self.pages.settings(by);
        let is_known = self.pages.is_known(by.file);
        if !is_known {
            self.ledger.close(task);
            self.ledger.tally.excluded += 1;
        }
        is_known
    }

    fn sync(&mut self, task: u32, asked: &Asked) {
        // A fault in a sequential mapping continues like a read, and counts as a fault.
        let is_fault = self.ledger.pending(task).is_some_and(|one| one.kind == Kind::Fault && one.reported.is_empty());
        let kind = if is_fault { Kind::Fault } else { Kind::Read };
        if is_fault {
            self.ledger.withdraw(task);
        }
        if self.is_comparable(task, &asked.by) {
            let mut state = state_of(&asked.by.state);
            let expected = expect(&self.rules, &self.pages, asked.by.file, |decision| {
                decision.sync(&mut state, asked.page, asked.wanted)
            });
            self.begin(task, kind, &asked.by, asked.page, asked.wanted, expected);
            let alternatives = self.alternatives(task, asked);
            if let Some(pending) = self.ledger.pending(task) {
                pending.alternatives = alternatives;
            }
        }
    }

    fn marked(&mut self, task: u32, asked: &Asked) {
        if self.is_comparable(task, &asked.by) {
            let mut state = state_of(&asked.by.state);
            let file = FileId(asked.by.file);
            let folio = self.pages.folio(file, asked.page).unwrap_or(Folio::single(asked.page));
            let expected = expect(&self.rules, &self.pages, asked.by.file, |decision| {
                decision.marked(&mut state, asked.page, folio, asked.wanted)
            });
            self.begin(task, Kind::Mark, &asked.by, asked.page, asked.wanted, expected);
        }
    }

    fn fault(&mut self, task: u32, by: &Use, page: Page, mapping: Option<&Mapping>) {
        self.ledger.close(task);
        if self.pages.is_present(FileId(by.file), page) {
            return;
        }
        let Some(mapping) = mapping else {
            self.ledger.tally.excluded += 1;
            return;
        };
        if self.is_comparable(task, by) {
            let mut state = state_of(&by.state);
            let access = fault_access(by, page, mapping, Found::Absent);
            let expected = expect(&self.rules, &self.pages, by.file, |decision| decision.fault(&mut state, &access));
            self.begin(task, Kind::Fault, by, page, 1, expected);
        }
    }

    fn will_need(&mut self, task: u32, by: &Use, offset_bytes: u64, length_bytes: u64) {
        if self.is_comparable(task, by) {
            let (first, pages) = will_need_pages(offset_bytes, length_bytes);
            let state = state_of(&by.state);
            let expected = expect(&self.rules, &self.pages, by.file, |decision| decision.forced(&state, first, pages));
            self.begin(task, Kind::Advice, by, first, pages, expected);
        }
    }
}

/// The pages of a range of bytes, partial ones included; length 0 means to the end (`generic_fadvise`).
pub(crate) fn will_need_pages(offset_bytes: u64, length_bytes: u64) -> (Page, u64) {
    let end = match length_bytes {
        0 => i64::MAX as u64,
        length => offset_bytes.saturating_add(length).min(i64::MAX as u64),
    };
    let first = offset_bytes / PAGE_BYTES;
    (first, end.div_ceil(PAGE_BYTES).saturating_sub(first))
}

/// The pages of a range of bytes, without partial ones; length 0 means to the end.
pub(crate) fn whole_pages(offset_bytes: u64, length_bytes: u64) -> std::ops::Range<Page> {
    let end = match length_bytes {
        0 => i64::MAX as u64,
        length => offset_bytes.saturating_add(length),
    };
    offset_bytes.div_ceil(PAGE_BYTES)..end / PAGE_BYTES
}
