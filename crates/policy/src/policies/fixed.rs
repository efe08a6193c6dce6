//! `fixed(n)`: each miss reads n pages, and the program waits for the first of them; nothing happens until the next miss.
//!
//! This is the simplest read-ahead, called *fixed synchronous* in papers. On a hit it does nothing, so the disk is idle while the program
//! computes, and the program waits while the disk reads.

use crate::{Access, Found, Policy, Requests, View};

/// Reads a fixed number of pages on each miss.
#[derive(Clone, Copy, Debug)]
pub struct Fixed {
    pages: u64,
}

impl Fixed {
    /// `pages` per miss, the missing one included.
    pub fn new(pages: u64) -> Fixed {
        Fixed { pages }
    }
}

impl Policy for Fixed {
    fn access(&mut self, access: &Access, view: &dyn View, requests: &mut Requests) {
        if access.found == Found::Absent {
            let left = view.file_pages(access.file).saturating_sub(access.page);
            requests.pages(access.file, access.page, self.pages.min(left));
        }
    }
}
