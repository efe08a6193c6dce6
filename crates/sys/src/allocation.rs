//! How much memory a test program has allocated: for tests that hold a parser to a bound.
//!
//! A program that wants to know makes [`Counting`] its `#[global_allocator]`; in all others the counters stay zero.

#![allow(unsafe_code)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

static NOW: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);

/// The system's allocator, with counters.
#[derive(Debug)]
pub struct Counting;

/// Bytes that are allocated now.
pub fn allocated_bytes() -> usize {
    NOW.load(Relaxed)
}

/// The most bytes that were allocated at once since [`reset_peak`].
pub fn peak_bytes() -> usize {
    PEAK.load(Relaxed)
}

/// The peak starts anew from what is allocated now.
pub fn reset_peak() {
    PEAK.store(NOW.load(Relaxed), Relaxed);
}

fn add(bytes: usize) {
    PEAK.fetch_max(NOW.fetch_add(bytes, Relaxed) + bytes, Relaxed);
}

fn subtract(bytes: usize) {
    NOW.fetch_sub(bytes, Relaxed);
}

// SAFETY: every call is passed on to the system's allocator as it came; only counters change besides.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        add(layout.size());
        // SAFETY: the caller keeps the rules of this very call.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        add(layout.size());
        // SAFETY: as above.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        // For a moment there may be both.
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
