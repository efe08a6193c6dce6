//! Accesses of a process to pages: find the page (present, in flight or absent), ask the policy, then use the page.

use super::{Doing, Machine, Step};
use crate::cache::Use;
use crate::workload::{Mapped, Op};
use ahead_policy::{Access, By, Call, Event, FileId, Found, OpenId, PAGE_BYTES, Page, Requests, View};
use std::ops::Range;

/// Consecutive pages that a process goes through.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pages {
    open: OpenId,
    file: FileId,
    by: By,
    page: Page,
    end: Page,
    /// One after the last page that the call requests, inside or beyond the file.
    wanted_end: Page,
    call: Call,
    began_ns: u64,
    /// The program's own work on each page, nanoseconds.
    user_per_page_ns: f64,
    begins: bool,
    /// Whether the access to the page was counted.
    counted: bool,
    /// Whether the policy was asked about the page. After a miss the policy is asked again, for a mark.
    asked: Asked,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Asked {
    No,
    AfterMiss,
    Yes,
}

impl Pages {
    /// The pages of a read call. `None`: the call begins beyond the end of the file, or has no length.
    pub(super) fn read(open: OpenId, file: FileId, offset: u64, length: u64, size: u64) -> Option<Pages> {
        let wanted_end = offset.saturating_add(length).div_ceil(PAGE_BYTES);
        let length_bytes = length.min(size.saturating_sub(offset));
        let (page, end) = (offset / PAGE_BYTES, (offset + length_bytes).div_ceil(PAGE_BYTES));
        let call = Call { offset_bytes: offset, length_bytes };
        (length_bytes > 0).then(|| Pages { call, wanted_end, ..Pages::of(open, file, By::Read, page, end) })
    }

    /// Consecutive mapped pages. `None`: the range contains no page of the file.
    pub(super) fn touch(
        open: OpenId,
        file: FileId,
        pages: Range<Page>,
        mapped: Mapped,
        file_pages: u64,
    ) -> Option<Pages> {
        let Mapped { advice, huge, executable } = mapped;
        let by = By::Fault { advice, huge, executable, first: 0, end: file_pages };
        let end = pages.end.min(file_pages);
        (pages.start < end).then(|| Pages::of(open, file, by, pages.start, end))
    }

    fn of(open: OpenId, file: FileId, by: By, page: Page, end: Page) -> Pages {
        let call = Call { offset_bytes: page * PAGE_BYTES, length_bytes: (end - page) * PAGE_BYTES };
        Pages {
            open,
            file,
            by,
            page,
            end,
            wanted_end: end,
            call,
            began_ns: 0,
            user_per_page_ns: 0.0,
            begins: true,
            counted: false,
            asked: Asked::No,
        }
    }

    fn end_bytes(&self) -> u64 {
        self.call.offset_bytes + self.call.length_bytes
    }

    /// The bytes of the call in the next `pages` pages.
    fn bytes(&self, pages: u64) -> u64 {
        let end = self.end_bytes().min((self.page + pages) * PAGE_BYTES);
        end - self.call.offset_bytes.max(self.page * PAGE_BYTES)
    }
}

impl Machine {
    pub(super) fn begin_pages(&mut self, process: usize, pages: Pages, began_ns: u64) {
        let user_per_page_ns = self.processes[process].user_per_page_ns;
        self.processes[process].doing = Some(Doing::Pages(Pages { user_per_page_ns, began_ns, ..pages }));
    }

    /// Executes a call in one step if all its pages are present and no event occurs before its end. The result is the
    /// same as page by page, at less cost. False: the call is not of this kind, and nothing was done.
    pub(super) fn read_at_once(&mut self, process: usize, op: Op, quiet_until_ns: u64) -> bool {
        let Op::Read { open, file, offset_bytes, length_bytes } = op else { return false };
        let size_bytes = self.world.file_pages(file) * PAGE_BYTES;
        let costs = self.settings.costs;
        let Some(mut pages) = Pages::read(open, file, offset_bytes, length_bytes, size_bytes) else { return false };
        pages.user_per_page_ns = self.processes[process].user_per_page_ns;
        pages.began_ns = self.world.now_ns;
        let run = pages.end - pages.page;
        let takes_ns = (costs.call_ns + (costs.copy_per_page_ns + pages.user_per_page_ns) * run as f64) as u64 + 1;
        if self.wants.pages
            || self.world.now_ns.saturating_add(takes_ns) >= quiet_until_ns
            || self.world.cache.clear_run(file, pages.page, pages.end) < run
        {
            return false;
        }
        // The mark of a large folio is on its first page, which can be before these pages.
        let found = self.world.cache.found(file, pages.page);
        if found.is_marked() {
            return false;
        }
        self.system(costs.call_ns);
        self.count(&mut pages, found);
        if self.wants.calls {
            self.ask(process, &mut pages, found);
            if !self.processes[process].requests.is_empty() {
                self.processes[process].doing = Some(Doing::Pages(pages));
                return true;
            }
        }
        self.copy(&mut pages, run, found);
        self.finish(process, pages.call, pages.began_ns);
        true
    }

