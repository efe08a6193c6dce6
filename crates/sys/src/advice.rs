//! Advice for mappings of this process by address: madvise(2) and mincore(2).
//!
//! ```text
//!     address range ──▶ set_kernel_advice   Normal, Random, Sequential: how the kernel reads ahead on faults
//!                   ──▶ will_need           requests of pages
//!                   ──▶ absent              which pages are not in memory
//!                   ──▶ cool, release       pages that are not needed
//! ```
//!
//! All calls but [`release`] change no content, whatever is mapped at the addresses: a wrong address costs time, never data. Therefore
//! they are safe functions of plain addresses, and a mapping may end while advice is given. Ranges begin and end at pages.

#![allow(unsafe_code)]

mod guard;

pub use guard::Guard;

use crate::{Error, Result, machine};
use std::io;
use std::ops::Range;

/// How the kernel reads ahead when a page of a mapping is absent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KernelAdvice {
    /// The pages around the fault (`MADV_NORMAL`).
    Normal,
    /// The page alone (`MADV_RANDOM`).
    Random,
    /// The pages after the fault (`MADV_SEQUENTIAL`).
    Sequential,
}

/// Sets how the kernel reads ahead in a range.
///
/// Errors: a part of the range is not mapped (`ENOMEM`; the rest has got the advice); the process has too many mappings (`ENOMEM`).
pub fn set_kernel_advice(addresses: &Range<usize>, advice: KernelAdvice) -> Result<()> {
    let number = match advice {
        KernelAdvice::Normal => libc::MADV_NORMAL,
        KernelAdvice::Random => libc::MADV_RANDOM,
        KernelAdvice::Sequential => libc::MADV_SEQUENTIAL,
    };
    give(addresses, number)
}

/// Requests the kernel to read the pages of a range (`MADV_WILLNEED`). Resident pages are skipped. The kernel silently limits one call as
/// [`crate::cache::read_ahead_cap_bytes`] says. The call may block while the queue of the device is full.
///
/// Errors: a part of the range is not mapped (`ENOMEM`) or maps no file (`EBADF`).
pub fn will_need(addresses: &Range<usize>) -> Result<()> {
    give(addresses, libc::MADV_WILLNEED)
}

/// Makes the pages of a range the first that the kernel reclaims (`MADV_COLD`, Linux 5.4). Their content stays.
///
/// Errors: before Linux 5.4 and for locked pages `EINVAL`; a part of the range is not mapped (`ENOMEM`).
pub fn cool(addresses: &Range<usize>) -> Result<()> {
    give(addresses, libc::MADV_COLD)
}

/// Unmaps the whole pages of a shared mapping of a regular file (`MADV_DONTNEED`). Their content is that of the page cache, and the next
/// access maps it again. Returns `false`, and does nothing, if a part of the memory is anything else: for private pages that were
/// written, `MADV_DONTNEED` would lose data.
///
/// The borrow keeps other threads from replacing the mapping between the check and the call.
///
/// Errors: the memory map of the process cannot be read; the kernel refuses (locked pages).
pub fn release(memory: &[u8]) -> Result<bool> {
    let page = machine::page_size() as usize;
    let start = (memory.as_ptr() as usize).next_multiple_of(page);
    let end = (memory.as_ptr() as usize + memory.len()) / page * page;
    if start >= end {
        return Ok(false);
    }
    let areas = crate::maps::areas(&(start..end))?;
    if areas.is_empty() || !areas.iter().all(|area| area.is_shared && area.is_regular_file()) {
        return Ok(false);
    }
    give(&(start..end), libc::MADV_DONTNEED).map(|()| true)
}

/// A call of madvise(2). Only for advice that the public functions have checked.
fn give(addresses: &Range<usize>, advice: libc::c_int) -> Result<()> {
    let length = addresses.end.saturating_sub(addresses.start);
    // SAFETY: the kernel checks the addresses. The advice of the callers changes no content of memory; `release` has checked that its range
    // has the content of the page cache.
    if unsafe { libc::madvise(addresses.start as *mut libc::c_void, length, advice) } == 0 {
        return Ok(());
    }
    Err(Error::io("advise on a mapping", io::Error::last_os_error()))
}

/// Pages of one call of mincore.
const PAGES_AT_ONCE: usize = 512;

