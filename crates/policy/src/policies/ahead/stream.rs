//! A stream: the pattern of consecutive accesses in a file, and its next pages.

use crate::pattern::Steps;
use crate::{DeviceDescription, Page};

/// Maximum distance of two accesses that may begin a pattern: 4 MiB. Accesses of different readers are mostly farther apart.
const NEAR_PAGES: u64 = 1024;
/// A pattern with this number of repetitions is kept after an access that does not follow it.
const ESTABLISHED: u32 = 3;
/// After this number of consecutive accesses upwards with gaps, the pattern is `skipping`.
const ASCENTS: u32 = 12;
/// Number of ascending accesses after which the sums of pages and waits are halved.
const MOST_ASCENTS: u32 = 64;

/// A wait multiplies a distance shorter than a request by this factor, and doubles a longer one.
const FIRST_GROWTH: u64 = 8;
/// Limit of a short distance, as a multiple of the pages that the stream has used: a reader that has read little may end soon.
const HISTORIES: u64 = 16;
/// The factor if files compete for a disk with a head, where each request costs a seek: a first distance of 1 MiB leads at once to
/// the longest request, 64 MiB.
const HISTORIES_IN_TURNS: u64 = 64;

/// A pattern in a file.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Stream {
    /// The last access and the step that led there. In a pattern of runs: the whole run.
    pub at: Steps,
    /// Whether each step is a run of several accesses.
    pub of_runs: bool,
    /// The current run of accesses upwards without a gap, and the one before it.
    pub run: Steps,
    before: Option<Steps>,
    /// Whether the pattern is `skipping`: upwards with different gaps, which are read, too.
    pub skips: bool,
    /// Number of consecutive accesses upwards with any gaps, and the pages from the first of them to the last.
    ascents: u32,
    climbed: u64,
    /// The waits for these accesses, nanoseconds.
    climb_waits_ns: u64,
    /// Requested pages of the pattern that the reader has not reached.
    pub ahead: u64,
    /// The distance: how many of these there should be; 0: unknown.
    pub distance: u64,
    /// Pages used since the pattern was confirmed, and since the last wait.
    pub used: u64,
    pub since_wait: u64,
    /// Accesses that no pattern predicted, and the disk's idle time during their waits.
    pub unforeseen: u64,
    pub idle_ns: u64,
    /// Whether the distance has grown for the current wait already.
    pub has_grown: bool,
    /// Whether its last access was a miss.
    pub missed: bool,
    /// The number of its last access among those to the file.
    pub used_at: u64,
}

/// How an access continues a stream; the most certain first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Follows {
    /// It is within the last access.
    Within,
    /// It begins at the end of the last access.
    Adjacent,
    /// It is at the known step.
    Step,
    /// It is a little farther up, in a `skipping` pattern.
    Skip,
    /// It repeats a step that has occurred once.
    Guess,
}

/// The pages that are requested for a pattern.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    /// All pages after the last access.
    Up,
    /// All pages before the last access.
    Down,
    /// The pages of each step.
    Steps,
}

impl Stream {
    /// A stream with its first access.
    pub fn begin(first: Page, length: u64) -> Stream {
        let at = Steps::begin(first, length);
        Stream { at, run: at, ..Stream::default() }
    }

    /// The new stream if this stream's reader has jumped. This stream stays unchanged, because another reader may have made the access.
    pub fn jumped(&self, page: Page, length: u64, device: &DeviceDescription) -> Stream {
        let mut next = Stream {
            at: Steps { step: self.run.step_to(page), repeated: 1, ..Steps::begin(page, length) },
            before: Some(self.run),
            ascents: self.ascents,
            climbed: self.climbed,
            climb_waits_ns: self.climb_waits_ns,
            ..Stream::begin(page, length)
        };
        next.climb(self.at.end(), page, length, device);
        if let Some(before) = self.before
            && next.at.step == before.step_to(self.run.first)
        {
            // The same step between runs, twice.
            next.at.repeated = 2;
            let run = self.run.length.min(before.length).min(next.at.step.unsigned_abs());
            next.of_runs = run > length;
            next.at.length = run.max(length);
        }
        next
    }

    /// Sets the expected length of the run that begins with its first access.
    pub fn expect_run(&mut self, pages: u64) {
        if pages > self.at.length {
            (self.at.length, self.of_runs) = (pages, true);
        }
    }

