//! Which pages of a process are mapped: `/proc/PID/pagemap`, by PAGEMAP_SCAN (Linux 6.7) or by reading its entries.
//!
//! A page of a mapped file is mapped when the program has touched it, or when the kernel mapped it with a touched neighbour (fault-around, 64 KiB).

#![allow(unsafe_code)]

use crate::{Error, Result, machine};
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, Ordering};

/// `struct page_region` of linux/fs.h.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct PageRegion {
    start: u64,
    end: u64,
    categories: u64,
}

/// `struct pm_scan_arg` of linux/fs.h.
#[repr(C)]
#[derive(Default)]
struct ScanArguments {
    size: u64,
    flags: u64,
    start: u64,
    end: u64,
    walk_end: u64,
    vec: u64,
    vec_len: u64,
    max_pages: u64,
    category_inverted: u64,
    category_mask: u64,
    category_anyof_mask: u64,
    return_mask: u64,
}

/// `_IOWR('f', 16, struct pm_scan_arg)`.
const PAGEMAP_SCAN: libc::c_ulong = (3 << 30) | (0x60 << 16) | ((b'f' as libc::c_ulong) << 8) | 16;

/// `PAGE_IS_PRESENT` of linux/fs.h.
const PAGE_IS_PRESENT: u64 = 1 << 3;

/// Bit 63 of an entry (Documentation/admin-guide/mm/pagemap.rst): the page is present.
const PRESENT: u64 = 1 << 63;

/// Regions of one call: usually there is one.
const REGIONS_AT_ONCE: usize = 32;

/// Entries of one read.
const ENTRIES_AT_ONCE: usize = 512;

/// The page table of a process.
#[derive(Debug)]
pub struct Pagemap {
    file: File,
    has_scan: AtomicBool,
}

impl Pagemap {
    /// Opens it. A process that forks has to open it again: it is that of the process that opened it.
    ///
    /// Errors: there is no /proc.
    pub fn open() -> Result<Pagemap> {
        Pagemap::at("/proc/self/pagemap")
    }

    /// That of another process of this user.
    ///
    /// Errors: it has ended; not permitted.
    pub fn of(process: u32) -> Result<Pagemap> {
        Pagemap::at(&format!("/proc/{process}/pagemap"))
    }

    fn at(path: &str) -> Result<Pagemap> {
        let file = File::open(path).map_err(|e| Error::io(format!("open {path}"), e))?;
        Ok(Pagemap { file, has_scan: AtomicBool::new(true) })
    }

    /// Only by reading entries, as before Linux 6.7.
    pub fn without_scan(self) -> Pagemap {
        self.has_scan.store(false, Ordering::Relaxed);
        self
    }

    /// The mapped parts of a range of addresses, which begins and ends at pages: ascending, disjoint.
    ///
    /// Errors: the range cannot be examined.
    pub fn mapped(&self, addresses: Range<usize>) -> Result<Vec<Range<usize>>> {
        self.examine(addresses, 0)
    }

    fn examine(&self, addresses: Range<usize>, most_pages: u64) -> Result<Vec<Range<usize>>> {
        if self.has_scan.load(Ordering::Relaxed) {
            match self.scan(&addresses, most_pages) {
                Ok(found) => return Ok(found),
                // ENOTTY: before Linux 6.7. A filter of system calls may refuse it, too.
                Err(error) if matches!(error.raw_os_error(), Some(libc::ENOTTY | libc::EPERM | libc::ENOSYS)) => {
                    self.has_scan.store(false, Ordering::Relaxed);
                }
                Err(error) => return Err(Error::io("scan the page table", error)),
            }
        }
        self.read(addresses).map_err(|e| Error::io("read a page table", e))
    }

    /// The last mapped page of a range, which begins and ends at pages: its end. With PAGEMAP_SCAN the cost is that of the pages that are not
    /// mapped, and of a call for each halving of the range.
    ///
    /// Errors: the range cannot be examined.
    pub fn end_of_mapped(&self, addresses: Range<usize>) -> Result<Option<usize>> {
        let page = machine::page_size() as usize;
        if !self.has_scan.load(Ordering::Relaxed) {
            return self.mapped(addresses).map(|mapped| mapped.last().map(|range| range.end));
        }
        let (mut start, mut end, mut found) = (addresses.start, addresses.end, None);
        while start < end {
            let middle = start + (end - start) / page / 2 * page;
            match self.start_of_mapped(middle..end)? {
                Some(first) => {
                    found = Some(first + page);
                    start = first + page;
                }
                None => end = middle,
            }
        }
        Ok(found)
    }

    /// The first mapped page of a range, which begins and ends at pages. With PAGEMAP_SCAN the cost is that of the pages before it.
    ///
    /// Errors: the range cannot be examined.
    pub fn start_of_mapped(&self, addresses: Range<usize>) -> Result<Option<usize>> {
        self.examine(addresses, 1).map(|mapped| mapped.first().map(|range| range.start))
    }

