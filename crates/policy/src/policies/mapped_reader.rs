//! `mapped-reader`: a program that maps its files and calls `advise` of the library (`ahead_read::advise`) for each mapping.
//!
//! The decisions are those of [`Groups`] over a [`Route`], the same objects as in the library. The program states the pattern that it knows: that of
//! its future accesses to the file, if the accesses of one reader have one. So the policy needs the future. Otherwise the program states `Random`,
//! and nothing is read ahead.
//!
//! ```text
//!     fault ──▶ the page at the front is absent or in flight, and was requested: a wait ─╮
//!     mapped ─▶ the front is behind the pages that were mapped                          ─┴▶ absent pages of the group that the reader has entered,
//!                                                                                         then the groups that are due
//! ```
//!
//! The kernel's own read-ahead is off for the mappings (`MADV_RANDOM`): an absent page is read alone. Reads by calls are left to the kernel, here
//! Linux 6.18. The size of a group adapts.
//!
//! The helper thread needs no time, and looks at each fault; the library's looks at intervals. A request that finds no room in the queue is made at
//! a later look; the library's thread would wait. Requests are not repeated during a long wait.

use super::linux_6_18;
use super::on_demand::OnDemand;
use crate::groups::Groups;
use crate::pattern::{Detector, Pattern, Route};
use crate::{
    Access, By, Event, FileId, Found, OpenId, PAGE_BYTES, Page, Parameters, Policy, Request, Requests, View, Wants,
    WhenFull,
};
use std::collections::HashMap;
use std::ops::Range;

/// Known accesses by which the patterns are found. A program whose pattern changes later has another pattern for each part.
const EXAMINED_ACCESSES: usize = 1 << 20;

/// Pages around a fault that the kernel maps if they are cached.
const FAULT_AROUND_PAGES: u64 = 16;

/// The program with its mappings.
pub struct MappedReaders {
    kernel: OnDemand,
    patterns: HashMap<FileId, Pattern>,
    readers: HashMap<OpenId, MappedReader>,
}

/// Pages behind the last record of a group that were absent when it was requested. If they are mapped later, the records are longer.
#[derive(Debug)]
struct RecordEnd {
    unit: u64,
    gap: Range<Page>,
    /// End of the pages of the gap that are mapped without a hole.
    mapped_end: Page,
}

/// The read-ahead of a mapping.
#[derive(Debug)]
struct MappedReader {
    file: FileId,
    route: Route,
    groups: Groups,
    /// The reader has mapped a page.
    has_started: bool,
    record_end: Option<RecordEnd>,
}

impl MappedReaders {
    /// A program that knows the patterns of its accesses.
    pub fn new(parameters: &Parameters) -> MappedReaders {
        let patterns = parameters.future.as_ref().map(|future| patterns(future)).unwrap_or_default();
        MappedReaders { kernel: linux_6_18::policy(), patterns, readers: HashMap::new() }
    }

    /// The read-ahead of a mapping of `pages` pages. `None`: its reader has no pattern.
    fn reader(&mut self, open: OpenId, file: FileId, pages: u64) -> Option<&mut MappedReader> {
        let pattern = *self.patterns.get(&file).filter(|pattern| **pattern != Pattern::Random)?;
        Some(self.readers.entry(open).or_insert_with(|| {
            let route = Route::new(pattern, pages, PAGE_BYTES);
            let groups = Groups::new(route.units(), route.unit_bytes(), 0);
            MappedReader { file, route, groups, has_started: false, record_end: None }
        }))
    }
}

/// The accesses to a file, up to the first return to its first page: another pass.
struct Pass {
    first: Page,
    has_ended: bool,
    /// The last run.
    run: Range<Page>,
    /// Has seen the runs before.
    detector: Detector,
    runs: u64,
}

impl Pass {
    fn note(&mut self, page: Page) {
        self.has_ended |= page == self.first && !self.run.is_empty();
        if self.has_ended {
            return;
        }
        if page != self.run.end {
            self.end_run();
            self.run = page..page;
        }
        self.run.end += 1;
    }