    /// The number of requested pages before this page, if this page was requested.
    pub fn ahead_of(&self, page: Page, device: &DeviceDescription) -> Option<u64> {
        let pages = match self.way(device) {
            Way::Up => page.checked_sub(self.at.end())?,
            Way::Down => self.at.first.checked_sub(page)?.checked_sub(1)?,
            Way::Steps => self.at.locate(page)?.0.checked_sub(1)?.checked_mul(self.at.length)?,
        };
        (pages < self.ahead).then_some(pages)
    }

    /// The distance of a page from the last access.
    pub fn distance_to(&self, page: Page) -> u64 {
        self.at.first.abs_diff(page).min(self.at.end().abs_diff(page))
    }

    /// Whether an access there may be the reader's next one.
    pub fn is_near(&self, page: Page) -> bool {
        self.distance_to(page) <= NEAR_PAGES
    }

    /// Whether the pattern is confirmed. Failures in the file require more repetitions.
    pub fn is_confirmed(&self, failures: u32) -> bool {
        let threshold = if self.at.is_forwards() { 1 } else { 2 };
        self.skips || (self.at.step != 0 && self.at.repeated >= threshold + failures)
    }

    /// Which pages are requested. The gap between two accesses is included if a second request would take the disk longer.
    pub fn way(&self, device: &DeviceDescription) -> Way {
        let gap = self.at.step.unsigned_abs().saturating_sub(self.at.length);
        let bridged = gap.saturating_mul(device.page_ns()) < device.request_ns;
        if self.at.is_forwards() || self.skips || (bridged && self.at.step > 0) {
            Way::Up
        } else if self.at.is_backwards() || (bridged && self.at.step < 0) {
            Way::Down
        } else {
            Way::Steps
        }
    }

    /// Whether its reader goes upwards, with any gaps.
    pub fn is_climbing(&self) -> bool {
        self.ascents >= ASCENTS
    }

    /// Whether its steps are so wide that they may lead from one reader's place to another's.
    pub fn is_wide(&self) -> bool {
        self.is_weak() && self.at.step.unsigned_abs() > NEAR_PAGES
    }

    /// The stream with its place and without its pattern.
    pub fn stay(&self) -> Stream {
        Stream { used_at: self.used_at, ..Stream::begin(self.at.first, self.at.length) }
    }

    /// Whether the pattern has so few repetitions that it may be chance.
    pub fn is_weak(&self) -> bool {
        self.at.repeated < ESTABLISHED && !self.skips
    }

    /// How an access continues the stream, if it does. `mapped`: accesses to cached pages of a mapping may be invisible.
    pub fn follows(&self, page: Page, length: u64, mapped: bool) -> Option<Follows> {
        if page >= self.at.first && page.saturating_add(length) <= self.at.end() {
            Some(Follows::Within)
        } else if page == self.at.end() || page + 1 == self.at.end() {
            // A call may begin in the page in which the last one ended. An access right after it is adjacent with any step,
            // because accesses may have become shorter.
            Some(Follows::Adjacent)
        } else if self.at.repeated > 0 && self.is_next(page, length, mapped) {
            Some(if self.at.repeated > 1 || self.at.is_forwards() { Follows::Step } else { Follows::Guess })
        } else if self.skips && (self.at.end()..self.at.end().saturating_add(NEAR_PAGES)).contains(&page) {
            Some(Follows::Skip)
        } else {
            None
        }
    }

    /// Whether the pattern's next access is there. In a mapping, accesses to pages that were read ahead may be invisible.
    fn is_next(&self, page: Page, length: u64, mapped: bool) -> bool {
        if self.at.is_backwards() && page.saturating_add(length) == self.at.first {
            return true;
        }
        let passed = if mapped { self.ahead / self.at.length.max(1) } else { 0 };
        self.at.locate(page).is_some_and(|(steps, rest)| rest == 0 && (1..=passed.saturating_add(1)).contains(&steps))
    }

