//! The current decision of each thread, and the counts of decisions that have ended.

use crate::conform::judge::{KernelReport, Pending, state_of};
use crate::conform::tally::{Kind, MAX_MISMATCHES, Mismatch, Tally};
use ahead_policy::Folio;
use ahead_policy::policies::on_demand::{Outcome, State};
use ahead_policy::traces::{Cached, RaState};
use rustc_hash::FxHashMap;

/// From the first to the last record of a decision.
#[derive(Clone, Copy, Debug)]
struct Span {
    task: u32,
    begun: u64,
    last: u64,
}

/// The windows before and after a decision: first page, pages, asynchronous pages.
#[derive(Clone, Copy, Debug)]
struct Replaced {
    task: u32,
    before: (u64, u64, u64),
    after: (u64, u64, u64),
}

fn window_of(state: &RaState) -> (u64, u64, u64) {
    (state.start, state.size.into(), state.async_size.into())
}

/// Number of last decisions that may overlap with a current one: there are fewer threads.
const RECENT: usize = 256;

#[derive(Debug, Default)]
pub(crate) struct Ledger {
    pub(crate) tally: Tally,
    /// Number of the current record.
    pub(crate) at: u64,
    pending: FxHashMap<u32, Pending>,
    /// All ended decisions, by file.
    spans: FxHashMap<u32, Vec<Span>>,
    /// The last window that was set, by open file.
    replaced: FxHashMap<u32, Replaced>,
}

impl Ledger {
    /// Starts a decision; the thread's previous decision has ended.
    pub(crate) fn begin(&mut self, task: u32, mut pending: Pending) {
        self.close(task);
        let found = window_of(&pending.by.state);
        let is_replaced = |last: &Replaced| last.task != task && last.before == found && last.after != found;
        pending.is_late |= self.replaced.get(&pending.by.open).is_some_and(is_replaced);
        self.pending.insert(task, pending);
    }

    /// The current decision of a thread.
    pub(crate) fn pending(&mut self, task: u32) -> Option<&mut Pending> {
        self.pending.get_mut(&task)
    }

    /// Adds a report to the current decision of a thread.
    pub(crate) fn add_report(&mut self, task: u32, report: KernelReport) {
        let Some(pending) = self.pending.get_mut(&task) else { return };
        pending.reported.push(report);
        pending.last = self.at;
        if let KernelReport::Window(window) = report {
            let after = (window.first, window.size, window.async_size);
            self.replaced.insert(pending.by.open, Replaced { task, before: window_of(&pending.by.state), after });
        }
    }

    /// A read of this thread has ended. Adds an alternative to each current decision of another thread through the same open file that
    /// has no report. The alternative is the outcome if the read had ended before the decision. `decide`: a thread's decision with this
    /// state.
    pub(crate) fn add_alternatives(
        &mut self,
        task: u32,
        open: u32,
        position: i64,
        decide: impl Fn(u32, &Pending, State) -> Option<Outcome>,
    ) {
        for (other, pending) in &mut self.pending {
            if *other != task && pending.by.open == open && pending.kind == Kind::Read && pending.reported.is_empty() {
                let state = State { prev_pos: position, ..state_of(&pending.by.state) };
                pending.alternatives.extend(decide(*other, pending, state));
            }
        }
    }

    /// Adds a folio that a thread has put into the cache.
    pub(crate) fn add(&mut self, task: u32, cached: &Cached) {
        if let Some(pending) = self.pending.get_mut(&task).filter(|pending| pending.by.file == cached.file) {
            pending.added.push(Folio { first: cached.first, order: cached.order });
            pending.last = self.at;
        }
    }

    /// Whether another thread decided on the same file during the current decision of this thread.
    pub(crate) fn is_overlapped(&self, task: u32) -> bool {
        let Some(own) = self.pending.get(&task) else { return false };
        let overlaps = |begun: u64, last: u64| begun <= own.latest() && own.begun <= last;
        let file = own.by.file;
        let others = self.pending.iter().filter(|(other, pending)| **other != task && pending.by.file == file);
        let ended = self.spans.get(&file).into_iter().flatten().rev().take(RECENT);
        own.is_late
            || others.into_iter().any(|(_, other)| overlaps(other.begun, other.latest()))
            || ended.filter(|other| other.task != task).any(|other| overlaps(other.begun, other.last))
    }

