//! The files that jobs read: made where one says, with room asked for first, and removed again.
//!
//! ```text
//!     DIRECTORY/ahead-bench-PID-START/      for root it is noted: after a SIGKILL `ahead restore` removes it
//!     ├── 0                                 a file for each reader, or many for one
//!     └── 1 …
//! ```

use crate::device::Device;
use crate::{Error, Result};
use ahead_kernel::undo::{self, Guard, ProcessId};
use ahead_kernel::{cache, evict, machine, openat};
use ahead_sim::Chance;
use rustix::fs::{Mode, OFlags, StatVfsMountFlags};
use rustix::io::Errno;
use std::ffi::OsString;
use std::fs::File;
use std::io::{ErrorKind, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Files are written in pieces of this, bytes.
const PIECE_BYTES: usize = 1 << 20;
/// What a file system needs beside the data (extents, inodes, a journal's commits): one part in so many.
const SPARE_SHARE: u64 = 64;
/// So long a file is evicted again and again: its last writes or reads may still be under way, other processors may hold pages
/// that they have just handled.
const LONGEST_EVICTION: Duration = Duration::from_secs(1);

/// Files of a job, until this is dropped.
#[derive(Debug)]
pub struct Files {
    paths: Vec<PathBuf>,
    directory: PathBuf,
    device: Device,
    /// cachestat sees nothing of them.
    is_blind: bool,
    _removed: Removed,
}

/// What removes them, wherever the directory above them is by then: it may have been unmounted lazily, or renamed.
#[derive(Debug)]
struct Removed {
    above: OwnedFd,
    name: OsString,
    /// For who comes after a SIGKILL; it has nothing left to do otherwise.
    _note: Option<Guard>,
}

impl Drop for Removed {
    fn drop(&mut self) {
        let path = Path::new("/proc/self/fd").join(self.above.as_raw_fd().to_string()).join(&self.name);
        // What cannot be removed stays where the user sees it.
        let _ = std::fs::remove_dir_all(path);
    }
}

impl Files {
    /// Makes files of these sizes in a directory of their own within `directory`.
    ///
    /// Errors: no room, no permission, a full or read-only file system, or one without a disk behind it; it was asked to stop.
    pub fn make(directory: &Path, sizes: &[u64], stop: &AtomicBool) -> Result<Files> {
        let device = Device::under(directory)?;
        Files::check(directory, sizes)?;
        let own = ProcessId::own()?;
        let path = directory.join(format!("ahead-bench-{}-{}", own.pid, own.start_ticks));
        let failed = |e: std::io::Error| match e.kind() {
            ErrorKind::PermissionDenied => not_permitted(directory),
            _ => Error::io(format!("make {}", path.display()), e),
        };
        let above = rustix::fs::open(directory, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty());
        let above = above.map_err(|e| failed(e.into()))?;
        let name = OsString::from(path.file_name().unwrap_or_default());
        let note = if machine::is_root() {
            // The note is read by others, from other directories.
            let path = std::path::absolute(&path).map_err(failed)?;
            Some(undo::create_tree(own, &path).map_err(|error| refused(error, directory))?)
        } else {
            std::fs::create_dir(&path).map_err(failed)?;
            None
        };
        let removed = Removed { above, name, _note: note };
        let is_blind = is_blind(directory);
        let mut files = Files { paths: Vec::new(), directory: path, device, is_blind, _removed: removed };
        for (number, size) in sizes.iter().enumerate() {
            let path = files.directory.join(number.to_string());
            write_file(&path, *size, number as u64, stop)?;
            files.paths.push(path);
        }
        Ok(files)
    }

    /// Whether files of these sizes could be made there, as far as that is known without making them.
    ///
    /// Errors: no room, a read-only file system, or one without a disk behind it; there is no such directory.
    pub fn check(directory: &Path, sizes: &[u64]) -> Result<()> {
        directory.metadata().map_err(|e| Error::io(format!("look at {}", directory.display()), e))?;
        check_kind(directory)?;
        check_room(directory, sizes.iter().sum())
    }

    /// Where they lie, in their order.
    pub fn paths(&self) -> &[PathBuf] {
        &self.paths
    }

    /// The directory that they lie in.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// What is below them.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// Evicts them, and empties the drive's buffer.
    ///
    /// Errors: they stay in memory; the emulated disk does not answer.
    pub fn make_cold(&self) -> Result<()> {
        self.paths.iter().try_for_each(|path| make_cold(path, self.is_blind))?;
        self.device.restart()
    }

    /// Whether the kernel tells nobody which of their pages are on their way (see [`is_blind`]).
    pub(crate) fn is_blind(&self) -> bool {
        self.is_blind
    }

    /// An error, or if the files are not there any more, that.
    pub fn explain(&self, error: Error) -> Error {
        if matches!(error, Error::Stopped) || self.paths.iter().all(|path| path.exists()) {
            return error;
        }
        Error::Vanished { path: self.directory.clone(), why: error.to_string() }
    }
}

/// Magic number of overlayfs (linux/magic.h).
const OVERLAYFS: u64 = 0x794c_7630;

/// On an overlay the pages belong to files of a layer: cachestat answers for the overlay's own, which have none. A mapping is one
/// of the layer's file, so that mincore sees them.
pub(crate) fn is_blind(directory: &Path) -> bool {
    magic(directory).is_ok_and(|magic| magic == OVERLAYFS)
}

fn magic(directory: &Path) -> Result<u64> {
    let stat = rustix::fs::statfs(directory).map_err(|e| Error::io(format!("look at {}", directory.display()), e))?;
    // A signed word on some machines: the 32 bits that linux/magic.h defines.
    Ok(stat.f_type as u64 & 0xffff_ffff)
}

fn not_permitted(directory: &Path) -> Error {
    let (what, remedy) =
        (format!("making files in {}", directory.display()), "give a directory that you may write".into());
    ahead_kernel::Error::NotPermitted { what, remedy }.into()
}

fn refused(error: ahead_kernel::Error, directory: &Path) -> Error {
    match &error {
        ahead_kernel::Error::Io { source, .. } if source.kind() == ErrorKind::PermissionDenied => {
            not_permitted(directory)
        }
        _ => error.into(),
    }
}

/// It is a directory that can be written, on a file system that reads from something. Asked before room is: such file systems
/// have none, and smaller files would not help.
fn check_kind(directory: &Path) -> Result<()> {
    let what = || format!("make files in {}", directory.display());
    if !directory.is_dir() {
        return Err(Error::io(what(), Errno::NOTDIR));
    }
    if !openat::has_page_cache(magic(directory)?) {
        let why = "there is no disk behind it: its files lie in memory, or the kernel makes them up; choose a directory on a disk";
        let what = format!("measuring {}", directory.display());
        return Err(ahead_kernel::Error::Unsupported { what, why: why.into() }.into());
    }
    let stat = rustix::fs::statvfs(directory).map_err(|e| Error::io(format!("look at {}", directory.display()), e))?;
    match stat.f_flag.contains(StatVfsMountFlags::RDONLY) {
        true => Err(Error::io(what(), Errno::ROFS)),
        false => Ok(()),
    }
}

/// Room for the files, and what belongs to them, is there before the first is made.
fn check_room(directory: &Path, bytes: u64) -> Result<()> {
    let stat = rustix::fs::statvfs(directory).map_err(|e| Error::io(format!("look at {}", directory.display()), e))?;
    let (free_bytes, needed_bytes) = (stat.f_bavail.saturating_mul(stat.f_frsize), bytes + bytes / SPARE_SHARE);
    if free_bytes < needed_bytes {
        return Err(Error::NoRoom { path: directory.into(), free_bytes, needed_bytes });
    }
    Ok(())
}

/// A file of bytes that no file system or drive makes shorter.
fn write_file(path: &Path, bytes: u64, seed: u64, stop: &AtomicBool) -> Result<()> {
    let failed = |e| Error::io(format!("write {}", path.display()), e);
    let mut file = File::create_new(path).map_err(failed)?;
    let mut chance = Chance::new(seed);
    let mut piece: Vec<u8> = (0..PIECE_BYTES / 8).flat_map(|_| chance.number().to_le_bytes()).collect();
    let mut left = bytes;
    while left > 0 {
        if stop.load(Ordering::Relaxed) {
            return Err(Error::Stopped);
        }
        // No two pieces are the same.
        piece[..8].copy_from_slice(&left.to_le_bytes());
        let now = left.min(PIECE_BYTES as u64);
        file.write_all(&piece[..now as usize]).map_err(failed)?;
        left -= now;
    }
    file.sync_all().map_err(failed)
}

fn make_cold(path: &Path, is_blind: bool) -> Result<()> {
    let failed = |e| Error::io(format!("open {}", path.display()), e);
    let (file, bytes) = (File::open(path).map_err(failed)?, path.metadata().map_err(failed)?.len());
    let began = Instant::now();
    loop {
        evict::file(&file)?;
        let cached = if is_blind { cache::present(&file, 0, bytes)? } else { cache::resident(&file, 0, bytes)? };
        let cached_bytes = cached.iter().map(|range| range.end - range.start).sum();
        match cached_bytes {
            0 => return Ok(()),
            _ if began.elapsed() > LONGEST_EVICTION => return Err(Error::NotCold { path: path.into(), cached_bytes }),
            _ => std::thread::yield_now(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_made_and_go_with_their_directory() {
        let home = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        let files = Files::make(home.path(), &[5000, 1 << 21], &AtomicBool::new(false)).unwrap();
        let lengths: Vec<u64> = files.paths().iter().map(|path| path.metadata().unwrap().len()).collect();
        assert_eq!(lengths, [5000, 1 << 21]);
        drop(files);
        assert_eq!(std::fs::read_dir(home.path()).unwrap().count(), 0);
    }

    #[test]
    fn room_is_asked_for_first() {
        let home = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        let error = Files::make(home.path(), &[1 << 60], &AtomicBool::new(false)).unwrap_err();
        assert!(matches!(error, Error::NoRoom { .. }), "{error}");
        assert_eq!(std::fs::read_dir(home.path()).unwrap().count(), 0);
    }

    #[test]
    fn a_stop_leaves_nothing() {
        let home = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        assert!(matches!(Files::make(home.path(), &[1 << 20], &AtomicBool::new(true)), Err(Error::Stopped)));
        assert_eq!(std::fs::read_dir(home.path()).unwrap().count(), 0);
    }

    #[test]
    fn what_stays_in_memory_is_not_called_cold() {
        let Ok(home) = tempfile::tempdir_in("/dev/shm") else { return };
        let path = home.path().join("file");
        std::fs::write(&path, [1; 8192]).unwrap();
        for is_blind in [false, true] {
            assert!(matches!(make_cold(&path, is_blind), Err(Error::NotCold { .. } | Error::Kernel(_))));
        }
    }

    /// Regression: /proc was said to have too little room, and files in memory were made before they were refused.
    #[test]
    fn without_a_disk_nothing_is_made() {
        for directory in ["/proc", "/sys", "/dev/shm"] {
            let made = Files::make(Path::new(directory), &[1 << 20], &AtomicBool::new(false));
            let Err(Error::Kernel(error)) = made else { panic!("{directory}") };
            assert!(error.is_unavailable(), "{error}");
        }
    }

    #[test]
    fn files_that_are_gone_have_vanished() {
        let home = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        let files = Files::make(home.path(), &[5000], &AtomicBool::new(false)).unwrap();
        assert!(matches!(files.explain(Error::Job("x".into())), Error::Job(_)));
        std::fs::remove_file(&files.paths()[0]).unwrap();
        assert!(matches!(files.explain(Error::Job("x".into())), Error::Vanished { .. }));
        assert!(matches!(files.explain(Error::Stopped), Error::Stopped));
    }
}
