//! What a daemon that must be on time asks of the kernel: a session of its own, a precise clock, exact timers, priority.

#![allow(unsafe_code)]

use crate::{Error, Result};
use rustix::net::sockopt::set_socket_send_buffer_size;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use std::fs::File;
use std::io::{self, Write};
use std::num::NonZeroU64;
use std::os::fd::OwnedFd;

/// Now on the monotonic clock, nanoseconds.
pub fn now_ns() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// Leaves the terminal and the session of whoever started us: their end is not ours. Fails for a process group's leader.
pub fn new_session() -> Result<()> {
    rustix::process::setsid().map(drop).map_err(|e| Error::io("start a session", e))
}

/// Lets the kernel delay this thread's timers by one nanosecond only. The default is 50 µs.
pub fn set_exact_timers() -> Result<()> {
    rustix::thread::set_current_timer_slack(NonZeroU64::new(1)).map_err(|e| Error::io("set the timer slack", e))
}

/// Puts the calling thread in the real-time class SCHED_FIFO with the lowest priority there: it runs before every
/// ordinary thread. Needs CAP_SYS_NICE.
pub fn set_fifo() -> Result<()> {
    let parameter = libc::sched_param { sched_priority: 1 };
    // SAFETY: `parameter` is complete; 0 means the calling thread.
    if unsafe { libc::sched_setscheduler(0, libc::SCHED_FIFO | libc::SCHED_RESET_ON_FORK, &raw const parameter) } != 0 {
        return Err(Error::io("set real-time priority", io::Error::last_os_error()));
    }
    Ok(())
}

/// Gives the calling thread the largest share of the processor among ordinary threads (nice -20). Needs CAP_SYS_NICE.
pub fn set_nice() -> Result<()> {
    // Without a process number Linux means the calling thread.
    rustix::process::setpriority_process(None, -20).map_err(|e| Error::io("raise the priority", e))
}

/// Tells the kernel that this process serves a disk: reclaiming memory for it must not wait for that disk. Needs
/// CAP_SYS_RESOURCE.
pub fn set_io_flusher() -> Result<()> {
    rustix::process::configure_io_flusher_behavior(true).map_err(|e| Error::io("become an I/O flusher", e))
}

/// Lets the processor finish what the kernel has put off (softirqs), in the calling thread.
///
/// A block request that is completed from a thread is finished in a softirq, and that is left to `ksoftirqd`, an ordinary
/// thread that a real-time one keeps off its processor for as long as it runs. The kernel offers no call for this, but
/// does it whenever it lets softirqs in again, as at the end of any change to a socket.
#[derive(Debug)]
pub struct Softirqs {
    socket: OwnedFd,
}

impl Softirqs {
    /// Needs no privilege.
    pub fn new() -> Result<Softirqs> {
        let (socket, _) = socketpair(AddressFamily::UNIX, SocketType::DGRAM, SocketFlags::CLOEXEC, None)
            .map_err(|e| Error::io("make a socket", e))?;
        Ok(Softirqs { socket })
    }

    /// Runs what is pending on this processor. Takes less than a microsecond when nothing is.
    pub fn run(&self) {
        // The size does not matter, and failing would still have done what is wanted.
        let _ = set_socket_send_buffer_size(&self.socket, 4096);
    }
}

/// Keeps idle processors from sleeping for as long as it lives: they poll for work instead, and take it up at once.
///
/// On a virtual machine a sleeping processor takes 20 to 60 µs to wake, on hardware in a deep state up to 200 µs. The
/// kernel forgets the wish when the file is closed, however its holder ends (Documentation/power/pm_qos_interface.rst).
#[derive(Debug)]
pub struct Awake {
    _latency: File,
}

impl Awake {
    /// From now on. Needs root and a kernel with cpuidle.
    pub fn keep() -> Result<Awake> {
        const LATENCY: &str = "/dev/cpu_dma_latency";
        let mut file =
            File::options().write(true).open(LATENCY).map_err(|e| Error::io(format!("open {LATENCY}"), e))?;
        // The latency that is tolerated, microseconds.
        file.write_all(&0i32.to_ne_bytes()).map_err(|e| Error::io(format!("write {LATENCY}"), e))?;
        Ok(Awake { _latency: file })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_clock_does_not_go_back() {
        let before = now_ns();
        assert!(now_ns() >= before);
    }

    #[test]
    fn processors_are_kept_awake_where_that_is_permitted() {
        match Awake::keep() {
            Ok(awake) => drop(awake),
            Err(error) => eprintln!("skipped: {error}"),
        }
    }

    #[test]
    fn softirqs_can_be_run_again_and_again() {
        let softirqs = Softirqs::new().unwrap();
        (0..1000).for_each(|_| softirqs.run());
    }

    #[test]
    fn the_timer_slack_can_be_set() {
        set_exact_timers().unwrap();
    }
}
