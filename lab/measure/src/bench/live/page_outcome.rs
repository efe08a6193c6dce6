//! Handles an access to a page: the policy receives it if it needs it, and the reader gets its next step.

use crate::bench::live::sending::Asker;
use crate::bench::live::state::{LiveState, Locked, Shared};
use ahead_policy::{Access, By, Event, FileId, Found, Page, Requests};
use std::ops::Range;

/// Number of cached pages that a fault maps around its page: `fault_around_bytes` in mm/memory.c, 64 KiB.
const FAULT_AROUND_PAGES: u64 = 16;

/// The reader's knowledge of a page that is in flight according to the book.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PageSeen {
    /// Not checked yet.
    Not,
    /// The page has arrived.
    There,
    /// The page is still in flight.
    Coming,
}

/// The next step of a reader at a page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum PageOutcome {
    /// Check whether the page has arrived, and repeat the access.
    Look,
    /// Use these pages, which are cached.
    Use(Range<Page>),
    /// Wait for the page, which was in flight or absent.
    Wait {
        /// Whether it was absent without a request in flight.
        missed: bool,
        /// The request with the page, if the waiting reader reports its arrival ([`Shared::ended`]).
        request: Option<Range<Page>>,
    },
}

/// The state of the page for the policy, from the book and the reader's check.
fn found(state: &LiveState, access: &Access, seen: PageSeen) -> Found {
    match state.world.book(access.file).map_or(Found::Absent, |book| book.found(access.page)) {
        Found::Locked { marked, folio } if seen == PageSeen::There => Found::Present { marked, folio },
        found => found,
    }
}

/// Whether the policy needs this access.
fn is_wanted(state: &LiveState, access: &Access, found: Found) -> bool {
    let (wants, is_read) = (state.wants, access.by == By::Read);
    let of_this_kind = if is_read { access.begins && wants.calls } else { wants.faults };
    found == Found::Absent || found.is_marked() || wants.pages || of_this_kind
}

impl Shared {
    /// A reader accesses `access.page` and continues to `end`.
    pub fn lookup_page(&self, access: Access, end: Page, seen: PageSeen) -> PageOutcome {
        let mut state = self.lock();
        let first_found = found(&state, &access, seen);
        let mut asker = Asker::of_absent(&access);
        if first_found.is_locked() && seen == PageSeen::Not {
            return PageOutcome::Look;
        }
        if is_wanted(&state, &access, first_found) {
            state = self.ask(state, Access { found: first_found, ..access }, &mut asker);
        }
        if first_found == Found::Absent {
            // The new request may have its mark on this page.
            let again = found(&state, &access, seen);
            if again.is_marked() {
                state = self.ask(state, Access { begins: false, found: again, ..access }, &mut asker);
            }
            // A policy that drops requests when the queue is full may have dropped this page, which the reader needs.
            let mut requests = Requests::default();
            requests.pages(access.file, access.page, 1);
            drop(self.submit(state, requests.take(), &mut asker));
            return PageOutcome::Wait { missed: true, request: asker.into_request() };
        }
        if first_found.is_locked() {
            return PageOutcome::Wait { missed: false, request: None };
        }
        let most = if state.wants.pages || access.by != By::Read { access.page + 1 } else { end };
        let run_end = state.world.book(access.file).map_or(most, |book| book.run_end(access.page, most));
        PageOutcome::Use(access.page..run_end.max(access.page + 1))
    }

    /// Reports an access to the policy, and sends its requests.
    fn ask<'a>(&'a self, mut state: Locked<'a>, access: Access, asker: &mut Asker) -> Locked<'a> {
        let mut requests = Requests::default();
        let LiveState { policy, world, counters, .. } = &mut *state;
        if access.found.is_marked()
            && let Some(book) = world.book_mut(access.file)
        {
            book.unmark(access.page);
        }
        policy.access(&access, world, &mut requests);
        counters.decisions += u64::from(!requests.is_empty());
        state.rescue(&mut requests);
        if access.found == Found::Absent && !requests.cover(access.file, access.page) {
            requests.pages(access.file, access.page, 1);
        }
        self.submit(state, requests.take(), asker)
    }

    /// The reader used cached pages.
    pub fn used(&self, file: FileId, pages: Range<Page>) {
        if !pages.is_empty() {
            self.lock().used(file, pages);
        }
    }

    /// The reader waited for a page, which has arrived.
    pub fn waited(&self, access: &Access, missed: bool, wait_ns: u64) {
        let (open, file, page) = (access.open, access.file, access.page);
        let mut state = self.lock();
        *(if missed { &mut state.counters.misses } else { &mut state.counters.locked }) += 1;
        state.counters.wait_ns += wait_ns;
        state.use_pages(file, page..page + 1);
        if state.wants.waits {
            drop(self.tell(state, &Event::Waited { open, file, page, wait_ns }));
        }
    }

    /// The kernel has evicted a page that the book has as cached, and `others`, which were found by the following check.
    pub fn gone(&self, file: FileId, page: Page, others: impl Iterator<Item = Page>) {
        let mut state = self.lock();
        for page in std::iter::once(page).chain(others) {
            let Some(book) = state.world.book_mut(file) else { return };
            if book.is_locked(page) || !book.is_present(page) {
                continue;
            }
            let unused = book.evict(page);
            state.counters.evicted_pages += 1;
            state.counters.wasted_pages += u64::from(unused);
            if state.wants.evictions {
                state = self.tell(state, &Event::Evicted { file, page, unused });
            }
        }
    }

    /// The reader wrote pages.
    pub fn wrote(&self, file: FileId, size_bytes: u64, pages: Range<Page>) {
        if let Some(book) = self.lock().world.book_mut(file) {
            book.grow(size_bytes);
            book.hold(pages);
        }
    }

    /// A fault mapped its page and the cached pages around it. Returns the mapped pages.
    pub fn mapped(&self, access: &Access) -> Vec<Page> {
        let mut state = self.lock();
        let Some(book) = state.world.book(access.file) else { return vec![access.page] };
        let page = access.page;
        let first = page - page % FAULT_AROUND_PAGES;
        let around = first..(first + FAULT_AROUND_PAGES).min(book.file_pages());
        let is_mapped =
            |at: &Page| *at == page || (book.is_present(*at) && !book.is_locked(*at) && !book.is_marked(*at));
        let mapped: Vec<Page> = around.clone().filter(is_mapped).collect();
        let pages = (page..around.end).take_while(is_mapped).count() as u64;
        let before = (first..page).rev().take_while(is_mapped).count() as u64;
        if state.wants.faults {
            let (open, by, file) = (access.open, access.by, access.file);
            let event = Event::Mapped { open, by, file, first: page, pages, before, mapped: mapped.len() as u64 };
            state = self.tell(state, &event);
        }
        drop(state);
        mapped
    }
}

impl LiveState {
    fn used(&mut self, file: FileId, pages: Range<Page>) {
        self.counters.hits += pages.end - pages.start;
        self.use_pages(file, pages);
    }

    fn use_pages(&mut self, file: FileId, pages: Range<Page>) {
        let first = self.world.book_mut(file).map_or(0, |book| book.use_pages(pages));
        self.counters.used_pages += first;
    }
}
