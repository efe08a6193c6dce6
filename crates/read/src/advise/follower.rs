//! Follows one reader, and requests the groups before it. Belongs to the helper thread.
//!
//! ```text
//!     reported, or found by mapped pages ──▶ Groups: front ──▶ is the page at the front absent?  a wait
//!                                                     ├──▶ the rest of the group: absent pages are requested again
//!                                                     └──▶ groups that are due: cached, or requested
//! ```

use crate::advise::pace::Pace;
use crate::advise::region::Region;
use crate::advise::watch::{Found, Survey, Watch, new_parts};
use ahead_policy::groups::Groups;
use ahead_policy::pattern::Route;
use ahead_sys::Result;
use ahead_sys::pagemap::Pagemap;
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Pages around a fault that the kernel maps if they are cached (`fault_around_bytes`, 64 KiB of 4 KiB pages).
const FAULT_AROUND_PAGES: u64 = 16;

/// Units of a window at most, whatever the size of a group: 128 MiB, whose page table entries take the kernel at most 0.4 ms.
const LARGEST_WINDOW: u64 = 32_768;

/// Windows that one look may pass if all their pages are mapped.
const WINDOWS_AT_ONCE: u32 = 16;

/// A wait after which the requests are repeated, then after twice as long, and so on: disks answer sooner, so the pages were dropped, or evicted after
/// they had arrived.
const FIRST_PATIENCE: Duration = Duration::from_millis(100);

/// Time for a survey in one look. The interval until the next look is a hundred times as long.
const SURVEY_TIME: Duration = Duration::from_micros(50);

/// Pages behind a record that were absent when it was requested. If they are mapped later, the reader has read them: its records are longer.
#[derive(Debug)]
struct RecordEnd {
    unit: u64,
    gap: Range<u64>,
}

/// Follows the reader of one region.
#[derive(Debug)]
pub struct Follower {
    region: Arc<Region>,
    route: Route,
    groups: Groups,
    watch: Watch,
    survey: Survey,
    /// A chunk in which pages became mapped beside others: the next new ones show where.
    chased: Option<Found>,
    pace: Pace,
    has_started: bool,
    last_move: Instant,
    waiting: Option<(u64, Instant)>,
    /// After this duration of the wait the requests are repeated.
    patience: Duration,
    record_end: Option<RecordEnd>,
}

impl Follower {
    /// `group_pages`: 0 adapts.
    pub fn new(region: Arc<Region>, route: Route, group_pages: u64) -> Follower {
        let group_bytes = group_pages.saturating_mul(region.page as u64);
        let groups = Groups::new(route.units(), route.unit_bytes(), group_bytes);
        Follower {
            survey: Survey::new(region.pages(), route.has_unknown_origin()),
            chased: None,
            region,
            route,
            groups,
            watch: Watch::default(),
            pace: Pace::default(),
            has_started: false,
            last_move: Instant::now(),
            waiting: None,
            patience: FIRST_PATIENCE,
            record_end: None,
        }
    }

    /// The region that it belongs to.
    pub fn region(&self) -> &Region {
        &self.region
    }

    /// Finds the reader and requests what is due. Returns the time until the next look.
    ///
    /// Errors: the region is not mapped any more.
    pub fn look(&mut self, pagemap: Option<&Pagemap>) -> Result<Duration> {
        let (began, cpu) = (Instant::now(), thread_time());
        let before = self.groups.front();
        match (self.region.reported(), pagemap) {
            (Some(offset), pagemap) => self.follow_reported(offset, pagemap)?,
            (None, Some(pagemap)) => self.follow_mapped(pagemap)?,
            (None, None) => {}
        }
        let has_moved = self.groups.front() != before;
        if has_moved {
            self.pace.moved(self.groups.front().abs_diff(before), began - self.last_move);
            self.last_move = began;
        } else {
            self.pace.stood(began - self.last_move);
        }
        self.check_front(began)?;
        let mut cost = thread_time().saturating_sub(cpu);
        if (self.has_started || !self.route.has_unknown_origin()) && !self.request()? {
            cost = thread_time().saturating_sub(cpu);
        }
        self.region.set_group_bytes(self.groups.size() * self.route.step_bytes());
        self.region.count_look(self.groups.distance_bytes());
        Ok(self.pace.next(self.groups.ahead(), cost))
    }

    fn follow_reported(&mut self, offset: u64, pagemap: Option<&Pagemap>) -> Result<()> {
        let is_first = !std::mem::replace(&mut self.has_started, true);
        match self.route.unit_at(offset) {
            Some(unit) if !(is_first && self.route.has_unknown_origin()) => self.groups.moved(unit),
            _ => self.restart_at(offset),
        }
        pagemap.map_or(Ok(()), |pagemap| self.learn_record(pagemap))
    }

