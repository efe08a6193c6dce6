//! A pattern in a file: how accesses follow one another, and which pages come next.

use crate::{DeviceDescription, Page};

/// Two accesses that are no farther apart may be the beginning of a pattern, 4 MiB; those of different readers are
/// mostly farther apart.
const NEAR_PAGES: u64 = 1024;
/// A pattern that was followed so often is not given up for an access beside it.
const ESTABLISHED: u32 = 3;
/// After this number of accesses upwards in a row, with gaps, the reader is one that skips.
const ASCENTS: u32 = 12;
/// Ascents over which pages and waits are summed up: at this number the sums are halved.
const MOST_ASCENTS: u32 = 64;

/// A wait multiplies the distance by this factor while it is shorter than a request should be, and doubles it
/// afterwards.
const FIRST_GROWTH: u64 = 8;
/// But a short distance stays within this multiple of the pages that the stream has used so far: a reader that has read
/// little may end soon.
const HISTORIES: u64 = 16;
/// Where an arm goes to and fro between files it is worth more to get there at once: a first look of 1 MiB that was
/// used leads to the longest request, 64 MiB.
const HISTORIES_IN_TURNS: u64 = 64;

/// Accesses upwards without a gap.
#[derive(Clone, Copy, Debug, Default)]
struct Run {
    first: Page,
    end: Page,
}

