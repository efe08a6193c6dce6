//! Files and memory of another process: what `ahead steer` does to a program that knows nothing of it.
//!
//! ```text
//!     thread ──pidfd_open──▶ OtherProcess ──pidfd_getfd(N)──▶ its own open file: advice changes its window; held for microseconds
//!                              │ └────process_madvise─────▶ pages of its mappings are read
//!                              └── /proc/PID/task/TID/fd/N ▶ the same file, opened again for us: what is read fills the page cache
//! ```
//!
//! A descriptor number belongs to the table of a thread, which need not be that of its process: `unshare(CLONE_FILES)` gives it its own.
//! A descriptor number or a process number may belong to something else by now: the caller checks what it got. Nothing here reads or writes
//! data of the process.

#![allow(unsafe_code)]

use crate::directory::mount_id;
use crate::mounts::{self, Mount, Table};
use crate::openat::Handle;
use crate::{Error, Result};
use ahead_model::DeviceNumber;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, Statx, StatxFlags, fstat, openat, statx};
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

    /// A thread of a process, for its own table of descriptors. A pidfd of a single thread needs Linux 6.9. Before, the table of the process is
    /// used if the thread shares it.
    ///
    /// Errors: `ESRCH`: there is none; `EBADF`: it has its own table, and the kernel cannot take from that.
    pub fn of_thread(pid: u32, tid: u32) -> Result<OtherProcess> {
        if pid == tid {
            return OtherProcess::open(pid);
        }
        let failed = |e: Errno| Error::io(format!("open thread {tid} of process {pid}"), e);
        let number = i32::try_from(tid).ok().and_then(Pid::from_raw).ok_or(failed(Errno::SRCH))?;
        match pidfd_open(number, PidfdFlags::from_bits_retain(PIDFD_THREAD)) {
            Ok(opened) => Ok(OtherProcess(opened)),
            Err(Errno::INVAL) if shares_descriptors(pid, tid) => OtherProcess::open(pid),
            Err(Errno::INVAL) => Err(failed(Errno::BADF)),
            Err(error) => Err(failed(error)),
        }
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

/// `PIDFD_THREAD` of linux/pidfd.h (Linux 6.9): the pidfd is that of a single thread.
const PIDFD_THREAD: u32 = libc::O_EXCL as u32;

/// `KCMP_FILES` of linux/kcmp.h.
const KCMP_FILES: libc::c_int = 2;

/// Whether two threads have the same table of descriptors. `false` if the kernel does not say.
fn shares_descriptors(one: u32, other: u32) -> bool {
    // SAFETY: numbers only.
    unsafe { libc::syscall(libc::SYS_kcmp, one, other, KCMP_FILES, 0, 0) == 0 }
}

/// A descriptor of a thread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Descriptor {
    /// The process.
    pub pid: u32,
    /// The thread in whose table it is.
    pub tid: u32,
    pub number: u32,
}

impl Descriptor {
    fn path(&self, directory: &str) -> PathBuf {
        let Descriptor { pid, tid, number } = self;
        PathBuf::from(format!("/proc/{pid}/task/{tid}/{directory}/{number}"))
    }
}

/// A file as the kernel sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Expected {
    /// Device of its file system; of a block device, its own number.
    pub device: DeviceNumber,
    /// Number of the inode. That of a block device does not count: each node has its own.
    pub inode_number: u64,
    /// Whether it is a block device, and not a regular file.
    pub is_block_device: bool,
}

/// Opens the file behind a descriptor for reading by us, if it is the expected one: another open file, with its own position and window. What
/// the descriptor leads to now is compared before it is opened: opening a device, a FIFO or a file of another user could have effects, and a server
/// that does not answer is not asked.
///
/// Errors: those of open(2); `ESTALE`: it is another file.
pub fn reopen_descriptor(descriptor: &Descriptor, expected: &Expected) -> Result<OwnedFd> {
    let link = descriptor.path("fd");
    let failed = |e: Errno| Error::io(format!("open {}", link.display()), e);
    // O_PATH opens nothing. What is opened later is what this handle leads to.
    let handle = openat(CWD, &link, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).map_err(failed)?;
    // The kernel's own copy of the attributes.
    let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
    let stat = statx(&handle, "", flags, StatxFlags::BASIC_STATS).map_err(failed)?;
    let kind = FileType::from_raw_mode(stat.stx_mode.into());
    let is_expected = match expected.is_block_device {
        true => {
            kind.is_block_device() && DeviceNumber::new(stat.stx_rdev_major, stat.stx_rdev_minor) == expected.device
        }
        false => {
            kind.is_file()
                && stat.stx_ino == expected.inode_number
                && is_on(&handle, &stat, descriptor.pid, expected.device)
        }
    };
    if !is_expected {
        return Err(failed(Errno::STALE));
    }
    let handle = Handle::of(handle, &link)?;
    if expected.is_block_device { handle.reopen_block_device() } else { handle.reopen() }
}

