//! Memory for a library in another program, which must not end when there is none.
//!
//! ```text
//!     large, or as long as the program says    zeroed, try_reserve ──▶ error
//!     small                                    malloc ── null ──▶ a slot of the reserve ── none left ──▶ null: the process ends
//!     each call of the program                 check_new, check_call ──▶ error, before it allocates anything
//! ```
//!
//! The standard library allocates in many places without a way to report that it failed (`Arc`, the start of a thread, a formatted error), and ends
//! the process then. The reserve carries a call that has begun to its error. It is part of the program file's zeroed memory: nothing is resident
//! before it is used. Its slots are bits of atomic words, so that no lock is held when a process forks.
//!
//! A library declares [`Reserve`] as its `#[global_allocator]`; in other programs the reserve is not used and stays full.

#![allow(unsafe_code)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::{Cell, UnsafeCell};
use std::io;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

const WORD_SLOTS: usize = 64;

/// Slots of one size.
#[repr(C, align(8192))]
struct Slots<const BYTES: usize, const WORDS: usize> {
    memory: [[UnsafeCell<[u8; BYTES]>; WORD_SLOTS]; WORDS],
    taken: [AtomicU64; WORDS],
    count: AtomicUsize,
}

// SAFETY: a slot is used only by the one to whom `take` has given it.
unsafe impl<const BYTES: usize, const WORDS: usize> Sync for Slots<BYTES, WORDS> {}

impl<const BYTES: usize, const WORDS: usize> Slots<BYTES, WORDS> {
    const fn new() -> Slots<BYTES, WORDS> {
        Slots {
            memory: [const { [const { UnsafeCell::new([0; BYTES]) }; WORD_SLOTS] }; WORDS],
            taken: [const { AtomicU64::new(0) }; WORDS],
            count: AtomicUsize::new(0),
        }
    }

    /// A free slot, aligned to its size. Null: there is none.
    fn take(&self) -> *mut u8 {
        for (word, slots) in self.taken.iter().zip(&self.memory) {
            let mut seen = word.load(Ordering::Relaxed);
            while seen != u64::MAX {
                let bit = seen.trailing_ones();
                match word.compare_exchange_weak(seen, seen | 1 << bit, Ordering::Acquire, Ordering::Relaxed) {
                    Ok(_) => {
                        self.count.fetch_add(1, Ordering::Relaxed);
                        return slots[bit as usize].get().cast();
                    }
                    Err(other) => seen = other,
                }
            }
        }
        std::ptr::null_mut()
    }

    /// Takes a slot back. `false`: it is none of these.
    fn give_back(&self, slot: *mut u8) -> bool {
        let offset = (slot as usize).wrapping_sub(self.memory.as_ptr() as usize);
        let index = offset / BYTES;
        if index >= WORDS * WORD_SLOTS {
            return false;
        }
        self.taken[index / WORD_SLOTS].fetch_and(!(1 << (index % WORD_SLOTS)), Ordering::Release);
        self.count.fetch_sub(1, Ordering::Relaxed);
        true
    }

    fn has(&self, slot: *mut u8) -> bool {
        (slot as usize).wrapping_sub(self.memory.as_ptr() as usize) < WORDS * WORD_SLOTS * BYTES
    }

    /// Whether this part of the slots is free, in quarters.
    fn has_free(&self, quarters: usize) -> bool {
        4 * self.count.load(Ordering::Relaxed) <= (4 - quarters) * WORDS * WORD_SLOTS
    }
}

/// A call makes a few dozen small allocations, and one or two of some kilobytes (names of /sys, blocks of a channel). 704 KiB in all.
static SMALL: Slots<128, 16> = Slots::new();
static MEDIUM: Slots<1024, 3> = Slots::new();
static LARGE: Slots<8192, 1> = Slots::new();

fn take(size: usize, align: usize) -> *mut u8 {
    let mut slot = std::ptr::null_mut();
    let bytes = size.max(align);
    if bytes <= 128 {
        slot = SMALL.take();
    }
    if slot.is_null() && bytes <= 1024 {
        slot = MEDIUM.take();
    }
    if slot.is_null() && bytes <= 8192 {
        slot = LARGE.take();
    }
    slot
}

/// Bytes of a slot. `None`: the memory is not of the reserve.
fn slot_bytes(memory: *mut u8) -> Option<usize> {
    if SMALL.has(memory) {
        Some(128)
    } else if MEDIUM.has(memory) {
        Some(1024)
    } else {
        LARGE.has(memory).then_some(8192)
    }
}

fn has_free(quarters: usize) -> bool {
    SMALL.has_free(quarters) && MEDIUM.has_free(quarters) && LARGE.has_free(quarters)
}

/// The system allocator, and behind it the reserve.
#[derive(Debug)]
pub struct Reserve;

