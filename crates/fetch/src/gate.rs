//! When the program may start.
//!
//! The gate is, among others, the reading end of a pipe: it becomes readable (end of file) when the writing end is
//! closed. So whoever waits for it can wait for signals and a deadline in the same poll.

use std::io::{self, PipeReader, PipeWriter};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// Opened once.
#[derive(Debug)]
pub struct Gate {
    waiting: PipeReader,
    /// Its drop is the opening. With it, when that was.
    closed: Mutex<(Option<PipeWriter>, Duration)>,
    began: Instant,
}

impl Gate {
    /// Closed; its clock starts.
    pub fn new() -> io::Result<Gate> {
        let (waiting, writer) = io::pipe()?;
        Ok(Gate { waiting, closed: Mutex::new((Some(writer), Duration::ZERO)), began: Instant::now() })
    }

    /// Lets the program start. Later calls change nothing.
    pub fn open(&self) {
        let mut closed = self.closed.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        if closed.0.take().is_some() {
            closed.1 = self.began.elapsed();
        }
    }

    /// How long after its creation it was opened; zero while it is closed.
    pub fn opened_after(&self) -> Duration {
        self.closed.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).1
    }
}

impl AsFd for Gate {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.waiting.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_waits_goes_on_when_it_opens() {
        let gate = Gate::new().unwrap();
        let read_to_end = || std::io::read_to_string(&gate.waiting).unwrap();
        std::thread::scope(|scope| {
            let waiter = scope.spawn(read_to_end);
            assert_eq!(gate.opened_after(), Duration::ZERO);
            gate.open();
            gate.open();
            waiter.join().unwrap();
        });
        read_to_end();
        assert!(gate.opened_after() > Duration::ZERO);
    }
}
