//! The page cache: what is in it, and asking the kernel to read ahead into it. For files and block devices alike.
//!
//! ```text
//!     cachestat   counts pages that are there, I/O in flight included   Linux 6.5; refused for files of others
//!     mincore     one answer per page whose data has arrived            says "all there" of files of others: not used then
//!     RWF_NOWAIT  is this page here now? A miss starts its read         always permitted
//! ```
//!
//! The kernel refuses to tell a user about files that are neither his nor writable to him. Whoever asks gets
//! [`Error::NotPermitted`] then, never a guess.

#![allow(unsafe_code)]

use crate::bdi;
use crate::{Error, Result, block, machine};
use ahead_model::DeviceNumber;
use rustix::fs::{Access, Advice, AtFlags, CWD, fadvise, fstat};
use rustix::io::{Errno, ReadWriteFlags, preadv2};
use std::io::IoSliceMut;
use std::num::NonZeroU64;
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, Ordering};

/// What cachestat counts in a range, pages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CacheStat {
    /// In the cache; their read may still be in flight.
    pub cached_pages: u64,
    /// To be written.
    pub dirty_pages: u64,
    /// Being written.
    pub writeback_pages: u64,
    /// Evicted since they were last there.
    pub evicted_pages: u64,
    /// Evicted so recently that reading them again would count as thrashing.
    pub recently_evicted_pages: u64,
}

/// `cachestat(2)`; the number is the same on every architecture that Rust supports, and libc does not name it on all.
const SYS_CACHESTAT: libc::c_long = 451;

/// `struct cachestat_range` of linux/mman.h.
#[repr(C)]
struct RawRange {
    offset: u64,
    length: u64,
}

/// Counts the cached pages that `length_bytes` from `offset_bytes` touch. A length of 0 counts nothing (the system call
/// itself would count to the file's end).
///
/// Errors: [`Error::Unsupported`] before Linux 6.5 and on hugetlbfs, [`Error::NotPermitted`] for files of others.
pub fn cachestat(fd: impl AsFd, offset_bytes: u64, length_bytes: u64) -> Result<CacheStat> {
    if length_bytes == 0 {
        return Ok(CacheStat::default());
    }
    let range = RawRange { offset: offset_bytes, length: length_bytes };
    let mut counted = [0u64; 5];
    // SAFETY: both structures have the kernel's layout (five u64 counters for `struct cachestat`) and outlive the call.
    let failed =
        unsafe { libc::syscall(SYS_CACHESTAT, fd.as_fd().as_raw_fd(), &raw const range, counted.as_mut_ptr(), 0) } != 0;
    if failed {
        let error = std::io::Error::last_os_error();
        return Err(match error.raw_os_error() {
            Some(libc::ENOSYS) => unsupported("this kernel has no cachestat (Linux 6.5)"),
            Some(libc::EOPNOTSUPP) => unsupported("its file system has no ordinary page cache"),
            Some(libc::EPERM) => not_yours(),
            _ => Error::io("cachestat", error),
        });
    }
    let [cached_pages, dirty_pages, writeback_pages, evicted_pages, recently_evicted_pages] = counted;
    Ok(CacheStat { cached_pages, dirty_pages, writeback_pages, evicted_pages, recently_evicted_pages })
}

fn unsupported(why: &str) -> Error {
    Error::Unsupported { what: "asking what is cached of a file".into(), why: why.into() }
}

fn not_yours() -> Error {
    Error::NotPermitted {
        what: "asking what is cached of a file of somebody else".into(),
        remedy: "run it as the file's owner or as root".into(),
    }
}

/// Set once cachestat turned out to be missing, so that later questions go straight to mincore.
static NO_CACHESTAT: AtomicBool = AtomicBool::new(false);

