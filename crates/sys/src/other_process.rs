//! Files and memory of another process: what `ahead steer` does to a program that knows nothing of it.
//!
//! ```text
//!     pid ──pidfd_open──▶ OtherProcess ──pidfd_getfd(N)──▶ its own open file: advice changes its window; held for microseconds
//!                              │ └────process_madvise────▶ pages of its mappings are read
//!                              └── /proc/PID/fd/N ───────▶ the same file, opened again for us: what is read fills the page cache
//! ```
//!
//! A descriptor number or a process number may belong to something else by now: the caller checks what it got. Nothing here reads or writes
//! data of the process.

#![allow(unsafe_code)]

use crate::openat::Handle;
use crate::{Error, Result};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{CWD, FileType, Mode, OFlags, fstat, openat};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, PidfdGetfdFlags, pidfd_getfd, pidfd_open};
use std::fs;
use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

/// A process, whose number cannot be reused for this value.
#[derive(Debug)]
pub struct OtherProcess(OwnedFd);

impl OtherProcess {
    /// The process with this number.
    ///
    /// Errors: `ESRCH`: there is none.
    pub fn open(pid: u32) -> Result<OtherProcess> {
        let number = i32::try_from(pid).ok().and_then(Pid::from_raw).ok_or(Errno::SRCH);
        let opened = number.and_then(|number| pidfd_open(number, PidfdFlags::empty()));
        opened.map(OtherProcess).map_err(|e| Error::io(format!("open process {pid}"), e))
    }

    /// A duplicate of its descriptor `number`: the same open file (`pidfd_getfd(2)`, Linux 5.6). While it is held, locks, deleted files and
    /// mounts of that open file stay.
    ///
    /// Errors: `EBADF`: it has no such descriptor; `EPERM`: not permitted (needs `CAP_SYS_PTRACE` there); `ESRCH`: it has ended.
    pub fn take_descriptor(&self, number: u32) -> Result<OwnedFd> {
        let number = i32::try_from(number).map_err(|_| Errno::BADF);
        let taken = number.and_then(|number| pidfd_getfd(&self.0, number, PidfdGetfdFlags::empty()));
        taken.map_err(|e| Error::io("take a descriptor", e))
    }

    /// Whether it has ended, as a zombie, too.
    pub fn has_ended(&self) -> bool {
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        poll(&mut [PollFd::new(&self.0, PollFlags::IN)], Some(&now)).is_ok_and(|ready| ready > 0)
    }

    /// Requests the kernel to read the pages of a range of its memory that maps a file (`process_madvise(2)` with `MADV_WILLNEED`, Linux 5.10).
    /// The kernel limits one call as [`crate::cache::read_ahead_cap_bytes`] says. The call may block while the queue of the device is full.
    ///
    /// Errors: `EPERM`: needs `CAP_SYS_NICE`, and the right to read the memory map; `ENOMEM`: a part is not mapped; `EBADF`: it maps no file.
    pub fn will_need(&self, addresses: &Range<u64>) -> Result<()> {
        let length = addresses.end.saturating_sub(addresses.start) as usize;
        let vector = libc::iovec { iov_base: addresses.start as *mut libc::c_void, iov_len: length };
        // SAFETY: the kernel reads one vector, which outlives the call. Its addresses belong to the other process and are checked by the
        // kernel; MADV_WILLNEED changes no memory.
        let done = unsafe {
            libc::syscall(
                libc::SYS_process_madvise,
                self.0.as_raw_fd(),
                &raw const vector,
                1usize,
                libc::MADV_WILLNEED,
                0u32,
            )
        };
        if done >= 0 { Ok(()) } else { Err(Error::io("advise on memory of a process", io::Error::last_os_error())) }
    }
}

