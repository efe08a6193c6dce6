//! Sets of signals: blocking, reading from a descriptor, sending.

#![allow(unsafe_code)]

use crate::{Error, Result};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

#[derive(Clone, Copy)]
pub struct SignalSet(libc::sigset_t);

impl SignalSet {
    /// The set of these signals. Invalid numbers are ignored.
    pub fn of(signals: impl IntoIterator<Item = i32>) -> SignalSet {
        let mut set = MaybeUninit::uninit();
        // SAFETY: sigemptyset initialises the set before sigaddset and assume_init use it.
        unsafe {
            libc::sigemptyset(set.as_mut_ptr());
            for signal in signals {
                libc::sigaddset(set.as_mut_ptr(), signal);
            }
            SignalSet(set.assume_init())
        }
    }

    /// Unblocks the set in the calling thread. Async-signal-safe.
    pub fn unblock(&self) {
        // SAFETY: the set is initialised, and a null old set is allowed. The call fails only for a wrong first argument.
        unsafe { libc::pthread_sigmask(libc::SIG_UNBLOCK, &self.0, std::ptr::null_mut()) };
    }
}

/// Blocks every signal in the calling thread, and in what it starts from now on: only SIGKILL and SIGSTOP have an effect.
pub fn block_all() {
    let mut all = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: the first call fills the set that the second one reads; a null old set is allowed.
    unsafe {
        libc::sigfillset(all.as_mut_ptr());
        libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), std::ptr::null_mut());
    }
}

/// A signal that was read from a [`SignalFd`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Received {
    /// Number of the signal.
    pub number: i32,
    /// Whether the kernel sent it, as for keys pressed on a terminal, and not another process.
    pub from_kernel: bool,
}

/// Blocked signals as a descriptor (signalfd(2)).
#[derive(Debug)]
pub struct SignalFd(OwnedFd);

impl SignalFd {
    /// Blocks the set in the calling thread and in threads that it starts from now on. Its signals can then be read.
    pub fn block(set: &SignalSet) -> Result<SignalFd> {
        // SAFETY: the set is initialised, and a null old set is allowed.
        let fd = unsafe {
            if libc::pthread_sigmask(libc::SIG_BLOCK, &set.0, std::ptr::null_mut()) != 0 {
                return Err(Error::io("block signals", io::Error::last_os_error()));
            }
            libc::signalfd(-1, &set.0, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK)
        };
        if fd < 0 {
            return Err(Error::io("signalfd", io::Error::last_os_error()));
        }
        // SAFETY: the kernel has just returned this descriptor, and nothing else owns it.
        Ok(SignalFd(unsafe { OwnedFd::from_raw_fd(fd) }))
    }

    /// The next pending signal, without waiting.
    pub fn read(&self) -> Option<Received> {
        let mut info = MaybeUninit::<libc::signalfd_siginfo>::uninit();
        let size = std::mem::size_of::<libc::signalfd_siginfo>();
        // SAFETY: the buffer has exactly the size that is passed.
        let read = unsafe { libc::read(self.0.as_raw_fd(), info.as_mut_ptr().cast(), size) };
        if read != size as isize {
            return None;
        }
        // SAFETY: the kernel has filled the structure.
        let info = unsafe { info.assume_init() };
        Some(Received { number: info.ssi_signo as i32, from_kernel: info.ssi_code == libc::SI_KERNEL })
    }
}

impl AsFd for SignalFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Sends a signal to the process of a pidfd. Also real-time signals, for which `rustix` has no name.
pub fn send(pidfd: BorrowedFd<'_>, number: i32) -> io::Result<()> {
    // SAFETY: numbers and a null pointer only; the kernel rejects invalid signals.
    let sent =
        unsafe { libc::syscall(libc::SYS_pidfd_send_signal, pidfd.as_raw_fd(), number, std::ptr::null::<u8>(), 0) };
    if sent == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
