//! Memory that a read fills: of the program (`readinto`), or of a new `bytes` object that nothing else refers to yet.
//!
//! ```text
//!     ├── filled ──┤── initialised ──┤─────────── unknown ───────────┤
//!                  ├──── part: at most 1 MiB, zeroed if unknown ─┤     the next read gets this as a slice
//! ```
//!
//! Zeroing a part just before its read costs little: it is in the processor's cache. Zeroing all of a large object first doubles the time of
//! a read from the page cache.

#![allow(unsafe_code)]

use pyo3::exceptions::PyMemoryError;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use std::marker::PhantomData;

/// Largest slice for one read of unknown memory, bytes: it fits into the processor's cache.
const PART_BYTES: usize = 1 << 20;

/// Writable memory, and how much of it is filled.
pub struct Space<'a> {
    start: *mut u8,
    length: usize,
    initialised: usize,
    filled: usize,
    memory: PhantomData<&'a mut [u8]>,
}

// SAFETY: it is used like the exclusive slice that `memory` stands for, which is Send.
unsafe impl Send for Space<'_> {}

impl<'a> Space<'a> {
    /// Memory with any content.
    pub fn new(memory: &'a mut [u8]) -> Space<'a> {
        let (start, length) = (memory.as_mut_ptr(), memory.len());
        Space { start, length, initialised: length, filled: 0, memory: PhantomData }
    }

    /// Bytes that are filled.
    pub fn filled(&self) -> usize {
        self.filled
    }

    /// Whether nothing is left to fill.
    pub fn is_full(&self) -> bool {
        self.filled == self.length
    }

    /// The next bytes to fill. Empty: it is full.
    pub fn part(&mut self) -> &mut [u8] {
        let known = self.initialised.saturating_sub(self.filled);
        let bytes = if known > 0 { known } else { (self.length - self.filled).min(PART_BYTES) };
        // SAFETY: `filled + bytes` is at most `length`, the memory is writable and exclusive for 'a, and bytes that are not initialised are
        // written before the slice is made.
        unsafe {
            let part = self.start.add(self.filled);
            if known == 0 {
                part.write_bytes(0, bytes);
                self.initialised = self.filled + bytes;
            }
            std::slice::from_raw_parts_mut(part, bytes)
        }
    }

    /// Counts bytes of the part as filled.
    pub fn fill(&mut self, bytes: usize) {
        self.filled = (self.filled + bytes).min(self.initialised);
    }
}

/// A `bytes` object of at most `length` bytes with what `fill` fills.
pub fn new_bytes<'py>(
    py: Python<'py>,
    length: usize,
    fill: impl FnOnce(&mut Space<'_>) -> PyResult<()>,
) -> PyResult<Bound<'py, PyBytes>> {
    let size = ffi::Py_ssize_t::try_from(length).map_err(|_| PyMemoryError::new_err(()))?;
    // SAFETY: the function returns a new object, or null with an exception. A null pointer leaves the content undefined.
    let object = unsafe { Bound::from_owned_ptr_or_err(py, ffi::PyBytes_FromStringAndSize(std::ptr::null(), size))? };
    let bytes = object.cast_into::<PyBytes>()?;
    let mut space = Space {
        // SAFETY: it is a bytes object.
        start: unsafe { ffi::PyBytes_AsString(bytes.as_ptr()) }.cast(),
        length,
        initialised: 0,
        filled: 0,
        memory: PhantomData,
    };
    // The object is not visible to Python yet: its memory may be written, and is not read before it is filled. (The empty object is shared;
    // none of its bytes is written.)
    fill(&mut space)?;
    let filled = space.filled;
    if filled == length {
        return Ok(bytes);
    }
    copied(py, &bytes.as_bytes()[..filled])
}

/// A new `bytes` object.
///
/// Errors: `MemoryError`.
pub fn copied<'py>(py: Python<'py>, bytes: &[u8]) -> PyResult<Bound<'py, PyBytes>> {
    // SAFETY: the function copies `bytes.len()` bytes, at most isize::MAX, and returns a new object, or null with an exception.
    unsafe {
        let object = ffi::PyBytes_FromStringAndSize(bytes.as_ptr().cast(), bytes.len() as ffi::Py_ssize_t);
        Ok(Bound::from_owned_ptr_or_err(py, object)?.cast_into::<PyBytes>()?)
    }
}

/// Room for more elements.
///
/// Errors: `MemoryError`, as from Python's own files. A collection that grows by itself would end the process.
pub fn reserve<T>(vec: &mut Vec<T>, more: usize) -> PyResult<()> {
    vec.try_reserve(more).map_err(|_| PyMemoryError::new_err(()))
}

/// Appends bytes.
///
/// Errors: `MemoryError`.
pub fn append(vec: &mut Vec<u8>, bytes: &[u8]) -> PyResult<()> {
    reserve(vec, bytes.len())?;
    vec.extend_from_slice(bytes);
    Ok(())
}
