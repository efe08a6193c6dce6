//! Files in a known order: what to start next. Pure: items, taken items and results go in, work comes out.
//!
//! ```text
//!     path given ───────▶ Waiting ─▶ LookingUp ─▶ Sized ─admitted─▶ Ready ─▶ Reading ─▶ Done
//!                                        │                                               ▲
//!                                        ╰── cached, skipped, empty ─────────────────────╯
//!
//!     taken ├─ urgent: a quarter ─┼──────────────┤ frontier                    ┤ end of the handed items
//!           every sized item in front of the frontier is admitted: its bytes are reserved
//! ```
//!
//! Items are admitted strictly in their order while they fit into the window: a lookup that takes long holds up the items behind it until it ends, or
//! until the program takes its item and waits itself. Admission pauses when the window is full and resumes when half of it is
//! empty: the admitted batch is then started in the order of the disk ([`self::sweep`]). Only items that are urgent go first, in their own
//! order; on a rotating disk none is, and while its sweep is under way, items are admitted at once. Lookups have no bytes to hold and go as far ahead as items are handed over.
//!
//! After 64 cached items in a row only every second item is looked up, and so on down to every 64th, until one is not cached.

mod pace;
mod slots;
mod sweep;

pub use pace::Pace;
pub use sweep::Place;

use slots::{Slots, Stage};
use sweep::Sweeps;

/// Default window, bytes: half of the default budget, so that two prefetchers in a process have their full window. At 150 MB/s it is 0.2 s of
/// sequential reads.
pub const WINDOW_BYTES: u64 = 32 << 20;

/// Items that the first hand-over has at most. Later ones have more, if the window has room.
const FIRST_LOOK_AHEAD: u64 = 64;

/// Items that are handed over ahead at most: with their paths, about 1 MB.
pub const LARGEST_LOOK_AHEAD: u64 = 4096;

/// Cached items in a row after which not every item is looked up.
const CACHED_IN_A_ROW: u32 = 64;

/// Cached items in a row after which the distance of the looked-up items doubles again.
const CACHED_PER_DOUBLING: u32 = 16;

/// Largest distance of looked-up items among cached ones: one lookup takes about as long as the program's own open, so this costs 2 % of
/// the processor time of a program that only opens files.
const LARGEST_STRIDE: u64 = 64;

/// Items that are consumed at most between two hand-overs: the lock, the wake-up and the clock cost microseconds, opening a cached file a few.
const LARGEST_BATCH: u64 = 64;

/// As [`LARGEST_BATCH`] among cached items, in looked-up ones: the program wakes a worker once for several lookups.
const LOOKUPS_PER_BATCH: u64 = 4;

/// Items that are handed over beyond the window, at most: their metadata is looked up while the data of the window is read. Sixteen for each of the
/// default workers; each takes about 200 bytes.
const LOOK_AHEAD: u64 = 256;

/// As [`LOOK_AHEAD`] among cached items, in looked-up ones: more items would not fit into the caches of the processor.
const LOOKUPS_AHEAD: u64 = 16;

/// Memory of the budget.
pub trait Reserve {
    /// Reserves bytes. Always grants if nothing is held.
    fn take(&mut self, bytes: u64) -> bool;
    /// Gives bytes back.
    fn give_back(&mut self, bytes: u64);
}

/// The result of a lookup.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    /// All pages are resident, or the file system has no device.
    Cached,
    /// No readable regular file.
    Unreadable,
    /// Whole pages to be read, bytes; 0: only the metadata was absent.
    Absent {
        /// Their length.
        bytes: u64,
        /// Where they lie.
        place: Place,
    },
}

/// Work for a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    /// Report what is absent: [`Schedule::looked_up`].
    LookUp,
    /// Request this number of bytes from the begin of the item: [`Schedule::requested`].
    ReadAhead {
        /// Their number.
        bytes: u64,
    },
}

/// Work that is started.
#[derive(Debug)]
pub struct Start<P> {
    /// The item.
    pub index: u64,
    /// What to do.
    pub work: Work,
    /// Its path.
    pub path: P,
}

/// How far ahead of the taken item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Items.
    pub items: u64,
    /// Bytes of items.
    pub bytes: u64,
}

/// Outcomes of items.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Outcomes {
    /// Requested completely, or their first part.
    pub requested: u64,
    /// Bytes of requests.
    pub requested_bytes: u64,
    /// Cached completely.
    pub cached: u64,
    /// Without a readable regular file.
    pub unreadable: u64,
    /// Taken while they were looked up or requested.
    pub late: u64,
    /// Taken before.
    pub not_started: u64,
    /// Not looked up, because those around them were cached.
    pub unchecked: u64,
}

/// How many items the source of the program is asked for.
#[derive(Debug)]
pub struct LookAhead(u64);

