//! How much of the processor and of the disk a thread of ours takes from others.

#![allow(unsafe_code)]

use crate::{Error, Result};

/// `IOPRIO_WHO_PROCESS` of linux/ioprio.h: a thread.
const IOPRIO_WHO_PROCESS: libc::c_int = 1;
/// The class is in the bits above this one.
const IOPRIO_CLASS_SHIFT: libc::c_int = 13;

/// The class of a thread's disk requests. Only some schedulers heed it (mq-deadline, BFQ).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DiskClass {
    /// As everybody, at the given level from 0 (first) to 7 (last); 4 is usual.
    BestEffort(u8),
    /// Only when nobody else wants the disk.
    Idle,
}

/// Sets the class of the calling thread's disk requests.
pub fn set_disk_class(class: DiskClass) -> Result<()> {
    let value = match class {
        DiskClass::BestEffort(level) => (2 << IOPRIO_CLASS_SHIFT) | libc::c_int::from(level.min(7)),
        DiskClass::Idle => 3 << IOPRIO_CLASS_SHIFT,
    };
    // SAFETY: three integers, no memory.
    match unsafe { libc::syscall(libc::SYS_ioprio_set, IOPRIO_WHO_PROCESS, 0, value) } {
        0 => Ok(()),
        _ => Err(Error::io("set the disk priority", std::io::Error::last_os_error())),
    }
}

/// Gives the calling thread what processor time the others leave over (`SCHED_IDLE`). There is no way back without
/// privilege: for threads that end.
pub fn yield_processor() -> Result<()> {
    let parameter = libc::sched_param { sched_priority: 0 };
    // SAFETY: the structure outlives the call; 0 is the calling thread.
    match unsafe { libc::sched_setscheduler(0, libc::SCHED_IDLE, &raw const parameter) } {
        0 => Ok(()),
        _ => Err(Error::io("set the scheduling policy", std::io::Error::last_os_error())),
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
            set_disk_class(DiskClass::BestEffort(7))?;
            set_disk_class(DiskClass::Idle)?;
            // SAFETY: no memory involved.
            Ok::<_, Error>(unsafe { libc::sched_getscheduler(0) })
        });
        assert_eq!(lowered.join().unwrap().unwrap(), libc::SCHED_IDLE);
    }
}