/// A pattern in a file.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Stream {
    /// The last access: first page and pages. Of a pattern of runs: the whole run.
    pub first: Page,
    pub length: u64,
    /// From one access's first page to the next one's.
    pub step: i64,
    /// How often that has been so in a row.
    pub repeated: u32,
    /// Each step is a run of several accesses.
    pub of_runs: bool,
    /// The run that goes on, and the one before it.
    run: Run,
    before: Option<Run>,
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
    /// Pages that were used since the pattern has shown, and since the last wait.
    pub used: u64,
    pub since_wait: u64,
    /// Accesses that no pattern had foretold, and the disk's idle time while they were waited for.
    pub unforeseen: u64,
    pub idle_ns: u64,
    /// The distance has grown for the wait that goes on.
    pub has_grown: bool,
    /// Its last access was a miss.
    pub missed: bool,
    /// The number of that access among those to the file.
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
    /// A little farther up, of a reader that skips.
    Skip,
    /// By a step that was seen once.
    Guess,
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
    pub fn begin(first: Page, length: u64) -> Stream {
        let run = Run { first, end: first.saturating_add(length) };
        Stream { first, length, run, ..Stream::default() }
    }

    /// What may come of this one if its reader has jumped. It stays as it is, for the jump may be another reader's.
    pub fn jumped(&self, page: Page, length: u64, device: &DeviceDescription) -> Stream {
        let mut next = Stream {
            step: page.wrapping_sub(self.run.first) as i64,
            repeated: 1,
            before: Some(self.run),
            ascents: self.ascents,
            climbed: self.climbed,
            climb_waits_ns: self.climb_waits_ns,
            ..Stream::begin(page, length)
        };
        next.climb(self.end(), page, length, device);
        if let Some(before) = self.before
            && next.step == self.run.first.wrapping_sub(before.first) as i64
        {
            // The same step twice from run to run.
            next.repeated = 2;
            let run = (self.run.end - self.run.first).min(before.end - before.first).min(next.step.unsigned_abs());
            next.of_runs = run > length;
            next.length = run.max(length);
        }
        next
    }

    /// The run that begins with its first access will have this number of pages.
    pub fn expect_run(&mut self, pages: u64) {
        if pages > self.length {
            (self.length, self.of_runs) = (pages, true);
        }
    }

    /// Length of the run that goes on.
    pub fn run_pages(&self) -> u64 {
        self.run.end.saturating_sub(self.run.first)
    }

    /// If it has this page ahead: how much it has ahead before it.
    pub fn ahead_of(&self, page: Page, device: &DeviceDescription) -> Option<u64> {
        let pages = match self.way(device) {
            Way::Up => page.checked_sub(self.end())?,
            Way::Down => self.first.checked_sub(page)?.checked_sub(1)?,
            Way::Steps => {
                let steps = (page.wrapping_sub(self.first) as i64).checked_div_euclid(self.step)?;
                u64::try_from(steps).ok()?.checked_sub(1)?.checked_mul(self.length)?
            }
        };
        (pages < self.ahead).then_some(pages)
    }

    /// How far a page is from its last access.
    pub fn distance_to(&self, page: Page) -> u64 {
        self.first.abs_diff(page).min(self.end().abs_diff(page))
    }

    /// Whether an access there may be the next one of its reader.
    pub fn is_near(&self, page: Page) -> bool {
        self.distance_to(page) <= NEAR_PAGES
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
    pub fn way(&self, device: &DeviceDescription) -> Way {
        let gap = self.step.unsigned_abs().saturating_sub(self.length);
        let bridged = gap.saturating_mul(device.page_ns()) < device.request_ns;
        if self.is_forwards() || self.skips || (bridged && self.step > 0) {
            Way::Up
        } else if self.is_backwards() || (bridged && self.step < 0) {
            Way::Down
        } else {
            Way::Steps
        }
    }

    /// Whether its reader goes upwards, whatever the gaps.
    pub fn is_climbing(&self) -> bool {
        self.ascents >= ASCENTS
    }

    /// Whether its steps are so wide that they may lead from one reader's place to another's.
    pub fn is_wide(&self) -> bool {
        self.is_weak() && self.step.unsigned_abs() > NEAR_PAGES
    }

    /// Its place, without the pattern.
    pub fn stay(&self) -> Stream {
        Stream { used_at: self.used_at, ..Stream::begin(self.first, self.length) }
    }

    /// Whether it was followed so seldom that it may be chance.
    pub fn is_weak(&self) -> bool {
        self.repeated < ESTABLISHED && !self.skips
    }

    /// How an access follows it, if it does. `mapped`: the reader need not tell of pages that are there.
    pub fn follows(&self, page: Page, length: u64, mapped: bool) -> Option<Follows> {
        if page >= self.first && page.saturating_add(length) <= self.end() {
            Some(Follows::Within)
        } else if page == self.end() || page + 1 == self.end() {
            // A call may begin in the page in which the last one ended. What follows at once is adjacent, whatever the
            // step: accesses may have become shorter.
            Some(Follows::Adjacent)
        } else if self.repeated > 0 && self.is_next(page, length, mapped) {
            Some(if self.repeated > 1 || self.is_forwards() { Follows::Step } else { Follows::Guess })
        } else if self.skips && (self.end()..self.end().saturating_add(NEAR_PAGES)).contains(&page) {
            Some(Follows::Skip)
        } else {
            None
        }
    }

    /// Whether the pattern has its next access there. Through a mapping some that were read ahead may have been passed.
    fn is_next(&self, page: Page, length: u64, mapped: bool) -> bool {
        if self.is_backwards() && page.saturating_add(length) == self.first {
            return true;
        }
        let moved = page.wrapping_sub(self.first) as i64;
        let passed = if mapped { self.ahead / self.length.max(1) } else { 0 };
        self.step != 0
            && moved.checked_rem(self.step) == Some(0)
            && (1..=passed.saturating_add(1) as i64).contains(&(moved / self.step))
    }

    /// Takes an access for its next one; gives how many pages of the pattern that uses up.
    pub fn advance(&mut self, page: Page, length: u64, how: Follows, device: &DeviceDescription) -> u64 {
        if how == Follows::Within {
            self.run.end = self.run.end.max(page.saturating_add(length));
            return 0;
        }
        let (old_first, old_end) = (self.first, self.end());
        self.climb(old_end, page, length, device);
        let goes_back = self.is_backwards() && page.saturating_add(length) == self.first;
        let steps = match how {
            Follows::Step | Follows::Guess if !goes_back => (page.wrapping_sub(self.first) as i64 / self.step).max(1),
            _ => 1,
        };
        self.of_runs &= matches!(how, Follows::Step | Follows::Guess) && length <= self.length;
        let length = if self.of_runs { self.length } else { length };
        let step = match how {
            Follows::Adjacent => length as i64,
            Follows::Step | Follows::Guess if goes_back => -(length as i64),
            Follows::Step | Follows::Guess => self.step,
            _ => page.wrapping_sub(self.first) as i64,
        };
        let same = match how {
            Follows::Adjacent => self.repeated == 0 || self.is_forwards(),
            Follows::Step | Follows::Guess => true,
            _ => false,
        };
        self.repeated = if same { self.repeated.saturating_add(1) } else { 1 };
        if !same && !self.skips {
            self.ahead = 0;
        }
        let end = page.saturating_add(length);
        if how == Follows::Adjacent {
            self.run.end = end;
        } else {
            (self.before, self.run) = (Some(self.run), Run { first: page, end });
        }
        (self.first, self.length, self.step) = (page, length, step);
        match self.way(device) {
            Way::Up => end.saturating_sub(old_end),
            Way::Down => old_first.saturating_sub(page),
            Way::Steps => length.saturating_mul(steps as u64),
        }
    }

    /// Decides whether the reader skips: reading the gaps takes less time than waiting for each access. The waits are the
    /// measured ones, not those of the model: near places may be reached sooner.
    fn climb(&mut self, from: Page, page: Page, length: u64, device: &DeviceDescription) {
        let end = page.saturating_add(length);
        if page + 1 < from || page > from.saturating_add(NEAR_PAGES) {
            (self.ascents, self.climbed, self.climb_waits_ns, self.skips) = (0, 0, 0, false);
            return;
        }
        if self.ascents >= MOST_ASCENTS {
            (self.ascents, self.climbed, self.climb_waits_ns) =
                (self.ascents / 2, self.climbed / 2, self.climb_waits_ns / 2);
        }
        self.ascents += 1;
        self.climbed += end.saturating_sub(from);
        let transfer_ns = self.climbed.saturating_mul(device.page_ns());
        if self.skips {
            // What it would have to wait for each is not seen any more.
            let each_ns = device.access_ns + length.saturating_mul(device.page_ns());
            self.skips = transfer_ns < u64::from(self.ascents).saturating_mul(each_ns);
        } else if self.ascents >= ASCENTS && self.is_weak() {
            self.skips = transfer_ns < self.climb_waits_ns / 3 * 2;
        }
    }

    /// The reader used `pages` pages of the pattern. If it missed the next one, the pages that were thought to be ahead of
    /// it are not there either.
    pub fn go_on(&mut self, pages: u64, missed: bool) {
        self.ahead = if missed { 0 } else { self.ahead.saturating_sub(pages) };
        self.since_wait += pages;
        self.used = self.used.saturating_add(pages);
    }

    /// A fault at `first` has mapped `pages` pages from there on, and `before` pages before it.
    pub fn mapped(&mut self, first: Page, pages: u64, before: u64, device: &DeviceDescription) {
        let end = first.saturating_add(pages);
        if self.of_runs && (self.first..self.end()).contains(&first) {
            self.run.end = self.run.end.max(end.min(self.end()));
        }
        if self.first != first || self.length != 1 || self.of_runs {
            return;
        }
        self.run.end = self.run.end.max(end);
        if self.is_backwards() || (self.step < 0 && before > 0) {
            (self.first, self.length) = (first - before.min(first), before + 1);
            self.step = -(self.length as i64);
            self.ahead = self.ahead.saturating_sub(before);
        } else {
            let (forwards, up) = (self.is_forwards(), self.way(device) == Way::Up);
            self.length = pages;
            if up {
                self.ahead = self.ahead.saturating_sub(pages - 1);
            }
            if forwards {
                self.step = pages as i64;
            }
        }
    }

    /// Whether it has used half of what is transferred in the time of an access.
    pub fn has_used_look(&self, device: &DeviceDescription) -> bool {
        2 * self.used >= device.pages_per_access()
    }

    /// Looks farther ahead, for its reader waits. `size`: length that a request should have, pages; `turns`: each
    /// request costs an access, so that it takes few of them to get there.
    pub fn grow(&mut self, size: u64, turns: bool, device: &DeviceDescription) {
        let longer = if self.distance < size {
            let hurries = turns && device.has_arm() && self.has_used_look(device);
            let histories = if hurries { HISTORIES_IN_TURNS } else { HISTORIES };
            let growth = if turns { histories } else { FIRST_GROWTH };
            let longest = self.distance.max(self.used.saturating_mul(histories));
            self.distance.saturating_mul(growth).min(longest).max(device.pages_per_access())
        } else {
            self.distance.saturating_mul(2)
        };
        (self.distance, self.since_wait) = (longer, 0);
    }

    /// The reader had to wait for its last access.
    pub fn waited(&mut self, wait_ns: u64, device: &DeviceDescription) {
        // What was read ahead with it, perhaps in vain, makes a wait longer.
        let alone_ns = device.access_ns.saturating_add(self.length.saturating_mul(device.page_ns()));
        self.climb_waits_ns = self.climb_waits_ns.saturating_add(wait_ns.min(alone_ns));
    }
}