/// Whether a file is on the file system with this device. stat(2) has other numbers for files of a btrfs subvolume, which the mount table does not have;
/// for those of overlayfs the device is that of a layer, and the inode number is compared alone, where we have that file system mounted, too: a user
/// can put another one above an own FUSE server, which the open would wait for.
fn is_on(handle: &OwnedFd, stat: &Statx, pid: u32, device: DeviceNumber) -> bool {
    if DeviceNumber::new(stat.stx_dev_major, stat.stx_dev_minor) == device {
        return true;
    }
    let Some(id) = mount_id(handle) else { return false };
    let is_it = |mount: &Mount| u64::from(mount.id) == id;
    let own = mounts::own().unwrap_or_default();
    let of_process = || Table::of_process(pid).and_then(|mut table| table.read()).ok()?.into_iter().find(is_it);
    let Some(mount) = own.iter().find(|mount| is_it(mount)).cloned().or_else(of_process) else { return false };
    let is_ours = || own.iter().any(|own| own.device == mount.device);
    mount.device == device || (mount.fs_type == "overlay" && is_ours())
}

/// The inode number of an open file.
pub fn inode_number(fd: impl AsFd) -> Result<u64> {
    fstat(fd).map(|stat| stat.st_ino).map_err(|e| Error::io("fstat", e))
}

/// The path that /proc shows for a descriptor; a deleted file has ` (deleted)` behind it. `None`: there is none any more, or it is not permitted.
pub fn descriptor_path(descriptor: &Descriptor) -> Option<PathBuf> {
    fs::read_link(descriptor.path("fd")).ok()
}

/// The path that /proc shows for the file of a mapping, which has to begin and end at these addresses. `None`: there is none any more, or it is not
/// permitted. Waits while the process changes its mappings, which it may do for any time.
pub fn mapping_path(pid: u32, addresses: &Range<u64>) -> Option<PathBuf> {
    fs::read_link(format!("/proc/{pid}/map_files/{:x}-{:x}", addresses.start, addresses.end)).ok()
}

/// A descriptor, as `/proc/PID/task/TID/fdinfo/N` has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DescriptorFacts {
    /// Whether it was opened for reading only.
    pub is_read_only: bool,
    pub mount_id: u32,
}

/// What /proc shows of a descriptor. `None`: there is none any more, or it is not permitted.
pub fn descriptor_facts(descriptor: &Descriptor) -> Option<DescriptorFacts> {
    parse_facts(&fs::read_to_string(descriptor.path("fdinfo")).ok()?)
}

fn parse_facts(text: &str) -> Option<DescriptorFacts> {
    let field = |key: &str| text.lines().find_map(|line| line.strip_prefix(key)).map(str::trim);
    let flags = u32::from_str_radix(field("flags:")?, 8).ok()?;
    let is_read_only = flags & libc::O_ACCMODE as u32 == libc::O_RDONLY as u32;
    Some(DescriptorFacts { is_read_only, mount_id: field("mnt_id:")?.parse().ok()? })
}

/// The text of `/proc/PID/cgroup`. `None`: the process has ended.
pub fn cgroups(pid: u32) -> Option<Vec<u8>> {
    fs::read(format!("/proc/{pid}/cgroup")).ok()
}

