//! Signals as events.

use ahead_sys::signals::{SignalFd, SignalSet};
use ahead_sys::{Result, polling};
use rustix::event::{PollFd, PollFlags};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

/// The signals that end a program, as events. Take it before any thread is started: threads inherit the mask.
#[derive(Debug)]
pub struct Signals {
    fd: SignalFd,
}

/// A signal that has arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrived {
    pub number: i32,
    /// Whether the terminal sent it to the whole foreground process group.
    pub from_terminal: bool,
}

/// Signals by which another process or the terminal asks a program to end.
const STOPPING: [i32; 4] = [libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGQUIT];

/// Signals whose meaning the receiving program defines, like real-time signals. They are passed on to the program that we run; their
/// default action would end this process without running a guard.
const OTHERS: [i32; 9] = [
    libc::SIGUSR1,
    libc::SIGUSR2,
    libc::SIGALRM,
    libc::SIGVTALRM,
    libc::SIGPROF,
    libc::SIGXCPU,
    libc::SIGSTKFLT,
    libc::SIGIO,
    libc::SIGPWR,
];

/// The set of all collected signals.
pub(crate) fn collected() -> SignalSet {
    SignalSet::of(STOPPING.into_iter().chain(OTHERS).chain(libc::SIGRTMIN()..=libc::SIGRTMAX()))
}

impl Arrived {
    /// Whether the signal asks for an end. If no program runs that the other signals could be meant for, treat them as requests to
    /// end, too: that is their default action.
    pub fn asks_to_stop(&self) -> bool {
        STOPPING.contains(&self.number)
    }
}

impl Signals {
    /// Blocks the collected signals in this thread and in threads that it starts from now on, and collects them instead.
    pub fn take() -> Result<Signals> {
        Ok(Signals { fd: SignalFd::block(&collected())? })
    }

    /// Blocks and collects no signal: each has its usual effect on this process.
    pub fn none() -> Result<Signals> {
        Ok(Signals { fd: SignalFd::block(&SignalSet::of([]))? })
    }

    /// The next signal that has arrived, without waiting.
    pub fn poll(&self) -> Option<Arrived> {
        self.fd.read().map(|signal| Arrived { number: signal.number, from_terminal: signal.from_kernel })
    }

    /// Waits for a signal, at most for `timeout`.
    pub fn wait(&self, timeout: Option<Duration>) -> Result<Option<Arrived>> {
        polling::until(&mut [PollFd::new(&self.fd, PollFlags::IN)], timeout.map(|t| Instant::now() + t))?;
        Ok(self.poll())
    }

    /// Waits for a signal, or until `other` is readable.
    pub fn wait_or(&self, other: &impl AsFd) -> Result<Option<Arrived>> {
        polling::until(&mut [PollFd::new(&self.fd, PollFlags::IN), PollFd::new(other, PollFlags::IN)], None)?;
        Ok(self.poll())
    }
}

/// Restores the default action of all signals in this thread. For code that needs no cleanup and may wait without end (writing to
/// a pipe that no process reads), so that a signal can end it.
pub fn end_by_signals() {
    collected().unblock();
}

impl AsFd for Signals {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicBool, Ordering};

    /// Regression: a user's open(2) of a file that was checked for writers ended the program: the signal of the broken lease, SIGIO, was taken
    /// for a stop.
    #[test]
    fn open_during_a_check_for_writers_is_no_signal() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        std::fs::write(&path, "x").unwrap();
        let done = AtomicBool::new(false);
        let check = |signals: &Signals| {
            let reader = std::fs::File::open(&path).unwrap();
            let (mut free, mut busy) = (0, 0);
            let until = Instant::now() + Duration::from_secs(5);
            while (free < 1000 || busy < 20) && Instant::now() < until {
                match ahead_sys::ext4::has_writers(reader.as_fd()).unwrap() {
                    true => busy += 1,
                    false => free += 1,
                }
                assert_eq!(signals.poll(), None);
            }
            assert!(free > 0, "no check was between two opens");
        };
        std::thread::scope(|scope| {
            // The signals of a lease go to the process: each of its threads blocks those that are collected.
            let opener = |_: &Signals| {
                while !done.load(Ordering::Relaxed) {
                    drop(std::fs::File::options().write(true).open(&path).unwrap());
                    std::thread::yield_now();
                }
            };
            let opening = scope.spawn(move || opener(&Signals::take().unwrap()));
            let checked = scope.spawn(|| check(&Signals::take().unwrap())).join();
            done.store(true, Ordering::Relaxed);
            opening.join().unwrap();
            checked.unwrap();
        });
    }

    /// Regression: only SIGKILL could end a report to a pipe that no process read.
    #[test]
    fn signals_end_a_program_that_needs_no_cleanup() {
        let is_blocked = || {
            let status = std::fs::read_to_string("/proc/thread-self/status").unwrap();
            let mask = status.lines().find_map(|line| line.strip_prefix("SigBlk:")).unwrap();
            u64::from_str_radix(mask.trim(), 16).unwrap() & 1 << (libc::SIGTERM - 1) != 0
        };
        let masks = std::thread::spawn(move || {
            let signals = Signals::take().unwrap();
            let taken = is_blocked();
            drop(signals);
            end_by_signals();
            (taken, is_blocked())
        });
        assert_eq!(masks.join().unwrap(), (true, false));
    }
}
