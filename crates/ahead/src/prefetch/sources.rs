//! The files and block devices of a profile, opened on demand. A profile is untrusted input.
//!
//! - A file is opened by the rules of [`ahead_sys::openat`], or below a [`Root`] that the user has named. It is read only if it is a
//!   regular file on a file system with a page cache, and if its size and modification time are the recorded ones. A file that is written
//!   in place may have another modification time.
//! - A block device is never opened by the name in the profile. The device of the recorded mount point is opened, and only if
//!   it has an ext file system, whose metadata is read through the device.

use crate::prefetch::account::Reason;
use crate::prefetch::devices::number_of;
use crate::prefetch::large_folios::Experience;
use ahead_fetch::calls;
use ahead_model::DeviceNumber;
use ahead_plan::Source;
use ahead_profile::{File, Metadata, Profile};
use ahead_sys::locks::IgnorePoison;
use ahead_sys::openat::{self, Handle};
use ahead_sys::root::Root;
use ahead_sys::{block, mounting};
use std::collections::HashMap;
use std::ffi::OsStr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

/// Maximum number of kept descriptors: half of the usual limit of 1024 for a process; fewer after open(2) has failed at the limit.
/// Beyond this number, a file is opened again for each of its spans.
const MAX_OPEN: usize = 512;

/// Descriptors that prefetching this number of files and devices has open at a time, about.
pub fn most_descriptors(sources: usize) -> u32 {
    sources.min(MAX_OPEN) as u32 + OTHERS
}

/// Descriptors that are not kept, about: standard streams and pipes, and two for each of some twenty threads that open a file.
const OTHERS: u32 = 64;

/// An open file or block device.
#[derive(Debug)]
pub struct Readable {
    fd: OwnedFd,
    /// Its device, or itself.
    pub device: DeviceNumber,
    /// Its size, bytes.
    pub size_bytes: u64,
    /// Maximum length of one read-ahead call, bytes.
    pub cap_bytes: u64,
    /// Whether it may have holes.
    pub may_have_holes: bool,
    /// Whether blocks of its file system become large folios; `None`: it is a block device.
    pub large_folios: Option<Arc<Experience>>,
}

impl AsFd for Readable {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// Why a source cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Closed {
    /// The file has changed since the recording.
    Stale,
    /// The disk could not be read during open(2); the error number.
    Failed(i32),
    /// Another reason.
    Skipped(Reason),
}

impl Closed {
    /// Whether the error concerns this process and this moment only, so that a later attempt may succeed.
    pub fn is_passing(&self) -> bool {
        *self == Closed::Skipped(Reason::TooManyOpen)
    }
}

/// The result of opening.
pub type Opened = Result<Arc<Readable>, Closed>;

/// All sources of a profile.
#[derive(Debug)]
pub struct Sources {
    profile: Arc<Profile>,
    root: Root,
    metadata: Vec<SourceSlot>,
    files: Vec<SourceSlot>,
    open: AtomicUsize,
    /// Maximum number of kept descriptors.
    most_open: AtomicUsize,
    /// By device number of stat: maximum length of a call, and whether files on it have a page cache.
    devices: Mutex<HashMap<u64, SourceDevice>>,
}

#[derive(Debug, Default)]
struct SourceSlot {
    opened: Mutex<Option<Opened>>,
    /// Number of spans that still need it.
    needed: AtomicUsize,
}

#[derive(Clone, Debug)]
struct SourceDevice {
    cap_bytes: u64,
    has_page_cache: bool,
    large_folios: Arc<Experience>,
}

impl Sources {
    /// The sources of a profile. Opens no file.
    pub fn new(profile: Arc<Profile>, root: Root) -> Sources {
        let slots = |count: usize| (0..count).map(|_| SourceSlot::default()).collect();
        let (metadata, files) = (slots(profile.metadata.len()), slots(profile.files.len()));
        let (open, most_open) = (AtomicUsize::new(0), AtomicUsize::new(MAX_OPEN));
        Sources { profile, root, metadata, files, open, most_open, devices: Mutex::default() }
    }

