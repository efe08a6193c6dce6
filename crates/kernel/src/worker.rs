//! A part of this program that runs in a process of its own.
//!
//! The kernel lets no process end of which a thread waits for a device. What may have to wait for a device that does not
//! answer is therefore done by a worker, and who has to end in time is another process.
//!
//! ```text
//!     Worker::fork ──▶ the worker does its work, and tells what there is to tell
//!         │                      │                        ▲
//!         └── read ◀─────────────┘   dismiss, or our end ─┘
//! ```

#![allow(unsafe_code)]

use crate::{Error, Result};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use std::fs::File;
use std::io::{self, PipeReader, PipeWriter, Read, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

/// A worker, as its employer sees it. Dropped, it is dismissed and goes on to its end alone.
#[derive(Debug)]
pub struct Worker {
    pidfd: OwnedFd,
    told: PipeReader,
    /// Its end tells the worker that nobody wants it any more.
    wanted: Option<PipeWriter>,
}

/// Through this a worker tells its employer what there is to tell; dropped, that was all.
#[derive(Debug)]
pub struct Employer(PipeWriter);

/// By this a worker knows when its work is not needed any more.
#[derive(Debug)]
pub struct Dismissal(PipeReader);

impl Worker {
    /// Forks a worker. It has everything that we have at this moment: descriptors, blocked signals, memory.
    ///
    /// Fails where there are threads already: a copy of us without them might wait for ever for what one of them holds.
    pub fn fork(work: impl FnOnce(Employer, Dismissal)) -> Result<Worker> {
        let threads = std::fs::read_dir("/proc/self/task").map_err(|e| Error::io("count the threads", e))?.count();
        if threads != 1 {
            return Err(Error::io("fork a worker", io::Error::other(format!("there are {threads} threads"))));
        }
        let pipe = || io::pipe().map_err(|e| Error::io("pipe", e));
        let ((told, tells), (hears, wanted)) = (pipe()?, pipe()?);
        // SAFETY: there is no other thread, so nothing that the child may want is held by somebody who is not there.
        let pid = unsafe { libc::fork() };
        let pid = match pid {
            -1 => return Err(Error::io("fork a worker", io::Error::last_os_error())),
            0 => {
                // Only the employer's own copies count.
                drop((told, wanted));
                live(|| work(Employer(tells), Dismissal(hears)))
            }
            pid => Pid::from_raw(pid).expect("fork gave a positive process id"),
        };
        let pidfd = pidfd_open(pid, PidfdFlags::empty()).map_err(|e| Error::io("pidfd_open", e))?;
        Ok(Worker { pidfd, told, wanted: Some(wanted) })
    }

    /// Tells it that its work is not needed any more.
    pub fn dismiss(&mut self) {
        self.wanted = None;
    }

    /// Waits for its end, at most for `timeout`: one that waits for a device stays until that answers.
    pub fn wait_end(&self, timeout: Duration) -> Result<bool> {
        let left = Timespec { tv_sec: timeout.as_secs() as i64, tv_nsec: timeout.subsec_nanos().into() };
        let mut fds = [PollFd::new(&self.pidfd, PollFlags::IN)];
        let ready = rustix::io::retry_on_intr(|| poll(&mut fds, Some(&left)));
        Ok(ready.map_err(|e| Error::io("wait for a worker", e))? > 0)
    }
}

impl AsFd for Worker {
    /// Readable when it has told something, or will tell nothing any more.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.told.as_fd()
    }
}

impl Read for &Worker {
    /// What it tells; nothing: that was all.
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        (&self.told).read(buffer)
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
    // Whoever reads our streams to their end must not wait for a thread of ours that waits for a device.
    if let Ok(null) = File::options().read(true).write(true).open("/dev/null") {
        for stream in [libc::STDIN_FILENO, libc::STDOUT_FILENO, libc::STDERR_FILENO] {
            // SAFETY: numbers only, of descriptors that nobody uses after this.
            unsafe { libc::dup2(null.as_raw_fd(), stream) };
        }
    }
    // SAFETY: ends the process; what runs at an end is the employer's.
    unsafe { libc::_exit(i32::from(done.is_err())) }
}
