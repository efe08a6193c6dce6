//! Just-in-time windows: what to fetch now, if memory does not hold all that a profile lists.
//!
//! ```text
//!     items     ▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓░░░░░░░░░░░░░░░░························   in order of first use
//!     marks        │      │         │        │        │        │          an exec, the first open of a file
//!                       seen        ╰── at ──┴── size ──╯
//!                                            ├ fetched ─┼── due: from the end of the last window to the end of this one
//! ```
//!
//! The idea is that of Opdenacker (Readahead: time-travel techniques, OLS 2007, 5.3.4). The window begins where the program is (`at`).
//! Marks that were seen confirm the position; between two marks the program's own timeline and the clock estimate it.
//!
//! - A mark that comes early moves the position forward. Items before it are still due if another thread uses them; if the threads are
//!   unknown, if the window holds them and their file was not opened yet. A mark that comes late does not move the position back; what its file lacks is due at once.
//! - A mark that does not come: the clock moves the position past it, more slowly with each one that is missing.
//! - A repeated mark does not move the position. What was evicted of its file meanwhile is fetched again.
//! - The window grows until it reaches beyond the next expected mark. It shrinks when items are evicted that were certainly not used yet,
//!   and grows again after the program has used two windows without another eviction. Below an eighth of its first size it is given up.
//! - What was resident before needs no room in the window.
//!
//! Items, marks and events come in, indices of items to fetch come out. No clock, no I/O: the prefetch and the simulator drive it.

mod flow;
mod position;
#[cfg(test)]
mod tests;

pub use flow::{Flow, Progress};
use position::Position;
use std::collections::BTreeSet;

/// A part of a profile that is fetched as a whole. Items are in order of their first use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Item {
    /// Its length.
    pub bytes: u64,
    /// When it is used if everything is cached, microseconds since exec; where unknown, when it was used in the recording.
    pub time_us: u64,
    /// The thread that used it; `None`: unknown.
    pub thread: Option<u32>,
    /// The mark of the first open of its file, as an index; `None`: there is none, as for metadata.
    pub opened_by: Option<usize>,
}

/// An event that shows how far the program is. Marks are in order of their places.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Mark {
    /// The first item that is used with or after the event, as an index; the number of items: none.
    pub place: usize,
    /// The thread of the event; `None`: unknown.
    pub thread: Option<u32>,
    /// Whether every source of progress sees it. Others help if they are seen, and their absence means nothing.
    pub is_expected: bool,
}

/// The sizes of a window, bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sizes {
    /// The size of a page, the smallest window.
    pub page: u64,
    /// The size at the start.
    pub start: u64,
    /// The largest size.
    pub most: u64,
}

/// What has happened with a window so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Figures {
    /// The smallest and the largest size so far, bytes.
    pub smallest_bytes: u64,
    /// See `smallest_bytes`.
    pub largest_bytes: u64,
    /// Different expected marks that were seen.
    pub marks_seen: u64,
    /// Marks that came after a mark of a later place.
    pub marks_out_of_order: u64,
    /// Marks that were seen again.
    pub marks_repeated: u64,
    /// Bytes that were evicted before their use.
    pub evicted_unread_bytes: u64,
    /// Bytes that were due again after an eviction.
    pub refetched_bytes: u64,
}

/// How often an item is fetched again at most: pages that are evicted each time would be read for nothing.
const MOST_REFETCHES: u8 = 4;

/// A window that evictions have made smaller than this part of its first size is given up: memory does not hold what the program itself uses,
/// and each page of the prefetch evicts one of the program's.
const LEAST_PART: u64 = 8;

/// Minimum time between two repetitions of a mark that have an effect, microseconds: a shell starts the same program hundreds of times per
/// second, and its pages are not evicted in between.
const REPEAT_US: u64 = 1_000_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ItemState {
    /// It was not fetched, or was evicted.
    Absent,
    Fetched,
    /// It was resident before, or was evicted too often.
    Left,
}

