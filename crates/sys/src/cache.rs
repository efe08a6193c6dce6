//! The page cache: which pages are resident, and requests to the kernel to read ahead. For files and block devices.
//!
//! ```text
//!     cachestat   counts resident pages, I/O in flight included       Linux 6.5; refused for files of other users; wrong on overlayfs
//!     mincore     reports each page whose data has arrived            reports every page of other users' files: not used for them
//!     RWF_NOWAIT  is this page resident? A miss starts its read       always permitted
//! ```
//!
//! The kernel reports residency only to users who own a file or may write it. Other callers get [`Error::NotPermitted`], never
//! a guess.

#![allow(unsafe_code)]

use crate::bdi;
use crate::openat::file_system_of;
use crate::{Error, Result, block, machine};
use ahead_model::DeviceNumber;
use ahead_model::file_system_kind::Place;
use rustix::fs::{Access, Advice, AtFlags, CWD, fadvise, fstat};
use rustix::io::{Errno, ReadWriteFlags, preadv2};
use std::io::IoSliceMut;
use std::num::NonZeroU64;
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, Ordering};

/// Result of cachestat(2) for a range. Unit: pages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CacheStat {
    /// Resident; the read may still be in flight.
    pub cached_pages: u64,
    /// Not written yet.
    pub dirty_pages: u64,
    /// Being written.
    pub writeback_pages: u64,
    /// Evicted, and not resident since.
    pub evicted_pages: u64,
    /// Evicted so recently that reading them again counts as thrashing.
    pub recently_evicted_pages: u64,
}

/// `cachestat(2)`: the same number on every architecture that Rust supports; libc does not define it on all.
const SYS_CACHESTAT: libc::c_long = 451;

/// `struct cachestat_range` of linux/mman.h.
#[repr(C)]
struct RawRange {
    offset: u64,
    length: u64,
}

/// Counts the resident pages of a range. A length of 0 counts nothing (the system call itself would count up to the end of
/// the file).
///
/// Errors: [`Error::Unsupported`] before Linux 6.5, on hugetlbfs and on overlayfs; [`Error::NotPermitted`] for files of other users.
pub fn cachestat(fd: impl AsFd, offset_bytes: u64, length_bytes: u64) -> Result<CacheStat> {
    if length_bytes == 0 {
        return Ok(CacheStat::default());
    }
    let range = RawRange { offset: offset_bytes, length: length_bytes };
    let mut counted = [0u64; 5];
    // SAFETY: both structures have the kernel's layout (`struct cachestat` is five u64 counters) and outlive the call.
    let failed =
        unsafe { libc::syscall(SYS_CACHESTAT, fd.as_fd().as_raw_fd(), &raw const range, counted.as_mut_ptr(), 0) } != 0;
    if failed {
        let error = std::io::Error::last_os_error();
        return Err(match error.raw_os_error() {
            Some(libc::ENOSYS) => {
                NO_CACHESTAT.store(true, Ordering::Relaxed);
                unsupported("this kernel has no cachestat (Linux 6.5)")
            }
            Some(libc::EOPNOTSUPP) => unsupported("the file system has no ordinary page cache"),
            Some(libc::EPERM) => file_of_another_user(),
            _ => Error::io("cachestat", error),
        });
    }
    // The pages of a file on overlayfs are those of the file in its layer: of itself the kernel counts none. mincore finds them.
    if counted == [0; 5] && file_system_of(&fd).is_ok_and(|kind| kind.place == Place::Layers) {
        return Err(unsupported("its pages are those of a file in a layer"));
    }
    let [cached_pages, dirty_pages, writeback_pages, evicted_pages, recently_evicted_pages] = counted;
    Ok(CacheStat { cached_pages, dirty_pages, writeback_pages, evicted_pages, recently_evicted_pages })
}

fn unsupported(why: &str) -> Error {
    Error::Unsupported { what: "querying the resident pages of a file".into(), why: why.into() }
}

fn file_of_another_user() -> Error {
    Error::NotPermitted {
        what: "querying the resident pages of another user's file".into(),
        remedy: "run it as the file's owner or as root".into(),
    }
}

/// Set when cachestat is found to be missing, so that later calls use mincore at once.
static NO_CACHESTAT: AtomicBool = AtomicBool::new(false);