impl AsFd for OtherProcess {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// The path in /proc of a descriptor.
fn descriptor_link(pid: u32, number: u32) -> PathBuf {
    PathBuf::from(format!("/proc/{pid}/fd/{number}"))
}

/// Opens the file behind a descriptor of a process for reading by us: another open file, with its own position and window. Regular files and
/// block devices only; anything else is never opened, since that could have effects. May block on a file system that does not answer.
///
/// Errors: those of open(2); `EINVAL`: not a regular file or block device.
pub fn reopen_descriptor(pid: u32, number: u32) -> Result<OwnedFd> {
    let link = descriptor_link(pid, number);
    let failed = |e: Errno| Error::io(format!("open {}", link.display()), e);
    // O_PATH opens nothing: the kind is checked on the file that is then opened.
    let handle = openat(CWD, &link, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).map_err(failed)?;
    let handle = Handle::of(handle, &link)?;
    match handle.block_device() {
        Some(_) => handle.reopen_block_device(),
        None if handle.is_regular_file() => handle.reopen(),
        None => Err(failed(Errno::INVAL)),
    }
}

/// The inode number of an open file.
pub fn inode_number(fd: impl AsFd) -> Result<u64> {
    fstat(fd).map(|stat| stat.st_ino).map_err(|e| Error::io("fstat", e))
}

/// Whether an open file is a block device.
pub fn is_block_device(fd: impl AsFd) -> Result<bool> {
    let stat = fstat(fd).map_err(|e| Error::io("fstat", e))?;
    Ok(FileType::from_raw_mode(stat.st_mode).is_block_device())
}

/// The path that /proc shows for a descriptor. `None`: there is none any more, or it is not permitted.
pub fn descriptor_path(pid: u32, number: u32) -> Option<PathBuf> {
    fs::read_link(descriptor_link(pid, number)).ok()
}

/// The path that /proc shows for the file of a mapping, which has to begin and end at these addresses. `None`: there is none any more, or it is not
/// permitted.
pub fn mapping_path(pid: u32, addresses: &Range<u64>) -> Option<PathBuf> {
    fs::read_link(format!("/proc/{pid}/map_files/{:x}-{:x}", addresses.start, addresses.end)).ok()
}

/// A descriptor, as `/proc/PID/fdinfo/N` has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DescriptorFacts {
    /// Whether it was opened for reading only.
    pub is_read_only: bool,
    /// The number of its mount.
    pub mount_id: u32,
}

/// What /proc shows of a descriptor. `None`: there is none any more, or it is not permitted.
pub fn descriptor_facts(pid: u32, number: u32) -> Option<DescriptorFacts> {
    parse_facts(&fs::read_to_string(format!("/proc/{pid}/fdinfo/{number}")).ok()?)
}

fn parse_facts(text: &str) -> Option<DescriptorFacts> {
    let field = |key: &str| text.lines().find_map(|line| line.strip_prefix(key)).map(str::trim);
    let flags = u32::from_str_radix(field("flags:")?, 8).ok()?;
    let is_read_only = flags & libc::O_ACCMODE as u32 == libc::O_RDONLY as u32;
    Some(DescriptorFacts { is_read_only, mount_id: field("mnt_id:")?.parse().ok()? })
}

/// The text of `/proc/PID/cgroup`. `None`: the process has ended.
pub fn cgroups(pid: u32) -> Option<String> {
    fs::read_to_string(format!("/proc/{pid}/cgroup")).ok()
}

