//! Compares one decision: the policy's expectation with the kernel's report.

use crate::conform::tally::Kind;
use ahead_policy::policies::on_demand::{Decision, Outcome, Rules, State};
use ahead_policy::traces::{Exact, Mapping, RaState, Use, VM_EXEC, VM_RAND_READ, VM_SEQ_READ, Window};
use ahead_policy::{Access, By, Call, FileId, Folio, Found, OpenId, PAGE_BYTES, Page, Requests, View, folios};
use std::cell::Cell;

/// A report of the kernel on a decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum KernelReport {
    Window(Window),
    Exact(Exact),
}

/// The decision that the policy expects.
#[derive(Clone, Debug, Default)]
pub(crate) struct Expected {
    pub(crate) outcome: Option<Outcome>,
    /// The part of a window that is read in single pages. Without large folios, that is the whole window; with large folios, the rest
    /// after a page that was already cached.
    pub(crate) rest: Option<Exact>,
    /// The folios that the decision adds to the cache, and whether each has a mark.
    pub(crate) folios: Vec<(Folio, bool)>,
}

/// A decision that has started.
#[derive(Clone, Debug, Default)]
pub(crate) struct Pending {
    pub(crate) kind: Kind,
    pub(crate) by: Use,
    pub(crate) page: Page,
    pub(crate) wanted: u64,
    /// Number of the decision's first record.
    pub(crate) begun: u64,
    /// Number of the decision's last record.
    pub(crate) last: u64,
    pub(crate) expected: Expected,
    pub(crate) reported: Vec<KernelReport>,
    pub(crate) added: Vec<Folio>,
    /// The policy's decisions if a concurrent read of another thread through the same open file had ended before.
    pub(crate) alternatives: Vec<Outcome>,
    /// Why the decision cannot agree, for any report of the kernel.
    pub(crate) objection: Option<String>,
    /// Whether the overlap of this decision has been handled.
    pub(crate) is_settled: bool,
    /// Whether another thread's decision replaced the state between this decision's use of the state and its report: the decisions
    /// overlapped.
    pub(crate) is_late: bool,
}

impl Pending {
    /// The last record that may belong to the decision. Without a report the decision may last until the next record of its thread.
    pub(crate) fn latest(&self) -> u64 {
        if self.reported.is_empty() && self.added.is_empty() { u64::MAX } else { self.last }
    }

    /// Whether the kernel read a single page, or nothing: the simplest decision.
    pub(crate) fn is_single_page(&self) -> bool {
        match self.reported.as_slice() {
            [] => true,
            [KernelReport::Exact(exact)] => exact.pages <= 1,
            _ => false,
        }
    }

    /// The difference, for people; `None`: policy and kernel agree.
    pub(crate) fn difference(&self) -> Option<String> {
        if self.objection.is_some() {
            return self.objection.clone();
        }
        let expected = self.expected.outcome?;
        (!self.matches_report(expected))
            .then(|| format!("expected {expected:?}, the kernel reported {:?}", self.reported))
    }

    /// Whether one of the alternatives agrees with the kernel's report.
    pub(crate) fn has_agreeing_alternative(&self) -> bool {
        self.alternatives.iter().any(|alternative| self.matches_report(*alternative))
    }

    fn matches_report(&self, expected: Outcome) -> bool {
        let file_pages = self.by.file_bytes.div_ceil(PAGE_BYTES);
        match expected {
            Outcome::Nothing => self.reported.is_empty(),
            Outcome::Window { first, size, async_size, order } => {
                let window = Window { first, size, async_size, order: order.into() };
                self.reported.first() == Some(&KernelReport::Window(window))
            }
            Outcome::Exact { first, pages } => {
                let end = first.saturating_add(pages).min(file_pages.max(first));
                is_exactly(&self.reported, first, end - first)
            }
        }
    }

    /// Whether the pages added to the cache, and the report on the rest of a window, are those that the policy expects. The expected
    /// pages come first, then at most the accessed page, which the kernel reads alone if read-ahead did not read it. Under memory
    /// pressure pages and report may differ although the decision is the same. The allocation of a folio fails, or the kernel evicts a
    /// page at once.
    pub(crate) fn has_expected_folios(&self) -> bool {
        let rest = self.reported.iter().skip(1).copied();
        if matches!(self.expected.outcome, Some(Outcome::Window { .. }))
            && !rest.eq(self.expected.rest.map(KernelReport::Exact))
        {
            return false;
        }
        let expected: Vec<Folio> = self.expected.folios.iter().map(|(folio, _)| *folio).collect();
        let Some(rest) = self.added.strip_prefix(expected.as_slice()) else { return false };
        rest.len() <= 1 && rest.iter().all(|folio| *folio == Folio::single(self.page))
    }
}

