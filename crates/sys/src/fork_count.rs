//! Whether this process was forked from one that used the library.
//!
//! Threads, rings and locks of the parent do not exist in the child, or are the parent's. State that belongs to a process keeps the count of its
//! creation, and is made again when the count differs.

#![allow(unsafe_code)]

use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, Ordering};

static COUNT: AtomicU32 = AtomicU32::new(0);

/// Grows in each child that fork(2) makes after the first call. A child made by a raw clone(2) is not seen.
///
/// Two first calls at the same time both register the handler, and the number grows by two then: a lock would stay locked in a child that is forked
/// during the first call.
pub fn fork_count() -> u32 {
    static IS_REGISTERED: AtomicBool = AtomicBool::new(false);
    if !IS_REGISTERED.load(Ordering::Acquire) {
        // SAFETY: the handler only changes an atomic number, which is allowed between fork and exec. It fails only without memory: then the
        // next call tries again.
        let is_registered = unsafe { libc::pthread_atfork(None, None, Some(count)) } == 0;
        IS_REGISTERED.store(is_registered, Ordering::Release);
    }
    COUNT.load(Ordering::Relaxed)
}

extern "C" fn count() {
    COUNT.fetch_add(1, Ordering::Relaxed);
}

/// A value of this process, made at its first use, and made again in a child of fork(2): the child never touches the parent's value, whose
/// locks may be held permanently.
///
/// Values are never freed: one for each generation of processes.
pub struct PerProcess<T: 'static> {
    current: AtomicPtr<(u32, T)>,
}

impl<T: Send + Sync> PerProcess<T> {
    /// No value yet.
    pub const fn new() -> PerProcess<T> {
        PerProcess { current: AtomicPtr::new(ptr::null_mut()) }
    }

    /// The value of this process. If two threads make it at the same time, one value is dropped.
    pub fn get(&self, make: impl FnOnce() -> T) -> &'static T {
        let count = fork_count();
        let mut seen = self.current.load(Ordering::Acquire);
        if let Some(value) = value_of(seen, count) {
            return value;
        }
        let made = Box::into_raw(Box::new((count, make())));
        loop {
            match self.current.compare_exchange(seen, made, Ordering::AcqRel, Ordering::Acquire) {
                // SAFETY: it was made above, is never freed from now on, and only shared references to it exist.
                Ok(_) => return unsafe { &(*made).1 },
                Err(other) => seen = other,
            }
            if let Some(value) = value_of(seen, count) {
                // SAFETY: it was made above by `into_raw`, and nothing else refers to it.
                drop(unsafe { Box::from_raw(made) });
                return value;
            }
        }
    }
}

impl<T: Send + Sync> Default for PerProcess<T> {
    fn default() -> PerProcess<T> {
        PerProcess::new()
    }
}

impl<T> std::fmt::Debug for PerProcess<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PerProcess").finish_non_exhaustive()
    }
}

/// The value behind the pointer, if the process with this count made it.
fn value_of<T>(at: *mut (u32, T), count: u32) -> Option<&'static T> {
    // SAFETY: null, or a value that `get` has published and that is never freed; only shared references to it exist.
    let (of, value) = unsafe { at.as_ref() }?;
    (*of == count).then_some(value)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fork::run_in_child;

    #[test]
    fn child_counts_one_more() {
        let before = fork_count();
        let status = run_in_child(|| assert_eq!(fork_count(), before + 1)).unwrap();
        assert_eq!((status, fork_count()), (0, before));
    }

    #[test]
    fn value_is_made_once_in_each_process() {
        static VALUE: PerProcess<u32> = PerProcess::new();
        let threads: Vec<_> = (0..8).map(|n| std::thread::spawn(move || *VALUE.get(|| n))).collect();
        let values: Vec<u32> = threads.into_iter().map(|thread| thread.join().unwrap()).collect();
        let value = *VALUE.get(|| 99);
        assert!(value < 8 && values.iter().all(|other| *other == value));
        let status = run_in_child(|| assert_eq!(*VALUE.get(|| 99), 99)).unwrap();
        assert_eq!((status, *VALUE.get(|| 99)), (0, value));
    }
}
