//! The engine: a policy, its open files, and its requests to the disk.

use crate::bench::live::book::Book;
use crate::bench::live::reader::Reader;
use crate::bench::live::state::{Counters, LiveState, Running, Settings, Shared};
use crate::bench::live::{Error, Result};
use ahead_fetch::calls;
use ahead_model::DeviceNumber;
use ahead_policy::{DeviceDescription, Event, Limits, PAGE_BYTES, Policy};
use ahead_sys::{bdi, block, cache, machine};
use std::fs::{File, OpenOptions};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// Queue length if the disk does not report one: that of Linux 2.2 (`NR_REQUEST` in include/linux/blkdev.h), and of the block
/// layer (`BLKDEV_DEFAULT_RQ`).
const QUEUE_LIMIT: u32 = 128;
/// A disk that serves one request at a time gets at most the requests that it transfers in this time. mq-deadline prefers a read that is
/// older than half a second (`read_expire`), which costs seeks. Less than half of that, because the inner tracks of a platter are half
/// as fast.
const LONGEST_QUEUE: Duration = Duration::from_millis(200);
/// Minimum number of requests: the disk serves one, and the scheduler chooses among the others.
const LEAST_QUEUE: u32 = 4;

/// An engine with its policy. Its readers may be used in any thread, also after the engine was dropped.
pub struct Engine {
    running: Arc<Running>,
}

impl Engine {
    /// Creates an engine for a policy.
    pub fn new(policy: Box<dyn Policy>, settings: Settings) -> Engine {
        Engine { running: Arc::new(Running { shared: Shared::new(LiveState::new(policy, settings)) }) }
    }

    /// Opens a file to be read through the policy.
    ///
    /// Errors: the file cannot be opened, or is not a regular file.
    pub fn open(&self, path: &Path) -> Result<Reader> {
        self.open_as(path, OpenOptions::new().read(true))
    }

    /// Opens a file to be read through the policy and written.
    ///
    /// Errors: the file cannot be opened, or is not a regular file.
    pub fn open_to_write(&self, path: &Path) -> Result<Reader> {
        self.open_as(path, OpenOptions::new().read(true).write(true))
    }

    fn open_as(&self, path: &Path, how: &OpenOptions) -> Result<Reader> {
        self.take(how.open(path)?, path)
    }

    /// Takes an open file, to be read through the policy, and written if it was opened for that. No other code may use this open file,
    /// because the engine switches its read-ahead off. `path`: the file's name in messages.
    ///
    /// Errors: the file is not a regular file.
    pub fn take(&self, file: File, path: &Path) -> Result<Reader> {
        let fd = Arc::new(file);
        let metadata = fd.metadata()?;
        if !metadata.is_file() {
            return Err(Error::NotRegular(path.display().to_string()));
        }
        cache::exact_reads(&*fd)?;
        let device = DeviceNumber::from_stat(metadata.dev());
        let mut state = self.running.shared.lock();
        if state.world.queue.limit == 0 {
            state.world.queue.limit = queue_limit(device, state.settings.device);
        }
        let window_pages = state.settings.window_pages;
        let limits = || limits(&fd, device, window_pages);
        let (open, file) = state.open(fd.clone(), (metadata.dev(), metadata.ino()), metadata.size(), limits);
        let state = self.running.shared.tell(state, &Event::Opened { open, file });
        drop(state);
        Ok(Reader::new(self.running.clone(), fd, open, file, metadata.size()))
    }

    /// Waits until no request is in flight and the arrival of each is recorded.
    pub fn settle(&self) {
        let shared = &self.running.shared;
        drop(shared.room.wait_while(shared.lock(), |state| state.world.queue.requests > 0));
    }

    pub fn counters(&self) -> Counters {
        let state = self.running.shared.lock();
        let unread: u64 = state.world.books.iter().flatten().map(Book::unread).sum();
        Counters { unread_pages: state.counters.unread_pages + unread, ..state.counters }
    }
}

/// Maximum number of requests in the disk's queue that do not wait too long.
fn queue_limit(device: DeviceNumber, traits: Option<DeviceDescription>) -> u32 {
    let setting = block::disk_setting(device, "nr_requests").and_then(|text| text.parse().ok());
    in_time(setting.unwrap_or(QUEUE_LIMIT).max(1), request_kb(device) * 1024, traits)
}

/// `slots`, or fewer on a disk that serves one request at a time: the requests of `request_bytes` bytes that it transfers within
/// [`LONGEST_QUEUE`], at least [`LEAST_QUEUE`].
fn in_time(slots: u32, request_bytes: u64, traits: Option<DeviceDescription>) -> u32 {
    let one_by_one = traits.filter(|traits| traits.parallelism == 1);
    one_by_one.map_or(slots, |traits| {
        let bytes = traits.bandwidth_bytes_per_s * LONGEST_QUEUE.as_secs_f64();
        slots.min((bytes / request_bytes.max(1) as f64) as u32).max(LEAST_QUEUE.min(slots))
    })
}

/// Longest request of one call, KiB.
fn request_kb(device: DeviceNumber) -> u64 {
    let cap_kb = calls::cap_bytes(device) / 1024;
    let most_kb = block::disk_setting(device, "max_sectors_kb").and_then(|text| text.parse().ok());
    most_kb.unwrap_or(cap_kb).min(cap_kb)
}

/// Largest folio of a file system with large folios, as a power of two: a huge page on x86-64 (`MAX_PAGECACHE_ORDER`).
const LARGE_FOLIO: u8 = 9;
/// File systems with large folios, with the first kernel that supports them: XFS; ext2 to ext4, which share a magic number.
const TAKE_LARGE: [(u64, (u32, u32)); 2] = [(0x5846_5342, (5, 18)), (0xef53, (6, 16))];

/// Largest folio that the kernel's own read-ahead would use for a file.
fn folio_order(fd: &File) -> u8 {
    let magic = rustix::fs::fstatfs(fd).map_or(0, |stat| stat.f_type as u64);
    let release = machine::kernel_release();
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(|digits| digits.parse().unwrap_or(0));
    let version = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    let takes_large = TAKE_LARGE.iter().any(|(of, since)| *of == magic && version >= *since);
    if takes_large { LARGE_FOLIO } else { 0 }
}

/// The settings of a file's device and file system. A request is at most as long as one call reads.
fn limits(fd: &File, device: DeviceNumber, window_pages: Option<u64>) -> Limits {
    let window_kb = || bdi::read_ahead_kb(device).unwrap_or(0);
    Limits {
        window_pages: window_pages.unwrap_or_else(|| window_kb() * 1024 / PAGE_BYTES),
        request_pages: (request_kb(device) * 1024 / PAGE_BYTES).max(1),
        folio_order: folio_order(fd),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_disk_with_a_head_is_given_no_more_than_it_reads_before_requests_expire() {
        let hdd = DeviceDescription {
            access_ns: 8_000_000,
            bandwidth_bytes_per_s: 160e6,
            parallelism: 1,
            request_ns: 0,
            ..DeviceDescription::WU_2010
        };
        assert_eq!(in_time(64, 1 << 20, Some(hdd)), 30);
        assert_eq!((in_time(64, 64 << 20, Some(hdd)), in_time(2, 64 << 20, Some(hdd))), (4, 2));
        let ssd = DeviceDescription { parallelism: 8, ..hdd };
        assert_eq!((in_time(64, 1 << 20, Some(ssd)), in_time(64, 1 << 20, None)), (64, 64));
    }
}
