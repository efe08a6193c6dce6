//! A fetch as its caller sees it: started, held for, stopped, and its account at the end.

#[cfg(test)]
mod tests;

use crate::prefetch::account::{Account, Ledger, Reason};
use crate::prefetch::brake::{self, Brake};
use crate::prefetch::gate::Gate;
use crate::prefetch::pool::{LONGEST_STILL, NOT_ANSWERING};
use crate::prefetch::shared::Shared;
use crate::prefetch::sources::Sources;
use crate::prefetch::{HeadStart, Options, stages};
use ahead_profile::Profile;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// A fetch under way.
#[derive(Debug)]
pub struct Running {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
    /// Disconnected when the thread is over.
    over: Receiver<()>,
}

/// Starts to fetch the profile's pages and returns at once. If no thread can be started and no program waits, it returns when
/// all pages are fetched.
///
/// Errors: no thread could be started. The caller then goes on without a fetch.
pub fn start(profile: Arc<Profile>, options: Options) -> io::Result<Running> {
    let began = Instant::now();
    let since = options.since.unwrap_or(began);
    // No deadline if the time overflows.
    let deadline = options.deadline.and_then(|deadline| since.checked_add(deadline));
    let shared = Arc::new(Shared {
        sources: Sources::new(profile.clone()),
        brake: Brake::new(options.budget_bytes, deadline, since),
        gate: Gate::new(),
        profile,
        options,
        ledger: Ledger::default(),
        began,
        since,
        has_panicked: AtomicBool::new(false),
        is_left: AtomicBool::new(false),
    });
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

/// Opens the gate when the fetch ends for any reason, a panic included: the program waits for it no longer.
struct OpenAtEnd<'a>(&'a Gate);

impl Drop for OpenAtEnd<'_> {
    fn drop(&mut self) {
        self.0.open();
    }
}

impl Running {
    /// Returns when the program should start, and is taken to do so: the head start is over, or lasts too long.
    pub fn hold(&self) {
        let shared = &self.shared;
        while shared.gate.is_closed() {
            let until = held_until(shared.profile.recording.duration_us, shared.since, shared.brake.last_seen());
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                shared.gate.open();
            }
            shared.gate.wait(left);
        }
    }

    /// Something that stops it from another thread.
    pub fn stopper(&self) -> Stopper {
        Stopper(self.shared.clone())
    }

    /// Waits until everything is submitted (or has arrived, with [`Options::wait`]) and tells what was done.
    ///
    /// Once the fetch is stopped, or has made no progress for [`NOT_ANSWERING`], it waits no longer than a moment: a device that
    /// does not answer blocks the worker threads, but not the caller.
    pub fn finish(mut self) -> Account {
        let over = self.wait_for_end();
        // The panic has printed itself; it must not become the program's end, too.
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
            // To close a file waits, too, where a device does not answer. So its files stay open until our process ends.
            std::mem::forget(self.shared.clone());
        }
        account
    }

    /// Whether it has ended, and not only was stopped.
    fn wait_for_end(&self) -> bool {
        let brake = &self.shared.brake;
        loop {
            if let Err(RecvTimeoutError::Disconnected) = self.over.recv_timeout(brake::INTERVAL) {
                return true;
            }
            brake.look_at_clock();
            // The fetch gives devices up by itself. But where there was no thread for them, its own may wait for one.
            if brake.last_seen().elapsed() > NOT_ANSWERING + LAST_WORD && !brake.is_paused() {
                brake.stop(Reason::NotAnswering);
            }
            if brake.stopped().is_some_and(|(_, since)| since.elapsed() > LAST_WORD) {
                return false;
            }
        }
    }
}

/// Three quarters of what the recorded run took are a head start at most: cold and without us it would be on its way by
/// then. But a profile may be wrong, and a device may not answer.
fn held_until(recorded_us: u64, began: Instant, last_seen: Instant) -> Instant {
    let recorded = match recorded_us {
        0 => UNKNOWN_HEAD_START,
        recorded_us => Duration::from_micros(recorded_us / 4 * 3),
    };
    (began + recorded.min(LONGEST_HEAD_START)).min(last_seen + LONGEST_STILL)
}

impl Drop for Running {
    /// Stops a fetch that no caller waits for; its thread ends by itself.
    fn drop(&mut self) {
        if self.thread.is_some() {
            self.stopper().stop();
        }
    }
}

/// Stops a fetch.
#[derive(Clone, Debug)]
pub struct Stopper(Arc<Shared>);

impl Stopper {
    /// Stops it; what was submitted arrives nevertheless.
    pub fn stop(&self) {
        self.0.brake.stop(Reason::Cancelled);
        self.0.gate.open();
    }
}

/// The longest head start where the recording does not say how long the program ran.
const UNKNOWN_HEAD_START: Duration = Duration::from_secs(5);

/// The longest head start of all. The longest sweep measured, Chromium's 175 MiB on a 7200 rpm disk, takes half of it; and
/// ten seconds are what a person waits before turning to another task (Nielsen, Usability Engineering, 1993).
pub const LONGEST_HEAD_START: Duration = Duration::from_secs(10);

/// How long a stopped fetch may take to end by itself. Workers that are not stuck look at the brake before each request,
/// and one request waits for 30 ms on a busy rotating disk.
const LAST_WORD: Duration = Duration::from_millis(250);