/// Whether the reports are these pages, in steps, without a mark.
fn is_exactly(reports: &[KernelReport], first: Page, pages: u64) -> bool {
    let mut next = first;
    for report in reports {
        match report {
            KernelReport::Exact(exact) if exact.first == next && exact.look_ahead == 0 && exact.pages > 0 => {
                next += exact.pages;
            }
            _ => return false,
        }
    }
    next == first + pages
}

/// Converts the kernel's state to that of the policy.
pub(crate) fn state_of(traced: &RaState) -> State {
    State {
        start: traced.start,
        size: traced.size.into(),
        async_size: traced.async_size.into(),
        window_pages: Some(traced.window.into()),
        order: traced.order.min(u16::from(u8::MAX)) as u8,
        mmap_miss: traced.mmap_miss.into(),
        prev_pos: traced.prev_pos,
        ends_at: None,
        random: traced.random,
    }
}

/// Computes the policy's decision.
pub(crate) fn expect(
    rules: &Rules,
    view: &dyn View,
    file: u32,
    decide: impl FnOnce(&mut Decision<'_>) -> Outcome,
) -> Expected {
    let mut requests = Requests::default();
    let file = FileId(file);
    let outcome = decide(&mut Decision { rules, file, view, requests: &mut requests });
    let (order, file_pages) = (view.limits(file).folio_order, view.file_pages(file));
    let (mut added, mut next, mut met) = (Vec::new(), None, None);
    for request in requests.take() {
        let mut at = request.first;
        let is_met = Cell::new(false);
        let is_present = |page| {
            let is_present = view.is_present(file, page);
            is_met.set(is_met.get() || is_present);
            is_present
        };
        for (folio, marked) in folios(&request, order, file_pages, is_present) {
            met = met.or(is_met.get().then_some(at));
            at = folio.range().end;
            added.push((folio, marked));
        }
        met = met.or(is_met.get().then_some(at));
        next = Some(request.first);
    }
    let rest = match outcome {
        Outcome::Window { first, size, async_size, .. } => {
            let from = if order == 0 { next } else { met };
            from.and_then(|from| rest_of(rules, from, first + size - from, async_size, file_pages))
        }
        _ => None,
    };
    Expected { outcome: Some(outcome), rest, folios: added }
}

/// The kernel's report on the rest of a window (`do_page_cache_ra`): the end of the file cuts the rest, and since 7.x removes the mark.
fn rest_of(rules: &Rules, from: Page, pages: u64, async_size: u64, file_pages: u64) -> Option<Exact> {
    let left = file_pages.checked_sub(from).filter(|left| *left > 0)?;
    let look_ahead = if pages >= left && rules.no_mark_at_end { 0 } else { async_size };
    (pages > 0).then_some(Exact { first: from, pages: pages.min(left), look_ahead })
}

/// Whether a fault checks the mark of a present page (`do_async_mmap_readahead`).
pub(crate) fn checks_marks(mapping_flags: u32) -> bool {
    mapping_flags & VM_RAND_READ == 0
}

/// Whether faults of such a mapping change the balance of misses (`mmap_miss`).
pub(crate) fn changes_balance(rules: &Rules, mapping_flags: u32) -> bool {
    !rules.misses_balanced || mapping_flags & (VM_SEQ_READ | VM_EXEC) == 0
}

/// Converts a fault to an access.
pub(crate) fn fault_access(by: &Use, page: Page, mapping: &Mapping, found: Found) -> Access {
    let Mapping { first, end, .. } = *mapping;
    let (advice, huge, executable) = (mapping.advice(), mapping.is_huge(), mapping.is_executable());
    let (open, file) = (OpenId(by.open), FileId(by.file));
    let by = By::Fault { advice, huge, executable, first, end };
    Access { open, file, by, page, wanted: 1, call: Call::default(), begins: true, found }
}
