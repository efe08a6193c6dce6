//! Pages that programs have changed: dirty, then under writeback, then clean.

use super::{Cache, NODE_PAGES, mask, parts};
use ahead_policy::{FileId, Page};

impl Cache {
    /// Changed pages that are not under writeback.
    pub fn dirty_pages(&self) -> u64 {
        self.dirty_pages
    }

    /// Pages under writeback.
    pub fn writeback_pages(&self) -> u64 {
        self.writeback_pages
    }

    /// Marks pages as dirty. Returns the number of pages that were not dirty. A page that is dirtied under writeback is
    /// written again afterwards.
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

    /// The first page of a file from `from` on that can be written, and the number of such pages in a row, at most
    /// `most`. Such a page is dirty and not under writeback.
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

    /// Moves dirty pages to writeback.
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

    /// Ends the writeback of pages. Returns their number.
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
