//! Reclaim: the two lists, and the choice of the folios that are evicted.
//!
//! A folio is one element of a list, represented by its first page. The bits of this page (referenced, active, young)
//! are those of the folio. The stamp of this page names the entry that is valid for the folio. A single page is a folio
//! of one page.

use super::{BATCH_PAGES, Cache, Entry, Evicted, NODE_PAGES, Node, Use, bits, mask, parts};
use ahead_policy::{FileId, Page};

impl Node {
    /// The pages of folios that are given by their first pages.
    fn pages_of(&self, heads: u64) -> u64 {
        let large = bits(heads & self.large).map(|bit| 1 << self.order[bit as usize]).sum::<u64>();
        u64::from((heads & !self.large).count_ones()) + large
    }

    /// The folios for which an entry is still valid.
    fn valid(&self, entry: Entry) -> u64 {
        let pages = entry.pages & self.present;
        let overtaken = bits(pages).filter(|bit| self.stamp[*bit as usize] != entry.stamp);
        overtaken.fold(pages, |valid, bit| valid & !(1 << bit))
    }

    fn set_stamp(&mut self, heads: u64, stamp: u32) {
        bits(heads).for_each(|bit| self.stamp[bit as usize] = stamp);
    }
}

impl Cache {
    fn activate(&mut self, id: u32, heads: u64) {
        let stamp = self.stamp();
        let node = &mut self.nodes[id as usize];
        node.active |= heads;
        node.referenced &= !heads;
        node.set_stamp(heads, stamp);
        let count = node.pages_of(heads);
        self.inactive_pages -= count;
        self.active_pages += count;
        self.active.push_back(Entry { node: id, pages: heads, stamp });
    }

    /// The first pages of the large folios that contain these pages of a node. A folio that begins in an earlier node
    /// is left out if the range began there, too: the earlier node's call returned it.
    fn heads(&self, id: u32, large: u64, range_first: Page) -> Vec<(u32, u64)> {
        let node = &self.nodes[id as usize];
        let base = node.number * NODE_PAGES;
        let (mut rest, mut heads) = (large, Vec::new());
        while rest != 0 {
            let page = base + u64::from(rest.trailing_zeros());
            let order = node.order[(page - base) as usize];
            let (first, end) = (page >> order << order, (page >> order << order) + (1 << order));
            rest &= !mask(page - base, end.min(base + NODE_PAGES) - page);
            if first >= base {
                heads.push((id, 1 << (first - base)));
            } else if range_first >= base
                && let Some(head) = self.id(node.file, first / NODE_PAGES)
            {
                heads.push((head, 1 << (first % NODE_PAGES)));
            }
        }
        heads
    }

    /// Uses the folios that have pages in this node.
    pub(super) fn use_folios(&mut self, id: u32, pages: u64, range_first: Page, by: Use) {
        let large = pages & self.nodes[id as usize].large;
        self.use_heads(id, pages & !large, by);
        if large != 0 {
            for (id, head) in self.heads(id, large, range_first) {
                self.use_heads(id, head, by);
            }
        }
    }

    fn use_heads(&mut self, id: u32, heads: u64, by: Use) {
        let node = &mut self.nodes[id as usize];
        if by == Use::Mapped {
            node.young |= heads;
            return;
        }
        let again = node.referenced & heads & !node.active;
        node.referenced |= heads;
        if again != 0 {
            self.activate(id, again);
        }
    }

    /// Moves folios of the inactive list to its new end.
    pub fn rescue(&mut self, file: FileId, first: Page, pages: u64) {
        for (number, offset, length) in parts(first, pages) {
            let Some(id) = self.id(file, number) else { continue };
            let present = mask(offset, length) & self.nodes[id as usize].present;
            let large = present & self.nodes[id as usize].large;
            let mut list = vec![(id, present & !large)];
            list.extend(self.heads(id, large, first));
            for (id, heads) in list {
                let stamp = self.stamp();
                let node = &mut self.nodes[id as usize];
                let heads = heads & !node.active & !node.locked;
                self.added_pages += node.pages_of(heads);
                node.set_stamp(heads, stamp);
                self.inactive.push_back(Entry { node: id, pages: heads, stamp });
            }
        }
    }

    /// Evicts until the cache has room for `pages` more pages, or nothing else can be evicted.
    pub fn make_room(&mut self, pages: u64, evicted: &mut Vec<Evicted>) {
        // The cache looks at every entry at most twice: the first look can keep the entry, the second evicts it.
        let mut left = 2 * (self.inactive.len() + self.active.len()) + 2;
        while self.pages() + pages > self.limit_pages && left > 0 && self.has_evictable() {
            self.balance();
            let Some(entry) = self.inactive.pop_front() else { return };
            left -= 1;
            self.shrink(entry, evicted);
        }
    }

