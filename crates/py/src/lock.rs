//! A lock for the state of a Python object, which threads, signal handlers and forked children may use at any moment.
//!
//! ```text
//!     free                         taken, the GIL stays with the caller
//!     held by another thread       the caller waits without the GIL, which the other thread may need
//!     held by this thread          RuntimeError: a signal handler, or the program's iterator, uses the object that it is called from
//!     held at fork, in the child   RuntimeError: the thread that would release it exists only in the parent
//! ```
//!
//! The lock is the name of its holder: one atomic number is taken, named and released at once, so a fork at any moment leaves the child either a
//! free lock or the name of a thread that it does not have. A lock of the standard library with a name beside it is held without a name for a
//! moment, and a child that is forked then waits permanently.

#![allow(unsafe_code)]

use ahead_sys::fork_count::fork_count;
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use rustix::io::Errno;
use rustix::thread::futex;
use std::cell::UnsafeCell;
use std::num::NonZeroU32;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// No thread.
const FREE: u64 = 0;

/// A value that one thread at a time may use.
pub struct Exclusive<T> {
    value: UnsafeCell<T>,
    /// The thread that uses it, or [`FREE`].
    holder: AtomicU64,
    /// Threads that wait, or are about to. In a forked child perhaps more than there are, which costs a system call for each release.
    waiters: AtomicU32,
    /// Grows with each release while other threads wait; they sleep until it changes.
    releases: AtomicU32,
}

// SAFETY: the value is reached only through a guard, and `holder` lets one guard exist at a time.
unsafe impl<T: Send> Sync for Exclusive<T> {}

/// The value, until it is dropped.
pub struct Guard<'a, T> {
    lock: &'a Exclusive<T>,
}

impl<T: Send> Exclusive<T> {
    /// A value that no thread uses.
    pub fn new(value: T) -> Exclusive<T> {
        Exclusive {
            value: UnsafeCell::new(value),
            holder: AtomicU64::new(FREE),
            waiters: AtomicU32::new(0),
            releases: AtomicU32::new(0),
        }
    }

    /// Takes the value. Waits without the GIL while another thread uses it; handlers of signals run meanwhile.
    ///
    /// Errors: `RuntimeError` if it can never become free; the exception of a signal handler.
    pub fn enter<'a>(&'a self, py: Python<'_>) -> PyResult<Guard<'a, T>> {
        if let Some(guard) = self.try_enter() {
            return Ok(guard);
        }
        loop {
            self.refuse_endless_wait()?;
            // Taken without the GIL: a thread that holds the GIL between two short uses would otherwise always be first.
            if let Some(guard) = py.detach(|| self.wait()) {
                return Ok(guard);
            }
            py.check_signals()?;
        }
    }

    /// Takes the value if no thread uses it.
    pub fn try_enter(&self) -> Option<Guard<'_, T>> {
        self.holder.compare_exchange(FREE, this_thread(), Ordering::SeqCst, Ordering::Relaxed).ok()?;
        Some(Guard { lock: self })
    }

    /// Takes the value when it was released. `None`: a signal has arrived before.
    fn wait(&self) -> Option<Guard<'_, T>> {
        self.waiters.fetch_add(1, Ordering::SeqCst);
        let taken = loop {
            let seen = self.releases.load(Ordering::SeqCst);
            if let Some(guard) = self.try_enter() {
                break Some(guard);
            }
            // Returns at once if the number has changed since.
            if futex::wait(&self.releases, futex::Flags::PRIVATE, seen, None) == Err(Errno::INTR) {
                break None;
            }
        };
        self.waiters.fetch_sub(1, Ordering::SeqCst);
        taken
    }

    fn refuse_endless_wait(&self) -> PyResult<()> {
        let holder = self.holder.load(Ordering::Relaxed);
        if holder == this_thread() {
            return Err(PyRuntimeError::new_err("reentrant call: this thread is using the object already"));
        }
        if holder != FREE && holder >> 32 != u64::from(fork_count()) {
            let message =
                "another thread was using the object when this process was forked; make a new one in the child";
            return Err(PyRuntimeError::new_err(message));
        }
        Ok(())
    }
}

impl<T> Deref for Guard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: this guard is the only one, and lends the value as it is borrowed itself.
        unsafe { &*self.lock.value.get() }
    }
}

impl<T> DerefMut for Guard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as above.
        unsafe { &mut *self.lock.value.get() }
    }
}

impl<T> Drop for Guard<'_, T> {
    fn drop(&mut self) {
        self.lock.holder.store(FREE, Ordering::SeqCst);
        if self.lock.waiters.load(Ordering::SeqCst) > 0 {
            self.lock.releases.fetch_add(1, Ordering::SeqCst);
            // All of them: the one that is woken may have to raise the exception of a signal handler instead.
            let _ = futex::wake(&self.lock.releases, futex::Flags::PRIVATE, i32::MAX as u32);
        }
    }
}

/// A number for this thread that no other thread of this process, and no thread of its parents, has: fork count and a running number, not 0.
fn this_thread() -> u64 {
    static NEXT: AtomicU32 = AtomicU32::new(1);
    thread_local! {
        static NUMBER: NonZeroU32 = NonZeroU32::new(NEXT.fetch_add(1, Ordering::Relaxed)).unwrap_or(NonZeroU32::MAX);
    }
    u64::from(fork_count()) << 32 | u64::from(NUMBER.with(|number| number.get()))
}
