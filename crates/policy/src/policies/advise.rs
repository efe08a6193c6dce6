//! `advise(n)`: Linux 2.2 as O'Connor and Tracy found it, and as they made it adjustable (2000).
//!
//! A mapping's page that is absent brings the whole aligned group of n pages that it lies in; `linux-2.2` has n = 16
//! (`page_cluster` = 4). On a hit nothing happens. And each page is a request that waits when the disk's queue is full:
//! with a large n the loop over the group becomes one long synchronous read, the paper's *stampeding herd*:
//!
//! ```text
//!     miss ─▶ page  page  page … page │ queue full: wait │ page │ wait │ page …  ─▶ wait for the missed page
//!             └──── the program does not run until the loop has come to its end ────┘
//! ```
//!
//! n need not be a power of two here, as it had to be in their kernel: that is what they left for others to look into.
//!
//! Sources: the paper, *Investigating Read Ahead in the 2.2 Kernel* and *Extreme Advice Analysis*; `filemap_nopage` and
//! `try_to_read_ahead` of 2.2.

use crate::{Access, Found, Policy, Requests, View};

/// Reads the group of pages that a missing page lies in.
#[derive(Clone, Copy, Debug)]
pub struct Advise {
    pages: u64,
}

impl Advise {
    /// Groups of so many pages.
    pub fn new(pages: u64) -> Advise {
        Advise { pages }
    }
}

/// Asks for the aligned group of `pages` pages around the missing page, then for the page itself.
pub fn group(access: &Access, pages: u64, view: &dyn View, requests: &mut Requests) {
    let end = view.file_pages(access.file);
    let first = access.page - access.page % pages;
    requests.pages(access.file, first, pages.min(end.saturating_sub(first)));
}

impl Policy for Advise {
    fn access(&mut self, access: &Access, view: &dyn View, requests: &mut Requests) {
        if access.found == Found::Absent {
            group(access, self.pages, view, requests);
        }
    }
}