    fn end_run(&mut self) {
        self.runs += 1;
        // Moved by a page: a run at the beginning of a file is sequential at once, and a stride with small gaps would then stay so.
        self.detector.read((self.run.start + 1) * PAGE_BYTES..(self.run.end + 1) * PAGE_BYTES);
    }

    fn pattern(mut self) -> Pattern {
        self.end_run();
        if self.runs == 1 { Pattern::Sequential } else { self.detector.pattern() }
    }
}

/// The pattern of the accesses to each file, by its runs of pages.
fn patterns(future: &[(FileId, Page)]) -> HashMap<FileId, Pattern> {
    let mut passes: HashMap<FileId, Pass> = HashMap::new();
    for (file, page) in future.iter().take(EXAMINED_ACCESSES) {
        let new = || Pass { first: *page, has_ended: false, run: *page..*page, detector: Detector::default(), runs: 0 };
        passes.entry(*file).or_insert_with(new).note(*page);
    }
    passes.into_iter().map(|(file, pass)| (file, pass.pattern())).collect()
}

impl MappedReader {
    /// A fault at a page that has to be read first.
    fn missed(&mut self, page: Page) {
        let is_at_front = self.route.unit_at(page * PAGE_BYTES) == Some(self.groups.front());
        if self.has_started && is_at_front {
            self.groups.found_absent();
            if self.groups.is_front_late() {
                self.groups.waited();
            }
        }
    }

    /// Pages were mapped around a fault.
    fn mapped(&mut self, pages: &Range<Page>, view: &dyn View, requests: &mut Requests) {
        let is_first = !std::mem::replace(&mut self.has_started, true);
        if let Some(RecordEnd { gap, mapped_end, .. }) = &mut self.record_end
            && pages.contains(mapped_end)
        {
            *mapped_end = pages.end.min(gap.end);
        }
        let span = self.groups.ahead().max(2 * self.groups.size()) + FAULT_AROUND_PAGES;
        let is_expected = |end: &u64| *end <= self.groups.front() + span;
        let end = self.end_within(pages);
        match end.filter(is_expected) {
            Some(end) => self.groups.moved(end),
            None if self.route.has_unknown_origin() && (is_first || end.is_some()) => {
                self.begin_at(pages);
                self.look(view, requests);
                self.groups.moved(self.end_within(pages).unwrap_or(0));
            }
            None => {
                let Some(end) = end else { return };
                self.groups.restart(self.route.units(), self.route.unit_bytes(), end);
            }
        }
        self.learn_record();
        self.look(view, requests);
    }

    /// The end of the last unit that begins in these pages.
    fn end_within(&self, pages: &Range<Page>) -> Option<u64> {
        self.route.units_within(std::slice::from_ref(pages)).last().map(|run| run.end)
    }

    /// The first record of a stride is in these pages.
    fn begin_at(&mut self, pages: &Range<Page>) {
        let first = if self.route.is_descending() { pages.end - 1 } else { pages.start };
        self.route.restart(first * PAGE_BYTES);
        self.groups.restart(self.route.units(), self.route.unit_bytes(), 0);
        self.record_end = None;
    }

    /// Records are longer if the reader has read pages behind one.
    fn learn_record(&mut self) {
        let front = self.groups.front();
        if let Some(RecordEnd { gap, mapped_end, .. }) = self.record_end.take_if(|end| end.unit + 1 < front)
            && mapped_end > gap.start
        {
            self.route.widen(mapped_end - gap.start);
            self.groups.restart(self.route.units(), self.route.unit_bytes(), front);
        }
    }

