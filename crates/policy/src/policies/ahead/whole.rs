//! Accesses without a pattern: whether to read other pages of the file, too, and which.
//!
//! While a reader waits for a single page, the disk could transfer a *group*: the pages that its bandwidth carries in the time of
//! an access. A policy that reads a group for each miss wastes at most half of the disk's time (Li and others, 2007). It
//! misses each group once, if all pages stay cached.
//!
//! ```text
//!     one request at a time     |──access──■■■■■■■■■|─|──access──■■■■■■■■■|─|    the group around the missed page
//!
//!     several at the same time  |──access──|─|──access──|─|──access──|─|         each waits for its own pages
//!                                   ■■■■■■■■■   ■■■■■■■■■   ■■■■■■■■■            as many as fit into the waits so far,
//!                                                                                front to back
//! ```
//!
//! A few misses do not justify many reads. Reading begins after an eighth of the misses that the whole file would cost by groups,
//! and after the thirteenth miss at the latest. The whole file must fit into the budget, and keeps its room there; of a larger
//! file nothing is read. Reading stops if accesses hit the pages read clearly less often than random accesses would.

use crate::{DeviceDescription, Page};
use std::collections::BTreeMap;

/// Maximum number of accesses without a pattern before other pages are read: patterns that begin at the same time need two
/// accesses each until they are confirmed.
const START: u64 = 12;
/// Alternatively, this part of the misses that the whole file would cost: one in eight. A reader that ends earlier has lost
/// nothing. A reader of the whole file has lost little.
const START_SHARE: u64 = 8;
/// Reading stops if random accesses would have hit this number of the pages read, and the reader's accesses hit less than half
/// of it.
const DOUBTS: f64 = 8.0;

/// Requested pages that are unused: a bitmap, by nodes of 64.
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

    /// Removes pages; returns the number of removed ones.
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

/// The state of reading a whole file.
#[derive(Clone, Debug, Default)]
pub(super) struct Whole {
    /// Accesses without a pattern, and the disk's idle time during their waits.
    unforeseen: u64,
    idle_ns: u64,
    /// All pages before this one were requested.
    next: Page,
    /// Pages that are not requested yet; `None`: reading has not begun.
    rest: Option<u64>,
    unread: Unread,
    /// Expected hits of random accesses on the pages read, and the hits of the reader's accesses.
    expected: f64,
    met: f64,
}

impl Whole {
    /// Unused pages that were requested here, and the remaining pages if reading has begun.
    pub fn claims(&self) -> u64 {
        self.unread.pages + self.rest.unwrap_or(0)
    }

    /// Removes used or evicted pages; returns how many of them had been requested here.
    pub fn take(&mut self, first: Page, pages: u64) -> u64 {
        self.unread.take(first, pages)
    }

    /// Counts an access that no pattern predicted. `met`: its page had been requested here; the saved wait counts as idle time, too.
    pub fn unforeseen(&mut self, met: bool, file_pages: u64, device: &DeviceDescription) {
        if met {
            self.idle(device.access_ns);
        }
        self.unforeseen += 1;
        self.expected += (self.unread.pages + u64::from(met)) as f64 / file_pages.max(1) as f64;
        self.met += f64::from(u8::from(met));
    }

    /// Subtracts accesses that a pattern explains meanwhile.
    pub fn explained(&mut self, accesses: u64, idle_ns: u64) {
        self.unforeseen = self.unforeseen.saturating_sub(accesses);
        self.idle_ns = self.idle_ns.saturating_sub(idle_ns);
    }

    /// Adds idle time of the disk.
    pub fn idle(&mut self, idle_ns: u64) {
        self.idle_ns = self.idle_ns.saturating_add(idle_ns);
    }

    /// Whether reading pages that the program has not accessed pays. `room`: additional pages that may be unread.
    fn pays(&mut self, file_pages: u64, room: u64, group: u64) -> bool {
        if self.expected >= DOUBTS && self.met < self.expected / 2.0 {
            self.rest = Some(0);
        }
        let start = START.min(file_pages / group / START_SHARE);
        if self.rest.is_none() && self.unforeseen > start && file_pages <= room {
            self.rest = Some(file_pages);
        }
        self.rest.is_some_and(|rest| rest > 0)
    }

