//! Locks whose holder panicked.
//!
//! The state behind our locks is consistent at each point where a holder could panic, so another thread's panic is no reason to stop the
//! others: a prefetch that loses one worker still serves its program.

use std::sync::PoisonError;

/// Ignores that a lock's holder panicked.
pub trait IgnorePoison {
    /// The guard, or what else the lock gives.
    type Guard;

    /// The guard, whether or not another thread panicked while it held the lock.
    fn ignore_poison(self) -> Self::Guard;
}

impl<Guard> IgnorePoison for Result<Guard, PoisonError<Guard>> {
    type Guard = Guard;

    fn ignore_poison(self) -> Guard {
        self.unwrap_or_else(PoisonError::into_inner)
    }
}
