//! One file in the page cache: which of its pages are there, their eviction, and why some stay.

use ahead_model::RangeSet;
use ahead_profile::PathBytes;
use ahead_sys::holders::{MappedFile, Mappings, mappings_of};
use ahead_sys::openat::Handle;
use ahead_sys::{Error, Result, cache, evict, machine, sparse};
use serde::{Deserialize, Serialize};
use std::ffi::OsString;
use std::ops::Range;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;
use std::time::Duration;

/// What to do with each file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Task {
    /// Count its pages.
    Count,
    /// The same, and list the cached ranges.
    List,
    /// Evict its pages, and count those that stay.
    Evict,
}

/// Pages of a file in the page cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct CachedPages {
    /// With data of the file.
    pub data: u64,
    /// Zeros of holes.
    pub holes: u64,
    /// Not written to the disk yet; `None`: the kernel does not report it (before Linux 6.5, on overlayfs).
    pub dirty: Option<u64>,
    /// Being written.
    pub writeback: Option<u64>,
    /// Evicted so recently that reading them again counts as thrashing.
    pub recently_evicted: Option<u64>,
}

impl CachedPages {
    /// All cached pages.
    pub fn cached(&self) -> u64 {
        self.data + self.holes
    }
}

/// A file, and its pages in the page cache.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct CachedFile {
    /// Its path without symbolic links.
    #[serde(skip)]
    pub path: PathBytes,
    /// The item of the survey that it belongs to.
    pub item: usize,
    /// Device number, as stat reports it.
    pub device: u64,
    /// Inode number.
    pub inode: u64,
    /// Its length.
    pub size_bytes: u64,
    /// It is in memory and nowhere else (tmpfs): nothing can be evicted.
    pub is_in_memory: bool,
    /// Pages with data. Of an item with a part, those of the part.
    pub data_pages: u64,
    /// Pages that are holes, which no device is read for.
    pub hole_pages: u64,
    /// Its cached pages, before an eviction; `None`: unknown, see `problem`.
    pub before: Option<CachedPages>,
    /// Its cached pages after an eviction; `None`: unknown, or none was asked for.
    pub after: Option<CachedPages>,
    /// The cached ranges, bytes, if they were asked for: at most [`MAX_RANGES`].
    pub ranges: Vec<Range<u64>>,
    /// Why nothing is known of its pages, or why they were not evicted.
    pub problem: Option<String>,
    /// The processes that have it mapped, if pages stayed.
    pub mapped_by: Mappings,
}

/// Maximum number of ranges that are listed for a file: as many as a file has extents ([`ahead_sys::fiemap::MAX_EXTENTS`]).
pub const MAX_RANGES: usize = 65_536;

/// A file of which pages were searched for ranges at once, bytes: so that the list of a scattered file is never much longer than
/// [`MAX_RANGES`].
const LISTED_BYTES: u64 = 256 << 20;

/// Rate at which a disk at least writes the dirty pages of a file, bytes/s: a tenth of what a USB stick does.
const LEAST_WRITE_RATE: u64 = 1 << 20;
/// Rate at which the kernel at least counts or evicts pages, bytes/s: a tenth of what was seen on slow processors (Linux 6.18).
const LEAST_PAGE_RATE: u64 = 1 << 30;

/// Processes that are named in a reason, which stands in one line with the path.
const NAMED_IN_REASON: usize = 3;

impl CachedFile {
    /// Why pages stayed after the eviction; `None`: none stayed.
    pub fn reason(&self) -> Option<String> {
        let left = self.after.filter(|after| after.cached() > 0)?;
        let count = |pages: Option<u64>| pages.filter(|pages| *pages > 0);
        Some(if self.is_in_memory {
            "in memory: the file is nowhere else".into()
        } else if let Some(dirty) = count(left.dirty) {
            format!("{dirty} pages are not written yet")
        } else if let Some(writeback) = count(left.writeback) {
            format!("{writeback} pages are being written")
        } else if self.mapped_by.processes > 0 {
            let locked = if self.mapped_by.locking > 0 { ", locked in memory" } else { "" };
            let named = self.mapped_by.holders.iter().take(NAMED_IN_REASON);
            let named: Vec<String> = named.map(|holder| format!("{} ({})", holder.name, holder.pid)).collect();
            let more = match self.mapped_by.processes.saturating_sub(named.len() as u64) {
                0 => String::new(),
                more => format!(" and {more} more"),
            };
            format!("mapped{locked} by {}{more}", named.join(", "))
        } else if machine::is_root() {
            "in use by the kernel, or mapped in another container".into()
        } else {
            "in use, perhaps mapped by a process of another user".into()
        })
    }