    /// The current decisions of other threads on a file that overlap with another one, or do not agree so far. `is_settled`: an earlier
    /// call has returned the decision.
    pub(crate) fn doubtful(&mut self, task: u32, file: u32) -> Vec<Pending> {
        let others = self.pending.iter().filter(|(other, pending)| **other != task && pending.by.file == file);
        let is_doubtful = |(other, pending): &(&u32, &Pending)| {
            self.is_overlapped(**other) || pending.difference().is_some() || !pending.has_expected_folios()
        };
        let doubtful: Vec<(u32, Pending)> =
            others.filter(is_doubtful).map(|(other, pending)| (*other, pending.clone())).collect();
        for (other, _) in &doubtful {
            self.pending.entry(*other).and_modify(|pending| pending.is_settled = true);
        }
        doubtful.into_iter().map(|(_, pending)| pending).collect()
    }

    /// Removes a thread's decision, which is a part of the next one.
    pub(crate) fn withdraw(&mut self, task: u32) {
        self.pending.remove(&task);
    }

    /// Ends the current decision of a thread, and counts it.
    pub(crate) fn close(&mut self, task: u32) {
        let Some(pending) = self.pending.remove(&task) else { return };
        let span = Span { task, begun: pending.begun, last: pending.latest().min(self.at) };
        self.spans.entry(pending.by.file).or_default().push(span);
        let difference = pending.difference();
        let is_overlapping = pending.is_late || difference.is_some() && pending.has_agreeing_alternative();
        self.tally.count(pending.kind, difference.is_none());
        self.tally.beyond_single_pages += u64::from(!pending.is_single_page());
        self.tally.folios_matched += u64::from(pending.has_expected_folios());
        if let Some(difference) = difference.filter(|_| self.tally.mismatches.len() < MAX_MISMATCHES) {
            self.tally.mismatches.push(Mismatch {
                record: pending.begun,
                kind: pending.kind,
                task,
                file: pending.by.file,
                page: pending.page,
                wanted: pending.wanted,
                difference,
                state: format!("{:?}", pending.by.state),
                is_overlapping,
            });
        }
    }

    /// Ends all decisions at the end of the trace, and finds mismatches of overlapping decisions.
    pub(crate) fn finish(mut self) -> Tally {
        let tasks: Vec<u32> = self.pending.keys().copied().collect();
        for task in tasks {
            self.close(task);
        }
        let mut tally = self.tally;
        tally.mismatches.sort_by_key(|mismatch| mismatch.record);
        let spans: FxHashMap<u32, Spans> =
            self.spans.into_iter().map(|(file, spans)| (file, Spans::new(spans))).collect();
        for mismatch in &mut tally.mismatches {
            mismatch.is_overlapping |= spans[&mismatch.file].overlap(mismatch.task, mismatch.record);
            tally.overlapping += u64::from(mismatch.is_overlapping);
        }
        tally.first_mismatch = tally.mismatches.first().cloned();
        tally
    }
}

/// All decisions on a file, in order of their first records.
struct Spans {
    spans: Vec<Span>,
    /// For each decision the latest end of this decision and all before it.
    latest: Vec<u64>,
}

impl Spans {
    fn new(mut spans: Vec<Span>) -> Spans {
        spans.sort_by_key(|span| span.begun);
        let so_far = |latest: &mut u64, span: &Span| {
            *latest = span.last.max(*latest);
            Some(*latest)
        };
        let latest = spans.iter().scan(0, so_far).collect();
        Spans { spans, latest }
    }

    /// Whether another thread's decision overlaps with the decision of this thread that started with this record.
    fn overlap(&self, task: u32, begun: u64) -> bool {
        let own = self.spans.iter().skip(self.spans.partition_point(|span| span.begun < begun));
        let Some(own) = own.take_while(|span| span.begun == begun).find(|span| span.task == task) else { return false };
        let before = self.spans.partition_point(|span| span.begun <= own.last);
        let still_open = (0..before).rev().take_while(|index| self.latest[*index] >= own.begun);
        still_open.map(|index| &self.spans[index]).any(|other| other.task != task && other.last >= own.begun)
    }
}
