//! The kernel's read-ahead of a range, changed as long as a value lives.
//!
//! A child made by fork(2) inherits the mapping with its advice, but not the threads that read ahead instead of the kernel. So the kernel's
//! own read-ahead comes back in the child, by a handler of pthread_atfork(3).

use super::{KernelAdvice, set_kernel_advice};
use crate::Result;
use std::ops::Range;
use std::sync::Once;
use std::sync::atomic::{AtomicUsize, Ordering};

/// A range of addresses; the start is 0 if the slot is free. An atomic pair, because the handler runs between fork and exec, where no lock
/// may be taken.
struct GuardSlot {
    start: AtomicUsize,
    end: AtomicUsize,
}

/// Ranges that a child gets back. More ranges at a time than this keep their advice in children: 4 KiB of memory are enough for programs
/// that advise on each of their files.
const SLOTS: usize = 256;

static TABLE: [GuardSlot; SLOTS] =
    [const { GuardSlot { start: AtomicUsize::new(0), end: AtomicUsize::new(0) } }; SLOTS];

/// Advice to the kernel that ends with this value: then it is [`KernelAdvice::Normal`] again. Also in a child made by fork, at once.
#[derive(Debug)]
pub struct Guard {
    addresses: Range<usize>,
    advice: KernelAdvice,
    slot: Option<usize>,
}

impl Guard {
    /// Sets how the kernel reads ahead in a range, which begins and ends at pages.
    ///
    /// Errors: as [`set_kernel_advice`]; then the advice of the whole range is `Normal`.
    pub fn new(addresses: Range<usize>, advice: KernelAdvice) -> Result<Guard> {
        static ONCE: Once = Once::new();
        ONCE.call_once(|| {
            // SAFETY: the handler makes only system calls and reads atomic numbers. Registering fails only without memory: then children keep
            // the advice.
            unsafe { libc::pthread_atfork(None, None, Some(restore_in_child)) };
        });
        let guard = Guard { slot: claim(&addresses), addresses, advice };
        guard.renew()?;
        Ok(guard)
    }

    /// Sets the advice again, after another call has changed it.
    ///
    /// Errors: as [`set_kernel_advice`].
    pub fn renew(&self) -> Result<()> {
        set_kernel_advice(&self.addresses, self.advice)
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        // ENOMEM: the mapping ended before.
        let _ = set_kernel_advice(&self.addresses, KernelAdvice::Normal);
        if let Some(slot) = self.slot {
            TABLE[slot].end.store(0, Ordering::Release);
            TABLE[slot].start.store(0, Ordering::Release);
        }
    }
}

fn claim(addresses: &Range<usize>) -> Option<usize> {
    let free = |slot: &GuardSlot| {
        slot.start.compare_exchange(0, addresses.start.max(1), Ordering::AcqRel, Ordering::Relaxed).is_ok()
    };
    let slot = TABLE.iter().position(free)?;
    TABLE[slot].end.store(addresses.end, Ordering::Release);
    Some(slot)
}

extern "C" fn restore_in_child() {
    for slot in &TABLE {
        let (start, end) = (slot.start.load(Ordering::Acquire), slot.end.load(Ordering::Acquire));
        if start < end {
            // SAFETY: the advice changes no content, whatever is mapped there. The call is a plain system call.
            unsafe { libc::madvise(start as *mut libc::c_void, end - start, libc::MADV_NORMAL) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mapping::Mapping;
    use std::io::Write;

    /// The flags of the mapping at an address, from /proc/self/smaps: `rr` is `MADV_RANDOM`.
    fn is_random(address: usize) -> bool {
        let smaps = std::fs::read_to_string("/proc/self/smaps").unwrap();
        let prefix = format!("{address:x}-");
        let area = smaps.lines().skip_while(|line| !line.starts_with(&prefix));
        let flags = area.into_iter().find(|line| line.starts_with("VmFlags:")).expect("the mapping has flags");
        flags.split_whitespace().any(|flag| flag == "rr")
    }

    #[test]
    fn advice_ends_with_the_guard_and_in_a_child() {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&[7; 16 * 4096]).unwrap();
        let mapping = Mapping::new(&file, 16 * 4096).unwrap();
        let range = mapping.addresses();
        let guard = Guard::new(range.clone(), KernelAdvice::Random).unwrap();
        assert!(is_random(range.start));
        let status = crate::fork::run_in_child(|| assert!(!is_random(range.start))).unwrap();
        assert_eq!(status, 0, "the child keeps MADV_RANDOM");
        assert!(is_random(range.start));
        drop(guard);
        assert!(!is_random(range.start));
    }

    #[test]
    fn slots_are_used_again() {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&[7; 4096]).unwrap();
        let mapping = Mapping::new(&file, 4096).unwrap();
        for _ in 0..2 * SLOTS {
            assert!(Guard::new(mapping.addresses(), KernelAdvice::Random).unwrap().slot.is_some());
        }
    }
}
