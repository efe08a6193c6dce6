//! A gate that readers wait at until all of them are there. Unlike a barrier it can be called off, for threads may be refused.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

#[derive(Default)]
struct State {
    waiting: usize,
    /// Whether they may go, once that is decided.
    go: Option<bool>,
}

/// Closed until it is opened or called off, once.
#[derive(Default)]
pub struct Gate {
    state: Mutex<State>,
    changed: Condvar,
}

impl Gate {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until it opens; `false`: it was called off.
    pub fn wait(&self) -> bool {
        let mut state = self.lock();
        state.waiting += 1;
        self.changed.notify_all();
        let decided = self.changed.wait_while(state, |state| state.go.is_none());
        decided.unwrap_or_else(PoisonError::into_inner).go == Some(true)
    }

    /// Opens it once so many wait; `before` is taken while all of them stand there.
    pub fn open<T>(&self, readers: usize, before: impl FnOnce() -> T) -> T {
        let waited = self.changed.wait_while(self.lock(), |state| state.waiting < readers);
        let mut state = waited.unwrap_or_else(PoisonError::into_inner);
        let taken = before();
        state.go = Some(true);
        self.changed.notify_all();
        taken
    }

    /// Sends everybody away.
    pub fn call_off(&self) {
        self.lock().go = Some(false);
        self.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Regression: where the system refused a thread, those before it waited for ever.
    #[test]
    fn who_waits_goes_or_is_sent_away() {
        for goes in [true, false] {
            let gate = Gate::default();
            let went: Vec<bool> = std::thread::scope(|scope| {
                let threads: Vec<_> = (0..3).map(|_| scope.spawn(|| gate.wait())).collect();
                if goes {
                    assert_eq!(gate.open(3, || 7), 7);
                } else {
                    gate.call_off();
                }
                threads.into_iter().map(|thread| thread.join().unwrap()).collect()
            });
            assert_eq!(went, [goes; 3]);
        }
    }
}