    /// Processes the next pages: a run of present pages, or one page that is not present.
    pub(super) fn step_pages(&mut self, process: usize, mut pages: Pages, end_ns: u64) -> Step {
        let is_read = pages.by == By::Read;
        if !is_read && self.use_mapped(&mut pages, end_ns) {
            return self.went(process, pages);
        }
        let found = self.world.cache.found(pages.file, pages.page);
        if !pages.counted {
            self.count(&mut pages, found);
        }
        let tells = match pages.asked {
            Asked::No => {
                found == Found::Absent
                    || found.is_marked()
                    || self.wants.pages
                    || (is_read && pages.begins && self.wants.calls)
                    || (!is_read && self.wants.faults)
            }
            Asked::AfterMiss => found == Found::Absent || found.is_marked(),
            Asked::Yes => found == Found::Absent,
        };
        if tells {
            self.ask(process, &mut pages, found);
            self.processes[process].doing = Some(Doing::Pages(pages));
            return Step::Went;
        }
        if found.is_locked() {
            self.processes[process].doing = Some(Doing::Pages(pages));
            return self.wait(process, pages);
        }
        if is_read {
            self.use_read(&mut pages, found, end_ns);
        } else {
            self.map_around(&mut pages);
        }
        self.went(process, pages)
    }

    fn went(&mut self, process: usize, pages: Pages) -> Step {
        if pages.page >= pages.end {
            self.finish(process, pages.call, pages.began_ns);
        } else {
            self.processes[process].doing = Some(Doing::Pages(pages));
        }
        Step::Went
    }

    fn count(&mut self, pages: &mut Pages, found: Found) {
        pages.counted = true;
        self.count_access(pages.file, pages.page, found);
        if pages.by != By::Read {
            self.system(self.settings.costs.fault_ns);
        }
    }

    /// Counts an access of a process to the page's data.
    pub(super) fn count_access(&mut self, file: FileId, page: Page, found: Found) {
        match found {
            Found::Absent => {
                self.counters.misses += 1;
                if self.ghosts.remove(&(file, page)).is_some() {
                    self.counters.thrashings += 1;
                }
            }
            Found::Locked { .. } => self.counters.locked += 1,
            Found::Present { .. } => self.counters.hits += 1,
        }
    }

    /// Asks the policy. A page that is still absent afterwards is requested alone.
    fn ask(&mut self, process: usize, pages: &mut Pages, found: Found) {
        let mut requests = Requests::default();
        let access = Access {
            open: pages.open,
            file: pages.file,
            by: pages.by,
            page: pages.page,
            wanted: if pages.by == By::Read { pages.wanted_end - pages.page } else { 1 },
            call: pages.call,
            begins: pages.begins,
            found,
        };
        if pages.asked != Asked::Yes {
            if let Found::Locked { marked: true, folio } | Found::Present { marked: true, folio } = found {
                self.world.cache.unmark(pages.file, folio);
            }
            self.policy.access(&access, &self.world, &mut requests);
            self.rescue(&mut requests);
            self.counters.decisions += u64::from(!requests.is_empty());
        }
        pages.begins = false;
        pages.asked = match (pages.asked, found) {
            (Asked::No, Found::Absent) => Asked::AfterMiss,
            _ => Asked::Yes,
        };
        if found == Found::Absent && !requests.cover(pages.file, pages.page) {
            requests.pages(pages.file, pages.page, 1);
        }
        if !requests.is_empty() {
            self.processes[process].asks_for = pages.open;
            self.processes[process].requests.extend(requests.drain());
        }
    }

    fn wait(&mut self, process: usize, pages: Pages) -> Step {
        self.wait_for(process, pages.open, pages.file, pages.page);
        Step::Blocked
    }

