//! How fast a disk is: a typical description, refined by the waits of its readers.

use ahead_model::device_description::DeviceDescription;
use std::collections::VecDeque;

/// Waits that are kept: enough for a median that one slow request does not change.
const KEPT: usize = 33;

/// The typical description counts up to this number of waits.
const ENOUGH: usize = 8;

/// Waits outside of these limits say nothing about a disk: the page arrived at once, or the system was suspended. Unit: nanoseconds.
const PLAUSIBLE_NS: std::ops::RangeInclusive<u64> = 5_000..=10_000_000_000;

/// The speed of a disk.
#[derive(Clone, Debug)]
pub(super) struct Speed {
    typical: DeviceDescription,
    now: DeviceDescription,
    accesses_ns: VecDeque<u64>,
}

impl Speed {
    pub(super) fn new(is_rotating: bool) -> Speed {
        let typical = if is_rotating { DeviceDescription::ROTATING } else { DeviceDescription::FLASH };
        Speed { typical, now: typical, accesses_ns: VecDeque::with_capacity(KEPT) }
    }

    /// Readers have waited `waits` times, `wait_ns` in all, for windows of `pages`.
    pub(super) fn waited(&mut self, waits: u64, wait_ns: u64, pages: u64) {
        let Some(each_ns) = wait_ns.checked_div(waits) else { return };
        // The wait ends when the first pages have arrived, or all of them: the half is nearest to both.
        let transfer_ns = pages.saturating_mul(self.typical.page_ns()) / 2;
        let access_ns = each_ns.saturating_sub(transfer_ns).max(each_ns / 4);
        if !PLAUSIBLE_NS.contains(&access_ns) {
            return;
        }
        if self.accesses_ns.len() == KEPT {
            self.accesses_ns.pop_front();
        }
        self.accesses_ns.push_back(access_ns);
        if self.accesses_ns.len() >= ENOUGH {
            let mut sorted: Vec<u64> = self.accesses_ns.iter().copied().collect();
            sorted.sort_unstable();
            self.now = self.typical.with_access_ns(sorted[sorted.len() / 2]);
        }
    }

    pub(super) fn description(&self) -> DeviceDescription {
        self.now
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn access_time_is_the_median_of_plausible_waits() {
        let mut speed = Speed::new(false);
        assert_eq!(speed.description(), DeviceDescription::FLASH);
        (0..7).for_each(|_| speed.waited(2, 2_000_000, 0));
        assert_eq!(speed.description(), DeviceDescription::FLASH);
        speed.waited(1, 5_000_000_000, 0);
        speed.waited(0, 7, 0);
        speed.waited(1, 100, 0);
        assert_eq!(speed.description().access_ns, 1_000_000);
        (0..100).for_each(|_| speed.waited(1, 3_000_000, 0));
        assert_eq!(speed.description().access_ns, 3_000_000);
        assert!(Speed::new(true).description().seeks());
    }

    #[test]
    fn transfer_of_the_window_is_no_access_time() {
        let mut speed = Speed::new(false);
        let transfer_ns = 512 * DeviceDescription::FLASH.page_ns() / 2;
        (0..8).for_each(|_| speed.waited(1, 2_000_000 + transfer_ns, 512));
        assert_eq!(speed.description().access_ns, 2_000_000);
    }
}
