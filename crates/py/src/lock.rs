//! A lock for the state of a Python object, which threads, signal handlers and forked children may use at any moment.
//!
//! ```text
//!     free                         taken, the GIL stays with the caller
//!     held by another thread       the caller waits without the GIL, which the other thread may need
//!     held by this thread          RuntimeError: a signal handler, or the program's iterator, uses the object that it is called from
//!     held at fork, in the child   RuntimeError: the thread that would release it exists only in the parent
//! ```

use ahead_sys::fork_count::fork_count;
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use pyo3::sync::MutexExt;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};

/// No thread.
const FREE: u64 = 0;

/// A value that one thread at a time may use.
pub struct Exclusive<T> {
    value: Mutex<T>,
    /// The thread that uses it, or [`FREE`].
    holder: AtomicU64,
}

/// The value, until it is dropped.
pub struct Guard<'a, T> {
    value: MutexGuard<'a, T>,
    holder: &'a AtomicU64,
}

impl<T> Exclusive<T> {
    /// A value that no thread uses.
    pub fn new(value: T) -> Exclusive<T> {
        Exclusive { value: Mutex::new(value), holder: AtomicU64::new(FREE) }
    }

    /// Takes the value. Waits without the GIL while another thread uses it.
    ///
    /// Errors: `RuntimeError` if it can never become free.
    pub fn enter<'a>(&'a self, py: Python<'_>) -> PyResult<Guard<'a, T>> {
        let this_thread = this_thread();
        let value = match self.value.try_lock() {
            Ok(value) => value,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => {
                self.refuse_endless_wait(this_thread)?;
                self.value.lock_py_attached(py).unwrap_or_else(PoisonError::into_inner)
            }
        };
        self.holder.store(this_thread, Ordering::Relaxed);
        Ok(Guard { value, holder: &self.holder })
    }

    fn refuse_endless_wait(&self, this_thread: u64) -> PyResult<()> {
        let holder = self.holder.load(Ordering::Relaxed);
        if holder == this_thread {
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
        &self.value
    }
}

impl<T> DerefMut for Guard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.value
    }
}

impl<T> Drop for Guard<'_, T> {
    fn drop(&mut self) {
        self.holder.store(FREE, Ordering::Relaxed);
    }
}

/// A number for this thread that no other thread of this process, and no thread of its parents, has: fork count and a running number.
fn this_thread() -> u64 {
    static NEXT: AtomicU32 = AtomicU32::new(1);
    thread_local! {
        static NUMBER: u32 = NEXT.fetch_add(1, Ordering::Relaxed);
    }
    u64::from(fork_count()) << 32 | u64::from(NUMBER.with(|number| *number))
}
