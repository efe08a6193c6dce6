//! Signals as events.

use super::poll_until;
use crate::{Error, Result};
use rustix::event::{PollFd, PollFlags};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::time::{Duration, Instant};

/// The signals that end a program, as events. Take it before any thread is started: threads inherit the mask.
#[derive(Debug)]
pub struct Signals {
    fd: OwnedFd,
}

/// A signal that arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrived {
    /// Its number.
    pub number: i32,
    /// The terminal sent it to the whole foreground group.
    pub from_terminal: bool,
}

/// By these somebody asks a program to end.
const STOPPING: [i32; 4] = [libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGQUIT];

/// These mean what a program wants them to mean. They would end us, who have no meaning for them, without a guard being
/// run; and they are meant for the program that we run. So are all real-time signals.
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

/// All of these.
pub(super) fn heard_set() -> libc::sigset_t {
    let mut set = MaybeUninit::uninit();
    // SAFETY: sigemptyset initialises the set before sigaddset and assume_init use it.
    unsafe {
        libc::sigemptyset(set.as_mut_ptr());
        for signal in STOPPING.into_iter().chain(OTHERS).chain(libc::SIGRTMIN()..=libc::SIGRTMAX()) {
            libc::sigaddset(set.as_mut_ptr(), signal);
        }
        set.assume_init()
    }
}

impl Arrived {
    /// Somebody asks for an end. Where no program runs for whom the others could be, they do, too: that is what they would
    /// have done by themselves.
    pub fn asks_to_stop(&self) -> bool {
        STOPPING.contains(&self.number)
    }
}

impl Signals {
    /// Blocks every signal that somebody may send to end or to tell a program something, in this thread and those it starts, and
    /// collects them instead.
    pub fn take() -> Result<Signals> {
        let set = heard_set();
        // SAFETY: `set` is initialised; a null old set is allowed.
        let fd = unsafe {
            if libc::pthread_sigmask(libc::SIG_BLOCK, &set, std::ptr::null_mut()) != 0 {
                return Err(Error::io("block signals", io::Error::last_os_error()));
            }
            libc::signalfd(-1, &set, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK)
        };
        if fd < 0 {
            return Err(Error::io("signalfd", io::Error::last_os_error()));
        }
        // SAFETY: a descriptor that the kernel just gave us and nobody else has.
        Ok(Signals { fd: unsafe { OwnedFd::from_raw_fd(fd) } })
    }

    /// The next signal that has arrived, without waiting.
    pub fn poll(&self) -> Option<Arrived> {
        let mut info = MaybeUninit::<libc::signalfd_siginfo>::uninit();
        let size = std::mem::size_of::<libc::signalfd_siginfo>();
        // SAFETY: the buffer has exactly the size that is passed.
        let read = unsafe { libc::read(self.fd.as_raw_fd(), info.as_mut_ptr().cast(), size) };
        if read != size as isize {
            return None;
        }
        // SAFETY: the kernel filled the whole structure.
        let info = unsafe { info.assume_init() };
        Some(Arrived { number: info.ssi_signo as i32, from_terminal: info.ssi_code == libc::SI_KERNEL })
    }

    /// Waits for a signal, at most for `timeout`.
    pub fn wait(&self, timeout: Option<Duration>) -> Result<Option<Arrived>> {
        poll_until(&mut [PollFd::new(&self.fd, PollFlags::IN)], timeout.map(|t| Instant::now() + t))?;
        Ok(self.poll())
    }

    /// Waits for a signal, or until `other` is readable.
    pub fn wait_or(&self, other: &impl AsFd) -> Result<Option<Arrived>> {
        poll_until(&mut [PollFd::new(&self.fd, PollFlags::IN), PollFd::new(other, PollFlags::IN)], None)?;
        Ok(self.poll())
    }
}

/// Has signals do again what they do by themselves, in this thread, which has nothing left to be cleaned up: what follows may wait
/// for ever (a pipe that nobody reads), and has to be ended.
pub fn end_by_signals() {
    let set = heard_set();
    // SAFETY: `set` is initialised; a null old set is allowed. It fails for a wrong first argument alone.
    unsafe { libc::pthread_sigmask(libc::SIG_UNBLOCK, &set, std::ptr::null_mut()) };
}

impl AsFd for Signals {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Regression: a report for a pipe that nobody read could not be ended but by SIGKILL.
    #[test]
    fn signals_end_a_program_again_that_has_nothing_to_clean_up() {
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
