//! What relocation needs of ext4: the exchange of blocks between two files, the flags of a file, the state of the file system.

#![allow(unsafe_code)]

use crate::openat::{self, Handle};
use crate::{Error, Result};
use rustix::fs::{AtFlags, StatxAttributes, StatxFlags, statx};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::fs::FileExt;

/// `EXT4_IOC_MOVE_EXT`, `_IOWR('f', 15, struct move_extent)` in fs/ext4/ext4.h.
const EXT4_IOC_MOVE_EXT: libc::c_ulong = 0xC028_660F;

/// `FS_IOC_GETFLAGS`, `_IOR('f', 1, long)` in linux/fs.h.
const FS_IOC_GETFLAGS: libc::c_ulong = 0x8008_6601;

/// `struct move_extent` of fs/ext4/ext4.h; units are blocks.
#[repr(C)]
struct MoveExtent {
    reserved: u32,
    donor_fd: u32,
    original_start: u64,
    donor_start: u64,
    length: u64,
    moved_length: u64,
}

const _: () = assert!(std::mem::size_of::<MoveExtent>() == 40);

/// A range of blocks of two files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exchange {
    /// First block in the original.
    pub original_start: u64,
    /// First block in the donor; in a page, it lies where the first block of the original lies.
    pub donor_start: u64,
    pub blocks: u64,
}

/// Exchanges blocks between a file and a donor in the same file system, and returns how many were exchanged. The content of the original
/// is copied to its new blocks through the page cache, and written before the journal commits the exchange; readers, and mappings, do not
/// notice it. The donor's range then counts as never written, and holds the old blocks. Both files are open for reading and writing.
///
/// Errors: [`Error::Unsupported`] if the file system is not ext4, or does not exchange blocks of such files; `EBUSY` for a swap file.
pub fn exchange(original: impl AsFd, donor: impl AsFd, range: Exchange) -> Result<u64> {
    let mut request = MoveExtent {
        reserved: 0,
        donor_fd: donor.as_fd().as_raw_fd() as u32,
        original_start: range.original_start,
        donor_start: range.donor_start,
        length: range.blocks,
        moved_length: 0,
    };
    // SAFETY: the request reads and writes one struct move_extent; `request` has that layout and outlives the call.
    let failed = unsafe { libc::ioctl(original.as_fd().as_raw_fd(), EXT4_IOC_MOVE_EXT, &raw mut request) } != 0;
    if !failed {
        return Ok(request.moved_length);
    }
    let error = std::io::Error::last_os_error();
    match error.raw_os_error() {
        Some(libc::ENOTTY | libc::EOPNOTSUPP) => Err(Error::Unsupported {
            what: "exchanging blocks of files (EXT4_IOC_MOVE_EXT)".into(),
            why: "the file system or this file does not permit it".into(),
        }),
        _ => Err(Error::io("EXT4_IOC_MOVE_EXT", error)),
    }
}

/// Properties of a file that matter for moving its blocks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FileProperties {
    /// It has extents. Without, it has the block map of ext2 and ext3.
    pub has_extents: bool,
    /// It must not be changed.
    pub immutable: bool,
    /// It may only grow.
    pub append_only: bool,
    /// Its content is encrypted.
    pub encrypted: bool,
    /// Its content is checked by fs-verity.
    pub verity: bool,
    /// Its data lies in its inode.
    pub inline_data: bool,
    /// It is accessed without the page cache.
    pub dax: bool,
    /// Its data goes through the journal.
    pub journals_data: bool,
}

/// `FS_*_FL` and `EXT4_*_FL` of linux/fs.h and fs/ext4/ext4.h.
mod flag {
    pub const IMMUTABLE: u32 = 0x10;
    pub const APPEND: u32 = 0x20;
    pub const ENCRYPT: u32 = 0x800;
    pub const JOURNAL_DATA: u32 = 0x4000;
    pub const EXTENTS: u32 = 0x8_0000;
    pub const VERITY: u32 = 0x10_0000;
    pub const INLINE_DATA: u32 = 0x1000_0000;
}