    /// Up to `most_pages` pages (0: all), as ranges.
    fn scan(&self, addresses: &Range<usize>, most_pages: u64) -> io::Result<Vec<Range<usize>>> {
        let mut found: Vec<Range<usize>> = Vec::new();
        let mut regions = [PageRegion::default(); REGIONS_AT_ONCE];
        let mut start = addresses.start as u64;
        while start < addresses.end as u64 {
            let mut arguments = ScanArguments {
                size: size_of::<ScanArguments>() as u64,
                start,
                end: addresses.end as u64,
                vec: regions.as_mut_ptr() as u64,
                vec_len: REGIONS_AT_ONCE as u64,
                max_pages: most_pages,
                category_mask: PAGE_IS_PRESENT,
                return_mask: PAGE_IS_PRESENT,
                ..ScanArguments::default()
            };
            // SAFETY: the kernel writes at most `vec_len` regions and the field `walk_end`; both live during the call.
            let count = unsafe { libc::ioctl(self.file.as_raw_fd(), PAGEMAP_SCAN, &raw mut arguments) };
            let count = usize::try_from(count).map_err(|_| io::Error::last_os_error())?;
            regions[..count].iter().for_each(|region| add(&mut found, region.start as usize..region.end as usize));
            if arguments.walk_end <= start || most_pages > 0 && count > 0 {
                break;
            }
            start = arguments.walk_end;
        }
        Ok(found)
    }

    fn read(&self, addresses: Range<usize>) -> io::Result<Vec<Range<usize>>> {
        let page = machine::page_size() as usize;
        let mut found = Vec::new();
        let mut entries = [0u8; ENTRIES_AT_ONCE * 8];
        let mut at = addresses.start / page;
        while at < addresses.end / page {
            let count = ENTRIES_AT_ONCE.min(addresses.end / page - at);
            self.file.read_exact_at(&mut entries[..count * 8], at as u64 * 8)?;
            for (index, entry) in entries[..count * 8].as_chunks::<8>().0.iter().enumerate() {
                if u64::from_ne_bytes(*entry) & PRESENT != 0 {
                    add(&mut found, (at + index) * page..(at + index + 1) * page);
                }
            }
            at += count;
        }
        Ok(found)
    }
}

/// Adds a range that begins at or after the end of the last one.
fn add(found: &mut Vec<Range<usize>>, range: Range<usize>) {
    match found.last_mut() {
        Some(last) if last.end == range.start => last.end = range.end,
        _ => found.push(range),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn structure_has_the_kernels_size() {
        assert_eq!((size_of::<ScanArguments>(), size_of::<PageRegion>()), (0x60, 24));
    }

    #[test]
    fn touched_pages_are_mapped_by_scan_and_by_entries() {
        let page = machine::page_size() as usize;
        let (protection, flags) =
            (rustix::mm::ProtFlags::READ | rustix::mm::ProtFlags::WRITE, rustix::mm::MapFlags::PRIVATE);
        // SAFETY: a new mapping at an address of the kernel's choice, which stays until the process ends.
        let memory = unsafe { rustix::mm::mmap_anonymous(std::ptr::null_mut(), 64 * page, protection, flags) }.unwrap();
        // SAFETY: within the mapping. Huge pages would map neighbours, too.
        unsafe { rustix::mm::madvise(memory, 64 * page, rustix::mm::Advice::LinuxNoHugepage) }.unwrap();
        for touched in [3, 4, 9] {
            // SAFETY: within the mapping.
            unsafe { memory.cast::<u8>().add(touched * page).write_volatile(1) };
        }
        let start = memory as usize;
        let expected = [start + 3 * page..start + 5 * page, start + 9 * page..start + 10 * page];
        for pagemap in [Pagemap::open().unwrap(), Pagemap::open().unwrap().without_scan()] {
            assert_eq!(pagemap.mapped(start..start + 64 * page).unwrap(), expected);
            assert!(pagemap.mapped(start..start).unwrap().is_empty());
            for (range, first, end) in [(0..64, 3, 10), (4..9, 4, 5), (9..10, 9, 10), (0..5, 3, 5), (5..64, 9, 10)] {
                let range = start + range.start * page..start + range.end * page;
                assert_eq!(pagemap.start_of_mapped(range.clone()).unwrap(), Some(start + first * page), "{range:?}");
                assert_eq!(pagemap.end_of_mapped(range.clone()).unwrap(), Some(start + end * page), "{range:?}");
            }
            for range in [0..3, 5..9, 10..64, 7..7] {
                let range = start + range.start * page..start + range.end * page;
                assert_eq!(pagemap.start_of_mapped(range.clone()).unwrap(), None);
                assert_eq!(pagemap.end_of_mapped(range).unwrap(), None);
            }
        }
    }
}
