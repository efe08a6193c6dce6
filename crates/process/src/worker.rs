//! A part of this program that runs in a process of its own.
//!
//! The kernel does not let a process end while one of its threads waits for a device. Work that may wait for a device that does not answer
//! is therefore done by a worker, and the process that has to end in time is another one.
//!
//! ```text
//!     Worker::fork ──▶ the worker does its work
//!         │              │ results    │ messages              ▲
//!         └─ receive ◀───┘            ▼                       │
//!                ╰──▶ received    standard error    cancel, or our end
//! ```
//!
//! A process that reads a pipe to its end waits for every process that has the other end open, and a worker may outlive the command by
//! hours. So a worker has none of its caller's descriptors: its standard input and output are /dev/null, its standard error is a pipe to
//! us, and we write what comes through it to our own standard error. Messages of a worker after our end are lost.

use crate::signals::Signals;
use ahead_sys::{Error, Result, fork, polling};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{PidfdFlags, pidfd_open};
use std::io::{self, PipeReader, PipeWriter, Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

/// A worker, seen from the process that started it. Dropped, it is cancelled and continues to its end alone.
#[derive(Debug)]
pub struct Worker {
    pidfd: OwnedFd,
    results: Option<PipeReader>,
    messages: Option<PipeReader>,
    received: Vec<u8>,
    /// Closing it cancels the worker.
    keep: Option<PipeWriter>,
}

/// The pipe through which a worker returns its results; dropped, the results are complete.
#[derive(Debug)]
pub struct ResultPipe(PipeWriter);

/// Tells a worker when its work is not needed any more.
#[derive(Debug)]
pub struct CancelToken(PipeReader);

/// Read at a time. A pipe that can be written to takes as much without blocking (`PIPE_BUF`, pipe(7)).
const CHUNK_BYTES: usize = 4096;

impl Worker {
    /// Forks a worker. It has our memory and our blocked signals, and no descriptor of ours: `work` must own none.
    ///
    /// Errors: there are threads already (a copy without them might wait for ever for a lock that one of them holds).
    pub fn fork(work: impl FnOnce(ResultPipe, CancelToken)) -> Result<Worker> {
        let pipe = || io::pipe().map_err(|e| Error::io("pipe", e));
        let ((results, result_writer), (cancel_reader, keep), (messages, message_writer)) = (pipe()?, pipe()?, pipe()?);
        let kept = [OwnedFd::from(result_writer), OwnedFd::from(cancel_reader)];
        let pid = fork::fork_worker(kept, message_writer.into(), |[results, cancelled]| {
            work(ResultPipe(results.into()), CancelToken(cancelled.into()));
        })?;
        let pidfd = pidfd_open(pid, PidfdFlags::empty()).map_err(|e| Error::io("pidfd_open", e))?;
        for stream in [&results, &messages] {
            rustix::io::ioctl_fionbio(stream, true).map_err(|e| Error::io("read a pipe without waiting", e))?;
        }
        let (results, messages) = (Some(results), Some(messages));
        Ok(Worker { pidfd, results, messages, received: Vec::new(), keep: Some(keep) })
    }

    /// Tells the worker that its work is not needed any more.
    pub fn cancel(&mut self) {
        self.keep = None;
    }

    /// The descriptors that become readable when the worker has written something, or has closed its end.
    pub fn streams(&self) -> Vec<BorrowedFd<'_>> {
        [&self.results, &self.messages].into_iter().flatten().map(AsFd::as_fd).collect()
    }

    /// Reads what the worker has written, without waiting: results are kept, messages go to our standard error.
    pub fn receive(&mut self) {
        let received = &mut self.received;
        take(&mut self.results, |bytes| received.extend(bytes));
        take(&mut self.messages, pass_on);
    }

    /// The results that were received so far.
    pub fn received(&self) -> &[u8] {
        &self.received
    }

    /// Whether all results were received.
    pub fn is_complete(&self) -> bool {
        self.results.is_none()
    }

    /// Waits until the worker has written something, a signal has arrived (which is returned) or the deadline has passed, and reads.
    pub fn wait(&mut self, signals: &Signals, deadline: Option<Instant>) -> Result<Option<i32>> {
        self.wait_for(signals.as_fd(), deadline)?;
        self.receive();
        Ok(signals.poll().map(|signal| signal.number))
    }

    /// Waits until all results were received (`true`), at most for `timeout`.
    pub fn wait_complete(&mut self, timeout: Duration) -> Result<bool> {
        let deadline = Instant::now() + timeout;
        while !self.is_complete() && Instant::now() < deadline {
            self.wait_for(self.pidfd.as_fd(), Some(deadline))?;
            self.receive();
        }
        Ok(self.is_complete())
    }

    /// Waits for the worker's end (`true`), at most for `timeout`, and reads what it writes meanwhile. A worker that waits for a device does
    /// not end before the device answers.
    pub fn wait_end(&mut self, timeout: Duration) -> Result<bool> {
        let deadline = Instant::now() + timeout;
        loop {
            let ended = self.wait_for(self.pidfd.as_fd(), Some(deadline))?;
            self.receive();
            if ended || Instant::now() >= deadline {
                return Ok(ended);
            }
        }
    }

    /// Waits for the worker's streams and for `other`, and returns whether `other` is ready.
    fn wait_for(&self, other: BorrowedFd<'_>, deadline: Option<Instant>) -> Result<bool> {
        let fds = [other].into_iter().chain(self.streams());
        let mut fds: Vec<PollFd<'_>> = fds.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)).collect();
        polling::until(&mut fds, deadline)?;
        Ok(!fds[0].revents().is_empty())
    }
}

/// Passes the bytes that have come through a pipe to `use_bytes`, and drops the pipe at its end. A pipe that cannot be read is at its
/// end, too: a process that waits for a program must not fail for it.
fn take(pipe: &mut Option<PipeReader>, mut use_bytes: impl FnMut(&[u8])) {
    let mut chunk = [0; CHUNK_BYTES];
    while let Some(reader) = pipe {
        match reader.read(&mut chunk) {
            Ok(length @ 1..) => use_bytes(&chunk[..length]),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Ok(0) | Err(_) => *pipe = None,
        }
    }
}

/// Writes a worker's messages to our standard error, unless that would block: a stopped terminal, a pipe that no process reads.
fn pass_on(bytes: &[u8]) {
    let errors = io::stderr();
    let ready = poll(&mut [PollFd::new(&errors, PollFlags::OUT)], Some(&polling::timespec(Duration::ZERO)));
    if ready.is_ok_and(|ready| ready > 0) {
        // The reader of our standard error may have ended.
        let _ = errors.lock().write_all(bytes);
    }
}

impl CancelToken {
    /// Returns when the worker was cancelled, or the process that started it has ended.
    pub fn wait(mut self) {
        // Nothing is ever written. After an error no cancellation can arrive any more.
        let _ = self.0.read(&mut [0]);
    }
}

impl Write for ResultPipe {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
