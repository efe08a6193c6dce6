//! `reader`: a program that reads with `Reader` of the library (`ahead_read::stream`) instead of `File`.
//!
//! The decisions are those of [`Reading`], the same object as in the library. This file does what the library does around it, page by page:
//!
//! ```text
//!     call ─▶ begin ─▶ all pages cached ──────────────────────────▶ copied
//!                  ╰─▶ a page is absent or in flight ─▶ miss ─▶ waits for a part of its piece ─▶ go on ─▶ the next page that is missing …
//! ```
//!
//! The kernel's own read-ahead is off for the open file (`FADV_RANDOM`): what is not requested, it reads in requests as long as the call.
//! Mappings are left to the kernel, here Linux 6.18. All readers share one budget: that of the parameters, or that of a process, which is
//! 64 MiB or a quarter of the memory.
//!
//! A request that finds the queue of the disk full is refused. One that fills it waits for room; the library's threads would wait in its place.
//! Turns of several readers on a disk with a head are not modelled.

use super::linux_6_18;
use super::on_demand::OnDemand;
use crate::reading::{
    Account, BUDGET_BYTES, Extent, Host, LARGEST_DISTANCE_BYTES, MEMORY_SHARE, Reading, Refused, Release, UNIT_BYTES,
};
use crate::{Access, By, Event, FileId, Found, OpenId, PAGE_BYTES, Page, Parameters, Policy, Requests, View, Wants};
use std::collections::HashMap;
use std::ops::Range;

/// A reader of an open file.
#[derive(Debug)]
struct Reader {
    reading: Reading<()>,
    /// What it holds of the budget; `None`: it has no share.
    held_units: Option<u64>,
    /// A page of the call was missing.
    has_missed: bool,
    /// A read that waits has begun, up to this byte. The program learns of its pages when it has ended.
    waits_until: Option<u64>,
}

/// Receives the bytes of each request of a reader.
pub type Observer = Box<dyn FnMut(&Range<u64>) + Send>;

/// The readers of a process.
pub struct Readers {
    kernel: OnDemand,
    readers: HashMap<OpenId, Reader>,
    account: Account,
    budget_pages: Option<u64>,
    observer: Option<Observer>,
}

impl Readers {
    /// The readers of a process with this budget.
    pub fn new(parameters: &Parameters) -> Readers {
        Readers {
            kernel: linux_6_18::policy(),
            readers: HashMap::new(),
            account: Account::default(),
            budget_pages: parameters.budget_pages,
            observer: None,
        }
    }

    /// The same with an observer of their requests.
    pub fn observed(self, observer: Observer) -> Readers {
        Readers { observer: Some(observer), ..self }
    }

    /// A call has come to a page. Returns up to which byte the kernel reads now.
    fn read(&mut self, access: &Access, view: &dyn View, requests: &mut Requests) -> u64 {
        let start = access.call.offset_bytes.max(access.page.saturating_mul(PAGE_BYTES));
        let rest = start..access.call.offset_bytes.saturating_add(access.call.length_bytes).max(start + 1);
        let reader = self.readers.entry(access.open).or_insert_with(|| {
            let size_bytes = view.file_pages(access.file).saturating_mul(PAGE_BYTES);
            let extent = Extent { size_bytes, page_bytes: PAGE_BYTES };
            let reading = Reading::new(None, LARGEST_DISTANCE_BYTES, extent);
            Reader { reading, held_units: None, has_missed: false, waits_until: None }
        });
        let Reader { reading, held_units, has_missed, waits_until } = reader;
        let (account, observer) = (&mut self.account, &mut self.observer);
        let host = &mut Surroundings { account, held_units, file: access.file, view, requests, observer };
        if access.begins {
            if let Some(continues) = reading.note(&rest) {
                reading.begin(&rest, continues, host);
            }
            *waits_until = reading.is_looked_at(&rest).then_some(rest.end);
            *has_missed = false;
            if host.has_arrived(&rest) {
                reading.found_all(&rest);
            }
        }
        let is_missing = !matches!(access.found, Found::Present { .. });
        match *waits_until {
            Some(until) if rest.start < until => return until,
            Some(until) => {
                reading.go_on(&(until..rest.end), host);
                if is_missing && until < rest.start {
                    reading.go_on(&rest, host);
                }
            }
            None if is_missing && *has_missed => reading.go_on(&rest, host),
            None => {}
        }
        *waits_until = is_missing.then(|| reading.miss(&rest, host));
        *has_missed |= is_missing;
        waits_until.unwrap_or(rest.end)
    }