    /// Reads present pages, as many as fit into the process's time slice.
    fn use_read(&mut self, pages: &mut Pages, found: Found, end_ns: u64) {
        let costs = self.settings.costs;
        let per_page_ns = costs.copy_per_page_ns + pages.user_per_page_ns;
        let run = if self.wants.pages {
            1
        } else {
            let most = ((end_ns.saturating_sub(self.world.now_ns)) as f64 / per_page_ns.max(1.0)) as u64 + 1;
            self.world.cache.clear_run(pages.file, pages.page, pages.end).min(most).max(1)
        };
        self.copy(pages, run, found);
    }

    /// Copies present pages. The first of them was counted when it was found.
    fn copy(&mut self, pages: &mut Pages, run: u64, found: Found) {
        let bytes = pages.bytes(run);
        // Exact, so that whole pages cost the same as page by page.
        let in_pages = bytes as f64 * (1.0 / PAGE_BYTES as f64);
        self.system(self.settings.costs.copy_per_page_ns * in_pages);
        self.user(pages.user_per_page_ns * in_pages);
        self.counters.hits += run - 1;
        let again = self.goes_on_in_folio(pages, run, found);
        if again > 0 {
            self.counters.used_pages += self.world.cache.use_pages(pages.file, pages.page, again, Use::Again);
        }
        self.set_position(pages.open, ((pages.page + run) * PAGE_BYTES).min(pages.end_bytes()));
        self.used(pages, again, run, bytes, Use::Read);
    }

    /// Moves past the next `run` pages. The first `again` of them are already counted as used.
    fn used(&mut self, pages: &mut Pages, again: u64, run: u64, bytes: u64, by: Use) {
        if again < run {
            let first = pages.page + again;
            self.counters.used_pages += self.world.cache.use_pages(pages.file, first, run - again, by);
        }
        self.counters.read_bytes += bytes;
        pages.page += run;
        (pages.counted, pages.asked, pages.begins) = (false, Asked::No, false);
    }

    pub(super) fn set_position(&mut self, open: OpenId, position_bytes: u64) {
        let index = open.0 as usize;
        if index >= self.positions.len() {
            self.positions.resize(index + 1, 0);
        }
        self.positions[index] = position_bytes;
    }

    /// The number of the next pages that are in the folio in which the last read ended. Reading them is the same use of
    /// the folio (`filemap_read` counts a new access unless the last byte read before lies in the folio).
    fn goes_on_in_folio(&self, pages: &Pages, run: u64, found: Found) -> u64 {
        let position = self.positions.get(pages.open.0 as usize).copied().unwrap_or(0);
        match (position.checked_sub(1), found) {
            (Some(last), Found::Present { folio, .. }) if folio.range().contains(&(last / PAGE_BYTES)) => {
                run.min(folio.range().end - pages.page)
            }
            _ => 0,
        }
    }

    /// Goes through pages that are already mapped. False: the next page is not mapped.
    fn use_mapped(&mut self, pages: &mut Pages, end_ns: u64) -> bool {
        if pages.asked != Asked::No || pages.counted {
            return false;
        }
        let per_page_ns = pages.user_per_page_ns;
        let most = (end_ns.saturating_sub(self.world.now_ns) as f64 / per_page_ns.max(1.0)) as u64 + 1;
        let mapped = self.world.cache.mapped_run(pages.file, pages.page, pages.end).min(most);
        if mapped == 0 {
            return false;
        }
        self.user(per_page_ns * mapped as f64);
        self.counters.hits += mapped;
        self.used(pages, 0, mapped, mapped * PAGE_BYTES, Use::Mapped);
        true
    }

    /// Maps a present page and the present pages around it.
    fn map_around(&mut self, pages: &mut Pages) {
        let around = self.settings.fault_around_pages.max(1);
        let first = pages.page - pages.page % around;
        let end = (first + around).min(self.world.file_pages(pages.file));
        let (mut at, mut mapped, mut before) = (first, 0, 0);
        while at < end {
            let run = self.world.cache.clear_run(pages.file, at, end);
            self.world.cache.map(pages.file, at, run);
            if (at..at + run).contains(&pages.page) {
                before = pages.page - at;
            }
            mapped += run;
            at += run + 1;
        }
        let in_a_row = self.world.cache.clear_run(pages.file, pages.page, end).max(1);
        if around == 1 {
            self.world.cache.map(pages.file, pages.page, 1);
        }
        self.user(pages.user_per_page_ns);
        let (open, by, file, touched) = (pages.open, pages.by, pages.file, pages.page);
        self.used(pages, 0, 1, PAGE_BYTES, Use::Mapped);
        if self.wants.faults {
            let mapped = mapped.max(1);
            self.tell(&Event::Mapped { open, by, file, first: touched, pages: in_a_row, before, mapped });
        }
    }
}
