//! Blocks that must be read before a page can be found: a file's inode at open, and with ext2 the pointer blocks.
//!
//! ```text
//!     d10 d11 │ d12 …      requested: d10, d11, then the indirect block; the disk starts (one request, for they are
//!             │            contiguous), the reader waits for the block, and only then requests d12 …
//! ```
//!
//! So a window that crosses a pointer block is not requested in one step, with or without read-ahead. The kernel does
//! the same. `get_block` reads the block while pages are mapped, after the pages mapped before have been submitted
//! (`BH_Boundary`, fs/mpage.c; `ext2_get_branch`). The blocks are cached as pages of the disk itself, and evicted as
//! other pages are.

use super::{Machine, Step, Submitted};
use crate::cache::{Fresh, Use};
use crate::layout::Block;
use crate::queue::{Added, Range};
use crate::world::METADATA;
use ahead_device::Op as DiskOp;
use ahead_policy::{Event, FileId, Found, OpenId, PAGE_BYTES, Page, Request};
use std::collections::VecDeque;

impl Machine {
    /// The first absent block that the request for this page needs. `None`: all blocks are present, and are used.
    pub(super) fn pointer_for(&mut self, file: FileId, page: Page) -> Option<Block> {
        let layout = self.world.layout(file);
        layout.pointers(page).next()?;
        let missing = self.world.next_pointer(file, page);
        if missing.is_none() {
            for block in layout.pointers(page) {
                self.use_block(block);
            }
        }
        missing
    }

    fn use_block(&mut self, block: Block) {
        self.world.cache.use_pages(METADATA, block, 1, Use::Read);
    }

    /// Requests a block that is needed to read a file, unless the block is in flight. False: the queue is full.
    fn ask_for_block(&mut self, block: Block, asker: FileId) -> bool {
        if self.world.cache.is_present(METADATA, block) {
            return true;
        }
        let (range, now_ns) = (Range { file: METADATA, first: block, pages: 1, asker }, self.world.now_ns);
        let added = self.world.queue.add(DiskOp::Read, block * PAGE_BYTES, range, PAGE_BYTES, now_ns);
        if added == Added::Full {
            return false;
        }
        self.make_room(1);
        self.world.cache.add_run(METADATA, block, 1, Fresh::Metadata);
        self.counters.metadata_pages += 1;
        self.system(self.settings.costs.request_per_page_ns);
        true
    }

    /// Blocks the process until the block arrives, or until the queue has room for another try.
    pub(super) fn wait_for_metadata(&mut self, process: usize, block: Block, asker: FileId) {
        if self.ask_for_block(block, asker) {
            self.world.queue.unplug(self.world.now_ns);
            self.wait_for(process, OpenId::default(), METADATA, block);
        } else {
            self.wait_for_room(process);
        }
    }

    /// Opens a file when its inode is cached.
    pub(super) fn step_open(&mut self, process: usize, open: OpenId, file: FileId) -> Step {
        if let Some(block) = self.world.layout(file).inode() {
            if !matches!(self.world.cache.found(METADATA, block), Found::Present { .. }) {
                self.wait_for_metadata(process, block, file);
                return Step::Blocked;
            }
            self.use_block(block);
        }
        self.processes[process].doing = None;
        self.tell(&Event::Opened { open, file });
        Step::Went
    }

    /// Submits requests that no process waits for. Pages for which the queue has no room are dropped. If a pointer
    /// block is absent, the rest follows when the block arrives.
    pub(super) fn submit_unattended(&mut self, mut list: VecDeque<Request>, open: OpenId) {
        if let Submitted::Needs(block) = self.submit(&mut list, open) {
            let asker = list.front().map_or(METADATA, |request| request.file);
            if self.ask_for_block(block, asker) {
                self.world.cache.pin(METADATA, block);
                self.deferred.entry(block).or_default().push((open, list));
            } else {
                for request in list {
                    self.drop_rest(request.file, request.first, request.first + request.pages, open);
                }
            }
        }
        self.world.queue.unplug(self.world.now_ns);
    }

    /// Submits the requests that wait for this block.
    pub(super) fn resume_deferred(&mut self, block: Block) {
        for (open, list) in self.deferred.remove(&block).unwrap_or_default() {
            self.submit_unattended(list, open);
            self.world.cache.use_pages(METADATA, block, 1, Use::Again);
        }
    }
}
