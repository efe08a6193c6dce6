//! Faults of mappings: whether they have an order, and whether the pages that the kernel reads around them are worth their time.
//!
//! ```text
//!     random, larger than memory          ■        ■   ■           ■      window of one page
//!     random, fits into memory            the same, until single pages have cost a small part of what reading
//!                                         the whole file around its faults costs: the reader touches much of it
//!     consecutive                         ■■■■■■■■                       the kernel's window
//! ```

use super::seen::Machine;
use crate::Page;

/// Number of faults in no order before the window is reduced.
const RANDOM_FAULTS: u64 = 4;
/// Faults closer than this have an order, pages: 128 KiB, the classic window.
const NEAR_PAGES: u64 = 32;
/// Number of consecutive pages that justify a window again; twice as many after each mistake.
const CONSECUTIVE: u64 = 8;
/// Largest number of such doublings.
const MOST_MISTAKES: u32 = 6;
/// The time for single pages of a file that fits into memory, as a share of the time to read all of it around faults: the loss, if the
/// reader needs the whole file.
pub(super) const LOSS_SHARE: f64 = 0.02;

/// The change of a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Change {
    /// To the smallest window, after this number of faults in no order.
    Single(u64),
    /// Back to the window before, after this number of consecutive pages.
    Back(u64),
    /// Back to the window before, because the whole file is in use, after this number of faults.
    Dense(u64),
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
    /// Whether the window is reduced, and the faults since.
    is_single: bool,
    singles: u64,
    /// Whether the file fits into memory and is used densely.
    is_dense: bool,
}

impl Faults {
    /// Whether the faults have no order.
    pub fn are_random(&self) -> bool {
        self.is_single || self.random >= RANDOM_FAULTS
    }

    /// A fault that found no cached page. `window`: pages that the kernel reads around it without an act.
    pub fn fault(&mut self, page: Page, window: u64, file_pages: u64, machine: &Machine) -> Option<Change> {
        self.note(page);
        let needed = CONSECUTIVE << self.mistakes.min(MOST_MISTAKES);
        if self.is_single {
            self.singles = self.singles.saturating_add(1);
            if self.consecutive >= needed {
                self.mistakes = self.mistakes.saturating_add(1);
                return self.back(self.consecutive);
            }
            if self.singles as f64 >= single_faults(window, file_pages, machine) {
                // The faults have no order still.
                (self.is_dense, self.is_single) = (true, false);
                return Some(Change::Dense(self.singles));
            }
            return None;
        }
        let pays =
            !self.is_dense && window > 1 && single_faults(window, file_pages, machine) >= 2.0 * RANDOM_FAULTS as f64;
        if self.random < RANDOM_FAULTS || !pays {
            return None;
        }
        (self.is_single, self.singles) = (true, 0);
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
fn single_faults(window: u64, file_pages: u64, machine: &Machine) -> f64 {
    if file_pages >= machine.available_pages {
        return f64::INFINITY;
    }
    let (access_ns, page_ns) = (machine.device.access_ns.max(1) as f64, machine.device.page_ns() as f64);
    let window = window.max(1) as f64;
    let all_ns = file_pages as f64 / window * (access_ns + window * page_ns);
    LOSS_SHARE * all_ns / (access_ns + page_ns)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_in_memory_gets_single_pages_in_proportion_to_its_length() {
        let machine = Machine::default();
        let faults = [100, 10_000, 200_000].map(|pages| single_faults(32, pages, &machine));
        assert!(faults[0] < 8.0 && faults[1] > 8.0 && faults[2] > 19.0 * faults[1], "{faults:?}");
        assert_eq!(single_faults(32, machine.available_pages, &machine), f64::INFINITY);
    }

    #[test]
    fn dense_use_of_a_file_in_memory_brings_the_window_back_for_good() {
        let (mut faults, machine, mut changes) = (Faults::default(), Machine::default(), Vec::new());
        for number in 0..1000u64 {
            changes.extend(faults.fault(number * number * 4241 % 30_011, 32, 30_011, &machine));
        }
        assert!(matches!(changes[..], [Change::Single(4), Change::Dense(_)]), "{changes:?}");
        assert!(faults.are_random());
    }

    #[test]
    fn each_mistake_requires_a_longer_run() {
        let machine = Machine { available_pages: 1000, ..Machine::default() };
        let (mut faults, mut backs, mut page) = (Faults::default(), Vec::new(), 0u64);
        for _ in 0..3 {
            for number in 1..10u64 {
                page = (page + number * number * 104_729) % (1 << 30);
                faults.fault(page, 32, 1 << 30, &machine);
            }
            for _ in 0..50 {
                page += 1;
                if let Some(Change::Back(pages)) = faults.fault(page, 32, 1 << 30, &machine) {
                    backs.push(pages);
                }
            }
        }
        assert_eq!(backs, [8, 16, 32]);
    }
}
