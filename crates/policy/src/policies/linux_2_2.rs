//! `linux-2.2`: the kernel that O'Connor and Tracy measured.
//!
//! Reads have windows that double ([`super::linux_2_4`] tells how); mappings, which the paper is about, get the aligned
//! cluster of 16 pages on a miss and nothing on a hit. Every request waits when the queue is full.
//!
//! Uncertain: mm/filemap.c of 2.0 and 2.3 was read, of 2.2 not. What both have is taken for 2.2's; that a missing page
//! makes the next window as short as possible is 2.0's. The cluster was shorter on machines with little memory (from
//! memory).

use super::linux_2_4::{Doubling, Kernel, MOST_PAGES};

/// A kernel of this version.
pub fn policy() -> Doubling {
    Doubling::new(Kernel::Linux22, MOST_PAGES)
}
