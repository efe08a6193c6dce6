//! How much of the processor and of the disks a thread of ours takes from others.

#![allow(unsafe_code)]

use crate::{Error, Result};
use std::io;

/// Gives the calling thread what processor time the others leave over (`SCHED_IDLE`). There is no way back without
/// privilege: for threads that end.
pub fn yield_processor() -> Result<()> {
    let parameter = libc::sched_param { sched_priority: 0 };
    // SAFETY: the structure outlives the call; 0 is the calling thread.
    match unsafe { libc::sched_setscheduler(0, libc::SCHED_IDLE, &raw const parameter) } {
        0 => Ok(()),
        _ => Err(Error::io("set the scheduling policy", io::Error::last_os_error())),
    }
}

/// `IOPRIO_WHO_PROCESS` of linux/ioprio.h: one thread, and 0 is the calling one.
const ONE_THREAD: libc::c_int = 1;

/// `IOPRIO_PRIO_VALUE(IOPRIO_CLASS_IDLE, 0)`: the class is in the bits from the 13th on, and idle is 3.
const IDLE: libc::c_int = 3 << 13;

/// Lets the calling thread, and the threads that it starts from now on, read from disks when nobody else does (the I/O
/// priority class "idle", ioprio_set(2)). Needs no privilege. Only some schedulers of disks heed it: BFQ, and mq-deadline since
/// Linux 5.14.
pub fn yield_disk() -> Result<()> {
    // SAFETY: numbers only; 0 is the calling thread.
    match unsafe { libc::syscall(libc::SYS_ioprio_set, ONE_THREAD, 0, IDLE) } {
        0 => Ok(()),
        _ => Err(Error::io("set the I/O priority", io::Error::last_os_error())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_may_always_take_less() {
        // In a thread of its own: there is no way back.
        let lowered = std::thread::spawn(|| {
            yield_processor()?;
            // SAFETY: no memory involved.
            Ok::<_, Error>(unsafe { libc::sched_getscheduler(0) })
        });
        assert_eq!(lowered.join().unwrap().unwrap(), libc::SCHED_IDLE);
    }

    #[test]
    fn the_idle_class_of_a_thread_is_that_of_the_threads_it_starts() {
        let lowered = std::thread::spawn(|| {
            yield_disk()?;
            // SAFETY: no memory involved.
            let started = std::thread::spawn(|| unsafe { libc::syscall(libc::SYS_ioprio_get, ONE_THREAD, 0) });
            Ok::<_, Error>(started.join().unwrap())
        });
        assert_eq!(lowered.join().unwrap().unwrap(), libc::c_long::from(IDLE));
    }
}