/// The name of a process (`/proc/PID/comm`), at most 15 bytes. `None`: it has ended.
pub fn name(pid: u32) -> Option<String> {
    let name = fs::read(Path::new("/proc").join(pid.to_string()).join("comm")).ok()?;
    Some(String::from_utf8_lossy(name.trim_ascii_end()).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    fn own() -> OtherProcess {
        OtherProcess::open(std::process::id()).unwrap()
    }

    fn number_of(fd: impl AsFd) -> u32 {
        fd.as_fd().as_raw_fd() as u32
    }

    #[test]
    fn taken_descriptor_is_the_same_open_file_and_a_reopened_one_is_another() {
        let mut file = tempfile::NamedTempFile::new_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        file.write_all(b"12345").unwrap();
        let (pid, number) = (std::process::id(), number_of(file.as_file()));
        let taken = match own().take_descriptor(number) {
            Ok(taken) => taken,
            Err(error) => return eprintln!("skipped: {error}"),
        };
        assert_eq!(rustix::fs::tell(&taken), Ok(5));
        let reopened = reopen_descriptor(pid, number).unwrap();
        assert_eq!(rustix::fs::tell(&reopened), Ok(0));
        assert_eq!(inode_number(&reopened).unwrap(), inode_number(file.as_file()).unwrap());
        assert!(!is_block_device(&reopened).unwrap());
        assert_eq!(descriptor_path(pid, number).unwrap(), fs::canonicalize(file.path()).unwrap());
        assert!(!descriptor_facts(pid, number).unwrap().is_read_only);
        assert!(descriptor_facts(pid, number_of(&reopened)).unwrap().is_read_only);
    }

    #[test]
    fn files_without_pages_are_never_opened() {
        let pid = std::process::id();
        let null = fs::File::open("/dev/null").unwrap();
        let (reader, _writer) = rustix::pipe::pipe().unwrap();
        let directory = fs::File::open("/").unwrap();
        for number in [number_of(&null), number_of(&reader), number_of(&directory)] {
            assert_eq!(reopen_descriptor(pid, number).unwrap_err().raw_os_error(), Some(libc::EINVAL));
        }
        assert!(reopen_descriptor(pid, 1 << 20).is_err());
    }

    #[test]
    fn missing_processes_and_descriptors_are_errors() {
        // Above the largest process number.
        assert_eq!(OtherProcess::open((1 << 22) + 1).unwrap_err().raw_os_error(), Some(libc::ESRCH));
        assert!(OtherProcess::open(u32::MAX).is_err() && OtherProcess::open(0).is_err());
        assert_eq!(own().take_descriptor(1 << 20).unwrap_err().raw_os_error(), Some(libc::EBADF));
        assert!(own().take_descriptor(u32::MAX).is_err());
        assert_eq!((descriptor_path(u32::MAX, 0), descriptor_facts(u32::MAX, 0)), (None, None));
        assert_eq!((name(u32::MAX), cgroups(u32::MAX)), (None, None));
        assert!(!own().has_ended() && name(std::process::id()).is_some());
    }

    #[test]
    fn ended_process_is_reported() {
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let process = OtherProcess::open(child.id()).unwrap();
        child.wait().unwrap();
        assert!(process.has_ended());
    }

    #[test]
    fn mapped_pages_of_a_process_are_requested() {
        let mut file = tempfile::tempfile_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        file.write_all(&[7; 16 * 4096]).unwrap();
        let mapping = crate::mapping::Mapping::new(&file, 16 * 4096).unwrap();
        let addresses = mapping.addresses();
        let range = addresses.start as u64..addresses.end as u64;
        assert!(mapping_path(std::process::id(), &range).is_some());
        assert_eq!(mapping_path(u32::MAX, &range), None);
        match own().will_need(&range) {
            Err(error) if matches!(error.raw_os_error(), Some(libc::ENOSYS | libc::EPERM)) => {
                eprintln!("skipped: {error}");
            }
            done => done.unwrap(),
        }
        drop(mapping);
    }

    #[test]
    fn facts_are_parsed_and_nonsense_is_none() {
        let text = "pos:\t0\nflags:\t0100002\nmnt_id:\t29\nino:\t5\n";
        assert_eq!(parse_facts(text), Some(DescriptorFacts { is_read_only: false, mount_id: 29 }));
        for text in ["", "flags:\t9\nmnt_id:\t1\n", "flags:\t0\n", "flags:\t0\nmnt_id:\tx\n"] {
            assert_eq!(parse_facts(text), None);
        }
    }
}