/// The resident parts of a range: ascending, page-aligned, clipped to the range. Pages whose read is in flight count with
/// cachestat, and do not count with mincore.
///
/// Errors: [`Error::NotPermitted`] for files of other users.
pub fn resident(fd: impl AsFd, offset_bytes: u64, length_bytes: u64) -> Result<Vec<Range<u64>>> {
    let fd = fd.as_fd();
    let whole = offset_bytes..offset_bytes.saturating_add(length_bytes);
    let mut found = Vec::new();
    if !NO_CACHESTAT.load(Ordering::Relaxed) {
        match resident_by_cachestat(fd, &whole, &mut found) {
            // Containers forbid cachestat for every file; mincore decides whether the query is permitted.
            Err(Error::Unsupported { .. } | Error::NotPermitted { .. }) => {}
            other => return other.map(|()| found),
        }
    }
    present(fd, offset_bytes, length_bytes)
}

/// The number of resident bytes of a range, in whole pages: as [`resident`], but a single call where cachestat works.
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

/// Halves the range until each part is fully resident or fully absent. The usual cases, all or nothing, take one call.
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

/// The parts of a range whose data has arrived (mincore): ascending, page-aligned, clipped to the range.
///
/// Errors: [`Error::NotPermitted`] for files of other users, where mincore reports every page as present.
pub fn present(fd: impl AsFd, offset_bytes: u64, length_bytes: u64) -> Result<Vec<Range<u64>>> {
    let fd = fd.as_fd();
    if !reports_residency(fd)? {
        return Err(file_of_another_user());
    }
    let (page, end) = (machine::page_size(), offset_bytes.saturating_add(length_bytes));
    let first = offset_bytes - offset_bytes % page;
    let mut found = Vec::new();
    for start in (first..end).step_by(MINCORE_BYTES) {
        let map = Mapping::new(fd, start, ((end - start) as usize).min(MINCORE_BYTES))?;
        for (index, state) in map.states()?.into_iter().enumerate() {
            let at = start + index as u64 * page;
            // Only bit 0 is defined.
            if state & 1 != 0 {
                push_merged(&mut found, at.max(offset_bytes)..(at + page).min(end));
            }
        }
    }
    Ok(found)
}

/// Mapped per mincore call: 64 MiB, for 16 KiB of answers.
const MINCORE_BYTES: usize = 64 << 20;

/// Whether the kernel reports to this user which pages of the file are resident: to the owner, to root and to users who may write the file.
/// To others mincore reports every page as present.
pub fn reports_residency(fd: impl AsFd) -> Result<bool> {
    let fd = fd.as_fd();
    let stat = fstat(fd).map_err(|e| Error::io("fstat", e))?;
    let user = rustix::process::geteuid();
    if user.is_root() || stat.st_uid == user.as_raw() {
        return Ok(true);
    }
    let link = format!("/proc/self/fd/{}", fd.as_raw_fd());
    Ok(rustix::fs::accessat(CWD, link, Access::WRITE_OK, AtFlags::EACCESS).is_ok())
}

/// A mapping for mincore only: its memory is never accessed.
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
        // SAFETY: one byte for each page of the mapping, which lives as long as `self`.
        if unsafe { libc::mincore(self.address, self.length, states.as_mut_ptr()) } != 0 {
            return Err(Error::io("mincore", std::io::Error::last_os_error()));
        }
        Ok(states)
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: exactly the mapping that `new` made; no reference into it was ever handed out.
        let _ = unsafe { rustix::mm::munmap(self.address, self.length) };
    }
}

/// Requests the kernel to read a range into the page cache. Returns when the reads are submitted (the call blocks while the
/// device queue is full), not when they complete. Resident pages are skipped.
///
/// The kernel silently limits one call to the larger of the device's `max_sectors_kb` and the open file's read-ahead
/// window ([`read_ahead_cap_bytes`]): the caller splits larger ranges. `FADV_WILLNEED` is used because `readahead(2)`, which
/// does the same, refuses block devices before Linux 6.7.
pub fn read_ahead(fd: impl AsFd, offset_bytes: u64, length_bytes: u64) -> Result<()> {
    let Some(length) = NonZeroU64::new(length_bytes) else { return Ok(()) };
    fadvise(fd, offset_bytes, Some(length), Advice::WillNeed).map_err(|e| Error::io("read ahead", e))
}