    /// A stride begins at another byte.
    fn restart_at(&mut self, offset: u64) {
        self.route.restart(offset);
        self.groups.restart(self.route.units(), self.route.unit_bytes(), 0);
        self.watch.restart();
        self.record_end = None;
    }

    /// Finds the reader by the pages that have become mapped.
    fn follow_mapped(&mut self, pagemap: &Pagemap) -> Result<()> {
        let mut has_moved = false;
        for _ in 0..WINDOWS_AT_ONCE {
            let passed = self.end_of_read(pagemap)?;
            let window = self.window(passed);
            let mapped = self.mapped_units(pagemap, &window)?;
            let (reached, _) = self.watch.look(passed, window.clone(), mapped);
            if reached == self.groups.front() {
                break;
            }
            has_moved = true;
            self.groups.moved(reached);
            if reached < window.end {
                break;
            }
        }
        if has_moved {
            self.note_reader();
            return self.learn_record(pagemap);
        }
        if self.pace.is_still() { self.find_elsewhere(pagemap) } else { Ok(()) }
    }

    /// The front, by the last page that has become mapped since the last look: what lies before it need not be examined. The front as it was
    /// if there is none, or if units are not pages.
    fn end_of_read(&self, pagemap: &Pagemap) -> Result<u64> {
        let front = self.groups.front();
        let new = self.watch.unmapped_before(front);
        if !self.route.is_contiguous() || new.is_empty() {
            return Ok(front);
        }
        let Some(pages) = self.route.pages(new.clone()).pop() else { return Ok(front) };
        let addresses = self.region.addresses_of(&pages);
        let start = addresses.start;
        let page = |address: usize| ((address - start) / self.region.page) as u64;
        Ok(if self.route.is_descending() {
            pagemap.start_of_mapped(addresses)?.map_or(front, |address| new.end - page(address))
        } else {
            pagemap.end_of_mapped(addresses)?.map_or(front, |address| new.start + page(address))
        })
    }

    fn note_reader(&mut self) {
        self.has_started = true;
        self.survey.restart();
        self.chased = None;
    }

    /// The units in which the reader is expected next.
    fn window(&self, front: u64) -> Range<u64> {
        let span = self.groups.ahead().max(2 * self.groups.size()) + FAULT_AROUND_PAGES;
        let span = span.min(LARGEST_WINDOW);
        front..(front + span).min(self.route.units())
    }

    fn mapped_units(&self, pagemap: &Pagemap, units: &Range<u64>) -> Result<Vec<Range<u64>>> {
        let pages = self.route.pages(units.clone());
        let mut mapped = Vec::new();
        if self.route.is_sparse() {
            for run in &pages {
                mapped.extend(self.mapped_pages(pagemap, run)?);
            }
            mapped.sort_by_key(|run| run.start);
        } else if let (Some(first), Some(last)) = (pages.first(), pages.last()) {
            let all = first.start.min(last.start)..first.end.max(last.end);
            mapped = self.mapped_pages(pagemap, &all)?;
        }
        let found = self.route.units_within(&mapped).into_iter();
        let clipped = found.map(|run| run.start.max(units.start)..run.end.min(units.end));
        Ok(clipped.filter(|run| run.start < run.end).collect())
    }

    fn mapped_pages(&self, pagemap: &Pagemap, pages: &Range<u64>) -> Result<Vec<Range<u64>>> {
        let mapped = pagemap.mapped(self.region.addresses_of(pages))?;
        let start = self.region.addresses.start;
        let page = |address: usize| ((address - start) / self.region.page) as u64;
        Ok(mapped.into_iter().map(|range| page(range.start)..page(range.end)).collect())
    }

    /// Searches the region for a reader that has left the window.
    fn find_elsewhere(&mut self, pagemap: &Pagemap) -> Result<()> {
        let began = Instant::now();
        if let Some(Found { chunk, mapped, .. }) = &self.chased {
            let new = new_parts(&self.mapped_pages(pagemap, chunk)?, mapped);
            if !new.is_empty() {
                self.jump(&new);
                return Ok(());
            }
        }
        loop {
            let mapped = self.mapped_pages(pagemap, &self.survey.next())?;
            match self.survey.examine(&mapped) {
                Some(found) if found.was_empty => {
                    self.jump(&found.mapped);
                    return Ok(());
                }
                Some(found) => self.chased = Some(found),
                None => {}
            }
            if self.survey.is_round_complete() || began.elapsed() > SURVEY_TIME {
                return Ok(());
            }
        }
    }

