//! How much of the processor a thread of ours takes from others.

#![allow(unsafe_code)]

use crate::{Error, Result};

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
            // SAFETY: no memory involved.
            Ok::<_, Error>(unsafe { libc::sched_getscheduler(0) })
        });
        assert_eq!(lowered.join().unwrap().unwrap(), libc::SCHED_IDLE);
    }
}