/// `readahead(2)` itself. [`read_ahead`] does the same, also for block devices.
pub fn readahead_call(fd: impl AsFd, offset_bytes: u64, length_bytes: u64) -> Result<()> {
    // SAFETY: the call takes three numbers.
    let failed = unsafe { libc::readahead(fd.as_fd().as_raw_fd(), offset_bytes as i64, length_bytes as usize) } != 0;
    if failed { Err(Error::io("readahead", std::io::Error::last_os_error())) } else { Ok(()) }
}

/// Disables the kernel's read-ahead for this open file: later reads load exactly the requested pages.
pub fn exact_reads(fd: impl AsFd) -> Result<()> {
    fadvise(fd, 0, None, Advice::Random).map_err(|e| Error::io("advise random access", e))
}

/// Gives the kernel's read-ahead back to an open file after [`exact_reads`] or [`sequential_reads`] (`POSIX_FADV_NORMAL`). Since Linux 6.3
/// that ends [`single_use`], too.
pub fn normal_reads(fd: impl AsFd) -> Result<()> {
    fadvise(fd, 0, None, Advice::Normal).map_err(|e| Error::io("advise normal access", e))
}

/// Advises that pages of this open file are used once: since Linux 6.3 its accesses do not keep them in the cache (`POSIX_FADV_NOREUSE`).
pub fn single_use(fd: impl AsFd) -> Result<()> {
    fadvise(fd, 0, None, Advice::NoReuse).map_err(|e| Error::io("advise a single use", e))
}

