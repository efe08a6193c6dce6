//! `advise(n)`: the read-ahead of Linux 2.2, which O'Connor and Tracy measured and made adjustable (2000).
//!
//! For an absent page of a mapping the kernel requests the whole aligned group of n pages; `linux-2.2` has n = 16 (`page_cluster` = 4). On a
//! hit nothing happens. Each page is a request, which waits when the disk's queue is full. With a large n the loop over the group becomes one
//! long synchronous read, the paper's *stampeding herd*:
//!
//! ```text
//!     miss ─▶ page  page  page … page │ queue full: wait │ page │ wait │ page …  ─▶ wait for the missed page
//!             └──── the program does not run until the end of the loop ─────────────┘
//! ```
//!
//! Here n need not be a power of two, as in their kernel; the paper left this question open.
//!
//! Sources: the paper, *Investigating Read Ahead in the 2.2 Kernel* and *Extreme Advice Analysis*; `filemap_nopage` and
//! `try_to_read_ahead` of 2.2.

use crate::{Access, Found, Policy, Requests, View};

/// Reads the group of pages around a missing page.
#[derive(Clone, Copy, Debug)]
pub struct Advise {
    pages: u64,
}

impl Advise {
    /// With groups of this many pages.
    pub fn new(pages: u64) -> Advise {
        Advise { pages }
    }
}

/// Requests the aligned group of `pages` pages around the missing page, then the page itself.
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
