//! Looks files up and requests their pages. Workers call it; it may wait for a disk or a server.
//!
//! ```text
//!     path ──openat2(O_PATH, RESOLVE_CACHED)──▶ in the kernel's cache of names?
//!                    │ no: openat(O_PATH) waits for the disk
//!                    ▼
//!                  fstat ──▶ regular? ──▶ open(/proc/self/fd/N) for reading ──▶ cachestat ──▶ cached, or absent at a position
//! ```
//!
//! An `O_PATH` descriptor has no side effect, so the kind of a file is known before it is opened: no FIFO waits, no tape rewinds. What was examined
//! is opened, not what is at the path a moment later. Without /proc nothing is read ahead.

use crate::prefetcher::Item;
use ahead_fetch::{Requests, calls};
use ahead_model::DeviceNumber;
use ahead_policy::schedule::{Found, Place};
use ahead_sys::openat::{self, Handle};
use ahead_sys::{Error, cache, fiemap, machine, reserve, sparse};
use rustix::fs::{CWD, FileType, Mode, OFlags, ResolveFlags, Stat, fstat, open, openat2};
use rustix::io::Errno;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

/// Set when the kernel has no lookups that only use its cache: before Linux 5.12, or forbidden by a container.
static NO_CACHED_LOOKUP: AtomicBool = AtomicBool::new(false);

/// Memory for the holes of one file, bytes: [`sparse::MAX_HOLES`] twice, in lists that grow by doubling.
const HOLES_BYTES: usize = 8 << 20;

/// What is absent of an item. `before_waiting` is called if the answer is not in the kernel's cache.
pub(crate) fn look_up(item: &Item, before_waiting: impl FnOnce()) -> Found {
    absent(item, before_waiting).unwrap_or(Found::Unreadable)
}

fn absent(item: &Item, before_waiting: impl FnOnce()) -> Option<Found> {
    if item.path.as_os_str().len() > reserve::LONGEST_PATH_BYTES {
        return None;
    }
    let (handle, was_cached) = match open_cached(&item.path) {
        Ok(handle) => (handle, true),
        Err(Errno::AGAIN | Errno::NOSYS) => {
            before_waiting();
            (open(&item.path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).ok()?, false)
        }
        Err(_) => return None,
    };
    let stat = fstat(&handle).ok()?;
    let range = pages(item, &stat)?;
    let bytes = range.end - range.start;
    let device = DeviceNumber::from_stat(stat.st_dev);
    let place = Place { device: device.key(), is_rotating: false, position: stat.st_ino };
    if bytes == 0 {
        return Some(if was_cached { Found::Cached } else { Found::Absent { bytes, place } });
    }
    if !openat::file_system_of(&handle).ok()?.has_page_cache() {
        return Some(Found::Cached);
    }
    // Also after a wait: the kernel gives lookups from the cache up when names change anywhere.
    let (file, data) = open_data(handle, item, &range)?;
    let bytes = data.iter().map(|part| part.end - part.start).sum();
    if data.iter().all(|part| is_cached(&file, part)) {
        return Some(Found::Cached);
    }
    if !Requests::global().is_rotating(device) {
        return Some(Found::Absent { bytes, place });
    }
    let position = position(&file, &range).unwrap_or(stat.st_ino);
    Some(Found::Absent { bytes, place: Place { is_rotating: true, position, ..place } })
}

/// Requests the first `limit_bytes` of an item while `goes_on`. Returns the requested bytes; `None`: it cannot be read.
pub(crate) fn read_ahead(item: &Item, limit_bytes: u64, goes_on: impl Fn() -> bool) -> Option<u64> {
    let handle = open(&item.path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).ok()?;
    // It may be another file than the one that was looked up.
    let stat = fstat(&handle).ok()?;
    let range = pages(item, &stat)?;
    let (file, data) = open_data(handle, item, &range)?;
    let device = DeviceNumber::from_stat(stat.st_dev);
    let cap_bytes = Requests::global().cap_bytes(device);
    let mut left_bytes = limit_bytes;
    for Range { start, end } in data {
        let wanted = start..start.saturating_add(left_bytes).min(end);
        for piece in calls::pieces(&wanted, cap_bytes).take_while(|_| goes_on()) {
            calls::read_ahead(device, &file, &piece).ok()?;
            left_bytes -= piece.end - piece.start;
        }
    }
    Some(limit_bytes - left_bytes)
}

