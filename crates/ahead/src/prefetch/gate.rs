//! When the program may start.

use ahead_sys::locks::IgnorePoison;
use std::sync::{Condvar, Mutex, MutexGuard};
use std::time::{Duration, Instant};

/// Opens once, and stays open.
#[derive(Debug)]
pub struct Gate {
    /// The time from its creation to its opening.
    opened_after: Mutex<Option<Duration>>,
    opened: Condvar,
    began: Instant,
}

impl Gate {
    /// A closed gate. Its clock starts now.
    pub fn new() -> Gate {
        Gate { opened_after: Mutex::new(None), opened: Condvar::new(), began: Instant::now() }
    }

    /// Lets the program start. Later calls change nothing.
    pub fn open(&self) {
        self.lock().get_or_insert_with(|| self.began.elapsed());
        self.opened.notify_all();
    }

    /// Whether the program has to wait.
    pub fn is_closed(&self) -> bool {
        self.lock().is_none()
    }

    /// Waits until the gate is open, at most for `longest`.
    pub fn wait(&self, longest: Duration) {
        let waited = self.opened.wait_timeout_while(self.lock(), longest, |opened| opened.is_none());
        drop(waited);
    }

    /// The time from its creation to its opening; zero while it is closed.
    pub fn opened_after(&self) -> Duration {
        self.lock().unwrap_or_default()
    }

    fn lock(&self) -> MutexGuard<'_, Option<Duration>> {
        self.opened_after.lock().ignore_poison()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waiting_thread_goes_on_when_the_gate_opens() {
        let (gate, long) = (Gate::new(), Duration::from_secs(3600));
        std::thread::scope(|scope| {
            let waiter = scope.spawn(|| gate.wait(long));
            assert_eq!((gate.opened_after(), gate.is_closed()), (Duration::ZERO, true));
            gate.open();
            waiter.join().unwrap();
        });
        let opened = gate.opened_after();
        gate.open();
        gate.wait(long);
        assert!(opened > Duration::ZERO && gate.opened_after() == opened && !gate.is_closed());
    }

    #[test]
    fn wait_ends_at_its_timeout_and_the_gate_stays_closed() {
        let gate = Gate::new();
        gate.wait(Duration::from_millis(1));
        assert!(gate.is_closed());
    }
}
