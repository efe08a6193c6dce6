//! Faults of mappings: whether they have an order, and whether the pages that the kernel reads around them are worth their time.
//!
//! ```text
//!     random, larger than memory          ■        ■   ■           ■      window of one page
//!     random, fits into memory            the same, until single pages have cost a small part of what reading
//!                                         the rest of the file around its faults costs: the reader touches much of it
//!     consecutive                         ■■■■■■■■                       the kernel's window
//! ```

use super::decision::Machine;
use crate::Page;

/// Number of faults in no order before the window is reduced.
const RANDOM_FAULTS: u64 = 4;
/// Faults closer than this have an order, pages: 128 KiB, the classic window.
const NEAR_PAGES: u64 = 32;
/// Number of consecutive pages that justify a window again; twice as many after each mistake.
const CONSECUTIVE: u64 = 8;
/// Largest number of such doublings.
const MOST_MISTAKES: u32 = 6;
/// The time for single pages of a file that fits into memory, as a share of the time to read the rest of it around faults: the loss, if
/// the reader needs the whole file. A program that uses a part only loses a larger share of its time.
pub(super) const LOSS_SHARE: f64 = 0.01;

/// The change of a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Change {
    /// To the smallest window, after this number of faults in no order.
    Single(u64),
    /// Back to the window before, after this number of consecutive pages.
    Back(u64),
    /// Back to the window before, because the rest of the file may be in use.
    Dense {
        /// Number of single pages.
        faults: u64,
        /// Pages that were not read before these.
        rest: u64,
    },
}

/// The open file at a fault. Lengths in pages.
#[derive(Clone, Copy, Debug)]
pub(super) struct Around {
    /// The window without an act.
    pub baseline: u64,
    /// The window now.
    pub window: u64,
    pub file_pages: u64,
    /// What the kernel has requested so far and is not evicted unused. Not every fault is reported, but each is counted here.
    pub issued: u64,
}

/// The faults of an open file.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Faults {
    last: Option<Page>,
    last_step: i64,
    /// Number of faults in no order since the last ordered one.
    random: u64,
    /// Number of consecutive pages.
    consecutive: u64,
    mistakes: u32,
    /// Whether the window is reduced, and the pages that the kernel had requested before the first fault with that window.
    is_single: bool,
    issued_before: Option<u64>,
    /// Whether the file fits into memory and is used densely.
    is_dense: bool,
}

impl Faults {
    /// Whether the faults have no order.
    pub fn are_random(&self) -> bool {
        self.is_single || self.random >= RANDOM_FAULTS
    }

    /// A fault that found no cached page.
    pub fn fault(&mut self, page: Page, around: &Around, machine: &Machine) -> Option<Change> {
        let &Around { baseline, window, file_pages, issued } = around;
        self.note(page);
        let needed = CONSECUTIVE << self.mistakes.min(MOST_MISTAKES);
        if self.is_single {
            if self.consecutive >= needed {
                self.mistakes = self.mistakes.saturating_add(1);
                return self.back(self.consecutive);
            }
            if window >= baseline {
                // The act has no effect yet.
                return None;
            }
            let before = *self.issued_before.get_or_insert(issued);
            let (singles, rest) = (issued.saturating_sub(before), file_pages.saturating_sub(before));
            if singles as f64 >= single_faults(baseline, file_pages, rest, machine) {
                // The faults have no order still.
                (self.is_dense, self.is_single) = (true, false);
                return Some(Change::Dense { faults: singles, rest });
            }
            return None;
        }
        let most = single_faults(baseline, file_pages, file_pages.saturating_sub(issued), machine);
        let pays = !self.is_dense && baseline > 1 && most >= 2.0 * RANDOM_FAULTS as f64;
        if self.random < RANDOM_FAULTS || !pays {
            return None;
        }
        (self.is_single, self.issued_before) = (true, None);
        Some(Change::Single(self.random))
    }

    fn back(&mut self, pages: u64) -> Option<Change> {
        (self.is_single, self.random) = (false, 0);
        Some(Change::Back(pages))
    }