/// A handle without access, if the kernel need not wait for it.
///
/// Errors: `AGAIN`: it would wait. `NOSYS`: the kernel cannot know.
fn open_cached(path: &Path) -> rustix::io::Result<OwnedFd> {
    if NO_CACHED_LOOKUP.load(Ordering::Relaxed) {
        return Err(Errno::NOSYS);
    }
    match openat2(CWD, path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty(), ResolveFlags::CACHED) {
        // INVAL: before Linux 5.12. PERM: seccomp.
        Err(Errno::NOSYS | Errno::INVAL | Errno::PERM) => {
            NO_CACHED_LOOKUP.store(true, Ordering::Relaxed);
            Err(Errno::NOSYS)
        }
        other => other,
    }
}

/// Opens what was examined, and finds the parts of a range that have data: the pages of holes are zeros, which no device is read for.
fn open_data(examined: OwnedFd, item: &Item, range: &Range<u64>) -> Option<(OwnedFd, Vec<Range<u64>>)> {
    let handle = Handle::of(examined, &item.path).ok()?;
    let file = handle.reopen().ok()?;
    if !handle.may_have_holes() || reserve::zeroed(HOLES_BYTES).is_err() {
        return Some((file, vec![range.clone()]));
    }
    let holes = sparse::holes(&file, range.clone());
    let data = holes.gaps(range).collect();
    Some((file, data))
}

/// The pages of an item within its file. `None`: it is not a regular file.
fn pages(item: &Item, stat: &Stat) -> Option<Range<u64>> {
    if !FileType::from_raw_mode(stat.st_mode).is_file() {
        return None;
    }
    let (page, size) = (machine::page_size(), u64::try_from(stat.st_size).ok()?);
    let range = item.range.clone().unwrap_or(0..size);
    let (start, end) = (range.start, range.end.min(size));
    if start >= end {
        return Some(0..0);
    }
    Some(start - start % page..end.next_multiple_of(page))
}

/// Whether all pages are resident. Where the kernel does not report that (files of other users), the first and the last page are tried.
fn is_cached(file: &OwnedFd, range: &Range<u64>) -> bool {
    match cache::resident_bytes(file, range.start, range.end - range.start) {
        Ok(bytes) => bytes >= range.end - range.start,
        Err(Error::NotPermitted { .. }) => {
            let last = range.end - machine::page_size();
            // A miss reads the page: exactly that one.
            let _ = cache::exact_reads(file);
            [last, range.start].iter().all(|at| cache::probe(file, *at).unwrap_or(false))
        }
        Err(_) => false,
    }
}

