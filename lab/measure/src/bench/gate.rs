//! A gate that opens when all readers wait at it. Unlike a barrier, the gate can be cancelled, because the kernel may refuse a thread.

use ahead_sys::locks::IgnorePoison;
use std::sync::{Condvar, Mutex, MutexGuard};

#[derive(Default)]
struct GateState {
    waiting: usize,
    /// `true`: open; `false`: cancelled; `None`: undecided.
    is_open: Option<bool>,
}

/// Closed until it is opened or cancelled, once.
#[derive(Default)]
pub struct Gate {
    state: Mutex<GateState>,
    changed: Condvar,
}

impl Gate {
    fn lock(&self) -> MutexGuard<'_, GateState> {
        self.state.lock().ignore_poison()
    }

    /// Waits until the gate opens; `false`: the gate was cancelled.
    pub fn wait(&self) -> bool {
        let mut state = self.lock();
        state.waiting += 1;
        self.changed.notify_all();
        let decided = self.changed.wait_while(state, |state| state.is_open.is_none());
        decided.ignore_poison().is_open == Some(true)
    }

    /// Opens the gate when `readers` threads wait. Calls `before` right before the opening, and returns its value.
    pub fn open<T>(&self, readers: usize, before: impl FnOnce() -> T) -> T {
        let waited = self.changed.wait_while(self.lock(), |state| state.waiting < readers);
        let mut state = waited.ignore_poison();
        let taken = before();
        state.is_open = Some(true);
        self.changed.notify_all();
        taken
    }

    /// Cancels the wait of all threads.
    pub fn cancel(&self) {
        self.lock().is_open = Some(false);
        self.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Regression: when the kernel refused a thread, the threads before it waited without end.
    #[test]
    fn waiting_threads_go_on_or_are_cancelled() {
        for goes in [true, false] {
            let gate = Gate::default();
            let went: Vec<bool> = std::thread::scope(|scope| {
                let threads: Vec<_> = (0..3).map(|_| scope.spawn(|| gate.wait())).collect();
                if goes {
                    assert_eq!(gate.open(3, || 7), 7);
                } else {
                    gate.cancel();
                }
                threads.into_iter().map(|thread| thread.join().unwrap()).collect()
            });
            assert_eq!(went, [goes; 3]);
        }
    }
}
