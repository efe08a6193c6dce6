//! A part of this program that runs in a process of its own.
//!
//! The kernel lets no process end of which a thread waits for a device. What may have to wait for a device that does not
//! answer is therefore done by a worker, and who has to end in time is another process.
//!
//! ```text
//!     Worker::fork ──▶ the worker does its work
//!         │              │ results    │ messages              ▲
//!         └── hear ◀─────┘            ▼                       │
//!                ╰──────▶ told     standard error    dismiss, or our end
//! ```
//!
//! Whoever reads a pipe to its end waits for every process that has the other end open, and a worker may outlive the command by
//! hours. So a worker has none of its caller's descriptors: its standard input and output are /dev/null, its standard error is
//! a pipe to us, and we write what comes through it to our own standard error. What a worker says after our end is lost.

#![allow(unsafe_code)]

use crate::process::Signals;
use crate::{Error, Result};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use std::fs::File;
use std::io::{self, PipeReader, PipeWriter, Read, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

/// A worker, as its employer sees it. Dropped, it is dismissed and goes on to its end alone.
#[derive(Debug)]
pub struct Worker {
    pidfd: OwnedFd,
    results: Option<PipeReader>,
    messages: Option<PipeReader>,
    told: Vec<u8>,
    /// Its end tells the worker that nobody wants it any more.
    wanted: Option<PipeWriter>,
}

/// Through this a worker gives its results; dropped, these were all.
#[derive(Debug)]
pub struct Employer(PipeWriter);

/// By this a worker knows when its work is not needed any more.
#[derive(Debug)]
pub struct Dismissal(PipeReader);

/// Read at a time. A pipe that can be written to takes as much without blocking (`PIPE_BUF`, pipe(7)).
const CHUNK_BYTES: usize = 4096;

impl Worker {
    /// Forks a worker. It has our memory and our blocked signals, and no descriptor of ours: `work` must own none.
    ///
    /// Fails where there are threads already: a copy of us without them might wait for ever for what one of them holds.
    pub fn fork(work: impl FnOnce(Employer, Dismissal)) -> Result<Worker> {
        let threads = std::fs::read_dir("/proc/self/task").map_err(|e| Error::io("count the threads", e))?.count();
        if threads != 1 {
            return Err(Error::io("fork a worker", io::Error::other(format!("there are {threads} threads"))));
        }
        let pipe = || io::pipe().map_err(|e| Error::io("pipe", e));
        let ((results, tells), (hears, wanted), (messages, warns)) = (pipe()?, pipe()?, pipe()?);
        // SAFETY: there is no other thread, so nothing that the child may want is held by somebody who is not there.
        let pid = unsafe { libc::fork() };
        let pid = match pid {
            -1 => return Err(Error::io("fork a worker", io::Error::last_os_error())),
            0 => {
                redirect_streams(Some(warns.as_fd()));
                close_all_but([tells.as_raw_fd(), hears.as_raw_fd()]);
                // Closed above.
                std::mem::forget((results, wanted, messages, warns));
                live(|| work(Employer(tells), Dismissal(hears)))
            }
            pid => Pid::from_raw(pid).expect("fork gave a positive process id"),
        };
        let pidfd = pidfd_open(pid, PidfdFlags::empty()).map_err(|e| Error::io("pidfd_open", e))?;
        for stream in [&results, &messages] {
            rustix::io::ioctl_fionbio(stream, true).map_err(|e| Error::io("read a pipe without waiting", e))?;
        }
        let (results, messages) = (Some(results), Some(messages));
        Ok(Worker { pidfd, results, messages, told: Vec::new(), wanted: Some(wanted) })
    }

    /// Tells it that its work is not needed any more.
    pub fn dismiss(&mut self) {
        self.wanted = None;
    }

    /// What becomes readable when the worker says something, or will say nothing more.
    pub fn streams(&self) -> Vec<BorrowedFd<'_>> {
        [&self.results, &self.messages].into_iter().flatten().map(AsFd::as_fd).collect()
    }

    /// Takes what it has said, without waiting: results are kept, messages go to our standard error.
    pub fn hear(&mut self) {
        let told = &mut self.told;
        take(&mut self.results, |bytes| told.extend(bytes));
        take(&mut self.messages, pass_on);
    }

    /// The results that were heard so far.
    pub fn told(&self) -> &[u8] {
        &self.told
    }

    /// Whether there are no more results to come.
    pub fn has_told_all(&self) -> bool {
        self.results.is_none()
    }

    /// Waits until it has said something, a signal has come (which is returned) or the deadline is over, and hears it.
    pub fn wait(&mut self, signals: &Signals, deadline: Option<Instant>) -> Result<Option<i32>> {
        self.wait_for(signals.as_fd(), deadline)?;
        self.hear();
        Ok(signals.poll().map(|signal| signal.number))
    }

    /// Waits until it has given all of its results, at most for `timeout`.
    pub fn wait_told(&mut self, timeout: Duration) -> Result<bool> {
        let deadline = Instant::now() + timeout;
        while !self.has_told_all() && Instant::now() < deadline {
            self.wait_for(self.pidfd.as_fd(), Some(deadline))?;
            self.hear();
        }
        Ok(self.has_told_all())
    }

    /// Waits for its end, at most for `timeout`, and hears what it says meanwhile: one that waits for a device stays until that
    /// answers.
    pub fn wait_end(&mut self, timeout: Duration) -> Result<bool> {
        let deadline = Instant::now() + timeout;
        loop {
            let ended = self.wait_for(self.pidfd.as_fd(), Some(deadline))?;
            self.hear();
            if ended || Instant::now() >= deadline {
                return Ok(ended);
            }
        }
    }

    /// Waits for its streams and for `other`; whether `other` is ready.
    fn wait_for(&self, other: BorrowedFd<'_>, deadline: Option<Instant>) -> Result<bool> {
        let fds = [other].into_iter().chain(self.streams());
        let mut fds: Vec<PollFd<'_>> = fds.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)).collect();
        loop {
            let left = deadline.map(|deadline| timespec(deadline.saturating_duration_since(Instant::now())));
            match poll(&mut fds, left.as_ref()) {
                Err(Errno::INTR) => {}
                polled => {
                    polled.map_err(|e| Error::io("wait for a worker", e))?;
                    return Ok(!fds[0].revents().is_empty());
                }
            }
        }
    }
}

