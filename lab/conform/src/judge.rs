//! One decision: what the policy expects, what the kernel said, and whether they agree.

use crate::tally::Kind;
use ahead_policy::policies::on_demand::{Decision, Outcome, Rules, State};
use ahead_policy::{Access, By, Call, FileId, Folio, Found, OpenId, PAGE_BYTES, Page, Requests, View, folios};
use ahead_traces::{Exact, Mapping, RaState, Use, VM_EXEC, VM_RAND_READ, VM_SEQ_READ, Window};
use std::cell::Cell;

/// What the kernel said after a decision had begun.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Said {
    Window(Window),
    Exact(Exact),
}

/// What the policy would do.
#[derive(Clone, Debug, Default)]
pub(crate) struct Expected {
    pub(crate) outcome: Option<Outcome>,
    /// What is read of a window in single pages: all of it where there are no large folios, what is left after a page that was
    /// cached already where there are.
    pub(crate) rest: Option<Exact>,
    /// The folios that this adds to the cache, and which of them is marked.
    pub(crate) folios: Vec<(Folio, bool)>,
}

/// A decision that has begun.
#[derive(Clone, Debug, Default)]
pub(crate) struct Pending {
    pub(crate) kind: Kind,
    pub(crate) by: Use,
    pub(crate) page: Page,
    pub(crate) wanted: u64,
    /// It began with this record.
    pub(crate) begun: u64,
    /// The last one that belongs to it.
    pub(crate) last: u64,
    pub(crate) expected: Expected,
    pub(crate) said: Vec<Said>,
    pub(crate) added: Vec<Folio>,
    /// What the policy would do if another thread's read through the same open file, which was under way, had ended before.
    pub(crate) alternatives: Vec<Outcome>,
    /// Why it cannot agree, whatever is said.
    pub(crate) objection: Option<String>,
    /// That it overlapped has been accounted for.
    pub(crate) is_settled: bool,
    /// What it saw, another thread's decision had replaced before it was told: they overlapped.
    pub(crate) is_late: bool,
}

impl Pending {
    /// The last record that may belong to it. Where nothing was told of what it did, it may go on until its thread goes on.
    pub(crate) fn latest(&self) -> u64 {
        if self.said.is_empty() && self.added.is_empty() { u64::MAX } else { self.last }
    }

    /// Whether the kernel read a single page at random, or nothing: the easiest of all decisions.
    pub(crate) fn is_single_page(&self) -> bool {
        match self.said.as_slice() {
            [] => true,
            [Said::Exact(exact)] => exact.pages <= 1,
            _ => false,
        }
    }

    /// What differs; `None`: they agree.
    pub(crate) fn difference(&self) -> Option<String> {
        if self.objection.is_some() {
            return self.objection.clone();
        }
        let expected = self.expected.outcome?;
        (!self.is_said(expected)).then(|| format!("expected {expected:?}, the kernel: {:?}", self.said))
    }

    /// Whether one of the alternatives is what the kernel said.
    pub(crate) fn would_agree(&self) -> bool {
        self.alternatives.iter().any(|alternative| self.is_said(*alternative))
    }

    fn is_said(&self, expected: Outcome) -> bool {
        let file_pages = self.by.file_bytes.div_ceil(PAGE_BYTES);
        match expected {
            Outcome::Nothing => self.said.is_empty(),
            Outcome::Window { first, size, async_size, order } => {
                let window = Window { first, size, async_size, order: order.into() };
                self.said.first() == Some(&Said::Window(window))
            }
            Outcome::Exact { first, pages } => {
                let end = first.saturating_add(pages).min(file_pages.max(first));
                is_exactly(&self.said, first, end - first)
            }
        }
    }

    /// Whether the pages that came into the cache, and what was said of the rest of a window, are those that the policy expects:
    /// these first, then at most the touched page itself, which is read alone where read-ahead did not bring it. Where memory is
    /// short it may be otherwise, though the decision is the same: a folio cannot be had, a page goes meanwhile.
    pub(crate) fn has_expected_folios(&self) -> bool {
        let rest = self.said.iter().skip(1).copied();
        if matches!(self.expected.outcome, Some(Outcome::Window { .. }))
            && !rest.eq(self.expected.rest.map(Said::Exact))
        {
            return false;
        }
        let expected: Vec<Folio> = self.expected.folios.iter().map(|(folio, _)| *folio).collect();
        let Some(rest) = self.added.strip_prefix(expected.as_slice()) else { return false };
        rest.len() <= 1 && rest.iter().all(|folio| *folio == Folio::single(self.page))
    }
}

/// Whether what was said is these pages, in steps, without a mark.
fn is_exactly(said: &[Said], first: Page, pages: u64) -> bool {
    let mut next = first;
    for said in said {
        match said {
            Said::Exact(exact) if exact.first == next && exact.look_ahead == 0 && exact.pages > 0 => {
                next += exact.pages;
            }
            _ => return false,
        }
    }
    next == first + pages
}

/// The kernel's state as the policy's.
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

/// What the policy expects of one decision.
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

/// What the kernel says of the rest of a window (`do_page_cache_ra`): the file's end cuts it, and since 7.x takes the mark away.
fn rest_of(rules: &Rules, from: Page, pages: u64, async_size: u64, file_pages: u64) -> Option<Exact> {
    let left = file_pages.checked_sub(from).filter(|left| *left > 0)?;
    let look_ahead = if pages >= left && rules.no_mark_at_end { 0 } else { async_size };
    (pages > 0).then_some(Exact { first: from, pages: pages.min(left), look_ahead })
}

/// Whether a fault looks at the mark of the page that it finds (`do_async_mmap_readahead`).
pub(crate) fn looks_at_marks(mapping_flags: u32) -> bool {
    mapping_flags & VM_RAND_READ == 0
}

/// Whether faults of such a mapping change the balance of misses (`mmap_miss`).
pub(crate) fn changes_balance(rules: &Rules, mapping_flags: u32) -> bool {
    !rules.misses_balanced || mapping_flags & (VM_SEQ_READ | VM_EXEC) == 0
}

/// A fault as the policy sees it.
pub(crate) fn fault_access(by: &Use, page: Page, mapping: &Mapping, found: Found) -> Access {
    let Mapping { first, end, .. } = *mapping;
    let (advice, huge, executable) = (mapping.advice(), mapping.is_huge(), mapping.is_executable());
    let (open, file) = (OpenId(by.open), FileId(by.file));
    let by = By::Fault { advice, huge, executable, first, end };
    Access { open, file, by, page, wanted: 1, call: Call::default(), begins: true, found }
}
