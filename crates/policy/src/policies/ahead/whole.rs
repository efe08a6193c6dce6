//! Reads that no pattern foretells: when it pays to read the whole file meanwhile, and how much of it at a time.
//!
//! While a reader waits for a single page, the disk could transfer many: as many as its bandwidth carries in the time of an
//! access. Who does not know whether the reads at random will go on spends on the rest of the file as much of the disk's time
//! as the reader has waited for it so far (the rule of the ski rental: Karlin, Manasse, Rudolph and Sleator 1988), so that at
//! most half of the time is in vain; and on a disk that serves several requests at once it is no time at all, for it lay idle.
//!
//! ```text
//!     misses     |──access──|─|──access──|─|──access──|─|        each waits for one page
//!     the rest       ■■■■■■■■■   ■■■■■■■■■   ■■■■■■■■■           as many pages as fit into the wait, front to back
//! ```
//!
//! A disk that serves one request at a time has no idle time: there the rest is begun when the waits have taken as long as all
//! of it takes to transfer. What is read must fit into the budget as a whole; of a larger file nothing is read. And it
//! stops when accesses meet what was read clearly less often than chance would have it.

use crate::{DeviceTraits, Page};
use std::collections::BTreeMap;

/// So many reads without a pattern are waited for before anything is read: so many patterns may begin at the same time, two
/// reads each, until they have shown.
const START: u64 = 12;
const START_SHARE: u64 = 8;
/// The rest is no longer read when as many accesses should have met it by chance, and fewer than half did.
const DOUBTS: f64 = 8.0;

/// Pages that were asked for and not used yet: a bit each, by nodes of 64.
#[derive(Clone, Debug, Default)]
struct Unread {
    nodes: BTreeMap<u64, u64>,
    pages: u64,
}

impl Unread {
    fn put(&mut self, page: Page) {
        let bit = 1 << (page % 64);
        let node = self.nodes.entry(page / 64).or_default();
        self.pages += u64::from(*node & bit == 0);
        *node |= bit;
    }

    /// Takes pages out; gives how many there were.
    fn take(&mut self, first: Page, pages: u64) -> u64 {
        if self.pages == 0 || pages == 0 {
            return 0;
        }
        let (mut taken, end) = (0, first.saturating_add(pages));
        for (number, node) in self.nodes.range_mut(first / 64..end.div_ceil(64)) {
            let from = first.saturating_sub(number * 64);
            let length = (end - number * 64).min(64) - from;
            let mask = (u64::MAX >> (64 - length)) << from;
            taken += u64::from((*node & mask).count_ones());
            *node &= !mask;
        }
        if taken > 0 {
            self.nodes.retain(|_, node| *node != 0);
        }
        self.pages -= taken;
        taken
    }
}

/// The reading of a whole file.
#[derive(Clone, Debug, Default)]
pub(super) struct Whole {
    /// Accesses without a pattern, and how long the disk could have read other things while they were waited for.
    unforeseen: u64,
    idle_ns: u64,
    /// Everything before this page was asked for.
    next: Page,
    /// Pages that are not asked for yet, once it has begun.
    rest: Option<u64>,
    unread: Unread,
    /// How often what was read should have been met by chance, and how often it was.
    expected: f64,
    met: f64,
}

impl Whole {
    /// Pages that were asked for here and not used yet, and, once it has begun, those that will be.
    pub fn claims(&self) -> u64 {
        self.unread.pages + self.rest.unwrap_or(0)
    }

    /// Pages are used or evicted; gives how many of them had been asked for here.
    pub fn take(&mut self, first: Page, pages: u64) -> u64 {
        self.unread.take(first, pages)
    }

    /// An access that no pattern foretold; `met`: it was asked for here, and the wait that it saved is to be spent, too.
    pub fn unforeseen(&mut self, met: bool, file_pages: u64, device: &DeviceTraits) {
        if met {
            self.idle(device.access_ns);
        }
        self.unforeseen += 1;
        self.expected += (self.unread.pages + u64::from(met)) as f64 / file_pages.max(1) as f64;
        self.met += f64::from(u8::from(met));
    }

    /// Some of them are explained by now.
    pub fn explained(&mut self, accesses: u64, idle_ns: u64) {
        self.unforeseen = self.unforeseen.saturating_sub(accesses);
        self.idle_ns = self.idle_ns.saturating_sub(idle_ns);
    }

    /// The disk could have read something else for so long.
    pub fn idle(&mut self, idle_ns: u64) {
        self.idle_ns = self.idle_ns.saturating_add(idle_ns);
    }