    /// Does the task with an open file. `part`: the ranges that count; `None`: the whole file. `busy` gets the time that a step may take
    /// while the file system answers.
    pub(super) fn examine(
        handle: &Handle,
        part: Option<&[Range<u64>]>,
        task: Task,
        busy: &mut dyn FnMut(Duration),
    ) -> CachedFile {
        let identity = handle.identity();
        let mut file = CachedFile {
            device: identity.device,
            inode: identity.inode,
            size_bytes: identity.size_bytes,
            ..CachedFile::default()
        };
        if let Err(error) = file.fill(handle, part, task, busy) {
            file.problem = Some(explain(&error));
        }
        file
    }

    fn fill(
        &mut self,
        handle: &Handle,
        part: Option<&[Range<u64>]>,
        task: Task,
        busy: &mut dyn FnMut(Duration),
    ) -> Result<()> {
        let kind = handle.file_system()?;
        self.is_in_memory = kind.is_in_memory();
        if !kind.has_page_cache() && !self.is_in_memory {
            let what = "looking at a file that the kernel generates".into();
            return Err(Error::Unsupported { what, why: "it is not in the page cache".into() });
        }
        let fd = handle.reopen()?;
        let layout = FileParts::of(handle, &fd, part);
        (self.data_pages, self.hole_pages) = (pages_of(&layout.data), pages_of(&layout.holes));
        busy(Duration::from_secs(self.size_bytes / LEAST_PAGE_RATE));
        let before = layout.count(&fd);
        self.before = before.as_ref().ok().copied();
        if task == Task::List && before.as_ref().is_ok_and(|pages| pages.cached() > 0) {
            self.ranges = list(&fd, self.size_bytes)?;
        }
        if task == Task::Evict && self.is_in_memory {
            self.after = self.before;
        } else if task == Task::Evict {
            let dirty = self.before.and_then(|pages| Some(pages.dirty? + pages.writeback?));
            let dirty_bytes = dirty.map_or(self.size_bytes, |pages| pages * machine::page_size());
            busy(Duration::from_secs(dirty_bytes / LEAST_WRITE_RATE + self.size_bytes / LEAST_PAGE_RATE));
            evict::file(&fd)?;
            self.after = layout.count(&fd).ok();
        }
        before.map(drop)
    }
}

/// The parts of a file.
struct FileParts {
    data: Vec<Range<u64>>,
    holes: Vec<Range<u64>>,
}

impl FileParts {
    fn of(handle: &Handle, fd: &OwnedFd, part: Option<&[Range<u64>]>) -> FileParts {
        let whole = 0..handle.identity().size_bytes;
        let empty = RangeSet::new();
        let holes = if handle.may_have_holes() { sparse::holes(fd, whole.clone()) } else { empty };
        let clipped = |range: &Range<u64>| range.start.min(whole.end)..range.end.min(whole.end);
        let parts: Vec<Range<u64>> =
            part.map_or_else(|| vec![whole.clone()], |part| part.iter().map(clipped).collect());
        let data: Vec<Range<u64>> = parts.iter().flat_map(|part| holes.gaps(part)).collect();
        // A hole in a part of a recording is none of the recording: it was data then.
        let holes = if part.is_none() { holes.iter().cloned().collect() } else { Vec::new() };
        FileParts { data, holes }
    }

    fn count(&self, fd: impl AsFd) -> Result<CachedPages> {
        let zero =
            CachedPages { dirty: Some(0), writeback: Some(0), recently_evicted: Some(0), ..CachedPages::default() };
        let mut sum = self.data.iter().try_fold(zero, |sum, range| add_range(&fd, sum, range))?;
        for hole in &self.holes {
            sum.holes += cache::resident_bytes(&fd, hole.start, hole.end - hole.start)?.div_ceil(machine::page_size());
        }
        Ok(sum)
    }
}

/// Adds the cached pages of a range with data.
fn add_range(fd: impl AsFd, sum: CachedPages, range: &Range<u64>) -> Result<CachedPages> {
    let length = range.end - range.start;
    let more = |sum: Option<u64>, pages| sum.map(|sum| sum + pages);
    match cache::cachestat(&fd, range.start, length) {
        Ok(pages) => Ok(CachedPages {
            data: sum.data + pages.cached_pages,
            holes: sum.holes,
            dirty: more(sum.dirty, pages.dirty_pages),
            writeback: more(sum.writeback, pages.writeback_pages),
            recently_evicted: more(sum.recently_evicted, pages.recently_evicted_pages),
        }),
        Err(error) if error.is_unavailable() => {
            let bytes = cache::resident_bytes(&fd, range.start, length)?;
            let data = sum.data + bytes.div_ceil(machine::page_size());
            Ok(CachedPages { data, holes: sum.holes, ..CachedPages::default() })
        }
        Err(error) => Err(error),
    }
}

/// The cached ranges of a file, at most [`MAX_RANGES`] from its beginning.
fn list(fd: impl AsFd, size_bytes: u64) -> Result<Vec<Range<u64>>> {
    let mut found = RangeSet::new();
    for start in (0..size_bytes).step_by(LISTED_BYTES as usize) {
        let length = (size_bytes - start).min(LISTED_BYTES);
        cache::resident(&fd, start, length)?.into_iter().for_each(|range| found.insert(range));
        if found.iter().count() > MAX_RANGES {
            break;
        }
    }
    Ok(found.iter().take(MAX_RANGES).cloned().collect())
}

