//! The handle of a prefetch for its caller: start it, hold the program for its head start, stop it, get its account.

#[cfg(test)]
mod tests;

use crate::prefetch::account::Account;
use crate::prefetch::gate::Gate;
use crate::prefetch::shared::Shared;
use crate::prefetch::{HeadStart, Replay, stages};
use ahead_fetch::{LONGEST_STILL, LOOK_INTERVAL, NOT_ANSWERING, Stop};
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// A prefetch in progress.
#[derive(Debug)]
pub struct Running {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
    /// Disconnected when the thread has ended.
    over: Receiver<()>,
}

/// Starts to prefetch the profile's pages and returns at once. If no thread can be started and no program waits, it returns when
/// all pages are prefetched.
///
/// Errors: no thread could be started. The caller then goes on without a prefetch.
pub fn start(replay: Replay) -> io::Result<Running> {
    start_with(Arc::new(Shared::new(replay)))
}

fn start_with(shared: Arc<Shared>) -> io::Result<Running> {
    let own = shared.clone();
    let (at_end, over) = mpsc::channel();
    let started = std::thread::Builder::new().name("ahead-fetch".into()).spawn(move || {
        let _at_end = at_end;
        let _opened = OpenAtEnd(&own.gate);
        stages::fetch(&own);
    });
    let thread = match started {
        Err(error) if shared.options.head_start != HeadStart::None => return Err(error),
        Err(_) => {
            stages::fetch(&shared);
            None
        }
        started => started.ok(),
    };
    Ok(Running { shared, thread, over })
}

/// Opens the gate when the prefetch ends for any reason, including a panic, so that the program starts.
struct OpenAtEnd<'a>(&'a Gate);

impl Drop for OpenAtEnd<'_> {
    fn drop(&mut self) {
        self.0.open();
    }
}

impl Running {
    /// Returns when the program should start: the head start is over, or has lasted too long. The caller starts it then.
    pub fn hold(&self) {
        let shared = &self.shared;
        while shared.gate.is_closed() {
            self.look();
            let until = held_until(shared.profile.recording.duration_us, shared.since, shared.brake.last_seen());
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                shared.gate.open();
            }
            shared.gate.wait(left.min(LOOK_INTERVAL));
        }
    }

    /// A handle that stops the prefetch from another thread.
    pub fn stopper(&self) -> Stopper {
        Stopper(self.shared.clone())
    }

    /// Waits until everything is submitted (with [`Options::wait`]: has arrived), and returns the account.
    ///
    /// If the prefetch is stopped, or has made no progress for [`NOT_ANSWERING`], this waits at most 250 ms longer: a device
    /// that does not answer blocks the worker threads, but not the caller.
    pub fn finish(mut self) -> Account {
        let over = self.wait_for_end();
        // The panic has printed its message. It must not end the program.
        let panicked = self.thread.take().is_some_and(|thread| over && thread.join().is_err());
        let has_panicked = panicked || self.shared.has_panicked.load(Ordering::Acquire);
        let mut account = self.shared.ledger.open().clone();
        if has_panicked {
            account.first_failure = Some("a prefetch thread panicked".into());
        }
        if !over || has_panicked {
            self.shared.give_up(&mut account);
        }
        if !self.shared.options.keep_ranges {
            account.ranges = Vec::new();
        }
        if !over || self.shared.is_left.load(Ordering::Acquire) {
            // close(2) waits, too, for a device that does not answer. So the files stay open until our process ends.
            std::mem::forget(self.shared.clone());
        }
        account
    }

    /// Returns whether the prefetch has ended; false: it was stopped, and its thread still runs.
    fn wait_for_end(&self) -> bool {
        let brake = &self.shared.brake;
        loop {
            if let Err(RecvTimeoutError::Disconnected) = self.over.recv_timeout(LOOK_INTERVAL) {
                return true;
            }
            self.look();
            // The thread of the prefetch gives up devices that do not answer. But if it had to do their work itself, it may wait.
            if brake.last_seen().elapsed() > NOT_ANSWERING + LAST_WORD && !brake.is_paused() {
                brake.stop(Stop::NotAnswering);
            }
            if brake.stopped().is_some_and(|(_, since)| since.elapsed() > LAST_WORD) {
                return false;
            }
        }
    }

    /// Checks the clock and memory. The thread of the prefetch does this, too, unless it has to do the work of the workers.
    fn look(&self) {
        if self.shared.brake.look() {
            self.shared.gate.open();
        }
    }
}

/// The latest start of the program. A head start takes at most three quarters of the duration of the recorded run. It is limited,
/// too, by [`LONGEST_HEAD_START`], because a profile may be wrong, and ends early if a device does not answer.
fn held_until(recorded_us: u64, began: Instant, last_seen: Instant) -> Instant {
    let recorded = match recorded_us {
        0 => UNKNOWN_HEAD_START,
        recorded_us => Duration::from_micros(recorded_us / 4 * 3),
    };
    (began + recorded.min(LONGEST_HEAD_START)).min(last_seen + LONGEST_STILL)
}

impl Drop for Running {
    /// Stops a prefetch that no caller waits for. Its thread ends by itself.
    fn drop(&mut self) {
        if self.thread.is_some() {
            self.stopper().stop();
        }
    }
}

/// Stops a prefetch.
#[derive(Clone, Debug)]
pub struct Stopper(Arc<Shared>);

impl Stopper {
    /// Stops the prefetch. Submitted requests arrive nevertheless.
    pub fn stop(&self) {
        self.0.brake.stop(Stop::Cancelled);
        self.0.gate.open();
    }
}

/// The longest head start if the recording has no duration.
const UNKNOWN_HEAD_START: Duration = Duration::from_secs(5);

/// The longest head start. The longest measured sweep, the 175 MiB of Chromium on a 7200 rpm disk, takes half of it. After ten
/// seconds, a person turns to another task (Nielsen, Usability Engineering, 1993).
pub const LONGEST_HEAD_START: Duration = Duration::from_secs(10);

/// How long a stopped prefetch may take to end by itself. Workers check the brake before each request, and one request waits
/// for 30 ms on a busy rotating disk.
const LAST_WORD: Duration = Duration::from_millis(250);
