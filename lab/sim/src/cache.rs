//! The page cache: the state of each page (cached, in flight, marked, used), and eviction when memory is short.
//!
//! The cache keeps the pages of a file in nodes of 64, one bit per page and property. So a run of pages costs a few
//! operations. Two lists of entries hold the order of eviction, oldest first. An entry is a node and some of its
//! folios:
//!
//! ```text
//!     read ──▶ inactive list ──────────────▶ evicted           used once or not at all
//!                    │ used again                              (a mapped page that was used gets another round)
//!                    ▼
//!              active list ──▶ back to inactive, when the active list is the longer one
//! ```
//!
//! An entry is valid for a folio while the folio carries the entry's stamp; the cache skips an
//! outdated entry. So the cache never searches a list. It uses, ages and evicts a folio as one unit, but reports
//! for each of its pages whether a process used it.
//!
//! Source: mm/vmscan.c and mm/swap.c of Linux without generations (MGLRU off): `folio_mark_accessed`,
//! `shrink_folio_list`, `inactive_is_low`. Memory beside the page cache is not modelled.

mod dirty;
mod reclaim;
#[cfg(test)]
mod tests;

use ahead_policy::{FileId, Folio, Found, Page};
use rustc_hash::FxHashMap;
use std::cell::Cell;
use std::collections::{BTreeSet, VecDeque};

/// Pages in a node.
const NODE_PAGES: u64 = 64;
/// Pages reclaimed in one batch (`SWAP_CLUSTER_MAX`).
const BATCH_PAGES: u64 = 32;

/// 64 consecutive pages of a file, one bit for each.
#[derive(Clone, Debug)]
struct Node {
    file: FileId,
    number: u64,
    /// Cached or in flight.
    present: u64,
    /// In flight: the disk is reading the page.
    locked: u64,
    /// Has a policy's mark.
    marked: u64,
    /// No process has used it yet.
    unused: u64,
    /// Used once (`PG_referenced`).
    referenced: u64,
    /// On the active list.
    active: u64,
    /// Mapped, so that an access causes no fault.
    mapped: u64,
    /// A process waits for the page, so the cache keeps it until it is used.
    pinned: u64,
    /// Used through a mapping since the last look of reclaim (the accessed bit).
    young: u64,
    /// Changed in memory and not yet written to the disk.
    dirty: u64,
    /// Under writeback.
    writeback: u64,
    /// Part of a folio of several pages.
    large: u64,
    /// The size of the large folio, as a power of two.
    order: [u8; NODE_PAGES as usize],
    /// For a folio's first page: the stamp of the entry that is valid for the folio.
    stamp: [u32; NODE_PAGES as usize],
}

/// Folios of one node that were added to a list together, each by its first page.
#[derive(Clone, Copy, Debug)]
struct Entry {
    node: u32,
    pages: u64,
    stamp: u32,
}

/// Pages that were evicted together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Evicted {
    /// The file.
    pub file: FileId,
    /// The first of the node's 64 pages.
    pub first: Page,
    /// The evicted pages, one bit each.
    pub pages: u64,
    /// The evicted pages that no process had used.
    pub unused: u64,
}

impl Evicted {
    /// Each page, and whether the cache evicted it unused.
    pub fn each(self) -> impl Iterator<Item = (Page, bool)> {
        bits(self.pages).map(move |bit| (self.first + u64::from(bit), self.unused >> bit & 1 == 1))
    }
}

/// The origin of pages that are added to the cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fresh {
    /// Requested from the disk; no process has used them yet.
    Asked,
    /// Requested from the disk: block maps and inodes. They are not data, and no process uses them.
    Metadata,
    /// Written by a program. They are present at once, without a read of the disk.
    Written,
}

/// The kind of a use of pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Use {
    /// By a call that copies them.
    Read,
    /// By a further call on the same page that continues the last call. Both calls count as one use.
    Again,
    /// Through a mapping.
    Mapped,
}

/// The page cache.
#[derive(Clone, Debug)]
pub struct Cache {
    limit_pages: u64,
    index: FxHashMap<(FileId, u64), u32>,
    /// The node of the last lookup: a process that reads page by page looks the same node up again.
    last: Cell<u32>,
    nodes: Vec<Node>,
    spare: Vec<u32>,
    inactive: VecDeque<Entry>,
    active: VecDeque<Entry>,
    inactive_pages: u64,
    active_pages: u64,
    locked_pages: u64,
    added_pages: u64,
    dirty_pages: u64,
    writeback_pages: u64,
    /// Nodes that have dirty pages, for writeback (the kernel's tag in the tree of pages).
    dirty_nodes: BTreeSet<(FileId, u64)>,
    next_stamp: u32,
}