// SAFETY: memory is either the system allocator's, to which all calls for it go, or a slot that is large and aligned enough, belongs to nothing else,
// and is given back once.
unsafe impl GlobalAlloc for Reserve {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller fulfils the contract of this function.
        let memory = unsafe { System.alloc(layout) };
        if memory.is_null() { take(layout.size(), layout.align()) } else { memory }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as above.
        let memory = unsafe { System.alloc_zeroed(layout) };
        if !memory.is_null() {
            return memory;
        }
        let slot = take(layout.size(), layout.align());
        if !slot.is_null() {
            // SAFETY: the slot has at least this size.
            unsafe { slot.write_bytes(0, layout.size()) };
        }
        slot
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        if !(SMALL.give_back(memory) || MEDIUM.give_back(memory) || LARGE.give_back(memory)) {
            // SAFETY: as above; it is none of the reserve.
            unsafe { System.dealloc(memory, layout) };
        }
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        let slot = slot_bytes(memory);
        if slot.is_some_and(|bytes| new_size <= bytes) {
            return memory;
        }
        let moved = match slot {
            // SAFETY: the size is not 0, and the alignment is that of a layout.
            Some(_) => unsafe { self.alloc(Layout::from_size_align_unchecked(new_size, layout.align())) },
            None => {
                // SAFETY: the caller's promise; the memory is of the system allocator.
                let grown = unsafe { System.realloc(memory, layout, new_size) };
                if !grown.is_null() {
                    return grown;
                }
                take(new_size, layout.align())
            }
        };
        if !moved.is_null() {
            // SAFETY: both have at least this size and are different; the old one is not used any more.
            unsafe {
                memory.copy_to_nonoverlapping(moved, layout.size().min(new_size));
                self.dealloc(memory, layout);
            }
        }
        moved
    }
}

/// Longest path that the kernel takes, bytes (PATH_MAX without the null byte). Longer ones are refused before they are copied for a call.
pub const LONGEST_PATH_BYTES: usize = 4095;

/// This many zero bytes. The pages of large ones are not touched.
///
/// Errors: `OutOfMemory`.
pub fn zeroed(length: usize) -> io::Result<Vec<u8>> {
    let layout = Layout::array::<u8>(length).map_err(|_| io::ErrorKind::OutOfMemory)?;
    if length == 0 {
        return Ok(Vec::new());
    }
    // SAFETY: the size is not 0; the vector takes memory of this size and alignment over, all of it initialised.
    unsafe {
        let memory = std::alloc::alloc_zeroed(layout);
        if memory.is_null() {
            return Err(io::ErrorKind::OutOfMemory.into());
        }
        Ok(Vec::from_raw_parts(memory, length, length))
    }
}

/// What the system allocator must have before a thread uses the library for the first time, bytes: the C library ends the process if it has no
/// memory for the variables of a thread and their destructors.
const FIRST_CALL_BYTES: usize = 64 << 10;

/// Memory of the system for a call that makes something that stays.
///
/// Errors: `OutOfMemory`.
pub fn check_new() -> io::Result<()> {
    let is_there = || zeroed(FIRST_CALL_BYTES).is_ok();
    if !is_low() && is_there() { check_call() } else { Err(io::ErrorKind::OutOfMemory.into()) }
}

/// Memory for a call with something that is there. Costs some loads from memory.
///
/// Errors: `OutOfMemory`.
pub fn check_call() -> io::Result<()> {
    thread_local! {
        static IS_READY: Cell<bool> = const { Cell::new(false) };
    }
    if IS_READY.get() && has_free(2) {
        return Ok(());
    }
    if !has_free(2) || zeroed(FIRST_CALL_BYTES).is_err() {
        return Err(io::ErrorKind::OutOfMemory.into());
    }
    // It registers its destructor.
    drop(std::thread::current());
    IS_READY.set(true);
    Ok(())
}

/// Whether a loop must not go on to make small allocations: the rest of the reserve is for calls that have begun.
pub fn is_low() -> bool {
    !has_free(3)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_taken_once_and_given_back() {
        static SLOTS: Slots<128, 2> = Slots::new();
        let mut taken: Vec<*mut u8> = (0..128).map(|_| SLOTS.take()).collect();
        assert!(SLOTS.take().is_null() && !SLOTS.has_free(1));
        assert!(taken.iter().all(|slot| (*slot as usize).is_multiple_of(128) && SLOTS.has(*slot)));
        let last = taken.pop().unwrap();
        assert!(SLOTS.give_back(last) && SLOTS.take() == last && SLOTS.give_back(last));
        assert!(taken.into_iter().all(|slot| SLOTS.give_back(slot)) && SLOTS.has_free(4));
        assert!(!SLOTS.give_back(std::ptr::null_mut()) && !SLOTS.has(std::ptr::null_mut()));
    }

    #[test]
    fn reserve_moves_what_grows() {
        let small = take(100, 8);
        assert_eq!(slot_bytes(small), Some(128));
        let layout = Layout::from_size_align(100, 8).unwrap();
        // SAFETY: a slot of 128 bytes, which is grown and freed by the allocator that it belongs to.
        unsafe {
            small.write_bytes(7, 100);
            assert_eq!(Reserve.realloc(small, layout, 128), small);
            let layout = Layout::from_size_align(128, 8).unwrap();
            let large = Reserve.realloc(small, layout, 100_000);
            assert_eq!((slot_bytes(large), *large, *large.add(99)), (None, 7, 7));
            Reserve.dealloc(large, Layout::from_size_align(100_000, 8).unwrap());
        }
        assert!(take(8193, 1).is_null() && zeroed(usize::MAX).is_err() && zeroed(0).unwrap().is_empty());
    }
}
