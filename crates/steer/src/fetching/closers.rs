//! Threads that close taken descriptors of file systems whose close may wait for a daemon or a server.
//!
//! ```text
//!     reserve ─▶ a thread waits? ─▶ take the descriptor, act ─▶ give it to that thread ─▶ it closes at once
//!        │ both threads wait for the file system: nothing is taken
//! ```
//!
//! There is no queue: a descriptor is only taken while a thread waits for it, so that it is never held longer than the thread needs to run.

use super::{Report, locked};
use ahead_sys::{background, priority};
use std::os::fd::OwnedFd;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Threads of a device: one that does not come back must not stop the others at once.
const MOST: usize = 2;

/// Time within which a new thread waits for a descriptor; it usually takes less than 100 µs. After it, the act is not done.
const START: Duration = Duration::from_millis(5);

/// A thread without work ends after this time.
const THREAD_IDLE: Duration = Duration::from_secs(5);

#[derive(Debug, Default)]
struct State {
    threads: usize,
    /// Threads that wait, without the reserved ones.
    waiting: usize,
    /// Each one for a reserved thread.
    given: Vec<(OwnedFd, Instant)>,
    has_ended: bool,
}

/// The threads of one device.
#[derive(Debug)]
pub(super) struct Closers {
    state: Mutex<State>,
    /// A descriptor is given.
    given: Condvar,
    /// A thread waits.
    waits: Condvar,
    report: Arc<Report>,
}

/// A reserved thread, which waits for one descriptor.
#[derive(Debug)]
pub(crate) struct Closer(Arc<Closers>);

impl Closer {
    /// Gives it the descriptor. `taken`: when it was taken.
    pub(crate) fn close(self, descriptor: OwnedFd, taken: Instant) {
        locked(&self.0.state).given.push((descriptor, taken));
        // The thread is not reserved any more, but busy: the drop must not count it as waiting.
        let closers = Arc::clone(&self.0);
        std::mem::forget(self);
        closers.given.notify_one();
    }
}

impl Drop for Closer {
    fn drop(&mut self) {
        locked(&self.0.state).waiting += 1;
    }
}

impl Closers {
    pub(super) fn new(report: Arc<Report>) -> Closers {
        Closers { state: Mutex::default(), given: Condvar::new(), waits: Condvar::new(), report }
    }

    /// A thread that waits, started if necessary. `None`: all of them wait for the file system.
    pub(super) fn reserve(self: &Arc<Closers>) -> Option<Closer> {
        let mut state = locked(&self.state);
        if state.waiting == 0 && state.threads < MOST && self.start() {
            state.threads += 1;
            let started = self.waits.wait_timeout_while(state, START, |state| state.waiting == 0);
            state = started.unwrap_or_else(PoisonError::into_inner).0;
        }
        state.waiting = state.waiting.checked_sub(1)?;
        Some(Closer(Arc::clone(self)))
    }

    /// Whether it has threads.
    pub(super) fn is_active(&self) -> bool {
        locked(&self.state).threads > 0
    }

    /// The threads end.
    pub(super) fn end(&self) {
        locked(&self.state).has_ended = true;
        self.given.notify_all();
    }

    fn start(self: &Arc<Closers>) -> bool {
        self.report.start_thread(|| {
            let closers = Arc::clone(self);
            // Before every ordinary thread: the descriptor of a process is held.
            background::spawn("ahead-close", move || priority::without_interruption(|| closers.work()))
        })
    }

    fn work(&self) {
        while let Some((descriptor, taken)) = self.next() {
            drop(descriptor);
            locked(&self.report.held).add(taken.elapsed());
        }
        self.report.threads.fetch_sub(1, Ordering::Relaxed);
    }

    /// `None`: the thread ends.
    fn next(&self) -> Option<(OwnedFd, Instant)> {
        let mut state = locked(&self.state);
        state.waiting += 1;
        self.waits.notify_one();
        loop {
            if let Some(given) = state.given.pop() {
                return Some(given);
            }
            let until_given = |state: &mut State| state.given.is_empty() && !state.has_ended;
            let waited = self.given.wait_timeout_while(state, THREAD_IDLE, until_given);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
            // A reserved thread stays.
            if state.given.is_empty() && (state.has_ended || state.waiting > 0) {
                state.waiting = state.waiting.saturating_sub(1);
                state.threads -= 1;
                return None;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{PipeReader, Read, pipe};

    fn descriptor() -> (PipeReader, OwnedFd) {
        let (reader, writer) = pipe().unwrap();
        (reader, writer.into())
    }

    /// Until the descriptor is closed.
    fn await_close(mut reader: PipeReader) {
        assert_eq!(reader.read(&mut [0]).unwrap(), 0);
    }

    fn reserved(closers: &Arc<Closers>) -> Closer {
        let began = Instant::now();
        loop {
            // A machine under load may start the thread late.
            if let Some(closer) = closers.reserve() {
                return closer;
            }
            assert!(began.elapsed() < Duration::from_secs(60));
        }
    }

    #[test]
    fn reserved_thread_closes_and_waits_again() {
        let closers = Arc::new(Closers::new(Arc::default()));
        for _ in 0..3 {
            let (reader, writer) = descriptor();
            reserved(&closers).close(writer, Instant::now());
            await_close(reader);
        }
        // One that is not used waits again.
        let (first, second) = (reserved(&closers), reserved(&closers));
        drop((first, second));
        assert!(closers.is_active() && locked(&closers.state).threads <= MOST);
        closers.end();
        let began = Instant::now();
        while closers.is_active() || closers.report.threads.load(Ordering::Relaxed) > 0 {
            assert!(began.elapsed() < Duration::from_secs(60));
            std::thread::yield_now();
        }
        assert_eq!(locked(&closers.report.held).count(), 3);
    }

    /// Regression: a taken descriptor waited in a queue while the file system did not answer.
    #[test]
    fn file_system_that_does_not_answer_gets_no_more_descriptors() {
        let closers = Arc::new(Closers::new(Arc::default()));
        // As if both threads were in close(2).
        locked(&closers.state).threads = MOST;
        assert!(closers.reserve().is_none());
        assert!(locked(&closers.state).given.is_empty());
    }

    /// Regression: a descriptor was closed by the caller, which may never come back from it.
    #[test]
    fn caller_does_not_close_if_no_thread_can_be_started() {
        let report = Arc::new(Report::default());
        report.threads.store(super::super::MOST_THREADS, Ordering::Relaxed);
        let closers = Arc::new(Closers::new(report));
        assert!(closers.reserve().is_none());
        assert!(!closers.is_active());
    }
}