impl Node {
    /// Pages that cannot be evicted: in flight, under writeback, dirty, or awaited.
    fn held(&self) -> u64 {
        self.locked | self.pinned | self.dirty | self.writeback
    }
}

/// The bits of `pages` pages from `offset` on.
fn mask(offset: u64, pages: u64) -> u64 {
    let ones = if pages >= NODE_PAGES { u64::MAX } else { (1 << pages) - 1 };
    ones << offset
}

/// The parts of a range, one for each node: number of the node, first page in the node, pages.
fn parts(first: Page, pages: u64) -> impl Iterator<Item = (u64, u64, u64)> {
    let end = first + pages;
    let mut next = first;
    std::iter::from_fn(move || {
        if next >= end {
            return None;
        }
        let (number, offset) = (next / NODE_PAGES, next % NODE_PAGES);
        let length = (NODE_PAGES - offset).min(end - next);
        next += length;
        Some((number, offset, length))
    })
}

/// The positions of the set bits.
fn bits(mut mask: u64) -> impl Iterator<Item = u32> {
    std::iter::from_fn(move || {
        let bit = (mask != 0).then(|| mask.trailing_zeros())?;
        mask &= mask - 1;
        Some(bit)
    })
}

impl Cache {
    /// An empty cache with room for this number of pages.
    pub fn new(limit_pages: u64) -> Cache {
        Cache {
            limit_pages,
            index: FxHashMap::default(),
            last: Cell::new(0),
            nodes: Vec::new(),
            spare: Vec::new(),
            inactive: VecDeque::new(),
            active: VecDeque::new(),
            inactive_pages: 0,
            active_pages: 0,
            locked_pages: 0,
            added_pages: 0,
            dirty_pages: 0,
            writeback_pages: 0,
            dirty_nodes: BTreeSet::new(),
            next_stamp: 0,
        }
    }

    /// Cached pages and pages in flight.
    pub fn pages(&self) -> u64 {
        self.inactive_pages + self.active_pages
    }

    /// The capacity of the cache in pages.
    pub fn limit_pages(&self) -> u64 {
        self.limit_pages
    }

    /// Pages on the inactive list.
    pub fn inactive_pages(&self) -> u64 {
        self.inactive_pages
    }

    /// Pages on the active list.
    pub fn active_pages(&self) -> u64 {
        self.active_pages
    }

    /// Pages added to the inactive list since the start of the run.
    pub fn added_pages(&self) -> u64 {
        self.added_pages
    }

    /// Pages that no process has used yet.
    pub fn unused_pages(&self) -> u64 {
        self.index.values().map(|node| u64::from(self.nodes[*node as usize].unused.count_ones())).sum()
    }

    fn id(&self, file: FileId, number: u64) -> Option<u32> {
        let last = self.last.get();
        // A node without pages is not in the index.
        if self
            .nodes
            .get(last as usize)
            .is_some_and(|node| node.number == number && node.file == file && node.present != 0)
        {
            return Some(last);
        }
        let id = self.index.get(&(file, number)).copied()?;
        self.last.set(id);
        Some(id)
    }

    fn node(&self, file: FileId, number: u64) -> Option<&Node> {
        self.id(file, number).map(|id| &self.nodes[id as usize])
    }

    fn bit(&self, file: FileId, page: Page, of: impl Fn(&Node) -> u64) -> bool {
        self.node(file, page / NODE_PAGES).is_some_and(|node| of(node) >> (page % NODE_PAGES) & 1 == 1)
    }

    /// Whether a page is cached or in flight.
    pub fn is_present(&self, file: FileId, page: Page) -> bool {
        self.bit(file, page, |node| node.present)
    }

    /// Whether a page is in flight.
    pub fn is_locked(&self, file: FileId, page: Page) -> bool {
        self.bit(file, page, |node| node.locked)
    }

    /// Whether a page is mapped.
    pub fn is_mapped(&self, file: FileId, page: Page) -> bool {
        self.bit(file, page, |node| node.mapped)
    }

