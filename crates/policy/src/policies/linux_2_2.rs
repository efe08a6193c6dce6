//! `linux-2.2`: the kernel that O'Connor and Tracy measured.
//!
//! Reads have windows that double (see [`super::linux_2_4`]). Mappings, the subject of the paper, get the aligned cluster of 16 pages on a miss
//! and nothing on a hit. Every request waits when the queue is full.
//!
//! Uncertain: mm/filemap.c of 2.0 and 2.3 was read, but not that of 2.2. The common code of both counts as 2.2's; from 2.0 comes that a missing
//! page makes the next window as short as possible. The cluster was shorter on machines with little memory (from memory, not checked).

use super::linux_2_4::{Doubling, Kernel, MOST_PAGES};

/// A kernel of this version.
pub fn policy() -> Doubling {
    Doubling::new(Kernel::Linux22, MOST_PAGES)
}