/// The window over one profile.
#[derive(Clone, Debug)]
pub struct Window {
    items: Vec<Item>,
    states: Vec<ItemState>,
    refetches: Vec<u8>,
    /// Items of each mark's file.
    of_mark: Vec<Vec<u32>>,
    /// Bytes before each item.
    before: Vec<u64>,
    position: Position,
    sizes: Sizes,
    /// The largest size after evictions.
    ceiling: u64,
    /// Where the program was at the last change of `ceiling`, bytes.
    changed_at: u64,
    /// Items before the position that are still due.
    wanted: BTreeSet<usize>,
    /// When each mark last had an effect.
    noticed_us: Vec<Option<u64>>,
    /// Fetch when this many quarters of the window or fewer are ahead.
    refill_quarters: u64,
    is_given_up: bool,
    figures: Figures,
}

impl Window {
    /// A window at the start of these items. Marks with a place beyond the items, or out of order, are corrected.
    /// `sees_marks`: there is a source that reports expected marks; otherwise only the clock moves the window.
    pub fn new(items: Vec<Item>, mut marks: Vec<Mark>, sizes: Sizes, sees_marks: bool) -> Window {
        let mut place = 0;
        for mark in &mut marks {
            place = mark.place.clamp(place, items.len().max(place));
            mark.place = place.min(items.len());
        }
        let mut of_mark = vec![Vec::new(); marks.len()];
        for (index, item) in items.iter().enumerate() {
            if let Some(of_mark) = item.opened_by.and_then(|mark| of_mark.get_mut(mark)) {
                of_mark.push(index as u32);
            }
        }
        let mut before = Vec::with_capacity(items.len() + 1);
        let mut total = 0u64;
        for item in &items {
            before.push(total);
            total = total.saturating_add(item.bytes);
        }
        before.push(total);
        let page = sizes.page.max(1);
        let most = sizes.most.max(page);
        let sizes = Sizes { page, start: sizes.start.clamp(page, most), most };
        let mut window = Window {
            states: vec![ItemState::Absent; items.len()],
            refetches: vec![0; items.len()],
            noticed_us: vec![None; marks.len()],
            position: Position::new(&items, marks, sees_marks),
            of_mark,
            before,
            items,
            sizes,
            ceiling: sizes.most,
            changed_at: 0,
            wanted: BTreeSet::new(),
            refill_quarters: 2,
            is_given_up: false,
            figures: Figures { smallest_bytes: u64::MAX, ..Figures::default() },
        };
        window.note_size();
        window
    }

    pub fn items(&self) -> &[Item] {
        &self.items
    }

    /// Where the program is, as an index of an item.
    pub fn at(&self) -> usize {
        self.position.at()
    }

    /// What has happened so far.
    pub fn figures(&self) -> Figures {
        self.figures
    }

    pub fn expected_marks(&self) -> usize {
        self.position.expected_marks()
    }

    /// The size, bytes: it reaches beyond the next expected mark if the limits permit.
    pub fn size(&self) -> u64 {
        let needed = self.position.next_expected().map_or(0, |place| self.bytes(self.at()..self.beyond(place)));
        needed.max(self.sizes.start).min(self.ceiling).min(self.sizes.most).max(self.sizes.page)
    }

    /// The end of what the window has to hold to reach beyond the mark at this place, with a quarter of the way to it as a margin.
    fn beyond(&self, place: usize) -> usize {
        let margin = self.bytes(self.at().min(place)..place) / 4;
        let end = self.before[place].saturating_add(margin);
        let most = self.items.len();
        (self.before.partition_point(|before| *before <= end) - 1).clamp((place + 1).min(most), most)
    }

    fn bytes(&self, range: std::ops::Range<usize>) -> u64 {
        self.before[range.end.max(range.start)] - self.before[range.start]
    }

    /// Changes the largest size, as memory becomes scarce or available.
    pub fn set_most(&mut self, most: u64) {
        let most = most.max(self.sizes.page);
        if self.ceiling == self.sizes.most || self.ceiling > most {
            self.ceiling = most;
        }
        self.sizes.most = most;
        self.note_size();
    }

    /// The device had to spin up: it stays idle for longer if more is fetched at once, less often.
    pub fn fetch_more_at_once(&mut self) {
        self.sizes.start = self.sizes.start.saturating_mul(4).min(self.sizes.most);
        self.refill_quarters = 1;
        self.note_size();
    }