/// The resident parts of a range, in ascending order, page-aligned and cut to the range. Pages whose read is in flight
/// count where cachestat answers, and do not where only mincore does.
///
/// Errors: [`Error::NotPermitted`] for files of others.
pub fn resident(fd: impl AsFd, offset_bytes: u64, length_bytes: u64) -> Result<Vec<Range<u64>>> {
    let fd = fd.as_fd();
    let whole = offset_bytes..offset_bytes.saturating_add(length_bytes);
    let mut found = Vec::new();
    if !NO_CACHESTAT.load(Ordering::Relaxed) {
        match resident_by_cachestat(fd, &whole, &mut found) {
            Err(Error::Unsupported { .. }) => NO_CACHESTAT.store(true, Ordering::Relaxed),
            // Containers forbid the call whoever owns the file; mincore decides whether we may know.
            Err(Error::NotPermitted { .. }) => {}
            other => return other.map(|()| found),
        }
    }
    present(fd, offset_bytes, length_bytes)
}

/// How much of a range is resident, bytes, in whole pages; as [`resident`], but in one call where cachestat answers.
///
/// Errors: as [`resident`].
pub fn resident_bytes(fd: impl AsFd, offset_bytes: u64, length_bytes: u64) -> Result<u64> {
    let fd = fd.as_fd();
    match cachestat(fd, offset_bytes, length_bytes) {
        Ok(counted) => Ok(counted.cached_pages * machine::page_size()),
        Err(Error::Unsupported { .. } | Error::NotPermitted { .. }) => {
            let ranges = present(fd, offset_bytes, length_bytes)?;
            Ok(ranges.iter().map(|range| range.end - range.start).sum())
        }
        Err(error) => Err(error),
    }
}

/// Halves the range until each part is wholly there or wholly absent: one call for the usual answers "all" and "none".
fn resident_by_cachestat(fd: BorrowedFd<'_>, range: &Range<u64>, found: &mut Vec<Range<u64>>) -> Result<()> {
    let page = machine::page_size();
    let pages = range.end.div_ceil(page) - range.start / page;
    match cachestat(fd, range.start, range.end - range.start)?.cached_pages {
        0 => {}
        cached if cached >= pages => push_merged(found, range.clone()),
        _ => {
            let middle = (range.start / page + pages / 2) * page;
            resident_by_cachestat(fd, &(range.start..middle), found)?;
            resident_by_cachestat(fd, &(middle..range.end), found)?;
        }
    }
    Ok(())
}

fn push_merged(found: &mut Vec<Range<u64>>, range: Range<u64>) {
    match found.last_mut() {
        Some(last) if last.end == range.start => last.end = range.end,
        _ => found.push(range),
    }
}

/// The parts of a range whose data has arrived (mincore), in ascending order, page-aligned and cut to the range.
///
/// Errors: [`Error::NotPermitted`] where mincore would call every page present (files of others).
pub fn present(fd: impl AsFd, offset_bytes: u64, length_bytes: u64) -> Result<Vec<Range<u64>>> {
    let fd = fd.as_fd();
    if !mincore_tells_the_truth(fd)? {
        return Err(not_yours());
    }
    let (page, end) = (machine::page_size(), offset_bytes.saturating_add(length_bytes));
    let first = offset_bytes - offset_bytes % page;
    let mut found = Vec::new();
    for start in (first..end).step_by(MINCORE_BYTES) {
        let map = Mapping::new(fd, start, ((end - start) as usize).min(MINCORE_BYTES))?;
        for (index, state) in map.states()?.into_iter().enumerate() {
            let at = start + index as u64 * page;
            // The other bits are reserved.
            if state & 1 != 0 {
                push_merged(&mut found, at.max(offset_bytes)..(at + page).min(end));
            }
        }
    }
    Ok(found)
}

/// Mapped at a time for mincore: 64 MiB, 16 KiB of answers.
const MINCORE_BYTES: usize = 64 << 20;

/// mincore answers truly to the owner, to root and to whoever may write the file; to others every page is "there".
fn mincore_tells_the_truth(fd: BorrowedFd<'_>) -> Result<bool> {
    let stat = fstat(fd).map_err(|e| Error::io("fstat", e))?;
    let user = rustix::process::geteuid();
    if user.is_root() || stat.st_uid == user.as_raw() {
        return Ok(true);
    }
    let link = format!("/proc/self/fd/{}", fd.as_raw_fd());
    Ok(rustix::fs::accessat(CWD, link, Access::WRITE_OK, AtFlags::EACCESS).is_ok())
}