/// The name of a process (`/proc/PID/comm`), at most 15 bytes. `None`: it has ended.
pub fn name(pid: u32) -> Option<Vec<u8>> {
    let mut name = fs::read(Path::new("/proc").join(pid.to_string()).join("comm")).ok()?;
    name.pop_if(|last| *last == b'\n');
    Some(name)
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

    fn descriptor(fd: impl AsFd) -> Descriptor {
        let pid = std::process::id();
        Descriptor { pid, tid: pid, number: number_of(fd) }
    }

    fn expected(fd: impl AsFd) -> Expected {
        let stat = fstat(fd).unwrap();
        let device = DeviceNumber::from_stat(stat.st_dev);
        Expected { device, inode_number: stat.st_ino, is_block_device: false }
    }

    #[test]
    fn taken_descriptor_is_the_same_open_file_and_a_reopened_one_is_another() {
        let mut file = tempfile::NamedTempFile::new_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        file.write_all(b"12345").unwrap();
        let taken = match own().take_descriptor(number_of(file.as_file())) {
            Ok(taken) => taken,
            Err(error) => return eprintln!("skipped: {error}"),
        };
        assert_eq!(rustix::fs::tell(&taken), Ok(5));
        let of_file = descriptor(file.as_file());
        let reopened = reopen_descriptor(&of_file, &expected(file.as_file())).unwrap();
        assert_eq!(rustix::fs::tell(&reopened), Ok(0));
        assert_eq!(inode_number(&reopened).unwrap(), inode_number(file.as_file()).unwrap());
        assert_eq!(descriptor_path(&of_file).unwrap(), fs::canonicalize(file.path()).unwrap());
        assert!(!descriptor_facts(&of_file).unwrap().is_read_only);
        assert!(descriptor_facts(&descriptor(&reopened)).unwrap().is_read_only);
    }

    /// Regression: the file was opened first, and then compared; a block device was not compared at all.
    #[test]
    fn another_file_than_the_expected_one_is_not_opened() {
        let file = tempfile::tempfile_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        let expected = expected(&file);
        let null = fs::File::open("/dev/null").unwrap();
        let (reader, _writer) = rustix::pipe::pipe().unwrap();
        let directory = fs::File::open("/").unwrap();
        let another = tempfile::tempfile_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        let refused = |descriptor: &Descriptor, expected: &Expected| {
            assert_eq!(reopen_descriptor(descriptor, expected).unwrap_err().raw_os_error(), Some(libc::ESTALE));
        };
        for other in [descriptor(&null), descriptor(&reader), descriptor(&directory), descriptor(&another)] {
            refused(&other, &expected);
            refused(&other, &Expected { is_block_device: true, ..expected });
        }
        let elsewhere = Expected { device: DeviceNumber::new(4095, 1), ..expected };
        refused(&descriptor(&file), &elsewhere);
        assert!(reopen_descriptor(&Descriptor { number: 1 << 20, ..descriptor(&file) }, &expected).is_err());
    }

    /// Regression: a number of a thread's own table was looked up in that of its process.
    #[test]
    fn descriptor_of_a_thread_with_its_own_table_is_taken_from_there() {
        let (report, reports) = std::sync::mpsc::channel();
        let (end, ended) = std::sync::mpsc::channel::<()>();
        let thread = std::thread::spawn(move || {
            // SAFETY: this thread gets a copy of the table; the objects that own descriptors keep them in both.
            assert_eq!(unsafe { libc::unshare(libc::CLONE_FILES) }, 0);
            let file = tempfile::tempfile_in(env!("CARGO_MANIFEST_DIR")).unwrap();
            let tid = rustix::thread::gettid().as_raw_nonzero().get() as u32;
            report.send((Descriptor { tid, ..descriptor(&file) }, expected(&file))).unwrap();
            assert!(ended.recv().is_err());
        });
        let (of_thread, expected) = reports.recv().unwrap();
        let Descriptor { pid, tid, number } = of_thread;
        assert!(!shares_descriptors(pid, tid) && shares_descriptors(tid, tid));
        let taken = OtherProcess::of_thread(pid, tid).and_then(|thread| thread.take_descriptor(number));
        match taken {
            Ok(taken) => assert_eq!(inode_number(taken).unwrap(), expected.inode_number),
            // Before Linux 6.9: not from the table of the process.
            Err(error) => assert!([Some(libc::EBADF), Some(libc::EPERM)].contains(&error.raw_os_error()), "{error}"),
        }
        let reopened = reopen_descriptor(&of_thread, &expected).unwrap();
        assert_eq!(inode_number(reopened).unwrap(), expected.inode_number);
        drop(end);
        thread.join().unwrap();
    }

    #[test]
    fn missing_processes_and_descriptors_are_errors() {
        // Above the largest process number.
        assert_eq!(OtherProcess::open((1 << 22) + 1).unwrap_err().raw_os_error(), Some(libc::ESRCH));
        assert!(OtherProcess::open(u32::MAX).is_err() && OtherProcess::open(0).is_err());
        assert_eq!(own().take_descriptor(1 << 20).unwrap_err().raw_os_error(), Some(libc::EBADF));
        assert!(own().take_descriptor(u32::MAX).is_err());
        let nowhere = Descriptor { pid: u32::MAX, tid: u32::MAX, number: 0 };
        assert_eq!((descriptor_path(&nowhere), descriptor_facts(&nowhere)), (None, None));
        assert!(OtherProcess::of_thread(std::process::id(), (1 << 22) + 1).is_err());
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