/// The properties of an open file on ext4.
pub fn properties(fd: impl AsFd) -> Result<FileProperties> {
    let mut flags: libc::c_long = 0;
    // SAFETY: the request writes at most one long.
    if unsafe { libc::ioctl(fd.as_fd().as_raw_fd(), FS_IOC_GETFLAGS, &raw mut flags) } != 0 {
        return Err(Error::io("FS_IOC_GETFLAGS", std::io::Error::last_os_error()));
    }
    let stat = statx(fd, "", AtFlags::EMPTY_PATH, StatxFlags::BASIC_STATS).map_err(|e| Error::io("statx", e))?;
    let has = |bit: u32| flags as u32 & bit != 0;
    Ok(FileProperties {
        has_extents: has(flag::EXTENTS),
        immutable: has(flag::IMMUTABLE),
        append_only: has(flag::APPEND),
        encrypted: has(flag::ENCRYPT),
        verity: has(flag::VERITY),
        inline_data: has(flag::INLINE_DATA),
        dax: stat.stx_attributes.contains(StatxAttributes::DAX),
        journals_data: has(flag::JOURNAL_DATA),
    })
}

/// What the superblock says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Superblock {
    /// Size of a block, bytes.
    pub block_bytes: u64,
    /// The kernel or a check has found errors that no check has repaired.
    pub has_errors: bool,
    /// Blocks are allocated in clusters, which are not exchanged.
    pub has_clusters: bool,
}

/// Offset of the superblock on the device, and of its fields (struct ext4_super_block of fs/ext4/ext4.h). Unit: bytes.
mod superblock {
    pub const OFFSET: u64 = 1024;
    pub const LENGTH: usize = 1024;
    pub const LOG_BLOCK_SIZE: usize = 0x18;
    pub const MAGIC: usize = 0x38;
    pub const STATE: usize = 0x3A;
    pub const RO_COMPAT: usize = 0x64;
    pub const EXT4_MAGIC: u16 = 0xEF53;
    pub const STATE_ERRORS: u16 = 0x2;
    pub const BIGALLOC: u32 = 0x200;
}

/// The superblock of the mounted file system on the block device with this number (`(major << 32) | minor`), from the page cache of the
/// device, which the file system shares.
///
/// Errors: the device cannot be opened; it has no ext4.
pub fn superblock_of(device: u64) -> Result<Superblock> {
    let node = openat::handle(&openat::block_device_node(device)?)?;
    if node.block_device() != Some(device) {
        return Err(Error::io("open the block device", std::io::Error::other("its node belongs to another device")));
    }
    let file = std::fs::File::from(node.reopen_block_device()?);
    let mut bytes = [0; superblock::LENGTH];
    file.read_exact_at(&mut bytes, superblock::OFFSET).map_err(|e| Error::io("read the superblock", e))?;
    parse(&bytes)
}

fn parse(bytes: &[u8; superblock::LENGTH]) -> Result<Superblock> {
    let u16_at = |at: usize| u16::from_le_bytes([bytes[at], bytes[at + 1]]);
    let u32_at = |at: usize| u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
    let log = u32_at(superblock::LOG_BLOCK_SIZE);
    if u16_at(superblock::MAGIC) != superblock::EXT4_MAGIC || log > 6 {
        return Err(Error::io("read the superblock", std::io::Error::other("it is not that of ext4")));
    }
    Ok(Superblock {
        block_bytes: 1024 << log,
        has_errors: u16_at(superblock::STATE) & superblock::STATE_ERRORS != 0,
        has_clusters: u32_at(superblock::RO_COMPAT) & superblock::BIGALLOC != 0,
    })
}

/// Whether another process has the file open for writing, or mapped for writing and shared, or is opening it for writing. `reader`: open for
/// reading only.
///
/// The kernel grants a read lease only if there is no writer, and counts mappings as well as descriptors. The lease is returned at once:
/// a process that opens the file for writing meanwhile waits for this call only.
///
/// Errors: the file system has no leases.
pub fn has_writers(reader: BorrowedFd<'_>) -> Result<bool> {
    let Some(lease) = Lease::take(reader)? else { return Ok(true) };
    let is_broken = lease.is_broken()?;
    lease.give_back()?;
    Ok(is_broken)
}

/// A read lease (fcntl(2)). It ends with [`Lease::give_back`], or when the file is closed.
struct Lease<'a>(BorrowedFd<'a>);

