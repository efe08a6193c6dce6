//! Structures that may grow: their first field is their size, as the caller knows it.
//!
//! ```text
//!     caller older than the library    ├─ known to the caller ─┤ 0 0 0      fields that the caller does not know are 0: the default
//!     caller newer than the library    ├─ known to the library ─┤ ? ? ?     not all 0: the caller asks for what is not there: E2BIG
//! ```
//!
//! The rule is that of openat2(2) and clone3(2) (`copy_struct_from_user` in the kernel).

use crate::errors::Errno;
use std::mem::MaybeUninit;
use std::slice;

/// Largest size of a structure, bytes: more is not a structure of any version, but an uninitialised field. The kernel uses the same limit, a page.
const LARGEST_BYTES: usize = 4096;

/// A structure that begins with a field `size: usize`.
///
/// # Safety
/// The type is `repr(C)`, its first field is a `usize`, and it is valid when all its bytes are 0.
pub(crate) unsafe trait Extensible: Copy {
    /// Size of the first version that was released, bytes.
    const FIRST_BYTES: usize;
}

/// A valid size of a structure.
///
/// # Safety
/// `structure` is null, or points to a readable `usize`.
unsafe fn size_of_caller<T: Extensible>(structure: *const T) -> Result<usize, Errno> {
    if structure.is_null() {
        return Err(Errno::INVALID);
    }
    // SAFETY: the caller's promise.
    let size = unsafe { structure.cast::<usize>().read() };
    if size < T::FIRST_BYTES {
        return Err(Errno::INVALID);
    }
    if size > LARGEST_BYTES { Err(Errno::TOO_NEW) } else { Ok(size) }
}

/// Reads options. Null: all fields are 0.
///
/// # Safety
/// `options` is null, or points to as many readable bytes as its field `size` says.
pub(crate) unsafe fn read_options<T: Extensible>(options: *const T) -> Result<T, Errno> {
    let mut known = MaybeUninit::<T>::zeroed();
    if !options.is_null() {
        // SAFETY: the caller's promise.
        let size = unsafe { size_of_caller(options) }?;
        // SAFETY: the caller's promise: `size` bytes are readable.
        let given = unsafe { slice::from_raw_parts(options.cast::<u8>(), size) };
        let (common, newer) = given.split_at(size.min(size_of::<T>()));
        if newer.iter().any(|byte| *byte != 0) {
            return Err(Errno::TOO_NEW);
        }
        // SAFETY: at most the size of the type is copied into it.
        unsafe { common.as_ptr().copy_to_nonoverlapping(known.as_mut_ptr().cast(), common.len()) };
    }
    // SAFETY: all bytes are initialised, and `Extensible` promises that such a structure is valid: its fields are numbers and pointers.
    Ok(unsafe { known.assume_init() })
}

/// Writes counters. What the caller's structure has beyond the known fields is set to 0; the field `size` is left as it is.
///
/// # Safety
/// `counters` is null, or points to as many writable bytes as its field `size` says.
pub(crate) unsafe fn write_counters<T: Extensible>(counters: *mut T, values: &T) -> Result<(), Errno> {
    // SAFETY: the caller's promise.
    let size = unsafe { size_of_caller(counters) }?;
    let field = size_of::<usize>();
    let common = size.min(size_of::<T>());
    let (to, from) = (counters.cast::<u8>(), std::ptr::from_ref(values).cast::<u8>());
    // SAFETY: the caller's promise for `to`; of `values` at most its size is copied.
    unsafe {
        from.add(field).copy_to_nonoverlapping(to.add(field), common - field);
        to.add(common).write_bytes(0, size - common);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[repr(C)]
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    struct Two {
        size: usize,
        first: u64,
        second: u64,
    }

    // SAFETY: numbers only.
    unsafe impl Extensible for Two {
        const FIRST_BYTES: usize = 16;
    }

    fn read(words: &[usize]) -> Result<Two, Errno> {
        assert!(words[0] <= size_of_val(words) || words[0] > LARGEST_BYTES);
        // SAFETY: the words are as long as the first of them says, or it is refused before more is read.
        unsafe { read_options(words.as_ptr().cast()) }
    }

    #[test]
    fn older_and_newer_options_are_read() {
        assert_eq!(read(&[16, 5]), Ok(Two { size: 16, first: 5, second: 0 }));
        assert_eq!(read(&[24, 5, 6]), Ok(Two { size: 24, first: 5, second: 6 }));
        assert_eq!(read(&[32, 5, 6, 0]), Ok(Two { size: 32, first: 5, second: 6 }));
        assert_eq!(read(&[32, 5, 6, 7]), Err(Errno::TOO_NEW));
        assert_eq!(read(&[usize::MAX, 5, 6]), Err(Errno::TOO_NEW));
        assert_eq!(read(&[8, 5, 6]), Err(Errno::INVALID));
        assert_eq!(read(&[0, 5, 6]), Err(Errno::INVALID));
        // SAFETY: null is permitted.
        assert_eq!(unsafe { read_options::<Two>(std::ptr::null()) }, Ok(Two { size: 0, first: 0, second: 0 }));
    }

    #[test]
    fn counters_fill_structures_of_every_size() {
        let values = Two { size: 0, first: 1, second: 2 };
        for (size, expected) in [(16, [16, 1, 9, 9]), (24, [24, 1, 2, 9]), (32, [32, 1, 2, 0])] {
            let mut words = [size, 9_usize, 9, 9];
            // SAFETY: the words are at least as long as the first of them says.
            assert_eq!(unsafe { write_counters(words.as_mut_ptr().cast(), &values) }, Ok(()));
            assert_eq!(words, expected);
        }
        // SAFETY: null is permitted.
        assert_eq!(unsafe { write_counters(std::ptr::null_mut(), &values) }, Err(Errno::INVALID));
    }
}