    fn slot(&self, source: Source) -> &SourceSlot {
        match source {
            Source::Metadata(index) => &self.metadata[index],
            Source::File(index) => &self.files[index],
        }
    }

    /// Announces one later [`Self::get`].
    pub fn need(&self, source: Source) {
        self.slot(source).needed.fetch_add(1, Ordering::Relaxed);
    }

    /// Opens a source, or returns the result of an earlier call.
    pub fn get(&self, source: Source) -> Opened {
        let slot = self.slot(source);
        // The slot is consistent after a panic of a thread that held the lock.
        let mut opened = slot.opened.lock().ignore_poison();
        if let Some(opened) = &*opened {
            return opened.clone();
        }
        let mut fresh = self.open_now(source);
        if fresh.as_ref().is_err_and(Closed::is_passing) {
            self.close_all(number_of(&self.profile, source));
            fresh = self.open_now(source);
        }
        let keep = match &fresh {
            Ok(_) => self.open.fetch_add(1, Ordering::Relaxed) < self.most_open.load(Ordering::Relaxed),
            Err(closed) => return if closed.is_passing() { fresh } else { opened.insert(fresh).clone() },
        };
        if keep {
            *opened = Some(fresh.clone());
        } else {
            self.open.fetch_sub(1, Ordering::Relaxed);
        }
        fresh
    }

    /// Maximum number of kept descriptors; lower after the limit was reached.
    pub fn most_open(&self) -> usize {
        self.most_open.load(Ordering::Relaxed)
    }

    /// Closes all unused descriptors on this device, and halves the number of kept descriptors. Later spans open their files again.
    /// Descriptors on other devices stay open, because close(2) waits for a device that does not answer.
    fn close_all(&self, device: u64) {
        let open = self.open.load(Ordering::Relaxed);
        self.most_open.fetch_min(open / 2, Ordering::Relaxed);
        if open == 0 {
            return;
        }
        let metadata = self.metadata.iter().zip(self.profile.metadata.iter().map(|metadata| metadata.device));
        let files = self.files.iter().zip(self.profile.files.iter().map(|file| file.device));
        for (slot, _) in metadata.chain(files).filter(|(_, number)| *number == device) {
            // The thread that holds the lock is opening this source, and may wait for a lock of this thread.
            let Ok(mut opened) = slot.opened.try_lock() else { continue };
            if opened.take_if(|opened| opened.is_ok()).is_some() {
                self.open.fetch_sub(1, Ordering::Relaxed);
            }
        }
    }

    /// Ends one of the announced uses. After the last one the descriptor is closed.
    pub fn done(&self, source: Source) {
        let slot = self.slot(source);
        if slot.needed.fetch_sub(1, Ordering::Relaxed) > 1 {
            return;
        }
        let mut opened = slot.opened.lock().ignore_poison();
        if opened.take_if(|opened| opened.is_ok()).is_some() {
            self.open.fetch_sub(1, Ordering::Relaxed);
        }
    }

    fn open_now(&self, source: Source) -> Opened {
        let readable = match source {
            Source::Metadata(index) => self.open_device(&self.profile.metadata[index]),
            Source::File(index) => self.open_file(&self.profile.files[index]),
        };
        readable.map(Arc::new)
    }

