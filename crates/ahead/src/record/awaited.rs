//! Recording the next start of a program that any process starts: the observer is attached before, and follows the first exec of the program itself.
//!
//! ```text
//!     arm ──▶ attached, idle ──▶ first exec of a program: followed ──▶ window over, or last process ended ──▶ learn ──▶ Recording
//!                                       └─ as_fd() is readable
//! ```
//!
//! No setting is changed and no cache is evicted, so the profile is an upper bound. Lookups of paths are not recorded: observing them slows down
//! every system call of the machine.

use super::exact::mapped_folio_pages;
use super::read_ahead::SwitchedOn;
use super::recorder::{RecordedRun, evaluate, with_signals};
use super::source::{Observer, Source};
use super::{Recorder, Recording, Run};
use crate::notify::Notify;
use crate::until::Finished;
use crate::{Error, Result};
use ahead_observe::{FirstExec, Options, ProgramFile, Scope, Tracer, now_ns};
use ahead_process::Signals;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant, SystemTime};

/// A recorder that waits for a start. Dropping it detaches the observer.
#[derive(Debug)]
pub struct ArmedRecorder {
    recorder: Recorder,
    tracer: Tracer,
    setup: Duration,
}

impl Recorder {
    /// Waits for the first start of one of these programs, and observes it for [`Recorder::duration`] or until its last process has ended. Exactly
    /// one start is observed, and its exec waits for nothing. `memory_bytes`: the most memory of the kernel's ring buffer and tables. Takes some
    /// hundred milliseconds. Needs root.
    ///
    /// [`Recorder::starts_cold`]: metadata that is read counts as that of a cold start. [`Recorder::source`]: a kind of BPF programs.
    ///
    /// # Errors
    /// Not permitted or not supported here.
    pub fn arm(&self, programs: &[ProgramFile], memory_bytes: u64) -> Result<ArmedRecorder> {
        let began = Instant::now();
        let source = match self.source {
            Some(Source::Bpf(source)) => Some(source),
            Some(other) => return Err(Error::Failed(format!("{} cannot wait for a start", other.name()))),
            None => None,
        };
        let (scope, memory_bytes) = (Scope::FirstStart(programs.to_vec()), Some(memory_bytes));
        let tracer = Tracer::start(&Options { scope, source, memory_bytes, ..Options::default() })?;
        Ok(ArmedRecorder { recorder: self.clone(), tracer, setup: began.elapsed() })
    }
}

impl ArmedRecorder {
    /// The exec with which the start began; `None`: it has not begun.
    pub fn first(&self) -> Option<&FirstExec> {
        self.tracer.awaited().and_then(|awaited| awaited.first())
    }

    /// Waits for the end of the start's window or of its last process, or for a signal, and makes its profile; `None`: no start has begun.
    ///
    /// # Errors
    /// The observer cannot be read, or a signal ended the evaluation.
    pub fn finish(self, signals: Option<&Signals>, notify: Notify<'_>) -> Result<Option<Recording>> {
        let Some(first) = self.first().cloned() else { return Ok(None) };
        let ArmedRecorder { recorder, tracer, setup } = self;
        let mut tracer = Some(tracer);
        let recording = with_signals(signals, |signals| {
            recorder.repeat(1, || {
                let tracer = tracer.take().ok_or_else(|| Error::Failed("a start is observed once".into()))?;
                recorder.observe_start(tracer, &first, setup, signals, notify)
            })
        })?;
        Ok(Some(recording))
    }
}

impl AsFd for ArmedRecorder {
    /// Readable from the begin of the start on.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.tracer.awaited().expect("it waits for a start").began()
    }
}

impl Recorder {
    fn observe_start(
        &self,
        tracer: Tracer,
        first: &FirstExec,
        setup: Duration,
        signals: &Signals,
        notify: Notify<'_>,
    ) -> Result<RecordedRun> {
        let running = Duration::from_nanos(now_ns().saturating_sub(first.time_ns));
        let left = self.duration.map(|window| window.saturating_sub(running));
        let over = tracer.awaited().expect("it waits for a start").over();
        wait_for_end(over, signals, left)?;
        let (now, ended_ns) = (Instant::now(), now_ns());
        let ended_ns = self.duration.map_or(ended_ns, |window| {
            ended_ns.min(first.time_ns.saturating_add(u64::try_from(window.as_nanos()).unwrap_or(u64::MAX)))
        });
        let since_start = Duration::from_nanos(now_ns().saturating_sub(first.time_ns));
        let run = Run {
            command: first.command.clone(),
            directory: first.directory.clone(),
            started_ns: first.time_ns,
            ended_ns,
            started: SystemTime::now() - since_start,
            cpu: Duration::ZERO,
            ready_ns: None,
            cold: self.starts_cold,
            precise: false,
            read_ahead_off: false,
            mapped_folio_pages: mapped_folio_pages(),
            single_faults: false,
        };
        let finished = Finished { status: 0, at: now, observed_until: now, ready: false, stopped: None };
        evaluate(Observer::Bpf(Box::new(tracer)), run, SwitchedOn::default(), setup, finished, signals, notify)
    }
}

/// Returns when the last process has ended, this time has passed, or a signal has arrived.
fn wait_for_end(over: BorrowedFd<'_>, signals: &Signals, left: Option<Duration>) -> Result<()> {
    let deadline = left.and_then(|left| Instant::now().checked_add(left));
    let mut ready = [PollFd::new(signals, PollFlags::IN), PollFd::from_borrowed_fd(over, PollFlags::IN)];
    loop {
        let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        let left = left.map(|left| Timespec { tv_sec: left.as_secs() as i64, tv_nsec: left.subsec_nanos().into() });
        match poll(&mut ready, left.as_ref()) {
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(Error::io("wait", error.into())),
            Ok(_) => {
                // Taken: a further signal ends the evaluation.
                let _ = signals.poll();
                return Ok(());
            }
        }
    }
}
