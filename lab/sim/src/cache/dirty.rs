//! Pages that programs have changed: dirty, then on their way to the disk, then clean.

use super::{Cache, NODE_PAGES, mask, parts};
use ahead_policy::{FileId, Page};

impl Cache {
    /// Pages that were changed and are not on their way to the disk.
    pub fn dirty_pages(&self) -> u64 {
        self.dirty_pages
    }

    /// Pages that are on their way to the disk.
    pub fn writeback_pages(&self) -> u64 {
        self.writeback_pages
    }

    /// Pages are changed; gives how many of them were not dirty. One that is on its way to the disk will have to go
    /// again.
    pub fn make_dirty(&mut self, file: FileId, first: Page, pages: u64) -> u64 {
        let mut fresh = 0;
        for (number, offset, length) in parts(first, pages) {
            let Some(id) = self.id(file, number) else { continue };
            let node = &mut self.nodes[id as usize];
            let changed = mask(offset, length) & node.present & !node.dirty;
            node.dirty |= changed;
            fresh += u64::from(changed.count_ones());
            if changed != 0 {
                self.dirty_nodes.insert((file, number));
            }
        }
        self.dirty_pages += fresh;
        fresh
    }

    /// The first page of a file from `from` on that may go to the disk, and how many in a row may, at most `most`:
    /// dirty, and not on its way there already.
    pub fn next_dirty(&self, file: FileId, from: Page, most: u64) -> Option<(Page, u64)> {
        let first_number = from / NODE_PAGES;
        for (_, number) in self.dirty_nodes.range((file, first_number)..=(file, u64::MAX)) {
            let Some(node) = self.node(file, *number) else { continue };
            let skipped = if *number == first_number { from % NODE_PAGES } else { 0 };
            let dirty = (node.dirty & !node.writeback) >> skipped << skipped;
            if dirty != 0 {
                let first = number * NODE_PAGES + u64::from(dirty.trailing_zeros());
                return Some((
                    first,
                    self.run(file, first, first.saturating_add(most), |node| node.dirty & !node.writeback),
                ));
            }
        }
        None
    }

    /// Dirty pages go to the disk.
    pub fn begin_writeback(&mut self, file: FileId, first: Page, pages: u64) {
        for (number, offset, length) in parts(first, pages) {
            let Some(id) = self.id(file, number) else { continue };
            let node = &mut self.nodes[id as usize];
            let sent = mask(offset, length) & node.dirty & !node.writeback;
            node.dirty &= !sent;
            node.writeback |= sent;
            self.dirty_pages -= u64::from(sent.count_ones());
            self.writeback_pages += u64::from(sent.count_ones());
            if node.dirty == 0 {
                self.dirty_nodes.remove(&(file, number));
            }
        }
    }

    /// Whether a file has dirty pages.
    pub fn has_dirty(&self, file: FileId) -> bool {
        self.dirty_nodes.range((file, 0)..=(file, u64::MAX)).next().is_some()
    }

    /// The disk has them; gives how many.
    pub fn end_writeback(&mut self, file: FileId, first: Page, pages: u64) -> u64 {
        let mut written = 0;
        self.change(file, first, pages, |node, mask| {
            written += u64::from((node.writeback & mask).count_ones());
            node.writeback &= !mask;
        });
        self.writeback_pages -= written;
        written
    }
}