    /// The state of a page as an access finds it.
    pub fn found(&self, file: FileId, page: Page) -> Found {
        let offset = page % NODE_PAGES;
        let is_set = |bits: u64| bits >> offset & 1 == 1;
        match self.node(file, page / NODE_PAGES) {
            Some(node) if is_set(node.present) => {
                let order = if is_set(node.large) { node.order[offset as usize] } else { 0 };
                let folio = Folio { first: page >> order << order, order };
                let marked = match order {
                    0 => is_set(node.marked),
                    _ => self.bit(file, folio.first, |node| node.marked),
                };
                if is_set(node.locked) { Found::Locked { marked, folio } } else { Found::Present { marked, folio } }
            }
            _ => Found::Absent,
        }
    }

    /// Removes the mark of a folio.
    pub fn unmark(&mut self, file: FileId, folio: Folio) {
        self.change(file, folio.first, 1, |node, mask| node.marked &= !mask);
    }

    /// The number of pages from `page` on, up to `end`, that are present without a mark. A reader passes them without a
    /// stop.
    pub fn clear_run(&self, file: FileId, page: Page, end: Page) -> u64 {
        self.run(file, page, end, |node| node.present & !node.locked & !node.marked)
    }

    /// The number of pages from `page` on, up to `end`, that are mapped.
    pub fn mapped_run(&self, file: FileId, page: Page, end: Page) -> u64 {
        self.run(file, page, end, |node| node.mapped)
    }

    fn run(&self, file: FileId, page: Page, end: Page, of: impl Fn(&Node) -> u64) -> u64 {
        let mut count = 0;
        for (number, offset, length) in parts(page, end.saturating_sub(page)) {
            let Some(node) = self.node(file, number) else { break };
            let ones = u64::from((of(node) >> offset).trailing_ones()).min(length);
            count += ones;
            if ones < length {
                break;
            }
        }
        count
    }

    /// The first of the `most` pages from `page` on that is not cached.
    pub fn next_absent(&self, file: FileId, page: Page, most: u64) -> Option<Page> {
        let run = self.run(file, page, page.saturating_add(most), |node| node.present);
        (run < most).then_some(page + run)
    }

    /// The number of cached pages right before `page`, at most `most`.
    pub fn present_before(&self, file: FileId, page: Page, most: u64) -> u64 {
        let (mut at, mut count) = (page, 0);
        while count < most && at > 0 {
            let (number, last) = ((at - 1) / NODE_PAGES, (at - 1) % NODE_PAGES);
            let Some(node) = self.node(file, number) else { break };
            let ones = u64::from((node.present << (NODE_PAGES - 1 - last)).leading_ones()).min(last + 1);
            count += ones;
            at -= ones;
            if ones < last + 1 {
                break;
            }
        }
        count.min(most)
    }

    /// The number of these pages that are not cached.
    pub fn absent(&self, file: FileId, first: Page, pages: u64) -> u64 {
        let present = parts(first, pages).map(|(number, offset, length)| {
            self.node(file, number).map_or(0, |node| (node.present & mask(offset, length)).count_ones())
        });
        pages - present.map(u64::from).sum::<u64>()
    }

    fn change(&mut self, file: FileId, first: Page, pages: u64, mut change: impl FnMut(&mut Node, u64)) {
        for (number, offset, length) in parts(first, pages) {
            if let Some(id) = self.id(file, number) {
                change(&mut self.nodes[id as usize], mask(offset, length));
            }
        }
    }

    fn stamp(&mut self) -> u32 {
        // The number wraps after four billion additions. The cache scans an entry of that age long before.
        self.next_stamp = self.next_stamp.wrapping_add(1);
        self.next_stamp
    }

    /// Adds a folio that is in flight. None of its pages may be cached.
    pub fn add(&mut self, file: FileId, folio: Folio, marked: bool) {
        if folio.order == 0 {
            self.add_run(file, folio.first, 1, Fresh::Asked);
        } else {
            self.add_large(file, folio);
        }
        if marked {
            self.change(file, folio.first, 1, |node, mask| node.marked |= mask);
        }
    }

