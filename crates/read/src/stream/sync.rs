//! The primitives of the hand-over queue: those of the standard library, or shuttle's, which try many schedules of the threads.

#[cfg(not(all(test, feature = "shuttle")))]
pub(crate) use std::sync::{Condvar, Mutex};

#[cfg(all(test, feature = "shuttle"))]
pub(crate) use shuttle::sync::{Condvar, Mutex};
