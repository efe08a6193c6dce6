//! Memory that a test program has allocated: for tests that check the memory bound of a parser.
//!
//! The program declares [`Counting`] as its `#[global_allocator]`. In all other programs the counters stay zero.

#![allow(unsafe_code)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

static NOW: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);

/// The system allocator, with counters.
#[derive(Debug)]
pub struct Counting;

/// Bytes that are allocated now.
pub fn allocated_bytes() -> usize {
    NOW.load(Relaxed)
}

/// Peak of [`allocated_bytes`] since [`reset_peak`].
pub fn peak_bytes() -> usize {
    PEAK.load(Relaxed)
}

/// Sets the peak to [`allocated_bytes`].
pub fn reset_peak() {
    PEAK.store(NOW.load(Relaxed), Relaxed);
}

fn add(bytes: usize) {
    PEAK.fetch_max(NOW.fetch_add(bytes, Relaxed) + bytes, Relaxed);
}

fn subtract(bytes: usize) {
    NOW.fetch_sub(bytes, Relaxed);
}

// SAFETY: every call is forwarded unchanged to the system allocator; apart from that only the counters change.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        add(layout.size());
        // SAFETY: the caller fulfils the contract of this function.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        add(layout.size());
        // SAFETY: as above.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        // Both blocks may exist for a moment.
        add(new_size);
        subtract(layout.size());
        // SAFETY: as above.
        unsafe { System.realloc(pointer, layout, new_size) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        subtract(layout.size());
        // SAFETY: as above.
        unsafe { System.dealloc(pointer, layout) }
    }
}