/// Where the first of these bytes lie on the device.
fn position(file: &OwnedFd, range: &Range<u64>) -> Option<u64> {
    let extents = fiemap::extents(file, range.start, machine::page_size()).ok()?;
    extents.iter().find(|extent| extent.is_placed()).map(|extent| extent.physical_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::mknodat;
    use std::fs;

    fn look_up(item: impl Into<Item>) -> Found {
        super::look_up(&item.into(), || ())
    }

    #[test]
    fn only_regular_files_are_opened() {
        let home = tempfile::tempdir().unwrap();
        mknodat(CWD, home.path().join("fifo"), FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
        let _socket = std::os::unix::net::UnixListener::bind(home.path().join("socket")).unwrap();
        fs::create_dir(home.path().join("directory")).unwrap();
        let names = ["fifo", "socket", "directory", "absent"].map(|name| home.path().join(name));
        for path in names.into_iter().chain(["/dev/null".into(), "".into()]) {
            assert_eq!(look_up(path.as_path()), Found::Unreadable, "{}", path.display());
            assert_eq!(read_ahead(&path.as_path().into(), 4096, || true), None, "{}", path.display());
        }
    }

    #[test]
    fn written_file_is_cached_and_a_link_leads_to_it() {
        let home = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        let (file, link) = (home.path().join("file"), home.path().join("link"));
        fs::write(&file, vec![1; 10_000]).unwrap();
        std::os::unix::fs::symlink(&file, &link).unwrap();
        for path in [&file, &link] {
            assert_eq!(look_up(path.as_path()), Found::Cached);
            assert_eq!(look_up((path, 5000..6000)), Found::Cached);
            // Nothing is left of this range; the kernel gives lookups from the cache up when names change anywhere.
            assert!(matches!(look_up((path, 20_000..30_000)), Found::Cached | Found::Absent { bytes: 0, .. }));
        }
        assert_eq!(read_ahead(&link.as_path().into(), u64::MAX, || true), Some(12_288));
        assert_eq!(read_ahead(&link.as_path().into(), 8192, || true), Some(8192));
        assert_eq!(read_ahead(&link.as_path().into(), 8192, || false), Some(0));
    }

    #[test]
    fn what_was_examined_is_opened_and_not_what_has_replaced_it() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("file");
        fs::write(&path, [1; 5000]).unwrap();
        let examined = open(&path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).unwrap();
        let inode = fstat(&examined).unwrap().st_ino;
        fs::remove_file(&path).unwrap();
        mknodat(CWD, &path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
        let (file, data) = open_data(examined, &path.as_path().into(), &(0..8192)).unwrap();
        assert_eq!((fstat(&file).unwrap().st_ino, data), (inode, vec![0..8192]));
    }

    #[test]
    fn holes_are_neither_requested_nor_missing() {
        let home = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        let path = home.path().join("sparse");
        let file = fs::File::create(&path).unwrap();
        file.set_len(64 << 20).unwrap();
        std::os::unix::fs::FileExt::write_all_at(&file, &[7; 100], 32 << 20).unwrap();
        file.sync_all().unwrap();
        if sparse::holes(&file, 0..64 << 20).is_empty() {
            eprintln!("skipped: the file system reports no holes");
            return;
        }
        assert_eq!(look_up(path.as_path()), Found::Cached);
        let data_bytes = read_ahead(&path.as_path().into(), u64::MAX, || true).unwrap();
        // One block of the file system.
        assert!((1..=1 << 16).contains(&data_bytes), "{data_bytes}");
        assert_eq!(cache::resident_bytes(&file, 0, 32 << 20).unwrap(), 0);
        assert_eq!(read_ahead(&(path.as_path(), 0..1 << 20).into(), u64::MAX, || true), Some(0));
    }

    #[test]
    fn files_in_memory_and_of_the_kernel_are_not_read_ahead() {
        assert_eq!(look_up("/sys/kernel/uevent_seqnum"), Found::Cached);
        // The kernel asks procfs about each name again: its lookups are never answered from the cache alone.
        assert!(matches!(look_up("/proc/version"), Found::Cached | Found::Absent { bytes: 0, .. }));
    }

    #[test]
    fn item_is_clipped_to_its_file_and_widened_to_pages() {
        let file = tempfile::tempfile().unwrap();
        file.set_len(10_000).unwrap();
        let stat = fstat(&file).unwrap();
        let of = |range: Range<u64>| pages(&("x", range).into(), &stat).unwrap();
        assert_eq!(pages(&"x".into(), &stat).unwrap(), 0..12_288);
        assert_eq!([of(1..2), of(4095..4097), of(9000..u64::MAX)], [0..4096, 0..8192, 8192..12_288]);
        assert!(of(10_000..20_000).is_empty() && of(7..7).is_empty());
        #[allow(clippy::reversed_empty_ranges)]
        let backwards = of(9..3);
        assert!(backwards.is_empty());
    }
}