/// A mapping that nobody reads through.
struct Mapping {
    address: *mut libc::c_void,
    length: usize,
}

impl Mapping {
    fn new(fd: BorrowedFd<'_>, offset: u64, length: usize) -> Result<Mapping> {
        let (protection, flags) = (rustix::mm::ProtFlags::READ, rustix::mm::MapFlags::SHARED);
        // SAFETY: a new mapping at an address of the kernel's choice; nothing else refers to it.
        let address = unsafe { rustix::mm::mmap(std::ptr::null_mut(), length, protection, flags, fd, offset) }
            .map_err(|e| Error::io("map a file", e))?;
        Ok(Mapping { address, length })
    }

    fn states(&self) -> Result<Vec<u8>> {
        let mut states = vec![0u8; self.length.div_ceil(machine::page_size() as usize)];
        // SAFETY: one byte per page of the mapping, which lives as long as `self`.
        if unsafe { libc::mincore(self.address, self.length, states.as_mut_ptr()) } != 0 {
            return Err(Error::io("mincore", std::io::Error::last_os_error()));
        }
        Ok(states)
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: exactly what `new` mapped, and no reference into it was ever given out.
        let _ = unsafe { rustix::mm::munmap(self.address, self.length) };
    }
}

/// Asks the kernel to read this range into the cache. Returns when the reads are submitted (which blocks while the
/// device's queue is full), not when they are done. Pages that are there are passed over.
///
/// The kernel silently cuts one call at the larger of the device's `max_sectors_kb` and the open file's read-ahead
/// window ([`read_ahead_cap_bytes`]): the caller chunks. `FADV_WILLNEED` and not `readahead(2)`, which does the same
/// but refuses block devices before Linux 6.7.
pub fn read_ahead(fd: impl AsFd, offset_bytes: u64, length_bytes: u64) -> Result<()> {
    let Some(length) = NonZeroU64::new(length_bytes) else { return Ok(()) };
    fadvise(fd, offset_bytes, Some(length), Advice::WillNeed).map_err(|e| Error::io("read ahead", e))
}

/// Switches the kernel's own read-ahead off for this open file: later reads bring exactly what they ask for.
pub fn exact_reads(fd: impl AsFd) -> Result<()> {
    fadvise(fd, 0, None, Advice::Random).map_err(|e| Error::io("advise random access", e))
}

/// Doubles the read-ahead window of this open file (`POSIX_FADV_SEQUENTIAL`).
pub fn sequential_reads(fd: impl AsFd) -> Result<()> {
    fadvise(fd, 0, None, Advice::Sequential).map_err(|e| Error::io("advise sequential access", e))
}

/// Whether the page at `offset_bytes` is there with its data, without waiting. If it is absent its read is started
/// (and the kernel's own read-ahead with it, unless [`exact_reads`] was called), and `true` if its data has arrived by then
/// nevertheless. `false` at and beyond the file's end.
///
/// Errors: [`Error::Unsupported`] where the file system cannot read without waiting.
pub fn probe(fd: impl AsFd, offset_bytes: u64) -> Result<bool> {
    let mut byte = [0u8];
    match preadv2(fd, &mut [IoSliceMut::new(&mut byte)], offset_bytes, ReadWriteFlags::NOWAIT) {
        Ok(read) => Ok(read == 1),
        Err(Errno::AGAIN) => Ok(false),
        Err(Errno::OPNOTSUPP | Errno::NOSYS) => Err(unsupported("its file system cannot read without waiting")),
        Err(error) => Err(Error::io("probe a page", error)),
    }
}

/// Waits until the page at `offset_bytes` is there, reading it if it is absent. Returns whether there is such a page
/// (`false` at and beyond the file's end). An I/O error of an earlier read-ahead shows here, and only here.
pub fn wait_for(fd: impl AsFd, offset_bytes: u64) -> Result<bool> {
    let mut byte = [0u8];
    let read = rustix::io::retry_on_intr(|| rustix::io::pread(&fd, &mut byte, offset_bytes));
    read.map(|count| count == 1).map_err(|e| Error::io("read", e))
}

