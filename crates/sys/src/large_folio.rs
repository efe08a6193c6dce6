//! Reads a block of a file into the page cache as one large folio.
//!
//! ```text
//!     mapping    MADV_HUGEPAGE  the kernel reads the whole block as one folio     page_cache_ra_order in mm/readahead.c
//!                MADV_RANDOM    and no second block
//!     first page MADV_POPULATE_READ: one fault, without a signal at a read error
//!     result     PAGEMAP_SCAN: is the block mapped by one entry of the page table?
//! ```
//!
//! All other requests to read ahead (`FADV_WILLNEED`, `readahead(2)`, `MADV_WILLNEED`) bring single pages (`force_page_cache_ra`), and a
//! sequential reader gets large folios only after some windows, of which the last reads beyond the range.
//!
//! The kernel marks the folio: the first access of any program starts the kernel's own read-ahead after it, if pages within the window
//! are absent. So the caller selects blocks whose following pages are wanted, too.

#![allow(unsafe_code)]

use crate::{Error, Result, evict};
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap, mmap_anonymous, munmap};
use std::fs::{self, File};
use std::os::fd::{AsFd, AsRawFd};

/// The kernel's setting: the size of a folio that one entry of the second level of the page table maps.
const SIZE_FILE: &str = "/sys/kernel/mm/transparent_hugepage/hpage_pmd_size";

/// Largest block, bytes. With pages of 16 and 64 KiB the size is 32 and 512 MiB: one request would take the disk for too long.
const MAX_BLOCK_BYTES: u64 = 4 << 20;

/// The size of a block, bytes, a power of two. `None`: this kernel has no such folios, or they are larger than 4 MiB.
pub fn block_bytes() -> Option<u64> {
    let bytes: u64 = fs::read_to_string(SIZE_FILE).ok()?.trim().parse().ok()?;
    (bytes.is_power_of_two() && bytes <= MAX_BLOCK_BYTES).then_some(bytes)
}

/// Reads the block at `offset_bytes`, a multiple of `block_bytes`, and waits for it. Nothing else is read. Returns whether the block is
/// resident as one folio. `false`: an unknown part of it is resident or in flight, as smaller folios. That is so on a file system
/// without large folios, if a page was resident before, if memory is fragmented, and before Linux 6.7, which does not report it.
///
/// # Errors
/// The file cannot be mapped, or the block cannot be read.
pub fn read_block(fd: impl AsFd, offset_bytes: u64, block_bytes: u64) -> Result<bool> {
    let block = Block::map(&fd, offset_bytes, block_bytes as usize)?;
    block.advise(block.length, Advice::LinuxHugepage)?;
    block.advise(block.length, Advice::Random)?;
    // One page: the kernel reads the whole block for it.
    block.advise(1, Advice::LinuxPopulateRead).inspect_err(|_| {
        // As long as the folio is there, an error of one page is one of each page in it.
        let _ = evict::range(&fd, offset_bytes, block_bytes);
    })?;
    block.is_one_entry()
}

/// A mapping of one block at an address that one entry of the page table can map. The memory is never accessed by this process.
struct Block {
    /// Address space for twice the block, so that an aligned block lies in it.
    reserved: *mut libc::c_void,
    address: *mut libc::c_void,
    length: usize,
}

impl Block {
    fn map(fd: impl AsFd, offset_bytes: u64, length: usize) -> Result<Block> {
        let failed = |e| Error::io("map a block of a file", e);
        let (none, reserve) = (ProtFlags::empty(), MapFlags::PRIVATE | MapFlags::NORESERVE);
        // SAFETY: a new mapping at an address of the kernel's choice; nothing else refers to it.
        let reserved = unsafe { mmap_anonymous(std::ptr::null_mut(), 2 * length, none, reserve) }.map_err(failed)?;
        let address = reserved.wrapping_byte_add(reserved.addr().wrapping_neg() & (length - 1));
        let block = Block { reserved, address, length };
        let fixed = MapFlags::SHARED | MapFlags::FIXED;
        // SAFETY: it replaces a part of the mapping above, which belongs to this value: the aligned address is less than `length` after
        // the beginning of twice that length.
        unsafe { mmap(address, length, ProtFlags::READ, fixed, fd, offset_bytes) }.map_err(failed)?;
        Ok(block)
    }

    fn advise(&self, length: usize, advice: Advice) -> Result<()> {
        let done = rustix::io::retry_on_intr(|| {
            // SAFETY: within this mapping; the advice changes no memory.
            unsafe { madvise(self.address, length, advice) }
        });
        done.map_err(|e| Error::io("read a block of a file", e))
    }

