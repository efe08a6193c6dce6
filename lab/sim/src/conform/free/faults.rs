//! Faults: their page and open file, and the balance of misses and hits.

use super::{FreeRunning, PolicyDecision};
use crate::conform::judge::{changes_balance, checks_marks, fault_access};
use crate::conform::pages::ThreadView;
use crate::conform::tally::Kind;
use ahead_policy::traces::{Mapping, Use};
use ahead_policy::{FileId, Folio, Found, Page, View};

impl FreeRunning {
    pub(super) fn fault(&mut self, task: u32, by: &Use, page: Page, mapping: Option<&Mapping>) {
        self.close(task);
        let Some(mapping) = mapping else {
            // The mapping's open file and advice are unknown, and so are the folios and marks of this fault.
            self.ledger.tally.excluded += 1;
            return self.pages.set_unknown(by.file);
        };
        self.pages.settings(by);
        self.faulted.insert(by.file, (by.open, mapping.flags));
        let is_again = self.tried.insert(task, (by.open, page)) == Some((by.open, page));
        self.take_balance(task, by, page);
        let access = fault_access(by, page, mapping, Found::Absent);
        // Without expected folios of other threads that the kernel did not add.
        let found =
            ThreadView { pages: &self.pages, kernel_pages: &self.kernel_pages, task }.folio(FileId(by.file), page);
        match found {
            None if self.is_comparable(task, by) => {
                let expected = self.decide(task, by, |decision, state| decision.fault(state, &access));
                if self.pages.folio(FileId(by.file), page).is_none() {
                    self.pages.add(by.file, Folio::single(page), false);
                }
                let taken = PolicyDecision { kind: Kind::Fault, page, wanted: 1, expected, alternatives: Vec::new() };
                self.begin(task, by, taken, None);
            }
            Some(folio) if !is_again => self.hit(task, by, page, folio, mapping.flags),
            _ => {}
        }
    }

    /// Takes the balance of misses from the trace: the balance depends on page tables and pages in flight, not on the policy.
    fn take_balance(&mut self, task: u32, by: &Use, page: Page) {
        let traced = u32::from(by.state.mmap_miss);
        let mapped = self.mapped.remove(&task).filter(|_| self.rules.misses_balanced);
        let state = self.state(by);
        if let Some((open, range, before)) = mapped
            && open == by.open
            && range.contains(&page)
        {
            state.mmap_miss = before;
        }
        if state.mmap_miss != traced {
            state.mmap_miss = traced;
            self.ledger.tally.balances_taken += 1;
        }
    }

    /// Processes a fault at a present page (`do_async_mmap_readahead`).
    fn hit(&mut self, task: u32, by: &Use, page: Page, folio: Folio, mapping_flags: u32) {
        let changes_balance = changes_balance(&self.rules, mapping_flags);
        let state = self.state(by);
        if !checks_marks(mapping_flags) || state.window_pages == Some(0) {
            return;
        }
        state.mmap_miss = state.mmap_miss.saturating_sub(u32::from(changes_balance));
        let wanted = state.window_pages.unwrap_or(0);
        if self.pages.is_marked(by.file, folio) == Some(true) && self.is_comparable(task, by) {
            self.pages.unmark(by.file, folio);
            let expected = self.decide(task, by, |decision, state| decision.marked(state, page, folio, wanted));
            self.begin(
                task,
                by,
                PolicyDecision { kind: Kind::Mark, page, wanted, expected, alternatives: Vec::new() },
                None,
            );
        }
    }

    /// Processes the mapping of cached pages around a fault, which skips checks of single pages.
    pub(super) fn around(&mut self, task: u32, file: u32, first: Page, last: Page) {
        let Some((open, flags)) = self.faulted.get(&file).copied() else { return };
        // A repeated fault after a wait was counted the first time.
        let is_again = self.tried.get(&task).is_some_and(|(_, page)| (first..=last).contains(page));
        let counts = changes_balance(&self.rules, flags) && !(is_again && self.rules.misses_balanced);
        let Some(state) = self.states.get_mut(&open).filter(|state| state.mmap_miss > 0 && counts) else { return };
        let mapped = match self.rules.misses_balanced {
            true => 1,
            false => {
                let is_mapped = |page: &Page| {
                    let folio = self.pages.folio(FileId(file), *page);
                    folio.is_some_and(|folio| self.pages.is_marked(file, folio) != Some(true))
                };
                (first..=last).filter(is_mapped).count() as u32
            }
        };
        self.mapped.insert(task, (open, first..last + 1, state.mmap_miss));
        state.mmap_miss = state.mmap_miss.saturating_sub(mapped);
    }
}