/// Reads cached pages from `offset_bytes` on, without waiting. The result is short where a page is absent or the file ends, and 0 at its end.
/// `None`: the first page is absent, and its read has started, as by [`probe`].
///
/// Errors: those of pread(2); [`std::io::ErrorKind::Unsupported`] if the file system cannot read without waiting.
#[inline(always)]
pub fn read_now(fd: impl AsFd, buffer: &mut [u8], offset_bytes: u64) -> std::io::Result<Option<usize>> {
    match preadv2(fd, &mut [IoSliceMut::new(buffer)], offset_bytes, ReadWriteFlags::NOWAIT) {
        Ok(read) => Ok(Some(read)),
        Err(Errno::AGAIN) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Reads from `offset_bytes` on, and waits for absent pages: pread(2), as a single instruction in the program.
///
/// Errors: those of pread(2), without EINTR.
#[inline(always)]
pub fn read_waiting(fd: impl AsFd, buffer: &mut [u8], offset_bytes: u64) -> std::io::Result<usize> {
    Ok(rustix::io::retry_on_intr(|| rustix::io::pread(&fd, &mut *buffer, offset_bytes))?)
}

/// Doubles the read-ahead window of this open file (`POSIX_FADV_SEQUENTIAL`).
pub fn sequential_reads(fd: impl AsFd) -> Result<()> {
    fadvise(fd, 0, None, Advice::Sequential).map_err(|e| Error::io("advise sequential access", e))
}

/// Whether the page at `offset_bytes` is present, without waiting. A miss starts the read of the page, and the kernel's
/// read-ahead unless [`exact_reads`] was called. If the data arrives before the call returns, the result is `true`. At and
/// beyond the end of the file: `false`.
///
/// Errors: [`Error::Unsupported`] if the file system cannot read without waiting.
pub fn probe(fd: impl AsFd, offset_bytes: u64) -> Result<bool> {
    let mut byte = [0u8];
    match preadv2(fd, &mut [IoSliceMut::new(&mut byte)], offset_bytes, ReadWriteFlags::NOWAIT) {
        Ok(read) => Ok(read == 1),
        Err(Errno::AGAIN) => Ok(false),
        Err(Errno::OPNOTSUPP | Errno::NOSYS) => Err(unsupported("the file system cannot read without waiting")),
        Err(error) => Err(Error::io("probe a page", error)),
    }
}

/// Waits until the page at `offset_bytes` is present, and reads it if it is absent. Returns `false` at and beyond the end of
/// the file. An I/O error of an earlier read-ahead is reported here, and only here.
pub fn wait_for(fd: impl AsFd, offset_bytes: u64) -> Result<bool> {
    let mut byte = [0u8];
    let read = rustix::io::retry_on_intr(|| rustix::io::pread(&fd, &mut byte, offset_bytes));
    read.map(|count| count == 1).map_err(|e| Error::io("read", e))
}

/// Waits until all pages of a range are present, and reads those that are absent. `scratch` takes their content, and the range is at most
/// as long. Returns the bytes that lie before the end of the file. One call does the work of a [`wait_for`] for each page.
///
/// Errors: as [`wait_for`], if the first page could not be read; if a later one could not, the result is short.
pub fn wait_for_range(fd: impl AsFd, offset_bytes: u64, scratch: &mut [u8]) -> Result<usize> {
    let read = rustix::io::retry_on_intr(|| rustix::io::pread(&fd, &mut *scratch, offset_bytes));
    read.map_err(|e| Error::io("read", e))
}

/// Largest range that one [`read_ahead`] call reads on a file system of this device: the larger of the read-ahead window and
/// the largest request. If neither is known (overlayfs, network file systems): 128 KiB, the default of every backing device.
pub fn read_ahead_cap_bytes(device: DeviceNumber) -> u64 {
    let window_kb = bdi::read_ahead_kb(device).unwrap_or(0);
    let request_kb = block::disk_setting(device, "max_sectors_kb").and_then(|text| text.parse().ok());
    window_kb.max(request_kb.unwrap_or(0)).max(DEFAULT_CAP_KB) * 1024
}

/// `VM_READAHEAD_PAGES` of linux/mm.h: the initial window of every backing device.
const DEFAULT_CAP_KB: u64 = 128;

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;

    const MIB: u64 = 1 << 20;

    /// A file on disk without resident pages. `None`, with a message, if the file system does not evict.
    fn cold_file(bytes: u64) -> Option<File> {
        ahead_tests::rig::cold::cold_file(&vec![7; bytes as usize]).map(tempfile::NamedTempFile::into_file)
    }

    #[test]
    fn read_ahead_makes_exactly_its_range_resident() {
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
    fn readahead_loads_whole_pages() {
        let Some(file) = cold_file(MIB) else { return };
        readahead_call(&file, 5000, 4000).unwrap();
        assert_eq!(resident(&file, 0, MIB).unwrap(), [4096..12_288]);
        assert!(readahead_call(File::open("/").unwrap(), 0, 4096).is_err());
    }

    #[test]
    fn resident_ranges_are_clipped_to_the_query() {
        let Some(file) = cold_file(MIB) else { return };
        wait_for(&file, 0).unwrap();
        read_ahead(&file, 0, 8192).unwrap();
        let clipped = 100..5000;
        assert_eq!(resident(&file, 100, 4900).unwrap(), vec![clipped]);
        assert!(resident(&file, 0, 0).unwrap().is_empty());
    }

    /// The kernel looks up the page again after it has started the read: on a fast disk the data may have arrived by then.
    #[test]
    fn probe_reports_an_absent_page_and_starts_its_read() {
        let Some(file) = cold_file(16 * MIB) else { return };
        exact_reads(&file).unwrap();
        let (mut probed, mut saw_absent) = (0, false);
        for at in (0..16 * MIB).step_by(64 * 1024) {
            probed += 4096;
            match probe(&file, at) {
                Err(error) if error.is_unavailable() => return eprintln!("skipped: {error}"),
                is_present => saw_absent = !is_present.unwrap(),
            }
            assert!(wait_for(&file, at).unwrap());
            assert!(probe(&file, at).unwrap());
            if saw_absent {
                break;
            }
        }
        assert!(!probe(&file, 16 * MIB).unwrap());
        let found = present(&file, 0, 16 * MIB).unwrap();
        assert_eq!(found.iter().map(|range| range.end - range.start).sum::<u64>(), probed);
        assert!(saw_absent, "each of 256 absent pages was present at once");
    }

    #[test]
    fn wait_for_range_reads_absent_pages_and_is_short_at_eof() {
        let Some(file) = cold_file(MIB) else { return };
        let mut scratch = [0; 64 << 10];
        assert_eq!(wait_for_range(&file, 512 << 10, &mut scratch).unwrap(), scratch.len());
        assert!(!present(&file, 512 << 10, 64 << 10).unwrap().is_empty());
        assert_eq!(wait_for_range(&file, MIB - 5000, &mut scratch).unwrap(), 5000);
        assert_eq!(wait_for_range(&file, MIB, &mut scratch).unwrap(), 0);
    }

    #[test]
    fn read_ahead_cap_is_at_least_128_kib() {
        assert_eq!(read_ahead_cap_bytes(DeviceNumber::new(4095, 1)), 128 << 10);
        let here = rustix::fs::stat(env!("CARGO_MANIFEST_DIR")).unwrap().st_dev;
        let here = DeviceNumber::from_stat(here);
        assert!(read_ahead_cap_bytes(here) >= 128 << 10);
    }
}