/// Finds the processes that have files mapped.
pub(super) fn find_mappings(files: &mut [CachedFile]) {
    let mapped_file = |file: &CachedFile| MappedFile {
        path: OsString::from_vec(file.path.clone()).into(),
        device: file.device,
        inode: file.inode,
    };
    let mappings = mappings_of(&files.iter().map(mapped_file).collect::<Vec<_>>());
    files.iter_mut().zip(mappings).for_each(|(file, mappings)| file.mapped_by = mappings);
}

fn pages_of(ranges: &[Range<u64>]) -> u64 {
    let page = machine::page_size();
    ranges.iter().map(|range| range.end.div_ceil(page) - range.start / page).sum()
}

/// The reason for users: short, because it stands beside the path.
pub(super) fn explain(error: &Error) -> String {
    match error {
        Error::NotPermitted { .. } => {
            "the kernel reports the pages only to its owner, to who may write it, and to root".into()
        }
        Error::Unsupported { why, .. } => why.clone(),
        Error::Io { source, .. } => source.to_string(),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ahead_sys::openat;
    use std::os::unix::fs::FileExt;

    fn examined(path: &std::path::Path, part: Option<&[Range<u64>]>, task: Task) -> CachedFile {
        CachedFile::examine(&openat::handle(&path.canonicalize().unwrap()).unwrap(), part, task, &mut |_| {})
    }

    #[test]
    fn holes_are_no_data_and_their_cached_zeros_are_counted_apart() {
        let page = machine::page_size();
        let Some(file) = ahead_tests::rig::cold::cold_file(&vec![7; 4 * page as usize]) else { return };
        file.as_file().set_len(64 * page).unwrap();
        file.as_file().sync_all().unwrap();
        if !openat::handle(file.path()).unwrap().may_have_holes() {
            return eprintln!("skipped: no sparse files here");
        }
        let mut zeros = vec![1; page as usize];
        file.as_file().read_exact_at(&mut zeros, 60 * page).unwrap();
        file.as_file().read_exact_at(&mut zeros, 0).unwrap();
        let seen = examined(file.path(), None, Task::List);
        let pages = seen.before.unwrap();
        assert_eq!((seen.data_pages, seen.hole_pages), (4, 60));
        assert!(pages.data >= 1 && pages.holes >= 1 && pages.data <= 4, "{seen:?}");
        assert_eq!(seen.ranges.iter().map(|range| range.end - range.start).sum::<u64>(), pages.cached() * page);
        let part = examined(file.path(), Some(&[page..2 * page, 60 * page..900 * page]), Task::Count);
        assert_eq!((part.data_pages, part.hole_pages), (1, 0));
    }

    #[test]
    fn evicted_file_has_no_pages_and_dirty_ones_are_written_first() {
        let Some(file) = ahead_tests::rig::cold::cold_file(&[7; 8192]) else { return };
        file.as_file().write_all_at(&[8; 4096], 0).unwrap();
        let seen = examined(file.path(), None, Task::Evict);
        assert!(seen.before.unwrap().dirty.is_none_or(|dirty| dirty == 1), "{seen:?}");
        assert_eq!((seen.after.unwrap().cached(), seen.reason(), seen.problem), (0, None, None));
    }

    #[test]
    fn file_in_memory_stays_and_generated_files_are_refused() {
        let generated = examined(std::path::Path::new("/proc/self/status"), None, Task::Evict);
        assert_eq!(generated.problem.as_deref(), Some("it is not in the page cache"));
        let file = tempfile::NamedTempFile::new_in("/dev/shm").unwrap();
        file.as_file().write_all_at(&[8; 4096], 0).unwrap();
        let seen = examined(file.path(), None, Task::Evict);
        assert_eq!((seen.before.unwrap().data, seen.after.unwrap().data, seen.is_in_memory), (1, 1, true));
        assert!(seen.reason().unwrap().starts_with("in memory"));
    }

    #[test]
    fn reason_names_the_first_cause() {
        let mut file =
            CachedFile { after: Some(CachedPages { data: 3, ..CachedPages::default() }), ..CachedFile::default() };
        assert!(file.reason().unwrap().starts_with("in use"));
        file.mapped_by.processes = 2;
        file.mapped_by.holders = vec![ahead_sys::holders::Holder { pid: 7, name: "sh".into() }];
        assert_eq!(file.reason().unwrap(), "mapped by sh (7) and 1 more");
        file.mapped_by.locking = 1;
        assert_eq!(file.reason().unwrap(), "mapped, locked in memory by sh (7) and 1 more");
        file.after = Some(CachedPages { data: 3, dirty: Some(2), ..CachedPages::default() });
        assert_eq!(file.reason().unwrap(), "2 pages are not written yet");
    }
}
