//! Priority of a thread: low on the processor and on disks, or high on the processor.

#![allow(unsafe_code)]

use crate::{Error, Result};
use std::io;

/// Runs the calling thread only on otherwise idle processors (`SCHED_IDLE`). Irreversible without privilege, so only for threads
/// that end.
pub fn yield_processor() -> Result<()> {
    let parameter = libc::sched_param { sched_priority: 0 };
    // SAFETY: the structure outlives the call; 0 is the calling thread.
    match unsafe { libc::sched_setscheduler(0, libc::SCHED_IDLE, &raw const parameter) } {
        0 => Ok(()),
        _ => Err(Error::io("set the scheduling policy", io::Error::last_os_error())),
    }
}

/// Nice value of a thread that reacts to others within microseconds, and does little each time: -20 is the highest priority, 0 the usual one.
const PROMPT: i32 = -10;

/// Time slice of such a thread. Linux 6.12 and later run a thread with a short slice earlier, and for as long as it had to run without it. This
/// is the shortest one (kernel/sched/syscalls.c). Unit: nanoseconds.
const SHORT_SLICE_NS: u64 = 100_000;

/// `struct sched_attr` of linux/sched/types.h, in its first version.
#[repr(C)]
#[derive(Default)]
struct SchedulingAttributes {
    size: u32,
    policy: u32,
    flags: u64,
    nice: i32,
    priority: u32,
    runtime_ns: u64,
    deadline_ns: u64,
    period_ns: u64,
}

/// Prefers the calling thread, and those that it starts from now on, on busy processors.
///
/// Errors: needs `CAP_SYS_NICE`.
pub fn prefer_on_processor() -> Result<()> {
    let size = size_of::<SchedulingAttributes>() as u32;
    let (policy, runtime_ns) = (libc::SCHED_OTHER as u32, SHORT_SLICE_NS);
    let attributes = SchedulingAttributes { size, policy, nice: PROMPT, runtime_ns, ..SchedulingAttributes::default() };
    // SAFETY: the structure has the kernel's layout and says its size; it outlives the call. 0 is the calling thread.
    match unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const attributes, 0) } {
        0 => Ok(()),
        _ => Err(Error::io("set the priority", io::Error::last_os_error())),
    }
}

/// Runs `work`, which takes microseconds, before every ordinary thread (`SCHED_FIFO`), so that no other one interrupts it for milliseconds. Without
/// `CAP_SYS_NICE`, or where a service manager forbids it, `work` runs as usual. For a thread that [`prefer_on_processor`] has preferred.
pub fn without_interruption<T>(work: impl FnOnce() -> T) -> T {
    /// Ends it after a panic, too.
    struct Preferred;
    impl Drop for Preferred {
        fn drop(&mut self) {
            if let Err(error) = prefer_on_processor() {
                tracing::debug!("{error}");
            }
        }
    }
    let lowest = libc::sched_param { sched_priority: 1 };
    // A thread that `work` starts is an ordinary one.
    let policy = libc::SCHED_FIFO | libc::SCHED_RESET_ON_FORK;
    // SAFETY: the structure outlives the call; 0 is the calling thread.
    let _preferred = (unsafe { libc::sched_setscheduler(0, policy, &raw const lowest) } == 0).then_some(Preferred);
    work()
}

/// `IOPRIO_WHO_PROCESS` of linux/ioprio.h: one thread, and 0 is the calling one.
const ONE_THREAD: libc::c_int = 1;

/// `IOPRIO_PRIO_VALUE(IOPRIO_CLASS_IDLE, 0)`: the class is in the bits from the 13th on, and idle is 3.
const IDLE: libc::c_int = 3 << 13;

/// Sets the idle I/O priority class (ioprio_set(2)) for the calling thread and the threads that it starts from now on. Needs no
/// privilege. Only some I/O schedulers respect it: BFQ, and mq-deadline since Linux 5.14.
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
    fn thread_may_lower_its_processor_priority() {
        // In a separate thread, because it is irreversible.
        let lowered = std::thread::spawn(|| {
            yield_processor()?;
            // SAFETY: no memory involved.
            Ok::<_, Error>(unsafe { libc::sched_getscheduler(0) })
        });
        assert_eq!(lowered.join().unwrap().unwrap(), libc::SCHED_IDLE);
    }

    #[test]
    fn thread_may_be_preferred_with_privilege() {
        let preferred = std::thread::spawn(|| {
            prefer_on_processor()?;
            // SAFETY: no memory involved.
            let policy = || unsafe { libc::sched_getscheduler(0) };
            let during = without_interruption(policy) & !libc::SCHED_RESET_ON_FORK;
            assert!([libc::SCHED_FIFO, libc::SCHED_OTHER].contains(&during) && policy() == libc::SCHED_OTHER);
            // Regression: a worker that was started in it ran before every ordinary thread from then on.
            let started = without_interruption(|| std::thread::spawn(policy));
            assert_eq!(started.join().unwrap(), libc::SCHED_OTHER);
            rustix::process::getpriority_process(None).map_err(|e| Error::io("get the priority", e))
        });
        match preferred.join().unwrap() {
            Ok(nice) => assert_eq!(nice, PROMPT),
            Err(error) => assert_eq!(error.raw_os_error(), Some(libc::EPERM), "{error}"),
        }
    }

    #[test]
    fn started_threads_inherit_the_idle_io_class() {
        let lowered = std::thread::spawn(|| {
            yield_disk()?;
            // SAFETY: no memory involved.
            let started = std::thread::spawn(|| unsafe { libc::syscall(libc::SYS_ioprio_get, ONE_THREAD, 0) });
            Ok::<_, Error>(started.join().unwrap())
        });
        assert_eq!(lowered.join().unwrap().unwrap(), libc::c_long::from(IDLE));
    }
}