    fn close(&mut self, open: OpenId) {
        if let Some(Reader { held_units: Some(held), .. }) = self.readers.remove(&open) {
            self.account.consumers -= 1;
            self.account.give_back(held);
        }
    }
}

/// The surroundings of a reader on the machine of a view.
struct Surroundings<'a> {
    account: &'a mut Account,
    held_units: &'a mut Option<u64>,
    file: FileId,
    view: &'a dyn View,
    requests: &'a mut Requests,
    observer: &'a mut Option<Observer>,
}

fn pages_of(range: &Range<u64>) -> Range<Page> {
    range.start / PAGE_BYTES..range.end.div_ceil(PAGE_BYTES)
}

impl Surroundings<'_> {
    /// Whether no page of a read is absent or in flight.
    fn has_arrived(&self, range: &Range<u64>) -> bool {
        let Range { start, end } = pages_of(range);
        self.view.next_absent(self.file, start, end - start).is_none()
            && (start..end).all(|page| !self.view.is_locked(self.file, page))
    }
}

impl Host<()> for Surroundings<'_> {
    fn limit_bytes(&self) -> Option<u64> {
        self.held_units.map(|_| self.account.share_bytes(PAGE_BYTES))
    }

    fn register(&mut self) {
        if self.held_units.is_none() {
            *self.held_units = Some(0);
            self.account.consumers += 1;
        }
    }

    fn unregister(&mut self) {
        if let Some(held) = self.held_units.take() {
            self.account.consumers -= 1;
            self.account.give_back(held);
        }
    }

    fn is_cached(&mut self, piece: &Range<u64>) -> bool {
        let pages = pages_of(piece);
        self.view.next_absent(self.file, pages.start, pages.end - pages.start).is_none()
    }

    fn request(&mut self, piece: &Range<u64>, is_needed: bool) -> Result<(), Refused> {
        let units = (piece.end - piece.start).div_ceil(UNIT_BYTES);
        let held = self.held_units.as_mut().ok_or(Refused::Budget)?;
        let queue = self.view.queue(self.file);
        if !is_needed && queue.requests >= queue.limit {
            return Err(Refused::Queue);
        }
        if !self.account.take(units, *held, PAGE_BYTES) {
            return Err(Refused::Budget);
        }
        *held += units;
        self.observer.iter_mut().for_each(|observer| observer(piece));
        let pages = pages_of(piece);
        let end = pages.end.min(self.view.file_pages(self.file));
        self.requests.pages(self.file, pages.start, end.saturating_sub(pages.start));
        Ok(())
    }

    fn release(&mut self, piece: &Range<u64>, (): (), _why: Release) {
        if let Some(held) = self.held_units.as_mut() {
            let units = (piece.end - piece.start).div_ceil(UNIT_BYTES).min(*held);
            *held -= units;
            self.account.give_back(units);
        }
    }

    fn size_bytes(&mut self) -> Option<u64> {
        Some(self.view.file_pages(self.file).saturating_mul(PAGE_BYTES))
    }
}

impl Policy for Readers {
    fn wants(&self) -> Wants {
        Wants { pages: true, ..self.kernel.wants() }
    }

    fn access(&mut self, access: &Access, view: &dyn View, requests: &mut Requests) {
        if access.by != By::Read {
            return self.kernel.access(access, view, requests);
        }
        if self.account.bytes == 0 {
            let memory = view.memory();
            let pages = memory.free_pages.saturating_add(memory.inactive_pages).saturating_add(memory.active_pages);
            let default_pages = (pages / MEMORY_SHARE).min(BUDGET_BYTES / PAGE_BYTES);
            self.account.bytes = self.budget_pages.unwrap_or(default_pages).saturating_mul(PAGE_BYTES);
        }
        let until = self.read(access, view, requests);
        if access.found == Found::Absent && !requests.cover(access.file, access.page) {
            self.kernel.state(access.open).random = true;
            let wanted = until.div_ceil(PAGE_BYTES).saturating_sub(access.page).max(1);
            let pages = wanted.min(view.file_pages(access.file).saturating_sub(access.page));
            self.kernel.access(&Access { wanted: pages, ..*access }, view, requests);
        }
    }

    fn event(&mut self, event: &Event, view: &dyn View, requests: &mut Requests) {
        self.kernel.event(event, view, requests);
        if let Event::Opened { open, .. } | Event::Closed { open } = *event {
            self.close(open);
        }
    }
}
