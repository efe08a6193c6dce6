//! `linux-2.2`: the kernel that O'Connor and Tracy measured.
//!
//! Reads have windows that double ([`super::linux_2_4`] tells how); mappings, which the paper is about, get the aligned
//! cluster of 16 pages on a miss and nothing on a hit. Every request waits when the queue is full.

use super::linux_2_4::{Doubling, Kernel, MOST_PAGES};

/// A kernel of this version.
pub fn policy() -> Doubling {
    Doubling::new(Kernel::Linux22, MOST_PAGES)
}
