//! Turns of readers on a device that seeks.
//!
//! ```text
//!     reader 1   miss ▸ request 1 MiB ▸ page is there │
//!     reader 2   miss ▸ request 1 MiB ▸ ············· page is there │
//!     reader 3   miss ┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄ waits  ▸ request 1 MiB ▸ …
//! ```
//!
//! Without turns, the requests of 64 readers are in the queue of the device at the same time. The scheduler's deadline (`read_expire` of
//! mq-deadline, 500 ms) then passes for most of them, and it serves them in the order of their arrival: the parts of one reader's request, which the
//! block layer has split, are no longer next to each other, and each part costs a seek.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

/// Readers that have their turn at the same time: while one of them copies what it has read, the device serves the other.
const AT_ONCE: usize = 2;

/// The turns of one device.
#[derive(Debug)]
pub(crate) struct Turns {
    taken: Mutex<usize>,
    ended: Condvar,
}

/// A reader's turn, until it is dropped.
#[derive(Debug)]
pub(crate) struct Turn(Arc<Turns>);

impl Turns {
    pub fn new() -> Turns {
        Turns { taken: Mutex::new(0), ended: Condvar::new() }
    }

    /// Waits for a turn.
    pub fn take(turns: &Arc<Turns>) -> Turn {
        let waited = turns.ended.wait_while(turns.lock(), |taken| *taken >= AT_ONCE);
        *waited.unwrap_or_else(PoisonError::into_inner) += 1;
        Turn(turns.clone())
    }

    fn lock(&self) -> MutexGuard<'_, usize> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        *self.0.lock() -= 1;
        self.0.ended.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    #[test]
    fn two_readers_at_once_have_a_turn_and_all_get_one() {
        let (turns, inside, most) = (Arc::new(Turns::new()), AtomicUsize::new(0), AtomicUsize::new(0));
        std::thread::scope(|scope| {
            for _ in 0..16 {
                scope.spawn(|| {
                    for _ in 0..100 {
                        let turn = Turns::take(&turns);
                        most.fetch_max(inside.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                        std::thread::yield_now();
                        inside.fetch_sub(1, Ordering::SeqCst);
                        drop(turn);
                    }
                });
            }
        });
        assert!((1..=AT_ONCE).contains(&most.into_inner()));
        assert_eq!(*turns.lock(), 0);
    }
}