    fn open_file(&self, file: &File) -> Result<Readable, Closed> {
        if file.deleted {
            return Err(Closed::Skipped(Reason::Deleted));
        }
        let handle = self.root.handle(Path::new(OsStr::from_bytes(&file.path))).map_err(closed_by)?;
        let now = handle.identity();
        if !handle.is_regular_file() {
            return Err(Closed::Skipped(Reason::Refused));
        }
        let device = self.device(now.device, &handle)?;
        if !device.has_page_cache {
            return Err(Closed::Skipped(Reason::Refused));
        }
        if !file.is_recorded(now.size_bytes, now.mtime_ns, now.inode) {
            return Err(Closed::Stale);
        }
        let fd = handle.reopen().map_err(closed_by)?;
        let SourceDevice { cap_bytes, large_folios, .. } = device;
        let (may_have_holes, large_folios) = (handle.may_have_holes(), Some(large_folios));
        let device = DeviceNumber::from_key(now.device);
        Ok(Readable { fd, device, size_bytes: now.size_bytes, cap_bytes, may_have_holes, large_folios })
    }

    fn device(&self, key: u64, handle: &Handle) -> Result<SourceDevice, Closed> {
        let devices = || self.devices.lock().ignore_poison();
        if let Some(known) = devices().get(&key) {
            return Ok(known.clone());
        }
        // Without the lock: a file system that does not answer would block all other threads.
        let kind = handle.file_system().map_err(closed_by)?;
        let device = SourceDevice {
            cap_bytes: calls::cap_bytes(DeviceNumber::from_key(key)),
            has_page_cache: kind.has_page_cache(),
            large_folios: Arc::default(),
        };
        // Another thread may have been faster.
        Ok(devices().entry(key).or_insert(device).clone())
    }

    fn open_device(&self, metadata: &Metadata) -> Result<Readable, Closed> {
        let mount_point = Path::new(OsStr::from_bytes(&metadata.mount_point));
        let mounted = self.root.handle(mount_point).map_err(closed_by)?;
        let key = mounted.identity().device;
        let no_device = |error| closed_or(error, Reason::NoDevice);
        // If the file system is not mounted, this is a directory of the file system below.
        let is_mounted = mounting::is_mount_root(&mounted).map_err(no_device)?;
        if !is_mounted || !mounted.file_system().map_err(closed_by)?.has_metadata_in_device_cache {
            return Err(Closed::Skipped(Reason::NoDevice));
        }
        let node = openat::block_device_node(key).map_err(no_device)?;
        let node = openat::handle(&node).map_err(closed_by)?;
        if node.block_device() != Some(key) {
            return Err(Closed::Skipped(Reason::NoDevice));
        }
        let fd = node.reopen_block_device().map_err(closed_by)?;
        let number = DeviceNumber::from_key(key);
        let size_bytes = block::size_bytes(number).map_err(no_device)?;
        let cap_bytes = calls::cap_bytes(number);
        Ok(Readable { fd, device: number, size_bytes, cap_bytes, may_have_holes: false, large_folios: None })
    }
}

fn closed_by(error: ahead_sys::Error) -> Closed {
    // All other errors (no such file, a symbolic link in the path, not a directory) mean that the file is missing.
    closed_or(error, Reason::Missing)
}

/// Converts an error; errors that do not concern this process become `otherwise`.
fn closed_or(error: ahead_sys::Error, otherwise: Reason) -> Closed {
    match error.raw_os_error() {
        // EIO, and the errors of a damaged file system: EBADMSG, EUCLEAN.
        Some(number @ (5 | 74 | 117)) => Closed::Failed(number),
        // EPERM, EACCES.
        Some(1 | 13) => Closed::Skipped(Reason::NotPermitted),
        // ENFILE, EMFILE.
        Some(23 | 24) => Closed::Skipped(Reason::TooManyOpen),
        _ => Closed::Skipped(otherwise),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Regression: if the disk could not read a directory, its files counted as missing.
    #[test]
    fn directory_read_error_is_not_a_missing_file() {
        let closed = |number| closed_by(ahead_sys::Error::io("open", std::io::Error::from_raw_os_error(number)));
        assert_eq!(closed(5), Closed::Failed(5));
        assert_eq!(closed(2), Closed::Skipped(Reason::Missing));
        assert_eq!(closed(13), Closed::Skipped(Reason::NotPermitted));
    }
}