impl Default for LookAhead {
    fn default() -> LookAhead {
        LookAhead(1)
    }
}

impl LookAhead {
    /// Items beyond the taken ones, now.
    pub fn items(&self) -> u64 {
        self.0
    }

    /// Items are to be handed over.
    pub fn begin(&mut self, limits: Limits) {
        self.0 = self.0.max(FIRST_LOOK_AHEAD).min(limits.items);
    }

    /// The number that was worth it ([`Schedule::look_ahead`]). A program that stops soon does not pull many items that it never takes.
    pub fn end(&mut self, wanted: u64) {
        self.0 = wanted.min(2 * self.0);
    }
}

/// The items from the taken one on, and what to start for them.
#[derive(Debug)]
pub struct Schedule<P> {
    slots: Slots<P>,
    /// Items with smaller indices were taken. The last of them is in use; those before it are consumed.
    taken: u64,
    /// Each sized item before it was admitted.
    frontier: u64,
    /// No item before it waits for its lookup.
    next_lookup: u64,
    page_bytes: u64,
    limits: Limits,
    held_bytes: u64,
    /// Admitted items that are not taken.
    ahead: u64,
    /// The window was not full since it was half empty.
    is_filling: bool,
    /// End of the window when it was half empty: later items belong to the next batch.
    batch_end: u64,
    ready: Sweeps,
    /// Items whose paths were left for later.
    later: u64,
    cached_in_a_row: u32,
    /// A power of two.
    stride: u64,
    outcomes: Outcomes,
}

impl<P: Clone> Schedule<P> {
    /// A schedule of items from index `taken` on.
    pub fn new(taken: u64, page_bytes: u64) -> Schedule<P> {
        Schedule {
            slots: Slots::new(taken),
            taken,
            frontier: taken,
            next_lookup: taken,
            page_bytes,
            limits: Limits { items: 1, bytes: page_bytes },
            held_bytes: 0,
            ahead: 0,
            is_filling: true,
            batch_end: taken,
            ready: Sweeps::default(),
            later: 0,
            cached_in_a_row: 0,
            stride: 1,
            outcomes: Outcomes::default(),
        }
    }

    /// Sets the window. What is admitted stays admitted.
    pub fn set_limits(&mut self, limits: Limits) {
        self.limits = Limits { items: limits.items.max(1), bytes: limits.bytes.max(self.page_bytes) };
    }

    /// The outcomes so far.
    pub fn outcomes(&self) -> Outcomes {
        self.outcomes
    }

    /// The index of the next item to hand over.
    fn end(&self) -> u64 {
        self.slots.end()
    }

    /// Items beyond the taken ones that are in the window or need no place in it.
    fn items_ahead(&self) -> u64 {
        self.frontier - self.taken
    }

    /// Items beyond the taken ones that are worth handing over.
    pub fn look_ahead(&self) -> u64 {
        if self.stride > 1 { LOOKUPS_AHEAD * self.stride } else { self.items_ahead() + LOOK_AHEAD }
    }

    /// The index of the next item to hand over with its path.
    fn next_with_path(&self) -> u64 {
        self.end().next_multiple_of(self.stride)
    }

    fn needs_path(&self, index: u64) -> bool {
        index & (self.stride - 1) == 0
    }

    /// Whether paths that were left for later are needed now.
    fn needs_later_paths(&self) -> bool {
        self.later > 0 && self.stride == 1
    }

    /// The count of taken items at which the next items are to be handed over.
    pub fn next_hand_over(&self) -> u64 {
        if self.needs_later_paths() {
            return 0;
        }
        let most = LARGEST_BATCH.max(LOOKUPS_PER_BATCH * self.stride);
        if !self.is_lookup_missing() {
            return self.taken + (self.items_ahead() / 4).clamp(1, most);
        }
        // When the item is taken whose lookup holds up the others, they can be admitted.
        let held_up = self.frontier + 1 - self.taken;
        self.taken + ((self.end() - self.taken) / 4).clamp(1, most).min(held_up)
    }

    /// Hands the items before index `end` over that were not. `path_of`: `None`: the item has no file.
    pub fn hand_over(&mut self, end: u64, path_of: impl Fn(u64) -> Option<P>) {
        if self.needs_later_paths() {
            self.add_later_paths(&path_of);
        }
        let has_room = self.reserve(end);
        while has_room && self.end() < end {
            let index = self.next_with_path();
            self.push_later(index.min(end));
            if index < end {
                self.push(path_of(index));
            }
        }
    }

    /// Makes room for the items before index `end`, and no more. `false`: there is no memory.
    fn reserve(&mut self, end: u64) -> bool {
        self.slots.reserve(end.saturating_sub(self.end()).div_ceil(self.stride))
    }

    /// Adds the next item; `None`: it has no file.
    pub fn push(&mut self, path: Option<P>) {
        self.outcomes.unreadable += u64::from(path.is_none());
        self.slots.push(path);
    }