    /// What the helper thread requests.
    fn look(&mut self, view: &dyn View, requests: &mut Requests) {
        let has_absent =
            |pages: &Range<Page>| view.next_absent(self.file, pages.start, pages.end - pages.start).is_some();
        if !self.groups.is_cached()
            && let Some(rest) = self.groups.take_unchecked()
        {
            for pages in self.route.pages(rest).iter().filter(|pages| has_absent(pages)) {
                self.request(pages, view, requests);
            }
        }
        let queue = view.queue(self.file);
        let mut room = u64::from(queue.limit.saturating_sub(queue.requests));
        while let Some(group) = self.groups.due() {
            let pages = self.route.pages(group.clone());
            let examined = if self.groups.is_cached() { &pages[..pages.len().min(1)] } else { &pages[..] };
            if !examined.iter().any(has_absent) {
                self.groups.found_cached(&group);
                continue;
            }
            if self.groups.is_cached() {
                self.groups.found_absent();
                continue;
            }
            if room == 0 {
                return;
            }
            for run in &pages {
                room = room.saturating_sub(self.request(run, view, requests));
            }
            if self.record_end.is_none()
                && let Some(gap) = self.route.gap_after(group.end - 1)
                && !view.is_present(self.file, gap.start)
            {
                self.record_end = Some(RecordEnd { unit: group.end - 1, mapped_end: gap.start, gap });
            }
            self.groups.submitted(&group);
        }
    }

    /// Requests pages, the last ones first for a reader that descends. Returns the number of calls.
    fn request(&self, pages: &Range<Page>, view: &dyn View, requests: &mut Requests) -> u64 {
        let limits = view.limits(self.file);
        let most = limits.request_pages.max(limits.window_pages).max(1);
        let calls = (pages.end - pages.start).div_ceil(most);
        for call in 0..calls {
            let call = if self.route.is_descending() { calls - 1 - call } else { call };
            let first = pages.start + call * most;
            let pages = most.min(pages.end - first);
            requests.add(Request { first, pages, when_full: WhenFull::Drop, ..Request::of(self.file) });
        }
        calls
    }
}

impl Policy for MappedReaders {
    fn wants(&self) -> Wants {
        Wants { faults: true, ..self.kernel.wants() }
    }

    fn access(&mut self, access: &Access, view: &dyn View, requests: &mut Requests) {
        let By::Fault { end, .. } = access.by else { return self.kernel.access(access, view, requests) };
        let is_new = !self.readers.contains_key(&access.open);
        let Some(reader) = self.reader(access.open, access.file, end) else { return };
        if is_new && !reader.route.has_unknown_origin() {
            reader.look(view, requests);
        }
        if !matches!(access.found, Found::Present { .. }) {
            reader.missed(access.page);
        }
    }

    fn event(&mut self, event: &Event, view: &dyn View, requests: &mut Requests) {
        self.kernel.event(event, view, requests);
        match *event {
            Event::Opened { open, .. } | Event::Closed { open } => {
                self.readers.remove(&open);
            }
            Event::Mapped { open, by: By::Fault { end, .. }, file, first, pages, before, .. } => {
                if let Some(reader) = self.reader(open, file, end) {
                    reader.mapped(&(first - before..first + pages), view, requests);
                }
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pattern(pages: impl IntoIterator<Item = Page>) -> Pattern {
        let future: Vec<_> = pages.into_iter().map(|page| (FileId(3), page)).collect();
        patterns(&future)[&FileId(3)]
    }

    #[test]
    fn program_states_the_pattern_of_its_accesses() {
        assert_eq!(pattern((0..100).chain(0..100)), Pattern::Sequential);
        assert_eq!(pattern((0..100).rev()), Pattern::Backward);
        assert_eq!(pattern((0..20).rev().flat_map(|block| 4 * block..4 * block + 4)), Pattern::Backward);
        assert_eq!(pattern((0..900).step_by(40)), Pattern::Stride(40 * 4096));
        assert_eq!(pattern((3..900).step_by(20).flat_map(|page| page..page + 2)), Pattern::Stride(20 * 4096));
        assert_eq!(pattern([5, 90, 17, 40, 3, 61]), Pattern::Random);
    }
}