impl<'a> Lease<'a> {
    /// `None`: a process has the file open for writing.
    fn take(reader: BorrowedFd<'a>) -> Result<Option<Lease<'a>>> {
        /// linux/fcntl.h: the signal of a lease that another process breaks.
        const F_SETSIG: i32 = 10;
        let lease = Lease(reader);
        // A user's open(2) must not end this process, as SIGIO does by default. SIGURG is ignored by default, and is never queued then.
        lease.call(F_SETSIG, libc::SIGURG, "choose the signal of a lease (F_SETSIG)")?;
        match lease.call(libc::F_SETLEASE, libc::F_RDLCK, "check for writers (F_SETLEASE)") {
            Ok(_) => Ok(Some(lease)),
            Err(error) if error.raw_os_error() == Some(libc::EAGAIN) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Whether a process that opens the file for writing waits for its end.
    fn is_broken(&self) -> Result<bool> {
        self.call(libc::F_GETLEASE, 0, "query a lease (F_GETLEASE)").map(|kind| kind != libc::F_RDLCK)
    }

    fn give_back(self) -> Result<()> {
        self.call(libc::F_SETLEASE, libc::F_UNLCK, "return a lease").map(drop)
    }

    fn call(&self, command: i32, argument: i32, what: &str) -> Result<i32> {
        // SAFETY: these commands take an integer.
        match unsafe { libc::fcntl(self.0.as_raw_fd(), command, argument) } {
            -1 => Err(Error::io(what, std::io::Error::last_os_error())),
            answer => Ok(answer),
        }
    }
}

/// The active swap files, as device number and inode.
///
/// Errors: `/proc/swaps` cannot be read.
pub fn swap_files() -> Result<Vec<(u64, u64)>> {
    let text = std::fs::read("/proc/swaps").map_err(|e| Error::io("read /proc/swaps", e))?;
    let paths = text.split(|byte| *byte == b'\n').skip(1).filter_map(|line| {
        let end = line.iter().position(u8::is_ascii_whitespace)?;
        Some(crate::mounts::unescape(&line[..end]))
    });
    // A swap area whose path is not reachable any more is also refused by the kernel (EBUSY).
    let identity = |path: Vec<u8>| {
        let path = std::path::PathBuf::from(<std::ffi::OsString as std::os::unix::ffi::OsStringExt>::from_vec(path));
        let handle = openat::handle(&path).ok()?;
        handle.is_regular_file().then(|| (handle.identity().device, handle.identity().inode))
    };
    Ok(paths.filter_map(identity).collect())
}

/// Opens the file of a handle for the exchange of its blocks: for reading and writing.
///
/// Errors: `ETXTBSY` while the file is executed; it is not a regular file.
pub fn open_for_exchange(handle: &Handle) -> Result<std::os::fd::OwnedFd> {
    use rustix::fs::OFlags;
    if !handle.is_regular_file() {
        return Err(Error::io("open", std::io::Error::other("not a regular file")));
    }
    let flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::NOATIME;
    crate::descriptors::reopen(handle.as_fd(), flags).map_err(|e| Error::io("open for reading and writing", e))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn superblock_is_parsed_and_anything_else_is_refused() {
        let mut bytes = [0; superblock::LENGTH];
        assert!(parse(&bytes).is_err());
        bytes[superblock::MAGIC..superblock::MAGIC + 2].copy_from_slice(&superblock::EXT4_MAGIC.to_le_bytes());
        bytes[superblock::LOG_BLOCK_SIZE] = 2;
        assert_eq!(parse(&bytes).unwrap(), Superblock { block_bytes: 4096, has_errors: false, has_clusters: false });
        bytes[superblock::STATE] = 3;
        bytes[superblock::RO_COMPAT + 1] = 2;
        assert_eq!(parse(&bytes).unwrap(), Superblock { block_bytes: 4096, has_errors: true, has_clusters: true });
        bytes[superblock::LOG_BLOCK_SIZE] = 7;
        assert!(parse(&bytes).is_err());
    }

    #[test]
    fn writer_is_seen_and_reader_is_not() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("file");
        std::fs::write(&path, "x").unwrap();
        let reader = std::fs::File::open(&path).unwrap();
        let other = std::fs::File::open(&path).unwrap();
        match has_writers(reader.as_fd()) {
            Err(error) => return eprintln!("skipped: {error}"),
            Ok(has) => assert!(!has),
        }
        drop(other);
        let writer = std::fs::File::options().append(true).open(&path).unwrap();
        assert!(has_writers(reader.as_fd()).unwrap());
        drop(writer);
        assert!(!has_writers(reader.as_fd()).unwrap());
    }

    #[test]
    fn files_elsewhere_are_not_exchanged() {
        let (a, b) = (tempfile::tempfile().unwrap(), tempfile::tempfile().unwrap());
        assert!(exchange(&a, &b, Exchange { original_start: 0, donor_start: 0, blocks: 1 }).is_err());
    }
}
