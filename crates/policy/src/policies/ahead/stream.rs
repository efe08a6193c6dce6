//! A pattern in a file: how accesses follow one another, and which pages come next.

use crate::{DeviceTraits, Page};

/// Two accesses that are no farther apart may be the beginning of a pattern, 4 MiB; those of different readers are mostly
/// farther apart.
const NEAR_PAGES: u64 = 1024;
/// A pattern that was followed so often is not given up for an access beside it.
const ESTABLISHED: u32 = 3;
/// So many accesses upwards in a row, with gaps, make a reader who skips.
const ASCENTS: u32 = 6;

/// A pattern in a file.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Stream {
    /// The last access: first page and pages.
    pub first: Page,
    pub length: u64,
    /// From one access's first page to the next one's.
    pub step: i64,
    /// How often that has been so in a row.
    pub repeated: u32,
    /// Upwards, with gaps that are all different: what lies between is read along.
    pub skips: bool,
    /// Accesses upwards in a row, whatever the gaps; and the pages from the first of them to the last.
    ascents: u32,
    climbed: u64,
    /// How long they were waited for, nanoseconds.
    climb_waits_ns: u64,
    /// Pages of the pattern that were asked for and lie before the reader.
    pub ahead: u64,
    /// How many there should be; 0: not yet known.
    pub distance: u64,
    /// Pages that were used since the last wait.
    pub since_wait: u64,
    /// Accesses that no pattern had foretold, and the disk's idle time while they were waited for.
    pub unforeseen: u64,
    pub idle_ns: u64,
    /// Its last access was a miss.
    pub missed: bool,
    /// For replacing the one that was not used for longest.
    pub used_at: u64,
}

/// How an access follows a stream; the surest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Follows {
    /// Within the last access: nothing new.
    Within,
    /// Where the last access ended.
    Adjacent,
    /// By the known step.
    Step,
    /// A little farther up, of a reader who skips.
    Skip,
    /// It may be the second access of a pattern.
    Near,
}

/// Which pages are fetched for a pattern.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    /// All of them from the end of the last access on.
    Up,
    /// All of them before the last access.
    Down,
    /// Those of each step.
    Steps,
}

impl Stream {
    /// The first access of what may become a pattern.
    pub fn begin(first: Page, length: u64, used_at: u64) -> Stream {
        Stream { first, length, used_at, ..Stream::default() }
    }

    /// One after the last access's last page.
    pub fn end(&self) -> Page {
        self.first.saturating_add(self.length)
    }

    /// Whether it goes on where it ends.
    pub fn is_forwards(&self) -> bool {
        self.step == self.length as i64
    }

    /// Whether each access ends where the last one began.
    pub fn is_backwards(&self) -> bool {
        self.step == -(self.length as i64)
    }

    /// Whether the pattern has shown; after failures in the file it has to show longer.
    pub fn is_confirmed(&self, failures: u32) -> bool {
        let threshold = if self.is_forwards() { 1 } else { 2 };
        self.skips || (self.step != 0 && self.repeated >= threshold + failures)
    }

    /// Which pages are fetched. What lies between two accesses is read along if the disk would take longer to be asked
    /// twice.
    pub fn way(&self, device: &DeviceTraits) -> Way {
        let bridged = self.step.unsigned_abs() * device.page_ns() < device.request_ns;
        if self.is_forwards() || self.skips || (bridged && self.step > 0) {
            Way::Up
        } else if self.is_backwards() || (bridged && self.step < 0) {
            Way::Down
        } else {
            Way::Steps
        }
    }

    fn is_weak(&self) -> bool {
        self.repeated < ESTABLISHED && !self.skips
    }

    /// How an access follows it, if it does.
    pub fn follows(&self, page: Page, length: u64) -> Option<Follows> {
        if page >= self.first && page.saturating_add(length) <= self.end() {
            Some(Follows::Within)
        } else if page == self.end() || page + 1 == self.end() {
            // A call may begin in the page in which the last one ended. What follows at once is adjacent, whatever the step:
            // accesses may have become shorter.
            Some(Follows::Adjacent)
        } else if self.repeated > 0
            && (self.first.checked_add_signed(self.step) == Some(page)
                || (self.is_backwards() && page.saturating_add(length) == self.first))
        {
            Some(Follows::Step)
        } else if self.skips && (self.end()..self.end().saturating_add(NEAR_PAGES)).contains(&page) {
            Some(Follows::Skip)
        } else if self.is_weak() && self.first.abs_diff(page) <= NEAR_PAGES {
            Some(Follows::Near)
        } else {
            None
        }
    }

    /// Takes an access for its next one; gives how many pages of the pattern that uses up.
    pub fn advance(&mut self, page: Page, length: u64, how: Follows, device: &DeviceTraits) -> u64 {
        if how == Follows::Within {
            return 0;
        }
        let (old_first, old_end) = (self.first, self.end());
        self.climb(page, length, device);
        let goes_back = self.is_backwards() && page.saturating_add(length) == self.first;
        let step = match how {
            Follows::Adjacent => length as i64,
            _ if goes_back => -(length as i64),
            _ => page.wrapping_sub(self.first) as i64,
        };
        let same = match how {
            Follows::Adjacent => self.repeated == 0 || self.is_forwards(),
            _ => goes_back || step == self.step,
        };
        self.repeated = if same { self.repeated.saturating_add(1) } else { 1 };
        if !same && !self.skips {
            self.ahead = 0;
        }
        (self.first, self.length, self.step) = (page, length, step);
        match self.way(device) {
            Way::Up => self.end().saturating_sub(old_end),
            Way::Down => old_first.saturating_sub(page),
            Way::Steps => length,
        }
    }

    /// Looks whether it is a reader who skips: to read what lies between takes less time than to wait for each access. The
    /// waits are those that there were, not those of the model: near places may be reached sooner.
    fn climb(&mut self, page: Page, length: u64, device: &DeviceTraits) {
        let end = page.saturating_add(length);
        if page < self.end().saturating_sub(1) {
            (self.ascents, self.climbed, self.climb_waits_ns, self.skips) = (0, 0, 0, false);
            return;
        }
        self.ascents = self.ascents.saturating_add(1);
        self.climbed += end - self.end();
        let transfer_ns = self.climbed.saturating_mul(device.page_ns());
        if self.skips {
            // What it would have to wait for each is not seen any more.
            self.skips = transfer_ns < u64::from(self.ascents).saturating_mul(device.access_ns);
        } else if self.ascents >= ASCENTS && !self.is_forwards() && self.repeated < ESTABLISHED {
            self.skips = transfer_ns < self.climb_waits_ns / 4 * 3;
        }
    }

    /// A fault at `first` has mapped so many pages from there on, and so many before it.
    pub fn mapped(&mut self, first: Page, pages: u64, before: u64) {
        if self.first != first || self.length != 1 {
            return;
        }
        if self.is_backwards() || (self.step < 0 && before > 0) {
            (self.first, self.length) = (first - before.min(first), before + 1);
            self.step = -(self.length as i64);
            self.ahead = self.ahead.saturating_sub(before);
        } else {
            let forwards = self.is_forwards();
            self.length = pages;
            if forwards {
                self.step = pages as i64;
                self.ahead = self.ahead.saturating_sub(pages - 1);
            }
        }
    }

    /// The reader had to wait for its last access.
    pub fn waited(&mut self, wait_ns: u64) {
        self.climb_waits_ns = self.climb_waits_ns.saturating_add(wait_ns);
    }
}
