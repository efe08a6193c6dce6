//! Blocks that have to be read before a page can be found: a file's inode when it is opened, and with ext2 the pointer
//! blocks.
//!
//! ```text
//!     d10 d11 │ d12 …      asked for: d10, d11, then the indirect block; the disk is let go (one request, for they
//!             │            lie in a row), the reader waits for the block, and only then asks for d12 …
//! ```
//!
//! So a window that crosses a pointer block is no longer asked for at once, read-ahead or not. As in the kernel, where
//! `get_block` reads the block while pages are mapped, and what was mapped before has been sent (`BH_Boundary`,
//! fs/mpage.c; `ext2_get_branch`). They are cached as pages of the disk itself, and go when memory is short as others
//! do.

use super::{Machine, Step, Submitted};
use crate::cache::{Fresh, Use};
use crate::layout::Block;
use crate::queue::{Added, Range};
use crate::world::METADATA;
use ahead_device::Op as DiskOp;
use ahead_policy::{Event, FileId, Found, OpenId, PAGE_BYTES, Page, Request};
use std::collections::VecDeque;

impl Machine {
    /// The block that has to be there before this page can be asked for; `None`: they all are, and are used.
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

    /// Asks the disk for a block that is needed to read a file, unless it is on its way; false: the queue is full.
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

    /// The process goes on when the block is there, or tries again when the queue has room.
    pub(super) fn wait_for_metadata(&mut self, process: usize, block: Block, asker: FileId) {
        if self.ask_for_block(block, asker) {
            self.world.queue.unplug(self.world.now_ns);
            self.wait_for(process, OpenId::default(), METADATA, block);
        } else {
            self.wait_for_room(process);
        }
    }

    /// Opens a file once its inode is there.
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

    /// Asks the disk for what no process waits for. What has no room is left out; where a pointer block is not there
    /// yet, the rest follows when it is.
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

    /// The block has come that some were waiting for.
    pub(super) fn resume_deferred(&mut self, block: Block) {
        for (open, list) in self.deferred.remove(&block).unwrap_or_default() {
            self.submit_unattended(list, open);
            self.world.cache.use_pages(METADATA, block, 1, Use::Again);
        }
    }
}