    /// Counts a fault.
    fn note(&mut self, page: Page) {
        let Some(last) = self.last.replace(page) else { return };
        let step = page.wrapping_sub(last) as i64;
        self.consecutive = if step == 1 { self.consecutive.saturating_add(1).max(2) } else { 1 };
        if step.unsigned_abs() <= NEAR_PAGES || step == self.last_step {
            self.random = if self.consecutive >= CONSECUTIVE { 0 } else { self.random.saturating_sub(1) };
        } else {
            self.random = self.random.saturating_add(1);
        }
        self.last_step = step;
    }

    /// A fault has reached a marker: the pages before it were used.
    pub fn marker(&mut self) {
        self.random = self.random.saturating_sub(1);
    }

    /// The window was not set, or was set by another.
    pub fn reset(&mut self) {
        *self = Faults { mistakes: self.mistakes, is_dense: self.is_dense, ..Faults::default() };
    }
}

/// The number of faults that may read single pages. Without limit for a file that does not fit into memory: pages around a fault are
/// evicted before their use.
fn single_faults(window: u64, file_pages: u64, rest: u64, machine: &Machine) -> f64 {
    if file_pages >= machine.available_pages {
        return f64::INFINITY;
    }
    let (access_ns, page_ns) = (machine.device.access_ns.max(1) as f64, machine.device.page_ns() as f64);
    let window = window.max(1) as f64;
    let all_ns = rest as f64 / window * (access_ns + window * page_ns);
    LOSS_SHARE * all_ns / (access_ns + page_ns)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_in_memory_gets_single_pages_in_proportion_to_its_length() {
        let machine = Machine::default();
        let faults = [100, 10_000, 200_000].map(|pages| single_faults(32, pages, pages, &machine));
        assert!(faults[0] < 8.0 && faults[1] > 4.0 && faults[2] > 19.0 * faults[1], "{faults:?}");
        assert!(single_faults(32, 200_000, 100_000, &machine) < 0.6 * faults[2]);
        assert_eq!(single_faults(32, machine.available_pages, 0, &machine), f64::INFINITY);
    }

    #[test]
    fn dense_use_of_a_file_in_memory_brings_the_window_back_for_good() {
        let (mut faults, machine, mut changes) = (Faults::default(), Machine::default(), Vec::new());
        let (mut window, mut issued) = (32, 0);
        for number in 0..1000u64 {
            let around = Around { baseline: 32, window, file_pages: 60_013, issued };
            let change = faults.fault(number * number * 4241 % 60_013, &around, &machine);
            // Two faults for each that is reported; an act has an effect after the fault that caused it.
            issued += 2 * window;
            window = match change {
                Some(Change::Single(_)) => 1,
                Some(_) => 32,
                None => window,
            };
            changes.extend(change);
        }
        let [Change::Single(4), Change::Dense { faults: singles, rest }] = changes[..] else { panic!("{changes:?}") };
        let most = single_faults(32, 60_013, rest, &machine);
        assert!(
            (most..most + 2.0).contains(&(singles as f64)) && rest < 60_013 - 4 * 32,
            "{singles} of {most}, {rest}"
        );
        assert!(faults.are_random());
    }

    const AROUND: Around = Around { baseline: 32, window: 1, file_pages: 1 << 30, issued: 0 };

    #[test]
    fn each_mistake_requires_a_longer_run() {
        let machine = Machine { available_pages: 1000, ..Machine::default() };
        let (mut faults, mut backs, mut page) = (Faults::default(), Vec::new(), 0u64);
        for _ in 0..3 {
            for number in 1..10u64 {
                page = (page + number * number * 104_729) % (1 << 30);
                faults.fault(page, &AROUND, &machine);
            }
            for _ in 0..50 {
                page += 1;
                if let Some(Change::Back(pages)) = faults.fault(page, &AROUND, &machine) {
                    backs.push(pages);
                }
            }
        }
        assert_eq!(backs, [8, 16, 32]);
    }
}
