//! Kernel settings for a daemon with deadlines: its own session, a precise clock, exact timers, priority.

#![allow(unsafe_code)]

use crate::{Error, Result};
use rustix::net::sockopt::set_socket_send_buffer_size;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use std::fs::File;
use std::io::{self, Write};
use std::num::NonZeroU64;
use std::os::fd::OwnedFd;

/// The monotonic clock. Unit: nanoseconds.
pub fn now_ns() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// Leaves the terminal and the session of the caller, so that their end does not end this process. Fails for the leader of
/// a process group.
pub fn new_session() -> Result<()> {
    rustix::process::setsid().map(drop).map_err(|e| Error::io("start a session", e))
}

/// Reduces the timer slack of this thread to 1 ns. The default is 50 µs.
pub fn set_exact_timers() -> Result<()> {
    rustix::thread::set_current_timer_slack(NonZeroU64::new(1)).map_err(|e| Error::io("set the timer slack", e))
}

/// Moves the calling thread to the real-time class SCHED_FIFO, lowest priority: it runs before every ordinary thread. Needs
/// CAP_SYS_NICE.
pub fn set_fifo() -> Result<()> {
    let parameter = libc::sched_param { sched_priority: 1 };
    // SAFETY: `parameter` is complete; 0 means the calling thread.
    if unsafe { libc::sched_setscheduler(0, libc::SCHED_FIFO | libc::SCHED_RESET_ON_FORK, &raw const parameter) } != 0 {
        return Err(Error::io("set real-time priority", io::Error::last_os_error()));
    }
    Ok(())
}

/// Gives the calling thread the highest priority of ordinary threads (nice -20). Needs CAP_SYS_NICE.
pub fn set_nice() -> Result<()> {
    // Without a process number, Linux changes the calling thread.
    rustix::process::setpriority_process(None, -20).map_err(|e| Error::io("raise the priority", e))
}

/// Declares that this process serves a disk, so that memory reclaim for this process never waits for that disk. Needs
/// CAP_SYS_RESOURCE.
pub fn set_io_flusher() -> Result<()> {
    rustix::process::configure_io_flusher_behavior(true).map_err(|e| Error::io("become an I/O flusher", e))
}

/// Runs pending softirqs in the calling thread.
///
/// The kernel finishes a block request that a thread completes in a softirq, and leaves that to `ksoftirqd`. A
/// real-time thread keeps that ordinary thread off its processor. The kernel has no call for running softirqs. It runs
/// them whenever it enables them again, for example at the end of any change to a socket.
#[derive(Debug)]
pub struct Softirqs {
    socket: OwnedFd,
}

impl Softirqs {
    /// Creates the socket. Needs no privilege.
    pub fn new() -> Result<Softirqs> {
        let (socket, _) = socketpair(AddressFamily::UNIX, SocketType::DGRAM, SocketFlags::CLOEXEC, None)
            .map_err(|e| Error::io("create a socket", e))?;
        Ok(Softirqs { socket })
    }

    /// Runs the pending softirqs of this processor. Takes less than a microsecond if there are none.
    pub fn run(&self) {
        // The size does not matter, and a failing call runs the softirqs, too.
        let _ = set_socket_send_buffer_size(&self.socket, 4096);
    }
}

/// Keeps idle processors from sleeping while this value lives: they poll for work and start it at once.
///
/// On a virtual machine a sleeping processor takes 20 to 60 µs to wake up; on hardware, in a deep state, up to 200 µs. The
/// kernel drops the request when the file is closed, however the process ends (Documentation/power/pm_qos_interface.rst).
#[derive(Debug)]
pub struct Awake {
    _latency: File,
}

impl Awake {
    /// Opens the request. Needs root and a kernel with cpuidle.
    pub fn keep() -> Result<Awake> {
        const LATENCY: &str = "/dev/cpu_dma_latency";
        let mut file =
            File::options().write(true).open(LATENCY).map_err(|e| Error::io(format!("open {LATENCY}"), e))?;
        // Tolerated latency, microseconds.
        file.write_all(&0i32.to_ne_bytes()).map_err(|e| Error::io(format!("write {LATENCY}"), e))?;
        Ok(Awake { _latency: file })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn monotonic_clock_does_not_go_back() {
        let before = now_ns();
        assert!(now_ns() >= before);
    }

    #[test]
    fn cpu_latency_request_is_made_if_permitted() {
        match Awake::keep() {
            Ok(awake) => drop(awake),
            Err(error) => eprintln!("skipped: {error}"),
        }
    }

    #[test]
    fn softirqs_run_repeatedly() {
        let softirqs = Softirqs::new().unwrap();
        (0..1000).for_each(|_| softirqs.run());
    }

    #[test]
    fn timer_slack_can_be_set() {
        set_exact_timers().unwrap();
    }
}
