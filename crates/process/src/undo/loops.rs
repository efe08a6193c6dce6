//! Loop devices under a guard.
//!
//! ```text
//!     free number N  →  note "detach loopN if backed by FILE"  →  LOOP_CONFIGURE  ──▶ /dev/loopN
//!          ▲                                                          │
//!          └──────────────── another process was faster (EBUSY) ◀─────┘
//! ```

use crate::undo::{Action, Guard, ProcessId, note_for};
use ahead_sys::{Error, Result, loopdev};
use std::io;
use std::path::{Path, PathBuf};

/// Attempts to take a free device: another process may attach it first.
const ATTEMPTS: usize = 64;

/// An attached loop device. Dropping it detaches the device.
#[derive(Debug)]
pub struct Loop {
    /// `/dev/loopN`.
    pub device: PathBuf,
    guard: Guard,
}

impl Loop {
    /// Detaches now and returns the error.
    pub fn detach(self) -> Result<()> {
        self.guard.undo()
    }

    /// Gives the device up without detaching it: the note stays, for `restore`.
    pub fn leave(self) -> PathBuf {
        self.guard.leave();
        self.device
    }
}

/// Attaches `backing` to a free loop device, under a note owned by `owner`. With `direct_io` the loop device bypasses the page
/// cache of `backing` and keeps many requests in flight.
pub fn attach(owner: ProcessId, backing: &Path, direct_io: bool, read_only: bool) -> Result<Loop> {
    let file = loopdev::open_backing(backing, read_only)?;
    for _ in 0..ATTEMPTS {
        let free = loopdev::find_free(read_only)?;
        let device = free.device.clone();
        let detach =
            Action::DetachLoop { device: device.clone(), backing: backing.to_path_buf(), sequence_of_disk: None };
        let mut guard = note_for(owner, detach)?;
        match free.configure(&file, backing, direct_io, read_only) {
            Ok(()) => {
                guard.made()?;
                return Ok(Loop { device, guard });
            }
            // The undo of the dropped guard finds another backing file and does nothing.
            Err(e) if e.raw_os_error() == Some(libc::EBUSY) => drop(guard),
            Err(e) => return Err(Error::io(format!("attach {} to {}", backing.display(), device.display()), e)),
        }
    }
    Err(Error::io(
        "attach a loop device: other processes took each free device first",
        io::Error::from_raw_os_error(libc::EBUSY),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_file_cannot_be_attached() {
        let owner = ProcessId::own().unwrap();
        let error = attach(owner, Path::new("/no/such/file"), true, false).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::ENOENT));
    }
}