    /// A source of progress reports marks from now on.
    pub fn source_started(&mut self) {
        self.position.source_started();
    }

    /// The source of progress reports no marks any more: only the clock moves the window.
    pub fn stop_expecting(&mut self) {
        self.position.stop_expecting();
    }

    /// A mark was seen.
    pub fn seen(&mut self, mark: usize, now_us: u64) {
        let Some(known) = self.position.mark(mark) else { return };
        let noticed_us = self.noticed_us[mark].replace(now_us);
        if let Some(noticed_us) = noticed_us {
            self.figures.marks_repeated += 1;
            if now_us.saturating_sub(noticed_us) < REPEAT_US {
                self.noticed_us[mark] = Some(noticed_us);
                return;
            }
            return self.want_again(mark);
        }
        self.figures.marks_seen += u64::from(known.is_expected);
        let (at, confirmed) = (self.at(), self.position.confirmed());
        if self.position.confirm(mark, now_us) {
            // Items that the clock has passed already stay as they are.
            self.want_gap(at.max(confirmed)..known.place, known);
        } else {
            self.figures.marks_out_of_order += u64::from(known.place < confirmed);
            self.want_file(mark);
        }
        self.note_size();
    }

    /// Items that a mark has jumped over: another thread may still need them.
    fn want_gap(&mut self, gap: std::ops::Range<usize>, mark: Mark) {
        if gap.is_empty() {
            return;
        }
        let fits = self.bytes(gap.clone()) <= self.size();
        for index in gap.filter(|index| self.states[*index] == ItemState::Absent) {
            if !self.position.is_used(&self.items[index], mark.thread).unwrap_or(!fits) {
                self.wanted.insert(index);
            }
        }
    }

    /// Items of a file that was opened later than expected.
    fn want_file(&mut self, mark: usize) {
        let at = self.at();
        let items = self.of_mark[mark].iter().map(|index| *index as usize);
        self.wanted.extend(items.filter(|index| *index < at && self.states[*index] == ItemState::Absent));
    }

    /// Items of a file that is used again, as far as they were fetched long ago.
    fn want_again(&mut self, mark: usize) {
        let at = self.at();
        for index in self.of_mark[mark].iter().map(|index| *index as usize).filter(|index| *index < at) {
            if self.states[index] == ItemState::Fetched && self.refetches[index] < MOST_REFETCHES {
                self.refetches[index] += 1;
                self.wanted.insert(index);
            }
        }
    }

    /// Whether a seen mark shows that the program has used this item: it is not worth a read any more.
    pub fn has_passed(&self, item: usize) -> bool {
        self.items.get(item).is_some_and(|known| self.position.has_passed(item, known))
    }

    /// These items were resident before they were fetched.
    pub fn were_resident(&mut self, items: &[usize]) {
        for index in items {
            if let Some(state) = self.states.get_mut(*index) {
                *state = ItemState::Left;
            }
        }
    }

    /// These fetched items are not resident any more. Those that were certainly not used yet become due again, and make the window smaller.
    pub fn were_evicted(&mut self, items: &[usize]) {
        let (unread_from, ahead) = (self.unread_from(), self.ahead());
        let mut evicted_bytes = 0;
        for index in items.iter().copied().filter(|index| *index >= unread_from) {
            if self.states.get(index) != Some(&ItemState::Fetched) {
                continue;
            }
            evicted_bytes += self.items[index].bytes;
            self.states[index] =
                if self.refetches[index] < MOST_REFETCHES { ItemState::Absent } else { ItemState::Left };
            self.refetches[index] = self.refetches[index].saturating_add(1);
        }
        if evicted_bytes == 0 {
            return;
        }
        self.figures.evicted_unread_bytes += evicted_bytes;
        // Otherwise the window is smaller already than what was fetched.
        let size = self.size();
        if ahead <= size || self.ceiling == self.sizes.most {
            self.ceiling = (size / 2).max(self.sizes.page);
            self.is_given_up |= self.ceiling < self.sizes.start / LEAST_PART;
        }
        self.changed_at = self.before[self.at()];
        self.note_size();
    }

