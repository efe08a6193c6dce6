//! `posix_fadvise` on a whole file in the kernels from 2.5.60 to 2.6.30: it changes the window of the open file.
//!
//! ```text
//!     NORMAL       the disk's window
//!     SEQUENTIAL   twice the disk's window
//!     RANDOM       0: every page is a separate miss
//!     WILLNEED     read at once, 2 MiB at a time, at most half of the free and inactive memory
//! ```
//!
//! Sources: mm/fadvise.c, `force_page_cache_readahead` and `max_sane_readahead` in mm/readahead.c. Not modelled: before 2.6.18, NOREUSE had
//! the effect of WILLNEED.

use crate::{Advice, FileId, Page, Requests, View};

/// Step of an explicit request: 2 MiB (`force_page_cache_readahead`).
const CHUNK_PAGES: u64 = 512;

/// The window of an open file with this advice, pages.
pub fn window(advice: Advice, window_pages: u64) -> u64 {
    match advice {
        Advice::Normal => window_pages,
        Advice::Sequential => 2 * window_pages,
        Advice::Random => 0,
    }
}

/// Reads a range in these steps.
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
