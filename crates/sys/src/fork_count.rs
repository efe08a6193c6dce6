//! Whether this process was forked from one that used the library.
//!
//! Threads, rings and locks of the parent do not exist in the child, or are the parent's. State that belongs to a process keeps the count of its
//! creation, and is made anew when the count differs.

#![allow(unsafe_code)]

use std::sync::Once;
use std::sync::atomic::{AtomicU32, Ordering};

static COUNT: AtomicU32 = AtomicU32::new(0);

/// Grows by one in each child that fork(2) makes after the first call. A child made by a raw clone(2) is not seen.
pub fn fork_count() -> u32 {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // SAFETY: the handler only changes an atomic number, which is allowed between fork and exec. It fails only without memory: then the
        // count stays 0.
        unsafe { libc::pthread_atfork(None, None, Some(count)) };
    });
    COUNT.load(Ordering::Relaxed)
}

extern "C" fn count() {
    COUNT.fetch_add(1, Ordering::Relaxed);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn child_counts_one_more() {
        let before = fork_count();
        // SAFETY: the child only reads an atomic number and ends.
        let child = unsafe { libc::fork() };
        if child == 0 {
            // SAFETY: ends the child at once.
            unsafe { libc::_exit(i32::from(fork_count() != before + 1)) };
        }
        let mut status = 0;
        // SAFETY: waits for the child made above.
        unsafe { libc::waitpid(child, &raw mut status, 0) };
        assert_eq!((status, fork_count()), (0, before));
    }
}
