//! A process writes: pages become dirty, and the process waits when too many are dirty.
//!
//! ```text
//!     page wholly overwritten, or new ──────────────▶ no read     page partly overwritten and absent ──▶ read first
//!                                    └▶ copy ─▶ dirty ─▶ more dirty than the background limit? writeback begins
//!                                                        more dirty or under writeback than the limit? the process waits
//! ```
//!
//! The model follows `generic_perform_write` and `balance_dirty_pages` of Linux, and before 2.4 `bdflush` with its
//! limits. A write triggers no read-ahead. With ext2 the blocks that contain the place of a page are read first, and
//! new blocks become dirty themselves.

use super::{Doing, Machine, Step};
use crate::cache::{Fresh, Use};
use crate::layout::Block;
use crate::world::METADATA;
use ahead_policy::{Call, FileId, Found, OpenId, PAGE_BYTES, Page, Request, View};

/// Consecutive pages that a process writes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Write {
    open: OpenId,
    file: FileId,
    call: Call,
    page: Page,
    began_ns: u64,
    /// Whether the access to the old content of a partly overwritten page was counted.
    counted: bool,
}

impl Write {
    pub(super) fn new(open: OpenId, file: FileId, call: Call, began_ns: u64) -> Write {
        Write { open, file, call, page: call.offset_bytes / PAGE_BYTES, began_ns, counted: false }
    }

    fn end_bytes(&self) -> u64 {
        self.call.offset_bytes + self.call.length_bytes
    }

    /// The bytes of the call in its next page.
    fn bytes(&self) -> u64 {
        self.end_bytes().min((self.page + 1) * PAGE_BYTES) - self.call.offset_bytes.max(self.page * PAGE_BYTES)
    }
}

/// Whether a page can be changed now.
enum Ready {
    Yes,
    /// The page was requested. The step is repeated.
    Asked,
    Blocked,
}

impl Machine {
    /// Writes the next pages, as many as fit into the process's time slice.
    pub(super) fn step_write(&mut self, process: usize, mut write: Write, end_ns: u64) -> Step {
        while write.page * PAGE_BYTES < write.end_bytes() {
            let ready = self.make_ready(process, &mut write);
            self.processes[process].doing = Some(Doing::Write(write));
            match ready {
                Ready::Yes => self.change_page(&mut write),
                Ready::Asked => return Step::Went,
                Ready::Blocked => return Step::Blocked,
            }
            self.processes[process].doing = Some(Doing::Write(write));
            if self.waits_for_writeback(process) {
                return Step::Blocked;
            }
            if self.world.now_ns >= end_ns {
                return Step::Went;
            }
        }
        self.finish(process, write.call, write.began_ns);
        Step::Went
    }

    /// Makes a page ready for the change, and the blocks that contain its place. A page that is wholly overwritten is
    /// not read.
    fn make_ready(&mut self, process: usize, write: &mut Write) -> Ready {
        let (file, page) = (write.file, write.page);
        let is_new = page >= self.world.file_pages(file);
        let keeps_some = !is_new && write.bytes() < PAGE_BYTES;
        let found = self.world.cache.found(file, page);
        if keeps_some && !write.counted {
            write.counted = true;
            self.count_access(file, page, found);
        }
        match found {
            Found::Present { .. } => Ready::Yes,
            Found::Locked { .. } => {
                self.wait_for(process, write.open, file, page);
                Ready::Blocked
            }
            Found::Absent if keeps_some => {
                self.processes[process].asks_for = write.open;
                self.processes[process].requests.push_back(Request { first: page, pages: 1, ..Request::of(file) });
                Ready::Asked
            }
            Found::Absent => {
                if is_new {
                    self.allocate(file, page);
                }
                if let Some(block) = self.pointer_for(file, page) {
                    self.wait_for_metadata(process, block, file);
                    return Ready::Blocked;
                }
                self.make_room(1);
                self.world.cache.add_run(file, page, 1, Fresh::Written);
                Ready::Yes
            }
        }
    }

    /// Allocates the pointer blocks that begin with a new page of a file.
    fn allocate(&mut self, file: FileId, page: Page) {
        let layout = self.world.layout(file);
        let pointers: Vec<Block> = layout.pointers(page).collect();
        for block in &pointers[pointers.len() - layout.new_pointers(page)..] {
            if !self.world.cache.is_present(METADATA, *block) {
                self.make_room(1);
                self.world.cache.add_run(METADATA, *block, 1, Fresh::Written);
            }
        }
        // The innermost block contains the place of the page.
        if let Some(block) = pointers.last() {
            self.make_dirty(METADATA, *block);
        }
    }

    fn change_page(&mut self, write: &mut Write) {
        let (file, page, bytes) = (write.file, write.page, write.bytes());
        self.system(self.settings.costs.copy_per_page_ns * bytes as f64 / PAGE_BYTES as f64);
        self.counters.used_pages += self.world.cache.use_pages(file, page, 1, Use::Read);
        self.world.grow(file, page + 1);
        self.make_dirty(file, page);
        self.counters.write_bytes += bytes;
        (write.page, write.counted) = (page + 1, false);
    }
}