    /// Whether it pays to read what nobody has asked for, in groups of so many pages, and there is room.
    pub fn pays(&mut self, file_pages: u64, group: u64, room: u64) -> bool {
        if self.expected >= DOUBTS && self.met < self.expected / 2.0 {
            self.rest = Some(0);
            return false;
        }
        if self.rest.is_none() && self.unforeseen > START.min(file_pages / group / START_SHARE) && file_pages <= room {
            self.rest = Some(file_pages);
        }
        self.rest.is_some_and(|rest| rest > 0)
    }

    /// A part of the file is asked for.
    pub fn part(&mut self, pages: u64) {
        self.rest = self.rest.map(|rest| rest.saturating_sub(pages));
    }

    /// The next part of the file to be read beside.
    pub fn next(&mut self, file_pages: u64, most: u64, device: &DeviceTraits) -> Option<(Page, u64)> {
        let rest = file_pages.saturating_sub(self.next);
        let paid = self.idle_ns / device.page_ns().max(1);
        let pages = paid.min(most).min(rest);
        if rest == 0 || pages < device.pages_per_access().div_ceil(2).min(rest) {
            return None;
        }
        self.idle_ns -= pages.saturating_mul(device.page_ns()).min(self.idle_ns);
        let first = self.next;
        self.next += pages;
        Some((first, pages))
    }

    /// So many of them were not cached, and are asked for now.
    pub fn ask(&mut self, pages: impl Iterator<Item = Page>) {
        pages.for_each(|page| self.unread.put(page));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_are_taken_out_once() {
        let mut unread = Unread::default();
        (60..200).for_each(|page| unread.put(page));
        unread.put(60);
        assert_eq!(unread.pages, 140);
        assert_eq!([unread.take(0, 60), unread.take(63, 3), unread.take(63, 3), unread.take(190, 100)], [0, 3, 0, 10]);
        assert_eq!((unread.pages, unread.take(0, u64::MAX / 2)), (127, 127));
        assert!(unread.nodes.is_empty());
    }

    fn reader(device: DeviceTraits, file_pages: u64, room: u64, misses: u64) -> Vec<(Page, u64)> {
        let mut whole = Whole::default();
        let next = |_| {
            whole.unforeseen(false, file_pages, &device);
            whole.idle(device.access_ns);
            whole.next(file_pages, room, 1 << 20, device.parallelism > 1, &device)
        };
        (0..misses).filter_map(next).collect()
    }

    const SERIAL: DeviceTraits =
        DeviceTraits { access_ns: 8_000_000, bandwidth_bytes_per_s: 100e6, parallelism: 1, request_ns: 0 };

    #[test]
    fn what_lay_idle_is_used_where_requests_are_served_side_by_side() {
        let device = DeviceTraits { parallelism: 8, ..SERIAL };
        // 195 pages fit into an access.
        let parts = reader(device, 10_000, 10_000, 30);
        assert_eq!(parts[0].0, 0);
        assert!(parts.windows(2).all(|pair| pair[0].0 + pair[0].1 == pair[1].0), "{parts:?}");
        let all: u64 = parts.iter().map(|(_, pages)| pages).sum();
        assert!((29 * 195..=30 * 196).contains(&all), "{all}");
    }

    #[test]
    fn a_serial_disk_is_waited_for_as_long_as_the_file_takes() {
        // 10,000 pages are 51 accesses' worth.
        assert_eq!(reader(SERIAL, 10_000, 10_000, 51), []);
        assert_eq!(reader(SERIAL, 10_000, 10_000, 53).first(), Some(&(0, 10_000)));
    }

    #[test]
    fn a_file_without_room_is_not_read() {
        assert_eq!(reader(DeviceTraits { parallelism: 8, ..SERIAL }, 10_000, 9_999, 1000), []);
    }

    #[test]
    fn what_is_not_met_is_not_gone_on_with() {
        let device = DeviceTraits { parallelism: 8, ..SERIAL };
        let mut whole = Whole::default();
        let mut asked = 0;
        for _ in 0..10_000 {
            whole.unforeseen(false, 100_000, &device);
            whole.idle(device.access_ns);
            if let Some((first, pages)) = whole.next(100_000, 200_000, 1 << 20, true, &device) {
                whole.ask(first..first + pages);
                asked += pages;
            }
        }
        assert!((1000..50_000).contains(&asked), "{asked}");
    }
}