    /// The pages to read at a miss of this page, if that pays: first page and length. `room`: additional pages that may be unread;
    /// `beside`: the disk can serve them at the same time; `most`: maximum length in that case.
    pub fn part(
        &mut self,
        page: Page,
        file_pages: u64,
        room: u64,
        beside: bool,
        most: u64,
        device: &DeviceDescription,
    ) -> Option<(Page, u64)> {
        let group = device.pages_per_access();
        if page >= file_pages || !self.pays(file_pages, room, group) {
            return None;
        }
        let (first, pages) = if beside {
            self.next(file_pages, most, device)?
        } else {
            let first = page - page % group;
            (first, group.min(file_pages - first))
        };
        self.rest = self.rest.map(|rest| rest.saturating_sub(pages));
        Some((first, pages))
    }

    /// The next part of the file in ascending order, if there was enough idle time.
    fn next(&mut self, file_pages: u64, most: u64, device: &DeviceDescription) -> Option<(Page, u64)> {
        let rest = file_pages.saturating_sub(self.next);
        let pages = (self.idle_ns / device.page_ns().max(1)).min(most).min(rest);
        if rest == 0 || pages < device.pages_per_access().div_ceil(2).min(rest) {
            return None;
        }
        self.idle_ns -= pages.saturating_mul(device.page_ns()).min(self.idle_ns);
        let first = self.next;
        self.next += pages;
        Some((first, pages))
    }

    /// Adds requested pages, which are not cached.
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

    /// Random misses in a file of 10,000 pages; returns the requested pages.
    fn reader(device: DeviceDescription, room: u64, misses: u64) -> Vec<(Page, u64)> {
        let mut whole = Whole::default();
        let next = |miss| {
            whole.unforeseen(false, 10_000, &device);
            whole.idle(device.access_ns);
            whole.part(miss * 7919 % 10_000, 10_000, room, device.parallelism > 1, 1 << 20, &device)
        };
        (0..misses).filter_map(next).collect()
    }

    const SERIAL: DeviceDescription = DeviceDescription {
        access_ns: 8_000_000,
        bandwidth_bytes_per_s: 100e6,
        parallelism: 1,
        request_ns: 0,
        ..DeviceDescription::WU_2010
    };

    #[test]
    fn idle_device_time_is_used_if_requests_are_served_in_parallel() {
        let device = DeviceDescription { parallelism: 8, ..SERIAL };
        // 195 pages fit into an access.
        let parts = reader(device, 10_000, 30);
        assert_eq!(parts[0].0, 0);
        assert!(parts.windows(2).all(|pair| pair[0].0 + pair[0].1 == pair[1].0), "{parts:?}");
        let all: u64 = parts.iter().map(|(_, pages)| pages).sum();
        assert!((29 * 195..=30 * 196).contains(&all), "{all}");
    }

    #[test]
    fn serial_disk_reads_the_group_around_the_missed_page() {
        // 10,000 pages are 51 groups of 195: reading begins after six misses.
        assert_eq!(reader(SERIAL, 10_000, 6), []);
        let parts = reader(SERIAL, 10_000, 8);
        let around = |miss: u64| miss * 7919 % 10_000 / 195 * 195;
        assert_eq!(parts, [(around(6), 195), (around(7), 195)]);
    }

    #[test]
    fn a_file_without_room_is_not_read() {
        assert_eq!(reader(DeviceDescription { parallelism: 8, ..SERIAL }, 9_999, 1000), []);
        assert_eq!(reader(SERIAL, 9_999, 1000), []);
    }

    #[test]
    fn begun_whole_file_reserves_its_budget() {
        let mut whole = Whole::default();
        assert_eq!((whole.claims(), whole.part(0, 100, 100, false, 1, &SERIAL)), (0, None));
        whole.unforeseen(false, 100, &SERIAL);
        assert_eq!(whole.part(99, 100, 100, false, 1, &SERIAL), Some((0, 100)));
        whole.ask(0..99);
        assert_eq!(whole.claims(), 99);
    }

    #[test]
    fn whole_file_reading_stops_if_accesses_miss_its_pages() {
        let device = DeviceDescription { parallelism: 8, ..SERIAL };
        let mut whole = Whole::default();
        let mut asked = 0;
        for _ in 0..10_000 {
            whole.unforeseen(false, 100_000, &device);
            whole.idle(device.access_ns);
            if let Some((first, pages)) = whole.part(0, 100_000, 200_000, true, 1 << 20, &device) {
                whole.ask(first..first + pages);
                asked += pages;
            }
        }
        assert!((1000..50_000).contains(&asked), "{asked}");
    }
}
