//! The kernel's search for the nearest page that is not cached (`page_cache_prev_miss`, `page_cache_next_miss`), with the effect of large folios.
//!
//! The page cache is a tree of nodes with 64 slots. A folio takes the slots of all its pages, at the level of its size, and all of them point to
//! the first. So a lookup of a page within a folio stops at the folio's first slot, with the number of the page. From there each step moves
//! number and slot by one, and the difference stays:
//!
//! ```text
//!     slots of a node    … 14  15 [16  17  18  19] 20  21 …     a folio of four pages at 16
//!     look up page 18               ▲ stops at 16
//!     next, page 19                     ▲ 17
//!     next, page 20                         ▲ 18: page 20 counts as cached, even if it is not
//! ```
//!
//! When a search enters another node, it continues at the slot of its number, with another rule for numbers that do not fit. For the kernel this
//! is only an inexact guess; a policy that must make the same decisions has to reproduce it.
//!
//! Source: include/linux/xarray.h, lib/xarray.c (`xas_load`, `xas_prev`, `__xas_prev`, `xas_next`, `__xas_next`) and
//! mm/filemap.c of Linux 6.12 and 7.2.

use crate::{FileId, Folio, Page, View};

/// A node has 64 slots (`XA_CHUNK_SHIFT`, unless the kernel is built for tiny machines).
const SLOT_BITS: u32 = 6;
const SLOTS: u64 = 1 << SLOT_BITS;
/// Levels for all bits of a page number.
const LEVELS: u32 = 11;

/// The number of pages right before `page` that count as cached, at most `most`.
pub(super) fn history(view: &dyn View, file: FileId, page: Page, most: u64) -> u64 {
    let Some(mut walk) = page.checked_sub(1).and_then(|last| Walk::load(view, file, last)) else { return 0 };
    let mut seen = 1;
    while seen < most && walk.back() {
        seen += 1;
    }
    seen.min(most)
}

/// The first page from `page` on that counts as absent, among `most`.
pub(super) fn hole(view: &dyn View, file: FileId, page: Page, most: u64) -> Option<Page> {
    let Some(mut walk) = Walk::load(view, file, page) else { return (most > 0).then_some(page) };
    for _ in 1..most {
        if !walk.forth() {
            return Some(walk.page);
        }
    }
    None
}

/// The state of a search (`struct xa_state`).
struct Walk<'a> {
    view: &'a dyn View,
    file: FileId,
    page: Page,
    /// Level of the node, 0 at the leaves: a slot represents 64 to the power of this level pages.
    level: u32,
    /// First page of the node.
    node: Page,
    /// Slot in the node.
    slot: u64,
}

