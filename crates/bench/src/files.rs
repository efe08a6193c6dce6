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
use ahead_kernel::{cache, evict, machine};
use ahead_sim::Chance;
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

/// Files are written in pieces of this, bytes.
const PIECE_BYTES: usize = 1 << 20;
/// What a file system needs beside the data (extents, inodes, a journal's commits): one part in so many.
const SPARE_SHARE: u64 = 64;
/// How often a file is evicted that stays: its last writes may still be under way.
const EVICTIONS: u32 = 3;

/// Files of a job, until this is dropped.
#[derive(Debug)]
pub struct Files {
    paths: Vec<PathBuf>,
    directory: PathBuf,
    device: Device,
    _removed: Removed,
}

/// What removes them.
#[derive(Debug)]
enum Removed {
    Noted { _guard: Guard },
    Plain { path: PathBuf },
}

impl Drop for Removed {
    fn drop(&mut self) {
        if let Removed::Plain { path } = self {
            // What cannot be removed stays where the user sees it.
            let _ = std::fs::remove_dir_all(path);
        }
    }
}

impl Files {
    /// Makes files of these sizes in a directory of their own within `directory`.
    ///
    /// Errors: no room, no permission, a full or read-only file system; it was asked to stop.
    pub fn make(directory: &Path, sizes: &[u64], stop: &AtomicBool) -> Result<Files> {
        let device = Device::under(directory)?;
        check_room(directory, sizes.iter().sum())?;
        let own = ProcessId::own()?;
        let path = directory.join(format!("ahead-bench-{}-{}", own.pid, own.start_ticks));
        let failed = |e| Error::io(format!("make {}", path.display()), e);
        let removed = if machine::is_root() {
            // The note is read by others, from other directories.
            let path = std::path::absolute(&path).map_err(failed)?;
            Removed::Noted { _guard: undo::create_tree(own, &path)? }
        } else {
            std::fs::create_dir(&path).map_err(failed)?;
            Removed::Plain { path: path.clone() }
        };
        let mut files = Files { paths: Vec::new(), directory: path, device, _removed: removed };
        for (number, size) in sizes.iter().enumerate() {
            let path = files.directory.join(number.to_string());
            write_file(&path, *size, number as u64, stop)?;
            files.paths.push(path);
        }
        Ok(files)
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
        self.paths.iter().try_for_each(|path| make_cold(path))?;
        self.device.restart()
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

fn make_cold(path: &Path) -> Result<()> {
    let failed = |e| Error::io(format!("open {}", path.display()), e);
    let (file, bytes) = (File::open(path).map_err(failed)?, path.metadata().map_err(failed)?.len());
    let mut cached_bytes = 0;
    for _ in 0..EVICTIONS {
        evict::file(&file)?;
        cached_bytes = cache::resident(&file, 0, bytes)?.iter().map(|range| range.end - range.start).sum();
        if cached_bytes == 0 {
            return Ok(());
        }
    }
    Err(Error::NotCold { path: path.into(), cached_bytes })
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
        let home = tempfile::tempdir().unwrap();
        let error = Files::make(home.path(), &[1 << 60], &AtomicBool::new(false)).unwrap_err();
        assert!(matches!(error, Error::NoRoom { .. }), "{error}");
        assert_eq!(std::fs::read_dir(home.path()).unwrap().count(), 0);
    }

    #[test]
    fn a_stop_leaves_nothing() {
        let home = tempfile::tempdir().unwrap();
        assert!(matches!(Files::make(home.path(), &[1 << 20], &AtomicBool::new(true)), Err(Error::Stopped)));
        assert_eq!(std::fs::read_dir(home.path()).unwrap().count(), 0);
    }

    #[test]
    fn what_stays_in_memory_is_not_called_cold() {
        let Ok(home) = tempfile::tempdir_in("/dev/shm") else { return };
        let files = Files::make(home.path(), &[8192], &AtomicBool::new(false)).unwrap();
        assert!(matches!(files.make_cold(), Err(Error::NotCold { .. } | Error::Kernel(_))));
    }
}