    /// Leaves the paths of the items before index `end` for later.
    fn push_later(&mut self, end: u64) {
        self.later += end.saturating_sub(self.end());
        self.slots.skip_to(end);
    }

    /// Adds the paths of items that were handed over without, if there is memory. `None`: there is no file.
    fn add_later_paths(&mut self, path_of: impl Fn(u64) -> Option<P>) {
        if self.slots.fill(self.taken, path_of) {
            self.later = 0;
            (self.next_lookup, self.frontier) = (self.taken, self.taken);
        }
    }

    /// The program has taken this number of items in total. Those before the last taken one are consumed.
    pub fn take(&mut self, taken: u64, reserve: &mut impl Reserve) {
        if taken <= self.taken {
            return;
        }
        let mut left_out = taken.min(self.end()).saturating_sub(self.taken);
        let mut index = self.slots.next_from(self.taken);
        while index < taken.min(self.end()) {
            self.take_one(index, reserve);
            left_out -= 1;
            index = self.slots.next_from(index + 1);
        }
        self.later -= left_out;
        self.outcomes.unchecked += left_out;
        self.outcomes.not_started += taken - taken.min(self.end()).max(self.taken);
        while let Some(consumed) = self.slots.pop_below(taken - 1) {
            self.release(consumed.held_bytes, reserve);
        }
        self.taken = taken;
        self.slots.skip_to(taken);
        self.frontier = self.frontier.max(taken);
        self.next_lookup = self.next_lookup.max(taken);
    }

    fn take_one(&mut self, index: u64, reserve: &mut impl Reserve) {
        let is_checked = self.needs_path(index);
        let Some(slot) = self.slots.get_mut(index) else { return };
        let (stage, held, place) = (slot.stage, slot.held_bytes, slot.place);
        (slot.stage, slot.path) = (Stage::Done, None);
        self.ahead -= u64::from(held > 0);
        match stage {
            Stage::Waiting if !is_checked => self.outcomes.unchecked += 1,
            Stage::Waiting | Stage::Sized => self.outcomes.not_started += 1,
            Stage::Ready => {
                self.outcomes.not_started += 1;
                self.ready.remove(place, index);
                self.release_slot(index, reserve);
            }
            Stage::LookingUp | Stage::Reading => self.outcomes.late += 1,
            Stage::Done => {}
        }
    }

    /// The next work. The caller reports its result.
    pub fn next(&mut self, reserve: &mut impl Reserve) -> Option<Start<P>> {
        self.admit(reserve);
        let urgent = self.taken + (self.items_ahead() / 4).max(1);
        let lookup = self.next_waiting();
        if let Some(index) = self.ready.urgent(urgent) {
            return self.start_reading(index);
        }
        if let Some(index) = lookup.filter(|index| *index < urgent) {
            return self.start_lookup(index);
        }
        match self.ready.next() {
            Some(index) => self.start_reading(index),
            None => lookup.and_then(|index| self.start_lookup(index)),
        }
    }

    /// Whether [`Self::next`] may have work.
    pub fn has_more(&mut self, reserve: &mut impl Reserve) -> bool {
        self.admit(reserve);
        self.ready.next().is_some() || self.next_waiting().is_some()
    }

    /// Whether an item waits for its turn on a rotating disk, or is being read there.
    pub fn has_sweep(&self) -> bool {
        self.ready.is_rotating()
    }

    /// Whether this item does.
    pub fn is_in_sweep(&mut self, index: u64) -> bool {
        self.slots
            .get_mut(index)
            .is_some_and(|slot| slot.place.is_rotating && matches!(slot.stage, Stage::Ready | Stage::Reading))
    }

    /// The result of a lookup.
    pub fn looked_up(&mut self, index: u64, found: Found) {
        match found {
            Found::Absent { .. } => self.check_all(),
            Found::Cached | Found::Unreadable => self.check_fewer(),
        }
        let Some(slot) = self.slots.get_mut(index).filter(|slot| slot.stage == Stage::LookingUp) else { return };
        slot.stage = Stage::Done;
        match found {
            Found::Cached => self.outcomes.cached += 1,
            Found::Unreadable => self.outcomes.unreadable += 1,
            Found::Absent { bytes: 0, .. } => self.outcomes.requested += 1,
            Found::Absent { bytes, place } => {
                (slot.stage, slot.bytes, slot.place) = (Stage::Sized, bytes, place);
                self.frontier = self.frontier.min(index);
            }
        }
    }

    /// This number of bytes of an item were requested; `None`: the file cannot be read.
    pub fn requested(&mut self, index: u64, bytes: Option<u64>) {
        self.outcomes.requested_bytes += bytes.unwrap_or(0);
        self.ready.end(index);
        let Some(slot) = self.slots.get_mut(index).filter(|slot| slot.stage == Stage::Reading) else { return };
        slot.stage = Stage::Done;
        match bytes {
            Some(_) => self.outcomes.requested += 1,
            None => self.outcomes.unreadable += 1,
        }
    }

