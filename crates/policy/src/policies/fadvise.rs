//! What `posix_fadvise` did on a whole file in the kernels from 2.5.60 to 2.6.30: it changed the opening's window.
//!
//! ```text
//!     NORMAL       the disk's window
//!     SEQUENTIAL   twice that
//!     RANDOM       0: every page is a miss of its own
//!     WILLNEED     read at once, 2 MiB at a time, at most half of the memory that is free or inactive
//! ```
//!
//! Sources: mm/fadvise.c, `force_page_cache_readahead` and `max_sane_readahead` in mm/readahead.c. That 2.6 before
//! 2.6.18 took NOREUSE for WILLNEED is not modelled.

use crate::{Advice, FileId, Page, Requests, View};

/// An explicit request goes in steps of 2 MiB (`force_page_cache_readahead`).
const CHUNK_PAGES: u64 = 512;

/// The window of an opening that was given this advice, pages.
pub fn window(advice: Advice, window_pages: u64) -> u64 {
    match advice {
        Advice::Normal => window_pages,
        Advice::Sequential => 2 * window_pages,
        Advice::Random => 0,
    }
}

/// Reads a range as it was asked for.
pub fn will_need(file: FileId, first: Page, pages: u64, view: &dyn View, requests: &mut Requests) {
    let memory = view.memory();
    let sane = pages.min((memory.free_pages + memory.inactive_pages) / 2);
    let end = first.saturating_add(sane).min(view.file_pages(file));
    let mut at = first;
    while at < end {
        let chunk = CHUNK_PAGES.min(end - at);
        requests.pages(file, at, chunk);
        at += chunk;
    }
}
