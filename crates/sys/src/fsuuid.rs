//! The UUID of a mounted file system.

#![allow(unsafe_code)]

use crate::{Error, Result};
use rustix::fs::{Mode, OFlags, open};
use std::os::fd::AsRawFd;
use std::path::Path;

/// `FS_IOC_GETFSUUID`, `_IOR(0x15, 0, struct fsuuid2)` in linux/fs.h (Linux 6.9).
const FS_IOC_GETFSUUID: libc::c_ulong = 0x8011_1500;

/// `struct fsuuid2` of linux/fs.h.
#[repr(C)]
#[derive(Default)]
struct FsUuid {
    length: u8,
    uuid: [u8; 16],
}

/// The UUID of the file system of a file or directory, as udev writes it (`ID_FS_UUID`). `None`: the UUID does not have 16
/// bytes, or the file system does not report it.
///
/// # Errors
/// The path cannot be opened.
pub fn of(path: &Path) -> Result<Option<String>> {
    // The path may lead to a FIFO that another user has created.
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let file = open(path, flags, Mode::empty()).map_err(|e| Error::io(format!("open {}", path.display()), e))?;
    let mut answer = FsUuid::default();
    // SAFETY: the request writes one struct fsuuid2; `answer` has that layout and outlives the call.
    let done = unsafe { libc::ioctl(file.as_raw_fd(), FS_IOC_GETFSUUID, &raw mut answer) } == 0;
    Ok((done && usize::from(answer.length) == answer.uuid.len() && answer.uuid != [0; 16]).then(|| text(answer.uuid)))
}

fn text(uuid: [u8; 16]) -> String {
    let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    [&uuid[..4], &uuid[4..6], &uuid[6..8], &uuid[8..10], &uuid[10..]].map(hex).join("-")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uuid_is_formatted_as_by_udev() {
        let uuid = [0x12, 0x34, 0x56, 0x78, 0x9a, 0xbc, 0xde, 0xf0, 0, 1, 2, 3, 4, 5, 6, 0xff];
        assert_eq!(text(uuid), "12345678-9abc-def0-0001-0203040506ff");
    }

    /// Regression: the call blocked on a FIFO in the place of a directory.
    #[test]
    fn fifo_does_not_block() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("fifo");
        rustix::fs::mknodat(rustix::fs::CWD, &path, rustix::fs::FileType::Fifo, Mode::RUSR, 0).unwrap();
        assert!(of(&path).is_ok());
    }

    #[test]
    fn file_system_without_uuid_is_none() {
        assert_eq!(of(Path::new("/proc")).unwrap(), None);
        assert!(of(Path::new("/no/such/file")).is_err());
    }
}
