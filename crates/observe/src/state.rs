//! The read-ahead state of open files, as the kernel keeps it (`bpf/state.bpf.c`).

use ahead_model::DeviceNumber;
use ahead_sys::{Error, Result};
use std::os::fd::BorrowedFd;

/// `struct file_ra_state`: the kernel's read-ahead state of an open file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Readahead {
    /// First page of the current window.
    pub start: u64,
    /// Size of the current window, pages; 0: none yet.
    pub size: u32,
    /// Pages at the end of the window; the first of them is marked.
    pub async_size: u32,
    /// Maximum size of a window (`ra_pages`).
    pub window_pages: u32,
    /// End of the last read, bytes; -1: nothing was read yet. Accesses to mappings do not change it.
    pub prev_pos: i64,
    /// Recent faults with an absent page, minus those with a present one.
    pub mmap_miss: u16,
    /// `FMODE_RANDOM`: the program has set `POSIX_FADV_RANDOM`.
    pub is_random: bool,
}

/// An open file of a process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OpenState {
    /// The process.
    pub pid: u32,
    /// Its descriptor.
    pub descriptor: u32,
    /// Name of the process, filled up with 0.
    pub comm: [u8; 16],
    /// Address of the open file (`struct file`). Descriptors with the same address share position, window and advice.
    pub open: u64,
    /// Address of the inode whose page cache is read.
    pub inode: u64,
    /// Number of the inode.
    pub inode_number: u64,
    /// Device of the file system, or the block device itself.
    pub device: DeviceNumber,
    /// Size of the file or block device.
    pub file_bytes: u64,
    /// Cached pages of the file.
    pub cached_pages: u64,
    /// The file position.
    pub position_bytes: u64,
    /// The read-ahead state.
    pub readahead: Readahead,
    /// Window of the disk now (`read_ahead_kb`), pages: that of files opened from now on.
    pub disk_window_pages: u32,
    /// Whether reads of this open file go through the page cache, and not past it (`O_DIRECT`).
    pub is_cached: bool,
    /// Whether it was opened for reading.
    pub is_readable: bool,
}

/// Reads the state of open files. Only those of regular files and block devices on a disk, FUSE or network file system: pipes, sockets,
/// `/proc`, tmpfs and the like have no read-ahead.
#[derive(Debug)]
pub struct StateQuery {}

impl StateQuery {
    /// Loads the programs. Needs root, or CAP_BPF and CAP_PERFMON.
    ///
    /// # Errors
    /// [`Error::NotPermitted`] and [`Error::Unsupported`], with what is missing.
    pub fn new() -> Result<StateQuery> {
        Err(Error::Unsupported { what: "observing read-ahead".into(), why: "it is not written yet".into() })
    }

    /// Every open file of every process, one entry for each process and descriptor: threads that share their descriptors count once.
    pub fn all(&self) -> Result<Vec<OpenState>> {
        Ok(Vec::new())
    }

    /// Every open file of one process; none if it does not exist.
    pub fn of_process(&self, _pid: u32) -> Result<Vec<OpenState>> {
        Ok(Vec::new())
    }

    /// The open file of a descriptor of the calling process. `None`: it has no read-ahead.
    pub fn of_own(&self, _descriptor: BorrowedFd<'_>) -> Result<Option<OpenState>> {
        Ok(None)
    }

    /// The open file at this address, if it is still one of this inode; `pid` and `descriptor` are 0. An address may be reused by another
    /// open file of the same inode.
    pub fn at(&self, _open: u64, _inode: u64) -> Result<Option<OpenState>> {
        Ok(None)
    }
}
