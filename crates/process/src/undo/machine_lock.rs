//! The machine-wide lock: only one process at a time evicts the whole page cache, or changes settings of the whole machine for a
//! measurement. With two recordings at once, the first to end would restore the settings of both. Steering has a lock of the same kind.

use crate::undo::home;
use ahead_model::DeviceNumber;
use ahead_sys::{Error, Result};
use rustix::fs::FlockOperation;
use rustix::io::Errno;
use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// The held lock. Dropping it, or the end of the process, releases it.
#[derive(Debug)]
pub struct MachineLock {
    _file: File,
}

const PATH: &str = "/run/ahead/alone.lock";

/// Held by the process that steers: two of them would take each other's windows for advice of the programs.
const STEERING_PATH: &str = "/run/ahead/steer.lock";

impl MachineLock {
    /// Takes the lock if it is free. `None`: another process holds it.
    ///
    /// Errors: the lock file cannot be created (needs root).
    pub fn try_acquire() -> Result<Option<MachineLock>> {
        Self::try_acquire_at("a cold recording", PATH)
    }

    /// As [`Self::try_acquire`], for the only process that steers the read-ahead of others.
    pub fn try_acquire_steering() -> Result<Option<MachineLock>> {
        Self::try_acquire_at("steering read-ahead", STEERING_PATH)
    }

    /// The number of the process that holds the lock. `None`: no process does, or it is unknown (in another PID namespace).
    pub fn holder() -> Option<u32> {
        let lock = std::fs::metadata(PATH).ok()?;
        let (device, inode) = (DeviceNumber::from_stat(lock.dev()), lock.ino());
        holder_in(&std::fs::read_to_string("/proc/locks").ok()?, device, inode)
    }

    /// `purpose`: the operation that needs it, for messages.
    fn try_acquire_at(purpose: &str, path: &str) -> Result<Option<MachineLock>> {
        let file = home::open_lock(purpose, Path::new(path))?;
        match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Some(MachineLock { _file: file })),
            Err(Errno::WOULDBLOCK) => Ok(None),
            Err(error) => Err(Error::io(format!("lock {path}"), error)),
        }
    }
}

/// The process with a flock(2) lock on a file, in the text of `/proc/locks`: `1: FLOCK  ADVISORY  WRITE 4711 00:18:99 0 EOF`, the device in
/// hexadecimal. A line of a waiting process has an arrow in its second field.
fn holder_in(locks: &str, device: DeviceNumber, inode: u64) -> Option<u32> {
    let file = format!("{:02x}:{:02x}:{inode}", device.major, device.minor);
    let holder = |line: &str| match line.split_ascii_whitespace().collect::<Vec<_>>()[..] {
        [_, "FLOCK", _, _, pid, place, ..] if place == file => pid.parse().ok().filter(|pid| *pid > 0),
        _ => None,
    };
    locks.lines().find_map(holder)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn holder_is_the_process_whose_lock_is_on_the_file() {
        let locks = "1: POSIX  ADVISORY  WRITE 7 00:18:99 0 EOF\n2: FLOCK  ADVISORY  WRITE 8 00:18:98 0 EOF\n\
            3: -> FLOCK  ADVISORY  WRITE 9 00:18:99 0 EOF\n3: FLOCK  ADVISORY  WRITE 4711 00:18:99 0 EOF\n\
            4: FLOCK  ADVISORY  WRITE -1 fe:01:5 0 EOF\n";
        let holder = |major, minor, inode| holder_in(locks, DeviceNumber::new(major, minor), inode);
        assert_eq!(holder(0, 0x18, 99), Some(4711));
        assert_eq!((holder(0xfe, 1, 5), holder(0, 0x18, 97)), (None, None));
    }
}