/// What one call of [`read_ahead`] brings at most on a file system of this device: the larger of the read-ahead window
/// and the largest request, the 128 KiB of any backing device where neither is known (overlayfs, network file systems).
pub fn read_ahead_cap_bytes(device: DeviceNumber) -> u64 {
    let window_kb = bdi::read_ahead_kb(device).unwrap_or(0);
    let request_kb = block::disk_setting(device, "max_sectors_kb").and_then(|text| text.parse().ok());
    window_kb.max(request_kb.unwrap_or(0)).max(DEFAULT_CAP_KB) * 1024
}

/// `VM_READAHEAD_PAGES` of linux/mm.h: what every backing device starts with.
const DEFAULT_CAP_KB: u64 = 128;

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::io::Write;

    const MIB: u64 = 1 << 20;

    /// A file on disk of which nothing is cached; `None` (with the reason printed) where that cannot be had.
    fn cold_file(bytes: u64) -> Option<File> {
        let mut file = tempfile::tempfile_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        file.write_all(&vec![7; bytes as usize]).unwrap();
        file.sync_all().unwrap();
        crate::evict::file(&file).unwrap();
        if present(&file, 0, bytes).unwrap().is_empty() {
            return Some(file);
        }
        eprintln!("skipped: the file system keeps pages that it was told to drop");
        None
    }

    #[test]
    fn what_was_read_ahead_arrives_and_nothing_else() {
        let Some(file) = cold_file(4 * MIB) else { return };
        read_ahead(&file, MIB, 65_536).unwrap();
        read_ahead(&file, 2 * MIB, 4096).unwrap();
        assert_eq!(resident(&file, 0, 4 * MIB).unwrap(), [MIB..MIB + 65_536, 2 * MIB..2 * MIB + 4096]);
        for at in (MIB..MIB + 65_536).step_by(4096).chain([2 * MIB]) {
            assert!(wait_for(&file, at).unwrap());
        }
        assert_eq!(present(&file, 0, 4 * MIB).unwrap(), [MIB..MIB + 65_536, 2 * MIB..2 * MIB + 4096]);
    }

    #[test]
    fn ranges_are_cut_to_what_was_asked() {
        let Some(file) = cold_file(MIB) else { return };
        wait_for(&file, 0).unwrap();
        read_ahead(&file, 0, 8192).unwrap();
        let asked = 100..5000;
        assert_eq!(resident(&file, 100, 4900).unwrap(), vec![asked]);
        assert!(resident(&file, 0, 0).unwrap().is_empty());
    }

    /// The kernel looks a second time, after it has started the read: of a quick disk the data may have arrived by then, now and then.
    #[test]
    fn a_probe_tells_and_starts_the_read() {
        let Some(file) = cold_file(16 * MIB) else { return };
        exact_reads(&file).unwrap();
        let (mut probed, mut is_told) = (0, false);
        for at in (0..16 * MIB).step_by(64 * 1024) {
            probed += 4096;
            match probe(&file, at) {
                Err(error) if error.is_unavailable() => return eprintln!("skipped: {error}"),
                is_there => is_told = !is_there.unwrap(),
            }
            assert!(wait_for(&file, at).unwrap());
            assert!(probe(&file, at).unwrap());
            if is_told {
                break;
            }
        }
        assert!(!probe(&file, 16 * MIB).unwrap());
        let there = present(&file, 0, 16 * MIB).unwrap();
        assert_eq!(there.iter().map(|range| range.end - range.start).sum::<u64>(), probed);
        assert!(is_told, "each of 256 absent pages was there at once");
    }

    #[test]
    fn the_cap_is_never_below_that_of_any_device() {
        assert_eq!(read_ahead_cap_bytes(DeviceNumber::new(4095, 1)), 128 << 10);
        let here = rustix::fs::stat(env!("CARGO_MANIFEST_DIR")).unwrap().st_dev;
        let here = DeviceNumber::from_stat(here);
        assert!(read_ahead_cap_bytes(here) >= 128 << 10);
    }
}