/// The parts of a range that are not in memory: ascending, disjoint. A page whose read is in flight is not in memory yet.
///
/// For files that the user neither owns nor may write, mincore reports every page as present ([`crate::maps::Area::reports_residency`]).
///
/// Errors: a part of the range is not mapped (`ENOMEM`).
pub fn absent(addresses: &Range<usize>) -> Result<Vec<Range<usize>>> {
    let page = machine::page_size() as usize;
    let mut states = [0u8; PAGES_AT_ONCE];
    let mut found: Vec<Range<usize>> = Vec::new();
    let mut at = addresses.start;
    while at < addresses.end {
        let length = (addresses.end - at).min(PAGES_AT_ONCE * page);
        // SAFETY: the kernel checks the addresses, and writes one byte for each page of the length: at most PAGES_AT_ONCE.
        if unsafe { libc::mincore(at as *mut libc::c_void, length, states.as_mut_ptr()) } != 0 {
            return Err(Error::io("mincore", io::Error::last_os_error()));
        }
        for (index, state) in states[..length.div_ceil(page)].iter().enumerate() {
            // Only bit 0 is defined.
            if state & 1 == 0 {
                let start = at + index * page;
                match found.last_mut() {
                    Some(last) if last.end == start => last.end += page,
                    _ => found.push(start..start + page),
                }
            }
        }
        at += length;
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mapping::Mapping;
    use std::io::Write;

    const PAGE: usize = 4096;

    fn file(pages: usize) -> std::fs::File {
        let mut file = tempfile::tempfile_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        file.write_all(&vec![7; pages * PAGE]).unwrap();
        file.sync_all().unwrap();
        file
    }

    #[test]
    fn requested_pages_become_resident() {
        let file = file(64);
        let mapping = Mapping::new(&file, 64 * PAGE).unwrap();
        let all = mapping.addresses();
        crate::evict::file(&file).unwrap();
        if absent(&all).unwrap() != [all.clone()] {
            return eprintln!("skipped: the file system keeps pages after POSIX_FADV_DONTNEED");
        }
        let part = all.start + 8 * PAGE..all.start + 12 * PAGE;
        will_need(&part).unwrap();
        for page in 8..12 {
            crate::cache::wait_for(&file, (page * PAGE) as u64).unwrap();
        }
        assert_eq!(absent(&all).unwrap(), [all.start..part.start, part.end..all.end]);
    }

    #[test]
    fn addresses_without_mapping_are_an_error_and_cost_no_data() {
        let file = file(4);
        let mapping = Mapping::new(&file, 4 * PAGE).unwrap();
        let gone = mapping.addresses();
        drop(mapping);
        // Another thread may have mapped something there meanwhile: then the calls may succeed.
        let errors = [will_need(&gone), set_kernel_advice(&gone, KernelAdvice::Random), absent(&gone).map(drop)];
        for error in errors.into_iter().filter_map(|result| result.err()) {
            assert!(matches!(error.raw_os_error(), Some(libc::ENOMEM | libc::EBADF)), "{error}");
        }
    }

    #[test]
    fn release_unmaps_pages_of_a_shared_file_and_keeps_their_content() {
        let mut named = tempfile::NamedTempFile::new_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        named.write_all(&[7; 8 * PAGE]).unwrap();
        let mapping = Mapping::new(named.as_file(), 8 * PAGE).unwrap();
        let range = mapping.addresses();
        (0..8).for_each(|page| assert_eq!(mapping.touch(page * PAGE), Some(7)));
        // SAFETY: the mapping lives as long as the slice, and nothing writes to the file.
        let memory = unsafe { std::slice::from_raw_parts(range.start as *const u8, range.len()) };
        assert!(release(&memory[100..7 * PAGE]).unwrap());
        let mapped = crate::pagemap::Pagemap::open().unwrap().mapped(range.clone()).unwrap();
        assert_eq!(mapped, [range.start..range.start + PAGE, range.end - PAGE..range.end]);
        assert!(memory.iter().all(|byte| *byte == 7));
    }

    #[test]
    fn release_keeps_private_memory() {
        let memory = vec![9u8; 64 * PAGE];
        assert!(!release(&memory).unwrap());
        assert!(memory.iter().all(|byte| *byte == 9));
        assert!(!release(&memory[..0]).unwrap());
    }
}
