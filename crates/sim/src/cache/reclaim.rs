//! Which pages stay and which go: the two lists, and what is evicted from them.

use super::{BATCH_PAGES, Cache, Entry, Evicted, NODE_PAGES, Node, bits, mask, parts};
use ahead_policy::{FileId, Found, Page};

impl Cache {
    pub(super) fn activate(&mut self, id: u32, pages: u64) {
        let stamp = self.stamp();
        let node = &mut self.nodes[id as usize];
        node.active |= pages;
        node.referenced &= !pages;
        bits(pages).for_each(|bit| node.stamp[bit as usize] = stamp);
        let count = u64::from(pages.count_ones());
        self.inactive_pages -= count;
        self.active_pages += count;
        self.active.push_back(Entry { node: id, pages, stamp });
    }

    /// Puts pages that are on the inactive list to its new end.
    pub fn rescue(&mut self, file: FileId, first: Page, pages: u64) {
        for (number, offset, length) in parts(first, pages) {
            let Some(id) = self.index.get(&(file, number)).copied() else { continue };
            let stamp = self.stamp();
            let node = &mut self.nodes[id as usize];
            let pages = mask(offset, length) & node.present & !node.active & !node.locked;
            self.added_pages += u64::from(pages.count_ones());
            bits(pages).for_each(|bit| node.stamp[bit as usize] = stamp);
            self.inactive.push_back(Entry { node: id, pages, stamp });
        }
    }

    /// Evicts until so many pages more fit, as far as there is anything to evict.
    pub fn make_room(&mut self, pages: u64, evicted: &mut Vec<Evicted>) {
        // Every entry may be looked at twice: once to be given another round, once to go.
        let mut left = 2 * (self.inactive.len() + self.active.len()) + 2;
        while self.pages() + pages > self.limit_pages && left > 0 {
            self.balance();
            let Some(entry) = self.inactive.pop_front() else { return };
            left -= 1;
            self.shrink(entry, evicted);
        }
    }

    /// Takes pages from the active list while it is the longer one. (Below a gigabyte the kernel wants them equal.)
    fn balance(&mut self) {
        let mut moved = 0;
        while self.inactive_pages < self.active_pages && moved < BATCH_PAGES {
            let Some(entry) = self.active.pop_front() else { return };
            let stamp = self.stamp();
            let node = &mut self.nodes[entry.node as usize];
            let valid = Self::valid(node, entry) & node.active;
            node.active &= !valid;
            bits(valid).for_each(|bit| node.stamp[bit as usize] = stamp);
            let count = u64::from(valid.count_ones());
            self.active_pages -= count;
            self.inactive_pages += count;
            self.added_pages += count;
            moved += count;
            if valid != 0 {
                self.inactive.push_back(Entry { node: entry.node, pages: valid, stamp });
            }
        }
    }

    /// The pages that an entry still holds for.
    fn valid(node: &Node, entry: Entry) -> u64 {
        let holds = bits(entry.pages & node.present).filter(|bit| node.stamp[*bit as usize] == entry.stamp);
        holds.fold(0, |mask, bit| mask | 1 << bit)
    }

    /// Looks at the oldest entry of the inactive list.
    fn shrink(&mut self, entry: Entry, evicted: &mut Vec<Evicted>) {
        let stamp = self.stamp();
        let node = &mut self.nodes[entry.node as usize];
        let valid = Self::valid(node, entry) & !node.active;
        // Not to be evicted, or used through a mapping: another round. A mapped page that was used twice is active.
        let held = node.held();
        let young = valid & node.young & !held;
        let again = young & node.referenced;
        let kept = (valid & held) | (young & !again);
        node.young &= !young;
        node.referenced |= young;
        bits(kept).for_each(|bit| node.stamp[bit as usize] = stamp);
        let out = valid & !kept & !again;
        if kept != 0 {
            self.inactive.push_back(Entry { node: entry.node, pages: kept, stamp });
        }
        if again != 0 {
            self.activate(entry.node, again);
        }
        self.evict(entry.node, out, evicted);
    }

    /// A folio goes as a whole, also where it reaches into other nodes.
    fn evict(&mut self, id: u32, pages: u64, evicted: &mut Vec<Evicted>) {
        let (file, base) = (self.nodes[id as usize].file, self.nodes[id as usize].number * NODE_PAGES);
        for bit in bits(pages) {
            let page = base + u64::from(bit);
            let Found::Present { folio, .. } = self.found(file, page) else { continue };
            if folio.order == 0 {
                self.drop_pages(file, page, 1, evicted);
            } else if self.run(file, folio.first, folio.range().end, |node| node.present & !node.held())
                == folio.pages()
            {
                self.drop_pages(file, folio.first, folio.pages(), evicted);
            } else {
                // A part of it is still on its way: another round.
                let stamp = self.nodes[id as usize].stamp[bit as usize];
                self.inactive.push_back(Entry { node: id, pages: 1 << bit, stamp });
            }
        }
    }

    /// Takes pages out.
    fn drop_pages(&mut self, file: FileId, first: Page, pages: u64, evicted: &mut Vec<Evicted>) {
        for (number, offset, length) in parts(first, pages) {
            let Some(id) = self.index.get(&(file, number)).copied() else { continue };
            let node = &mut self.nodes[id as usize];
            let gone = mask(offset, length) & node.present;
            evicted.extend(bits(gone).map(|bit| Evicted {
                file,
                page: number * NODE_PAGES + u64::from(bit),
                unused: node.unused >> bit & 1 == 1,
            }));
            let active = u64::from((node.active & gone).count_ones());
            self.active_pages -= active;
            self.inactive_pages -= u64::from(gone.count_ones()) - active;
            for field in [
                &mut node.present,
                &mut node.locked,
                &mut node.marked,
                &mut node.unused,
                &mut node.referenced,
                &mut node.active,
                &mut node.mapped,
                &mut node.pinned,
                &mut node.young,
            ] {
                *field &= !gone;
            }
            if node.present == 0 {
                self.index.remove(&(file, number));
                self.spare.push(id);
            }
        }
    }
}
