//! `fixed(n)`: each miss reads n pages, the program waits for the first of them, and nothing happens until the next
//! miss.
//!
//! The plainest read-ahead there is, and the one that papers call *fixed synchronous*. On a hit it does nothing, so the
//! disk rests while the program computes and the other way round.

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