    /// The reader has read these pages, and is behind them.
    fn jump(&mut self, pages: &[Range<u64>]) {
        if self.route.has_unknown_origin() {
            let first = if self.route.is_descending() {
                pages.last().map(|run| run.end - 1)
            } else {
                pages.first().map(|run| run.start)
            };
            self.restart_at(first.unwrap_or(0) * self.region.page as u64);
        } else if let Some(run) = self.route.units_within(pages).last() {
            self.groups.restart(self.route.units(), self.route.unit_bytes(), run.end);
            self.watch.restart();
        }
        self.note_reader();
    }

    /// Counts a wait if the reader stands at a page that was requested and has not arrived, or has outrun the requests.
    fn check_front(&mut self, now: Instant) -> Result<()> {
        let front = self.groups.front();
        let page = self.route.pages(front..front + 1).first().map(|run| run.start);
        let is_absent = match page {
            Some(_) if self.has_started && !self.region.reports_residency => self.groups.is_outrun(),
            Some(page) if self.has_started => self.region.is_absent(page)?,
            _ => false,
        };
        if let Some((_, since)) = self.waiting.take_if(|(unit, _)| *unit != front || !is_absent) {
            self.region.count_waited(now - since);
            self.patience = FIRST_PATIENCE;
        }
        if !is_absent {
            return Ok(());
        }
        self.groups.found_absent();
        if self.groups.is_front_late() {
            let (_, since) = *self.waiting.get_or_insert((front, now));
            if now - since >= self.patience {
                self.groups.doubt();
                self.patience *= 2;
            }
            if self.groups.waited() {
                self.region.count_wait();
            }
        }
        Ok(())
    }

    /// Requests what is due. Whether there was anything to request: then the time for it is spent in place of the reader's.
    fn request(&mut self) -> Result<bool> {
        let before = self.region.counters().requested_bytes;
        self.request_again()?;
        self.request_due()?;
        Ok(self.region.counters().requested_bytes != before)
    }

    /// Requests the absent pages of the group that the reader has entered: the kernel has dropped them, or they are on their way and the
    /// request does nothing.
    fn request_again(&mut self) -> Result<()> {
        if self.groups.is_cached() {
            return Ok(());
        }
        let Some(rest) = self.groups.take_unchecked() else { return Ok(()) };
        for pages in self.route.pages(rest) {
            for absent in self.region.absent(&pages)? {
                self.region.count_retry();
                self.region.request(&absent, self.route.is_descending())?;
            }
        }
        Ok(())
    }

    fn request_due(&mut self) -> Result<()> {
        while let Some(group) = self.groups.due() {
            if self.region.is_stopped() {
                return Ok(());
            }
            let pages = self.route.pages(group.clone());
            if self.is_group_cached(&pages)? {
                self.region.count_group(true);
                self.groups.found_cached(&group);
                continue;
            }
            if self.groups.is_cached() {
                self.groups.found_absent();
                continue;
            }
            self.region.count_group(false);
            self.note_record_end(&group)?;
            for run in &pages {
                self.region.request(run, self.route.is_descending())?;
            }
            self.groups.submitted(&group);
        }
        Ok(())
    }

    /// Whether all pages of a group, or its sample, are resident.
    fn is_group_cached(&self, pages: &[Range<u64>]) -> Result<bool> {
        if !self.region.reports_residency {
            return Ok(false);
        }
        if self.groups.is_cached() {
            return pages.first().map_or(Ok(true), |run| self.region.is_absent(run.start).map(|absent| !absent));
        }
        for run in pages {
            if !self.region.absent(run)?.is_empty() {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Remembers the pages behind the last record of a group, if they are absent.
    fn note_record_end(&mut self, group: &Range<u64>) -> Result<()> {
        if self.record_end.is_some() || !self.region.reports_residency {
            return Ok(());
        }
        let unit = group.end - 1;
        if let Some(gap) = self.route.gap_after(unit)
            && self.region.is_absent(gap.start)?
        {
            self.record_end = Some(RecordEnd { unit, gap });
        }
        Ok(())
    }

    /// Records are longer if the reader has read pages behind one.
    fn learn_record(&mut self, pagemap: &Pagemap) -> Result<()> {
        let Some(RecordEnd { gap, .. }) = self.record_end.take_if(|end| end.unit + 1 < self.groups.front()) else {
            return Ok(());
        };
        let mapped = self.mapped_pages(pagemap, &gap)?;
        if let Some(run) = mapped.first().filter(|run| run.start == gap.start) {
            self.route.widen(run.end - run.start);
            let front = self.groups.front();
            self.groups.restart(self.route.units(), self.route.unit_bytes(), front);
        }
        Ok(())
    }
}

/// Processor time of the calling thread. A look that another process interrupts costs no more.
fn thread_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}