    /// Whether one entry of the page table maps the block: then one folio has all of it.
    fn is_one_entry(&self) -> Result<bool> {
        let failed = |e| Error::io("scan the page table", e);
        let pagemap = File::open("/proc/self/pagemap").map_err(failed)?;
        let start = self.address.addr() as u64;
        let mut found = Region::default();
        let mut scan = Scan {
            size: size_of::<Scan>() as u64,
            start,
            end: start + self.length as u64,
            vector: (&raw mut found).expose_provenance() as u64,
            vector_length: 1,
            category_mask: PAGE_IS_HUGE,
            return_mask: PAGE_IS_HUGE,
            ..Scan::default()
        };
        // SAFETY: both structures have the kernel's layout, and outlive the call; the vector has the given length.
        match unsafe { libc::ioctl(pagemap.as_raw_fd(), PAGEMAP_SCAN as _, &raw mut scan) } {
            -1 => match std::io::Error::last_os_error() {
                error if error.raw_os_error() == Some(libc::ENOTTY) => Ok(false),
                error => Err(failed(error)),
            },
            regions => Ok(regions == 1 && (found.start, found.end) == (scan.start, scan.end)),
        }
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        // SAFETY: exactly the mapping that `map` made, with the block in it; no reference into it was ever handed out.
        let _ = unsafe { munmap(self.reserved, 2 * self.length) };
    }
}

/// `PAGEMAP_SCAN` of linux/fs.h (Linux 6.7): `_IOWR('f', 16, struct pm_scan_arg)`. Not in libc.
const PAGEMAP_SCAN: rustix::ioctl::Opcode = rustix::ioctl::opcode::read_write::<Scan>(b'f', 16);

/// The page is mapped by an entry of the second level.
const PAGE_IS_HUGE: u64 = 1 << 6;

/// `struct pm_scan_arg` of linux/fs.h.
#[repr(C)]
#[derive(Default)]
struct Scan {
    size: u64,
    flags: u64,
    start: u64,
    end: u64,
    walk_end: u64,
    vector: u64,
    vector_length: u64,
    max_pages: u64,
    category_inverted: u64,
    category_mask: u64,
    category_anyof_mask: u64,
    return_mask: u64,
}

/// `struct page_region` of linux/fs.h.
#[repr(C)]
#[derive(Default)]
struct Region {
    start: u64,
    end: u64,
    categories: u64,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cache;
    use std::io::Write;
    use std::os::unix::fs::FileExt;

    /// On any file system, a block is read exactly: as one folio, or not at all as one.
    #[test]
    fn block_is_read_and_its_neighbours_are_not() {
        let Some(bytes) = block_bytes() else { return eprintln!("skipped: no large folios") };
        let mut file = tempfile::tempfile_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        let content: Vec<u8> = (0..3 * bytes).map(|at| (at / 4096) as u8).collect();
        file.write_all(&content).unwrap();
        file.sync_all().unwrap();
        crate::evict::file(&file).unwrap();
        if !cache::present(&file, 0, 3 * bytes).unwrap().is_empty() {
            return eprintln!("skipped: the file system keeps pages after POSIX_FADV_DONTNEED");
        }
        if read_block(&file, bytes, bytes).unwrap() {
            assert_eq!(cache::present(&file, 0, 3 * bytes).unwrap(), [bytes..2 * bytes]);
        } else {
            let cached = cache::resident(&file, 0, 3 * bytes).unwrap();
            assert!(cached.iter().all(|range| bytes <= range.start && range.end <= 2 * bytes), "{cached:?}");
        }
        let mut read = vec![0; bytes as usize];
        file.read_exact_at(&mut read, bytes).unwrap();
        assert_eq!(read, content[bytes as usize..2 * bytes as usize]);
    }

    #[test]
    fn block_of_single_pages_is_not_one_folio() {
        let Some(bytes) = block_bytes() else { return eprintln!("skipped: no large folios") };
        let mut file = tempfile::tempfile_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        file.write_all(&vec![7; bytes as usize]).unwrap();
        file.sync_all().unwrap();
        crate::evict::file(&file).unwrap();
        cache::read_ahead(&file, 8192, 4096).unwrap();
        if cache::resident(&file, 0, bytes).unwrap() == [8192..12_288] {
            assert!(!read_block(&file, 0, bytes).unwrap());
        }
    }

    #[test]
    fn block_beyond_the_end_is_an_error_and_no_signal() {
        let Some(bytes) = block_bytes() else { return eprintln!("skipped: no large folios") };
        let file = tempfile::tempfile_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        file.write_all_at(b"x", 0).unwrap();
        assert!(read_block(&file, 4 * bytes, bytes).is_err());
        assert!(read_block(File::open("/dev/null").unwrap(), 0, bytes).is_err());
    }
}