    /// Adds an access; returns the number of pages of the pattern that it uses up.
    pub fn advance(&mut self, page: Page, length: u64, how: Follows, device: &DeviceDescription) -> u64 {
        if how == Follows::Within {
            self.run.extend(page.saturating_add(length));
            return 0;
        }
        let (old_first, old_end) = (self.at.first, self.at.end());
        self.climb(old_end, page, length, device);
        let goes_back = self.at.is_backwards() && page.saturating_add(length) == self.at.first;
        let steps = match how {
            Follows::Step | Follows::Guess if !goes_back => self.at.locate(page).map_or(1, |(steps, _)| steps.max(1)),
            _ => 1,
        };
        self.of_runs &= matches!(how, Follows::Step | Follows::Guess) && length <= self.at.length;
        let length = if self.of_runs { self.at.length } else { length };
        let step = match how {
            Follows::Adjacent => length as i64,
            Follows::Step | Follows::Guess if goes_back => -(length as i64),
            Follows::Step | Follows::Guess => self.at.step,
            _ => self.at.step_to(page),
        };
        let same = match how {
            Follows::Adjacent => self.at.repeated == 0 || self.at.is_forwards(),
            Follows::Step | Follows::Guess => true,
            _ => false,
        };
        let repeated = if same { self.at.repeated.saturating_add(1) } else { 1 };
        if !same && !self.skips {
            self.ahead = 0;
        }
        let end = page.saturating_add(length);
        if how == Follows::Adjacent {
            self.run.length = end.saturating_sub(self.run.first);
        } else {
            (self.before, self.run) = (Some(self.run), Steps::begin(page, length));
        }
        self.at = Steps { first: page, length, step, repeated };
        match self.way(device) {
            Way::Up => end.saturating_sub(old_end),
            Way::Down => old_first.saturating_sub(page),
            Way::Steps => length.saturating_mul(steps),
        }
    }

    /// Decides whether the pattern is `skipping`: reading the gaps takes less time than waiting for each access. The waits are measured,
    /// not those of the model, because an access nearby may take less time.
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
            // From now on the waits for single accesses are not visible.
            let each_ns = device.access_ns + length.saturating_mul(device.page_ns());
            self.skips = transfer_ns < u64::from(self.ascents).saturating_mul(each_ns);
        } else if self.ascents >= ASCENTS && self.is_weak() {
            self.skips = transfer_ns < self.climb_waits_ns / 3 * 2;
        }
    }

    /// The reader used `pages` pages of the pattern. If it missed the next one, the requested pages ahead are not cached either.
    pub fn go_on(&mut self, pages: u64, missed: bool) {
        self.ahead = if missed { 0 } else { self.ahead.saturating_sub(pages) };
        self.since_wait += pages;
        self.used = self.used.saturating_add(pages);
    }

    /// A fault at `first` has mapped `pages` pages from `first` on, and `before` pages before it.
    pub fn mapped(&mut self, first: Page, pages: u64, before: u64, device: &DeviceDescription) {
        let end = first.saturating_add(pages);
        if self.of_runs && (self.at.first..self.at.end()).contains(&first) {
            self.run.extend(end.min(self.at.end()));
        }
        if self.at.first != first || self.at.length != 1 || self.of_runs {
            return;
        }
        self.run.extend(end);
        if self.at.is_backwards() || (self.at.step < 0 && before > 0) {
            (self.at.first, self.at.length) = (first - before.min(first), before + 1);
            self.at.step = -(self.at.length as i64);
            self.ahead = self.ahead.saturating_sub(before);
        } else {
            let (forwards, up) = (self.at.is_forwards(), self.way(device) == Way::Up);
            self.at.length = pages;
            if up {
                self.ahead = self.ahead.saturating_sub(pages - 1);
            }
            if forwards {
                self.at.step = pages as i64;
            }
        }
    }

    /// Whether the stream has used half of the pages that the disk transfers during an access.
    pub fn has_used_look(&self, device: &DeviceDescription) -> bool {
        2 * self.used >= device.pages_per_access()
    }

    /// Increases the distance, because its reader waits. `size`: length of a request, pages; `turns`: each request costs an access, so
    /// the distance grows faster.
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
        // Pages that are read ahead in the same request make a wait longer.
        let alone_ns = device.access_ns.saturating_add(self.at.length.saturating_mul(device.page_ns()));
        self.climb_waits_ns = self.climb_waits_ns.saturating_add(wait_ns.min(alone_ns));
    }
}