    /// Whether any page can be evicted. If all of the memory is in flight, a scan of the lists for each request would
    /// grow with the amount of memory.
    fn has_evictable(&self) -> bool {
        self.locked_pages + self.dirty_pages + self.writeback_pages < self.pages()
    }

    /// Moves folios from the active list to the inactive list while the active list is longer. (Below a gigabyte the
    /// kernel keeps the lists equal.)
    fn balance(&mut self) {
        let mut moved = 0;
        while self.inactive_pages < self.active_pages && moved < BATCH_PAGES {
            let Some(entry) = self.active.pop_front() else { return };
            let stamp = self.stamp();
            let node = &mut self.nodes[entry.node as usize];
            let valid = node.valid(entry) & node.active;
            node.active &= !valid;
            node.set_stamp(valid, stamp);
            let count = node.pages_of(valid);
            self.active_pages -= count;
            self.inactive_pages += count;
            self.added_pages += count;
            moved += count;
            if valid != 0 {
                self.inactive.push_back(Entry { node: entry.node, pages: valid, stamp });
            }
        }
    }

    /// Evicts, keeps or activates the folios of the oldest entry of the inactive list.
    fn shrink(&mut self, entry: Entry, evicted: &mut Vec<Evicted>) {
        let node = &self.nodes[entry.node as usize];
        let valid = node.valid(entry) & !node.active;
        if valid == 0 {
            return;
        }
        // A held folio, or one used through a mapping, stays for another round. A mapped folio that was used twice
        // becomes active.
        let held = node.held() & !node.large | self.held_folios(entry.node, valid & node.large);
        let stamp = self.stamp();
        let node = &mut self.nodes[entry.node as usize];
        let young = valid & node.young & !held;
        let again = young & node.referenced;
        let kept = (valid & held) | (young & !again);
        node.young &= !young;
        node.referenced |= young;
        node.set_stamp(kept, stamp);
        let out = valid & !kept & !again;
        if kept != 0 {
            self.inactive.push_back(Entry { node: entry.node, pages: kept, stamp });
        }
        if again != 0 {
            self.activate(entry.node, again);
        }
        self.evict(entry.node, out, evicted);
    }

    /// The large folios that contain a page which cannot be evicted.
    fn held_folios(&self, id: u32, heads: u64) -> u64 {
        let node = &self.nodes[id as usize];
        let is_held = |bit: &u32| {
            let first = node.number * NODE_PAGES + u64::from(*bit);
            let pages = 1 << node.order[*bit as usize];
            self.run(node.file, first, first + pages, |node| node.present & !node.held()) < pages
        };
        bits(heads).filter(is_held).fold(0, |held, bit| held | 1 << bit)
    }

    /// Evicts folios of the inactive list as a whole, including their pages in other nodes.
    fn evict(&mut self, id: u32, heads: u64, evicted: &mut Vec<Evicted>) {
        let node = &self.nodes[id as usize];
        let (file, base) = (node.file, node.number * NODE_PAGES);
        self.inactive_pages -= node.pages_of(heads);
        let large: Vec<(Page, u64)> =
            bits(heads & node.large).map(|bit| (base + u64::from(bit), 1 << node.order[bit as usize])).collect();
        self.drop_pages(id, heads & !node.large, evicted);
        for (first, pages) in large {
            for (number, offset, length) in parts(first, pages) {
                if let Some(id) = self.id(file, number) {
                    self.drop_pages(id, mask(offset, length), evicted);
                }
            }
        }
    }

    /// Removes pages from a node.
    fn drop_pages(&mut self, id: u32, pages: u64, evicted: &mut Vec<Evicted>) {
        let node = &mut self.nodes[id as usize];
        let gone = pages & node.present;
        if gone == 0 {
            return;
        }
        let first = node.number * NODE_PAGES;
        evicted.push(Evicted { file: node.file, first, pages: gone, unused: gone & node.unused });
        for field in [
            &mut node.present,
            &mut node.large,
            &mut node.marked,
            &mut node.unused,
            &mut node.referenced,
            &mut node.active,
            &mut node.mapped,
            &mut node.young,
        ] {
            *field &= !gone;
        }
        if node.present == 0 {
            self.index.remove(&(node.file, node.number));
            self.spare.push(id);
        }
    }
}
