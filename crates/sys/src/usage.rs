//! What programs have used.

#![allow(unsafe_code)]

use std::mem::MaybeUninit;
use std::time::Duration;

/// Processor time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cpu {
    /// In programs.
    pub user: Duration,
    /// In the kernel on their behalf.
    pub system: Duration,
}

/// Processor time (user and system) of all children that have ended and were waited for, and of theirs.
pub fn cpu_of_ended_children() -> Duration {
    let Cpu { user, system } = cpu(libc::RUSAGE_CHILDREN);
    user + system
}

/// Processor time of this process, all its threads.
pub fn own_cpu() -> Cpu {
    cpu(libc::RUSAGE_SELF)
}

/// Bytes that this process has read from devices, all its threads: read-ahead that it caused included, what was cached excluded. Counted in
/// blocks of 512 bytes (getrusage(2), `ru_inblock`).
pub fn own_read_bytes() -> u64 {
    const BLOCK_BYTES: u64 = 512;
    u64::try_from(usage(libc::RUSAGE_SELF).ru_inblock).unwrap_or(0) * BLOCK_BYTES
}

fn cpu(of: libc::c_int) -> Cpu {
    let usage = usage(of);
    let time = |t: libc::timeval| Duration::new(t.tv_sec as u64, t.tv_usec as u32 * 1000);
    Cpu { user: time(usage.ru_utime), system: time(usage.ru_stime) }
}

fn usage(of: libc::c_int) -> libc::rusage {
    let mut usage = MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: the structure outlives the call; all zeroes, which a failure would leave, are valid.
    unsafe {
        libc::getrusage(of, usage.as_mut_ptr());
        usage.assume_init()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_of_our_own_is_counted() {
        let (before, began) = (own_cpu().user, std::time::Instant::now());
        // Kernels that count by ticks may see nothing of a short time, and a host may take most of a longer one.
        while own_cpu().user == before && began.elapsed() < Duration::from_secs(60) {
            (0..100_000).for_each(|_| std::hint::spin_loop());
        }
        assert!(own_cpu().user > before);
    }

    #[test]
    fn a_child_that_works_is_counted_once_it_has_ended() {
        let before = cpu_of_ended_children();
        let loops = "i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done";
        assert!(std::process::Command::new("sh").args(["-c", loops]).status().unwrap().success());
        assert!(cpu_of_ended_children() > before);
    }
}