    /// The first item that the program has certainly not used yet, as an index.
    pub fn unread_from(&self) -> usize {
        if let Some(place) = self.position.next_expected() {
            return place;
        }
        // Only the clock says where the program is: the farther half.
        let middle = self.before[self.at()].saturating_add(self.ahead() / 2);
        self.before.partition_point(|before| *before < middle).clamp(self.at(), self.items.len())
    }

    /// Fetched items that the program has certainly not used yet, the next ones first: they may have been evicted.
    pub fn unread(&self) -> impl Iterator<Item = usize> + '_ {
        let end = self.items.len();
        (self.unread_from().min(end)..end).filter(|index| self.states[*index] == ItemState::Fetched)
    }

    /// Bytes that were fetched and not used yet.
    pub fn ahead(&self) -> u64 {
        let of = |index: usize| if self.states[index] == ItemState::Fetched { self.items[index].bytes } else { 0 };
        (self.at()..self.items.len()).map(of).fold(0, u64::saturating_add)
    }

    /// The items to fetch now, in order of their use; counts them as fetched.
    pub fn due(&mut self, now_us: u64) -> Vec<usize> {
        if self.is_given_up {
            return Vec::new();
        }
        self.position.advance(now_us);
        self.regrow();
        let (at, size) = (self.at(), self.size());
        let wanted = self.take_wanted(size);
        let mut ahead = self.ahead();
        let next = self.position.next_expected().map_or(at, |place| self.beyond(place));
        let misses_next = || (at..next).any(|index| self.states[index] == ItemState::Absent);
        let mut due = wanted;
        if ahead <= size / 4 * self.refill_quarters || misses_next() {
            for index in at..self.items.len() {
                if self.states[index] != ItemState::Absent {
                    continue;
                }
                let bytes = self.items[index].bytes;
                // One item is fetched in any case: it may be larger than the window.
                if ahead > 0 && ahead.saturating_add(bytes) > size {
                    break;
                }
                ahead = ahead.saturating_add(bytes);
                due.push(index);
            }
        }
        for index in &due {
            self.states[*index] = ItemState::Fetched;
            if self.refetches[*index] > 0 {
                self.figures.refetched_bytes += self.items[*index].bytes;
            }
        }
        due
    }

    /// Items before the position that are still due, at most one window of them.
    fn take_wanted(&mut self, size: u64) -> Vec<usize> {
        let (at, mut left) = (self.at(), size);
        let mut taken = Vec::new();
        // Those behind the position now come in their order.
        self.wanted.retain(|index| *index < at);
        while let Some(index) = self.wanted.pop_first() {
            taken.push(index);
            left = left.saturating_sub(self.items[index].bytes);
            if left == 0 {
                break;
            }
        }
        taken
    }

    /// Lets the window grow again after the program has used two windows without an eviction.
    fn regrow(&mut self) {
        let used = self.before[self.at()].saturating_sub(self.changed_at);
        if self.ceiling < self.sizes.most && used >= self.ceiling.saturating_mul(2) {
            self.ceiling = (self.ceiling / 4 * 5).saturating_add(self.sizes.page).min(self.sizes.most);
            self.changed_at = self.before[self.at()];
        }
        self.note_size();
    }

    fn note_size(&mut self) {
        let size = self.size();
        self.figures.smallest_bytes = self.figures.smallest_bytes.min(size);
        self.figures.largest_bytes = self.figures.largest_bytes.max(size);
    }

    /// Whether it stays closed, because its pages were evicted again and again.
    pub fn is_given_up(&self) -> bool {
        self.is_given_up
    }

    /// Whether nothing is left to fetch, and nothing that was fetched can be evicted before its use.
    pub fn is_over(&self) -> bool {
        if self.is_given_up {
            return true;
        }
        let mut ahead = self.states[self.at()..].iter();
        self.wanted.is_empty() && ahead.all(|state| *state == ItemState::Left)
    }

    /// Items that were neither fetched nor resident: the program has passed them, or will never reach them.
    pub fn never_fetched(&self) -> impl Iterator<Item = usize> + '_ {
        (0..self.items.len()).filter(|index| self.states[*index] == ItemState::Absent && self.refetches[*index] == 0)
    }
}
