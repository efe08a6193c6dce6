//! What /proc shows of a process of this user, and of its descriptors.

use ahead_sys::held_calls::read_memory;
use ahead_sys::{Error, Result};
use rustix::fs::{AtFlags, CWD, FileType, StatxFlags, statx};
use std::fs;
use std::os::unix::ffi::OsStringExt;

/// A regular file as a process has it open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct HeldFile {
    /// Device, as stat reports it, and inode number.
    pub identity: (u32, u32, u64),
    pub size_bytes: u64,
}

/// Refuses a child whose memory cannot be read: by Yama, or by a container's filter.
pub(super) fn check(child: u32) -> Result<()> {
    static KNOWN: [u8; 8] = *b"readable";
    // Before its exec the child is a copy of this process.
    if read_memory(child, KNOWN.as_ptr() as u64, KNOWN.len()) == KNOWN {
        return Ok(());
    }
    let why = "the memory of a child may not be read here (process_vm_readv)".into();
    Err(Error::Unsupported { what: "observing the calls of a program".into(), why })
}

/// The regular file at a path. The attributes are the kernel's own copies: no server is asked for an open file.
pub(super) fn regular_file(path: &str) -> Option<HeldFile> {
    let stat = statx(CWD, path, AtFlags::STATX_DONT_SYNC, StatxFlags::BASIC_STATS).ok()?;
    let identity = (stat.stx_dev_major, stat.stx_dev_minor, stat.stx_ino);
    FileType::from_raw_mode(stat.stx_mode.into()).is_file().then_some(HeldFile { identity, size_bytes: stat.stx_size })
}

/// The path of a descriptor, relative to our root directory.
pub(super) fn link(process: u32, name: &str) -> Option<Vec<u8>> {
    let target = fs::read_link(format!("/proc/{process}/{name}")).ok()?.into_os_string().into_vec();
    target.starts_with(b"/").then_some(target)
}

/// The position of a descriptor; 0 if it is unknown.
pub(super) fn position(thread: u32, descriptor: i32) -> u64 {
    let text = fs::read_to_string(format!("/proc/{thread}/fdinfo/{descriptor}")).unwrap_or_default();
    field(&text, "pos:").unwrap_or(0)
}

/// The process of a thread, and its parent.
pub(super) fn process_of(thread: u32) -> Option<(u32, u32)> {
    let text = fs::read_to_string(format!("/proc/{thread}/status")).ok()?;
    Some((field(&text, "Tgid:")? as u32, field(&text, "PPid:")? as u32))
}

fn field(text: &str, name: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix(name))?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Seek, SeekFrom};
    use std::os::fd::AsRawFd;

    #[test]
    fn own_descriptor_has_its_file_and_position() {
        let mut file = tempfile::NamedTempFile::new_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        file.as_file().set_len(100).unwrap();
        file.seek(SeekFrom::Start(42)).unwrap();
        let (own, number) = (std::process::id(), file.as_raw_fd());
        let found = regular_file(&format!("/proc/self/fd/{number}")).unwrap();
        assert_eq!((found.size_bytes, position(own, number)), (100, 42));
        assert!(
            link(own, &format!("fd/{number}")).unwrap().ends_with(file.path().file_name().unwrap().as_encoded_bytes())
        );
        assert_eq!(process_of(own), Some((own, std::os::unix::process::parent_id())));
        assert!(regular_file("/proc/self/fd/1000000").is_none() && regular_file("/dev/null").is_none());
        check(own).unwrap();
    }
}