impl<'a> Walk<'a> {
    /// Looks up a page; `None`: it is not cached.
    fn load(view: &'a dyn View, file: FileId, page: Page) -> Option<Walk<'a>> {
        let folio = view.folio(file, page)?;
        let level = u32::from(folio.order) / SLOT_BITS;
        let node = node_of(page, level);
        Some(Walk { view, file, page, level, node, slot: slot_of(folio.first, level) })
    }

    /// One step towards the start of the file; returns whether the slot is occupied.
    fn back(&mut self) -> bool {
        let Some(before) = self.page.checked_sub(1) else { return false };
        self.page = before;
        if self.level == 0 && self.slot > 0 {
            self.slot -= 1;
            return self.is_held();
        }
        if self.slot != slot_of(self.page, self.level) {
            if self.slot == 0 {
                // Up to a level with a slot before.
                loop {
                    if self.level + 1 >= LEVELS {
                        return false;
                    }
                    let slot = slot_of(self.node, self.level + 1);
                    self.up();
                    if slot > 0 {
                        self.slot = slot - 1;
                        break;
                    }
                }
            } else {
                self.slot -= 1;
            }
        }
        self.down()
    }

    /// One step towards the end of the file; returns whether the slot is occupied.
    fn forth(&mut self) -> bool {
        self.page += 1;
        if self.level == 0 && self.slot < SLOTS - 1 {
            self.slot += 1;
            return self.is_held();
        }
        if self.slot != slot_of(self.page, self.level) {
            self.slot += 1;
        }
        while self.slot == SLOTS {
            if self.level + 1 >= LEVELS {
                return false;
            }
            self.slot = slot_of(self.node, self.level + 1) + 1;
            self.up();
        }
        self.down()
    }

    fn up(&mut self) {
        self.level += 1;
        self.node = node_of(self.node, self.level);
    }

    /// Down to the leaf, or to the large folio of the slot; returns whether the slot is occupied.
    fn down(&mut self) -> bool {
        loop {
            match self.slot_is_held() {
                Some(is_held) => return is_held,
                None if self.level == 0 => return false,
                None => {
                    self.node += self.slot << (SLOT_BITS * self.level);
                    self.level -= 1;
                    self.slot = slot_of(self.page, self.level);
                }
            }
        }
    }

    fn is_held(&self) -> bool {
        self.slot_is_held().unwrap_or(false)
    }

    /// Whether the slot counts as a present page; `None`: it points to a node below, or is empty. The shadow entry of a large folio takes all of its
    /// slots, too, and only the first one is recognized as a shadow entry.
    fn slot_is_held(&self) -> Option<bool> {
        let first = self.node + (self.slot << (SLOT_BITS * self.level));
        let fills = |folio: &Folio| u32::from(folio.order) >= SLOT_BITS * self.level;
        match self.view.folio(self.file, first) {
            Some(folio) => fills(&folio).then_some(true),
            None => self.view.evicted(self.file, first).filter(fills).map(|gone| gone.first != first),
        }
    }
}

/// First page of the node of this level that a page belongs to.
fn node_of(page: Page, level: u32) -> Page {
    match SLOT_BITS * (level + 1) {
        bits if bits < u64::BITS => page >> bits << bits,
        _ => 0,
    }
}

/// The slot of a page in its node of this level (`get_offset`).
fn slot_of(page: Page, level: u32) -> u64 {
    (page >> (SLOT_BITS * level)) & (SLOTS - 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Request;
    use crate::testing::Cache;

    fn cache(folios: &[(Page, u8)]) -> Cache {
        let mut cache = Cache::new(1 << 20, 32);
        for (first, order) in folios {
            cache.hold(Folio { first: *first, order: *order });
        }
        cache
    }

    #[test]
    fn single_pages_are_counted_one_by_one() {
        let mut cache = Cache::new(1 << 20, 32);
        cache.fill(&Request { first: 60, pages: 10, ..Request::of(FileId(0)) });
        assert_eq!(history(&cache, FileId(0), 70, 32), 10);
        assert_eq!(history(&cache, FileId(0), 70, 4), 4);
        assert_eq!(history(&cache, FileId(0), 60, 32), 0);
        assert_eq!(hole(&cache, FileId(0), 61, 32), Some(70));
        assert_eq!(hole(&cache, FileId(0), 61, 9), None);
        assert_eq!(hole(&cache, FileId(0), 61, 10), Some(70));
        assert_eq!(hole(&cache, FileId(0), 59, 10), Some(59));
    }

    #[test]
    fn a_history_that_reaches_the_beginning_counts_to_it() {
        let cache = cache(&[(0, 2), (4, 0)]);
        assert_eq!(history(&cache, FileId(0), 5, 32), 5);
        assert_eq!(history(&cache, FileId(0), 0, 32), 0);
    }

    #[test]
    fn search_from_the_middle_of_a_folio_lags_by_its_earlier_pages() {
        let cache = cache(&[(16, 2), (20, 0)]);
        // From 18 on, at slot 16: pages 19 to 22 are read at 17 to 20, and 23 at 21.
        assert_eq!(hole(&cache, FileId(0), 18, 32), Some(23));
        // Backwards from 18, at slot 16: 17 is read at 15.
        assert_eq!(history(&cache, FileId(0), 19, 32), 1);
        assert_eq!(history(&cache, FileId(0), 20, 32), 1);
        assert_eq!(history(&cache, FileId(0), 17, 32), 1);
        assert_eq!(history(&cache, FileId(0), 21, 32), 5);
    }

    #[test]
    fn lagging_search_continues_at_its_page_number_in_the_next_node() {
        // From 62 on, at slot 60: 63 at 61, 64 at 62, 65 at 63, then 66 at its own slot of the next node.
        let held = cache(&[(60, 2), (66, 1)]);
        assert_eq!(hole(&held, FileId(0), 62, 32), Some(68));
        assert_eq!(hole(&cache(&[(60, 2), (64, 1)]), FileId(0), 62, 32), Some(66));
    }

    #[test]
    fn folios_that_fill_a_node_are_one_level_higher() {
        let held = cache(&[(64, 6), (128, 7)]);
        assert_eq!(history(&held, FileId(0), 128, 512), 64);
        assert_eq!(hole(&held, FileId(0), 64, 512), Some(256));
        assert_eq!(hole(&held, FileId(0), 64, 192), None);
    }
}
