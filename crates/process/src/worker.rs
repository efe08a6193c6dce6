//! A part of this program that runs in a separate process.
//!
//! The kernel does not let a process end while one of its threads waits for a device. Therefore a worker does the work that may
//! wait for a silent device; another process, its parent, must end in time.
//!
//! ```text
//!     Worker::fork ──▶ the worker does its work
//!         │              │ results    │ messages              ▲
//!         └─ receive ◀───┘            ▼                       │
//!                ╰──▶ received    standard error    cancel, or the parent's end
//! ```
//!
//! A reader that reads a pipe to its end waits for every process that has the write end open, and a worker may outlive its
//! command by hours. Therefore a worker inherits no descriptor: its standard input and output are /dev/null. Its standard error
//! is a pipe to its parent, which copies the text to its own standard error. Messages of a worker after the parent's end are
//! lost.

use crate::signals::Signals;
use ahead_sys::{Error, Result, fork, polling};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{PidfdFlags, WaitId, WaitIdOptions, pidfd_open, waitid};
use std::io::{self, PipeReader, PipeWriter, Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

/// A worker, seen from its parent. Dropping it cancels the worker, which then runs to its end alone.
#[derive(Debug)]
pub struct Worker {
    pidfd: OwnedFd,
    results: Option<PipeReader>,
    messages: Option<PipeReader>,
    received: Vec<u8>,
    /// Closing it cancels the worker.
    keep: Option<PipeWriter>,
}

/// The pipe through which a worker returns its results. Dropping it completes the results.
#[derive(Debug)]
pub struct ResultPipe(PipeWriter);

/// Tells a worker when its work is not needed any more.
#[derive(Debug)]
pub struct CancelToken(PipeReader);

/// Size of a read. A pipe that is ready accepts as much without blocking (`PIPE_BUF`, pipe(7)).
const CHUNK_BYTES: usize = 4096;

impl Worker {
    /// Forks a worker. It has our memory and our blocked signals, but none of our descriptors: `work` must own none.
    ///
    /// Errors: this process has several threads (in the copy, a lock of another thread would never be released).
    pub fn fork(work: impl FnOnce(ResultPipe, CancelToken)) -> Result<Worker> {
        let pipe = || io::pipe().map_err(|e| Error::io("pipe", e));
        let ((results, result_writer), (cancel_reader, keep), (messages, message_writer)) = (pipe()?, pipe()?, pipe()?);
        let kept = [OwnedFd::from(result_writer), OwnedFd::from(cancel_reader)];
        let pid = fork::fork_worker(kept, message_writer.into(), |[results, cancelled]| {
            work(ResultPipe(results.into()), CancelToken(cancelled.into()));
        })?;
        let pidfd = pidfd_open(pid, PidfdFlags::empty()).map_err(|e| Error::io("pidfd_open", e))?;
        for stream in [&results, &messages] {
            rustix::io::ioctl_fionbio(stream, true).map_err(|e| Error::io("set a pipe to non-blocking", e))?;
        }
        let (results, messages) = (Some(results), Some(messages));
        Ok(Worker { pidfd, results, messages, received: Vec::new(), keep: Some(keep) })
    }

    /// Sends a number to the worker ([`CancelToken::wait`]), if that does not block. A worker that has ended does not get it.
    pub fn send(&mut self, number: u32) {
        // Four bytes fit into a pipe to which nothing else is written.
        let sent = self.keep.as_mut().map(|keep| keep.write_all(&number.to_ne_bytes()));
        tracing::trace!("{number} sent to the worker: {sent:?}");
    }

    /// Tells the worker that its work is not needed any more.
    pub fn cancel(&mut self) {
        self.keep = None;
    }

    /// The descriptors that become readable when the worker writes to or closes a stream.
    pub fn streams(&self) -> Vec<BorrowedFd<'_>> {
        [&self.results, &self.messages].into_iter().flatten().map(AsFd::as_fd).collect()
    }

    /// Reads the worker's output without waiting: keeps results, and copies messages to our standard error.
    pub fn receive(&mut self) {
        let received = &mut self.received;
        take(&mut self.results, |bytes| received.extend(bytes));
        take(&mut self.messages, pass_on);
    }

    /// The results received so far.
    pub fn received(&self) -> &[u8] {
        &self.received
    }

    /// Gives away the results received so far, so that those of long work are not kept.
    pub fn take_received(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.received)
    }

    /// Whether all results were received.
    pub fn is_complete(&self) -> bool {
        self.results.is_none()
    }

    /// Whether it has ended. Then nothing of it is left in the table of processes.
    pub fn has_ended(&self) -> bool {
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG;
        !matches!(waitid(WaitId::PidFd(self.pidfd.as_fd()), options), Ok(None))
    }

    /// Waits until the worker writes, a signal arrives (which is returned) or the deadline passes, and reads.
    pub fn wait(&mut self, signals: &Signals, deadline: Option<Instant>) -> Result<Option<i32>> {
        self.wait_for(signals.as_fd(), deadline)?;
        self.receive();
        Ok(signals.poll().map(|signal| signal.number))
    }

    /// Waits until all results are received, at most for `timeout`. Returns whether they are.
    pub fn wait_complete(&mut self, timeout: Duration) -> Result<bool> {
        let deadline = Instant::now() + timeout;
        while !self.is_complete() && Instant::now() < deadline {
            self.wait_for(self.pidfd.as_fd(), Some(deadline))?;
            self.receive();
        }
        Ok(self.is_complete())
    }

    /// Waits for the worker's end, at most for `timeout`, and reads its output. Returns whether it has ended. A worker that
    /// waits for a device ends only after the device has answered.
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

/// Passes the bytes in a pipe to `use_bytes`, and drops the pipe at its end. An error counts as the end: a parent that waits for a
/// program must not fail because of it.
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

/// Writes messages of a worker to our standard error, unless that would block (stopped terminal, pipe that no process reads).
fn pass_on(bytes: &[u8]) {
    let errors = io::stderr();
    let ready = poll(&mut [PollFd::new(&errors, PollFlags::OUT)], Some(&polling::timespec(Duration::ZERO)));
    if ready.is_ok_and(|ready| ready > 0) {
        // The reader of standard error may have ended.
        let _ = errors.lock().write_all(bytes);
    }
}

impl CancelToken {
    /// Returns when the worker is cancelled, or the parent has ended. `take` gets the numbers that the parent sends until then.
    pub fn wait(mut self, mut take: impl FnMut(u32)) {
        let mut number = [0; 4];
        // After an error no cancellation can arrive.
        while self.0.read_exact(&mut number).is_ok() {
            take(u32::from_ne_bytes(number));
        }
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