fn timespec(duration: Duration) -> Timespec {
    Timespec { tv_sec: duration.as_secs() as i64, tv_nsec: duration.subsec_nanos().into() }
}

/// Gives `use_bytes` what has come through a pipe, which is dropped at its end. One that cannot be read is at its end, too: whoever
/// waits for a program must not fail for it.
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

/// Writes a worker's messages to our standard error, unless that would block: a terminal that is stopped, a pipe that nobody reads.
fn pass_on(bytes: &[u8]) {
    let errors = io::stderr();
    let ready = poll(&mut [PollFd::new(&errors, PollFlags::OUT)], Some(&timespec(Duration::ZERO)));
    if ready.is_ok_and(|ready| ready > 0) {
        // Nobody may be listening any more.
        let _ = errors.lock().write_all(bytes);
    }
}

impl Dismissal {
    /// Returns when the worker was dismissed, or the employer has ended.
    pub fn wait(mut self) {
        // Nothing is ever written. An error means that we cannot hear of it; then we are on our own, too.
        let _ = self.0.read(&mut [0]);
    }
}

impl Write for Employer {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The worker's whole life. Nothing of what the caller of `fork` would do next, or at its end, is done here.
fn live(work: impl FnOnce()) -> ! {
    let done = catch_unwind(AssertUnwindSafe(work));
    // The employer must not wait for messages of a thread of ours that waits for a device.
    redirect_streams(None);
    // SAFETY: ends the process; what runs at an end is the employer's.
    unsafe { libc::_exit(i32::from(done.is_err())) }
}

/// Makes the standard streams /dev/null, or standard error `errors`. Where there is no /dev/null (chroot) all become `errors`:
/// nothing of the caller stays open.
fn redirect_streams(errors: Option<BorrowedFd<'_>>) {
    let null = File::options().read(true).write(true).open("/dev/null").ok();
    let (null, errors) = (null.as_ref().map(AsRawFd::as_raw_fd), errors.map(|fd| fd.as_raw_fd()));
    for (stream, target) in [
        (libc::STDIN_FILENO, null.or(errors)),
        (libc::STDOUT_FILENO, null.or(errors)),
        (libc::STDERR_FILENO, errors.or(null)),
    ] {
        // SAFETY: numbers only, of descriptors that no object of the worker owns.
        unsafe {
            match target {
                Some(target) => libc::dup2(target, stream),
                None => libc::close(stream),
            }
        };
    }
}

/// Closes every descriptor but the standard streams and these.
fn close_all_but(mut kept: [RawFd; 2]) {
    kept.sort_unstable();
    let mut first = libc::STDERR_FILENO as u32 + 1;
    let mut closed = true;
    for next in kept.map(|fd| fd as u32).into_iter().chain([u32::MAX]) {
        if first < next {
            // SAFETY: descriptors that no object of the worker owns: `work` owns none.
            closed &=
                unsafe { libc::syscall(libc::SYS_close_range, first, next - u32::from(next != u32::MAX), 0) } == 0;
        }
        first = next.saturating_add(1);
    }
    // Before Linux 5.9, or where a container forbids the call.
    if !closed {
        let open = std::fs::read_dir("/proc/self/fd").into_iter().flatten().flatten();
        let open = open.filter_map(|entry| entry.file_name().to_str()?.parse::<RawFd>().ok());
        let open: Vec<RawFd> = open.filter(|fd| *fd > libc::STDERR_FILENO && !kept.contains(fd)).collect();
        for fd in open {
            // SAFETY: as above; the directory's own descriptor is closed already, and that is no error.
            unsafe { libc::close(fd) };
        }
    }
}