    fn add_large(&mut self, file: FileId, folio: Folio) {
        for (number, offset, length) in parts(folio.first, folio.pages()) {
            let id = self.node_for(file, number);
            let (node, mask) = (&mut self.nodes[id as usize], mask(offset, length));
            node.present |= mask;
            node.locked |= mask;
            node.unused |= mask;
            node.large |= mask;
            node.order[offset as usize..(offset + length) as usize].fill(folio.order);
        }
        let (id, offset) = (self.node_for(file, folio.first / NODE_PAGES), folio.first % NODE_PAGES);
        let stamp = self.stamp();
        self.nodes[id as usize].stamp[offset as usize] = stamp;
        self.inactive.push_back(Entry { node: id, pages: 1 << offset, stamp });
        self.inactive_pages += folio.pages();
        self.locked_pages += folio.pages();
        self.added_pages += folio.pages();
    }

    /// Adds consecutive single pages. None of them may be cached.
    pub fn add_run(&mut self, file: FileId, first: Page, pages: u64, fresh: Fresh) {
        for (number, offset, length) in parts(first, pages) {
            let id = self.node_for(file, number);
            let stamp = self.stamp();
            let (node, mask) = (&mut self.nodes[id as usize], mask(offset, length));
            node.present |= mask;
            node.locked |= if fresh == Fresh::Written { 0 } else { mask };
            node.unused |= if fresh == Fresh::Asked { mask } else { 0 };
            node.stamp[offset as usize..(offset + length) as usize].fill(stamp);
            self.inactive.push_back(Entry { node: id, pages: mask, stamp });
        }
        self.inactive_pages += pages;
        self.locked_pages += if fresh == Fresh::Written { 0 } else { pages };
        self.added_pages += pages;
    }

    /// Puts a policy's mark on a cached page.
    pub fn mark(&mut self, file: FileId, page: Page) {
        self.change(file, page, 1, |node, mask| node.marked |= mask & node.present);
    }

    /// The first cached page from `page` on, below `end`; `end` if there is none.
    pub fn next_present(&self, file: FileId, page: Page, end: Page) -> Page {
        let mut at = page;
        for (number, offset, length) in parts(page, end.saturating_sub(page)) {
            let present = self.node(file, number).map_or(0, |node| node.present >> offset);
            let zeros = u64::from(present.trailing_zeros()).min(length);
            at += zeros;
            if zeros < length {
                break;
            }
        }
        at
    }

    fn node_for(&mut self, file: FileId, number: u64) -> u32 {
        if let Some(id) = self.id(file, number) {
            return id;
        }
        let fresh = Node {
            file,
            number,
            present: 0,
            locked: 0,
            marked: 0,
            unused: 0,
            referenced: 0,
            active: 0,
            mapped: 0,
            pinned: 0,
            young: 0,
            dirty: 0,
            writeback: 0,
            large: 0,
            order: [0; NODE_PAGES as usize],
            stamp: [0; NODE_PAGES as usize],
        };
        let id = match self.spare.pop() {
            Some(id) => {
                self.nodes[id as usize] = fresh;
                id
            }
            None => {
                self.nodes.push(fresh);
                (self.nodes.len() - 1) as u32
            }
        };
        self.index.insert((file, number), id);
        id
    }

    /// Marks pages as arrived.
    pub fn arrive(&mut self, file: FileId, first: Page, pages: u64) {
        let mut arrived = 0;
        self.change(file, first, pages, |node, mask| {
            arrived += u64::from((node.locked & mask).count_ones());
            node.locked &= !mask;
        });
        self.locked_pages -= arrived;
    }

    /// Uses pages. Returns the number of pages that were not used before.
    pub fn use_pages(&mut self, file: FileId, first: Page, pages: u64, by: Use) -> u64 {
        let mut fresh = 0;
        for (number, offset, length) in parts(first, pages) {
            let Some(id) = self.id(file, number) else { continue };
            let node = &mut self.nodes[id as usize];
            let mask = mask(offset, length) & node.present;
            fresh += u64::from((node.unused & mask).count_ones());
            node.unused &= !mask;
            node.pinned &= !mask;
            if by != Use::Again {
                self.use_folios(id, mask, first, by);
            }
        }
        fresh
    }

    /// Keeps a page in the cache until it is used.
    pub fn pin(&mut self, file: FileId, page: Page) {
        self.change(file, page, 1, |node, mask| node.pinned |= mask & node.present);
    }

    /// Maps pages.
    pub fn map(&mut self, file: FileId, first: Page, pages: u64) {
        self.change(file, first, pages, |node, mask| node.mapped |= mask & node.present);
    }
}