    fn check_all(&mut self) {
        self.cached_in_a_row = 0;
        if self.stride > 1 {
            self.stride = 1;
            (self.next_lookup, self.frontier) = (self.taken, self.taken);
        }
    }

    fn check_fewer(&mut self) {
        self.cached_in_a_row = self.cached_in_a_row.saturating_add(1);
        let is_due =
            self.cached_in_a_row >= CACHED_IN_A_ROW && self.cached_in_a_row.is_multiple_of(CACHED_PER_DOUBLING);
        if is_due && self.stride < LARGEST_STRIDE {
            self.stride *= 2;
        }
    }

    /// The first item that waits for its lookup, within the window of items.
    fn next_waiting(&mut self) -> Option<u64> {
        let end = self.end().min(self.taken.saturating_add(self.limits.items));
        while self.next_lookup < end {
            let index = self.next_lookup;
            if self.needs_path(index) && self.slots.get_mut(index).is_some_and(|slot| slot.stage == Stage::Waiting) {
                return Some(index);
            }
            self.next_lookup = (index + 1).next_multiple_of(self.stride);
        }
        None
    }

    fn start_lookup(&mut self, index: u64) -> Option<Start<P>> {
        let slot = self.slots.get_mut(index)?;
        slot.stage = Stage::LookingUp;
        let path = slot.path.clone()?;
        Some(Start { index, work: Work::LookUp, path })
    }

    fn start_reading(&mut self, index: u64) -> Option<Start<P>> {
        let slot = self.slots.get_mut(index)?;
        slot.stage = Stage::Reading;
        let (place, bytes, path) = (slot.place, slot.held_bytes, slot.path.take()?);
        self.ready.start(place, index);
        Some(Start { index, work: Work::ReadAhead { bytes }, path })
    }

    /// Admits sized items in their order while they fit, and one in any case.
    fn admit(&mut self, reserve: &mut impl Reserve) {
        if self.ahead == 0 {
            // The item in use is being read: its pages are the program's. Without them the next item always fits.
            self.release_slot(self.taken.wrapping_sub(1), reserve);
        }
        let is_half_empty = self.held_bytes <= self.limits.bytes / 2 && self.ahead <= self.limits.items / 2;
        let window_end = self.taken.saturating_add(self.limits.items);
        if self.ahead == 0 || is_half_empty || self.ready.is_rotating() {
            (self.is_filling, self.batch_end) = (true, window_end);
        }
        let end = self.end().min(window_end).min(self.batch_end);
        while self.is_filling && self.frontier < end && !self.is_lookup_missing() {
            let index = self.frontier;
            let is_sized = self.slots.get(index).is_some_and(|slot| slot.stage == Stage::Sized);
            if is_sized && !self.admit_one(index, reserve) {
                self.is_filling = false;
                return;
            }
            self.frontier = self.slots.next_from(index + 1).min(end);
        }
    }

    /// Whether the size of the next item to admit is not known, and will be.
    fn is_lookup_missing(&self) -> bool {
        if self.frontier >= self.taken.saturating_add(self.limits.items) {
            return false;
        }
        match self.slots.get(self.frontier).map(|slot| slot.stage) {
            Some(Stage::LookingUp) => true,
            Some(Stage::Waiting) => self.needs_path(self.frontier),
            _ => false,
        }
    }

    fn admit_one(&mut self, index: u64, reserve: &mut impl Reserve) -> bool {
        // At most half: an item in use and the next one fit at the same time.
        let most = (self.limits.bytes / 2).max(self.page_bytes);
        let Some(slot) = self.slots.get_mut(index) else { return true };
        let (bytes, place) = (slot.bytes.min(most), slot.place);
        let fits = self.held_bytes + bytes <= self.limits.bytes || self.ahead == 0;
        if !fits || !reserve.take(bytes) {
            return false;
        }
        let Some(slot) = self.slots.get_mut(index) else { return true };
        (slot.stage, slot.held_bytes) = (Stage::Ready, bytes);
        self.held_bytes += bytes;
        self.ahead += 1;
        self.ready.insert(place, index);
        true
    }

    fn release_slot(&mut self, index: u64, reserve: &mut impl Reserve) {
        if let Some(slot) = self.slots.get_mut(index) {
            let bytes = std::mem::take(&mut slot.held_bytes);
            self.release(bytes, reserve);
        }
    }

    fn release(&mut self, bytes: u64, reserve: &mut impl Reserve) {
        if bytes > 0 {
            self.held_bytes -= bytes;
            reserve.give_back(bytes);
        }
    }
}

#[cfg(test)]
mod tests;
