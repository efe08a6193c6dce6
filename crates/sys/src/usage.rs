//! Processor time of this process and its children.

#![allow(unsafe_code)]

use std::mem::MaybeUninit;
use std::time::Duration;

/// Processor time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cpu {
    /// Time in user mode.
    pub user: Duration,
    /// Time in the kernel on its behalf.
    pub system: Duration,
}

impl std::ops::Sub for Cpu {
    type Output = Cpu;

    fn sub(self, before: Cpu) -> Cpu {
        Cpu { user: self.user.saturating_sub(before.user), system: self.system.saturating_sub(before.system) }
    }
}

/// Processor time of all children that were waited for, and of their children.
pub fn cpu_of_ended_children() -> Cpu {
    cpu(libc::RUSAGE_CHILDREN)
}

/// Processor time of all threads of this process.
pub fn own_cpu() -> Cpu {
    cpu(libc::RUSAGE_SELF)
}

/// Bytes that all threads of this process have read from devices. Includes the read-ahead that the reads caused, and
/// excludes cached data. Counted in blocks of 512 bytes (getrusage(2), `ru_inblock`).
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
    fn own_processor_time_grows_with_work() {
        let (before, began) = (own_cpu().user, std::time::Instant::now());
        // Kernels that count ticks may miss short work, and a hypervisor may steal most of the time.
        while own_cpu().user == before && began.elapsed() < Duration::from_secs(60) {
            (0..100_000).for_each(|_| std::hint::spin_loop());
        }
        assert!(own_cpu().user > before);
    }

    #[test]
    fn processor_time_of_an_ended_child_is_counted() {
        let before = cpu_of_ended_children();
        let loops = "i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done";
        assert!(std::process::Command::new("sh").args(["-c", loops]).status().unwrap().success());
        let Cpu { user, system } = cpu_of_ended_children() - before;
        assert!(user + system > Duration::ZERO);
    }
}
