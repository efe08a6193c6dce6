//! Processor time that a program spends on each block, for benchmarks that set the ratio of processor and disk.

use rustix::time::{ClockId, clock_gettime};
use std::hint::black_box;

/// Bytes of one step, bytes: a checksum of 16 KiB takes a few microseconds, so the clock costs little and the overshoot is small.
const STEP_BYTES: usize = 16 << 10;

/// A load of `us_per_mib` microseconds of this thread's processor time for each MiB.
///
/// The load is measured by the thread's processor clock and not by a count of loops, so time that other processes or the hypervisor take
/// does not shorten it. What one block takes too long, the next ones take less.
#[derive(Clone, Debug, Default)]
pub struct Compute {
    us_per_mib: u64,
    owed_ns: i64,
}

impl Compute {
    /// A load; 0: none.
    pub fn new(us_per_mib: u64) -> Compute {
        Compute { us_per_mib, owed_ns: 0 }
    }

    /// Spends the time for this block by checksums of its bytes.
    pub fn spend(&mut self, block: &[u8]) {
        if self.us_per_mib == 0 || block.is_empty() {
            return;
        }
        self.owed_ns += ((self.us_per_mib as u128 * 1000 * block.len() as u128) >> 20) as i64;
        let step = &block[..block.len().min(STEP_BYTES)];
        let began_ns = thread_ns();
        let mut spent_ns = 0;
        while spent_ns < self.owed_ns {
            black_box(crc32fast::hash(step));
            spent_ns = thread_ns() - began_ns;
        }
        self.owed_ns -= spent_ns;
    }
}

fn thread_ns() -> i64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec * 1_000_000_000 + time.tv_nsec
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn load_takes_its_processor_time_over_many_blocks() {
        let (mut compute, block, began_ns) = (Compute::new(16_000), vec![7; 4096], thread_ns());
        for _ in 0..256 {
            compute.spend(&block);
        }
        let spent_ns = thread_ns() - began_ns;
        assert!(spent_ns + 1_000_000 >= 16_000_000, "{spent_ns} ns for one MiB");
    }
}
