//! Loop devices: attach, query and detach. `ahead_process::undo` attaches them under a guard.
//!
//! Constants and structures of linux/loop.h, written by hand: they are few and never change.

#![allow(unsafe_code)]

use crate::{Error, Result};
use rustix::fs::{Mode, OFlags};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

const CONTROL: &str = "/dev/loop-control";
const LOOP_CLR_FD: libc::c_ulong = 0x4C01;
const LOOP_SET_STATUS64: libc::c_ulong = 0x4C04;
const LOOP_GET_STATUS64: libc::c_ulong = 0x4C05;
const LOOP_CONFIGURE: libc::c_ulong = 0x4C0A;
const LOOP_CTL_GET_FREE: libc::c_ulong = 0x4C82;
const LO_FLAGS_READ_ONLY: u32 = 1;
const LO_FLAGS_AUTOCLEAR: u32 = 4;
const LO_FLAGS_DIRECT_IO: u32 = 16;

/// `struct loop_info64`.
#[repr(C)]
struct LoopInfo {
    device: u64,
    inode: u64,
    rdevice: u64,
    offset: u64,
    size_limit: u64,
    number: u32,
    encrypt_type: u32,
    encrypt_key_size: u32,
    flags: u32,
    file_name: [u8; 64],
    crypt_name: [u8; 64],
    encrypt_key: [u8; 32],
    init: [u64; 2],
}

/// `struct loop_config`.
#[repr(C)]
struct LoopConfig {
    fd: u32,
    block_size: u32,
    info: LoopInfo,
    reserved: [u64; 8],
}

/// The file that a loop device is attached to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoopStatus {
    /// The backing file, as the kernel prints it.
    pub backing: PathBuf,
    /// Whether the loop device bypasses the page cache of the backing file.
    pub direct_io: bool,
}

/// A loop device that was free when it was found.
#[derive(Debug)]
pub struct FreeLoop {
    /// `/dev/loopN`.
    pub device: PathBuf,
    node: OwnedFd,
}

/// Finds a free loop device and opens it. Another process may attach it first.
pub fn find_free(read_only: bool) -> Result<FreeLoop> {
    let number = free_number()?;
    let device = PathBuf::from(format!("/dev/loop{number}"));
    let node = open_node(&device, number, access(read_only))?;
    Ok(FreeLoop { device, node })
}

fn access(read_only: bool) -> OFlags {
    if read_only { OFlags::RDONLY } else { OFlags::RDWR }
}

/// Opens a backing file.
pub fn open_backing(backing: &Path, read_only: bool) -> Result<OwnedFd> {
    rustix::fs::open(backing, access(read_only) | OFlags::CLOEXEC, Mode::empty())
        .map_err(|e| Error::io(format!("open {}", backing.display()), e))
}

fn free_number() -> Result<u32> {
    let control = rustix::fs::open(CONTROL, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty()).map_err(|e| match e {
        rustix::io::Errno::ACCESS | rustix::io::Errno::PERM => Error::needs_root("attaching a loop device"),
        rustix::io::Errno::NOENT | rustix::io::Errno::NODEV => Error::Unsupported {
            what: "attaching a loop device".into(),
            why: format!("{CONTROL} is missing; load the module (modprobe loop), or give the container its /dev"),
        },
        _ => Error::io(format!("open {CONTROL}"), e),
    })?;
    // SAFETY: the request takes no argument and returns a number.
    let number = unsafe { libc::ioctl(control.as_raw_fd(), LOOP_CTL_GET_FREE) };
    u32::try_from(number).map_err(|_| Error::io("find a free loop device", io::Error::last_os_error()))
}

fn open_node(device: &Path, number: u32, access: OFlags) -> Result<OwnedFd> {
    rustix::fs::open(device, access | OFlags::CLOEXEC, Mode::empty()).map_err(|e| match e {
        rustix::io::Errno::NOENT => Error::Unsupported {
            what: format!("loop device {number}"),
            why: format!("its node is missing; make it with: mknod {} b 7 {number}", device.display()),
        },
        rustix::io::Errno::ACCESS | rustix::io::Errno::PERM => Error::needs_root("attaching a loop device"),
        _ => Error::io(format!("open {}", device.display()), e),
    })
}

impl FreeLoop {
    /// Attaches `file`, whose path is `backing`. With `direct_io` the loop device bypasses the page cache of the file and keeps
    /// many requests in flight.
    ///
    /// Errors: `EBUSY` if another process has attached the device; other errors of the request.
    pub fn configure(&self, file: &OwnedFd, backing: &Path, direct_io: bool, read_only: bool) -> io::Result<()> {
        configure(&self.node, file, backing, direct_io, read_only)
    }
}

fn configure(node: &OwnedFd, file: &OwnedFd, backing: &Path, direct_io: bool, read_only: bool) -> io::Result<()> {
    let mut file_name = [0; 64];
    // losetup shows this name. It is truncated to fit, with a final NUL.
    for (to, from) in file_name.iter_mut().take(63).zip(backing.as_os_str().as_bytes()) {
        *to = *from;
    }
    let flags = if direct_io { LO_FLAGS_DIRECT_IO } else { 0 } | if read_only { LO_FLAGS_READ_ONLY } else { 0 };
    let config = LoopConfig {
        fd: file.as_raw_fd() as u32,
        block_size: 0,
        info: LoopInfo {
            device: 0,
            inode: 0,
            rdevice: 0,
            offset: 0,
            size_limit: 0,
            number: 0,
            encrypt_type: 0,
            encrypt_key_size: 0,
            flags,
            file_name,
            crypt_name: [0; 64],
            encrypt_key: [0; 32],
            init: [0; 2],
        },
        reserved: [0; 8],
    };
    // SAFETY: `config` is the structure that the request reads, complete and initialised.
    if unsafe { libc::ioctl(node.as_raw_fd(), LOOP_CONFIGURE, &raw const config) } != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// The backing file of a loop device. `None`: it is free or does not exist.
pub fn status(device: &Path) -> Result<Option<LoopStatus>> {
    let name = device.file_name().unwrap_or_default();
    let directory = Path::new("/sys/block").join(name).join("loop");
    let read = |file: &str| {
        let path = directory.join(file);
        match std::fs::read(&path) {
            Ok(bytes) => Ok(Some(bytes.trim_ascii_end().to_vec())),
            // The directory of a device that is being detached still exists. Opening the file fails with ENXIO; reading a file
            // that was opened before fails with ENODEV.
            Err(e) if matches!(e.raw_os_error(), Some(libc::ENOENT | libc::ENXIO | libc::ENODEV)) => Ok(None),
            Err(e) => Err(Error::io(format!("read {}", path.display()), e)),
        }
    };
    let (Some(backing), Some(direct_io)) = (read("backing_file")?, read("dio")?) else { return Ok(None) };
    let backing = PathBuf::from(std::ffi::OsStr::from_bytes(&backing));
    Ok(Some(LoopStatus { backing, direct_io: direct_io == b"1" }))
}

/// Detaches a loop device. If it is open (mounted, for example), the call succeeds and the kernel detaches the device at its
/// last close. A device that is not attached is not an error.
pub fn detach(device: &Path) -> Result<()> {
    let node = match rustix::fs::open(device, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()) {
        Ok(node) => node,
        Err(rustix::io::Errno::NOENT | rustix::io::Errno::NXIO) => return Ok(()),
        Err(rustix::io::Errno::ACCESS | rustix::io::Errno::PERM) => {
            return Err(Error::needs_root(format!("detaching {}", device.display())));
        }
        Err(e) => return Err(Error::io(format!("open {}", device.display()), e)),
    };
    // SAFETY: the request takes no argument.
    if unsafe { libc::ioctl(node.as_raw_fd(), LOOP_CLR_FD, 0) } != 0 {
        let error = io::Error::last_os_error();
        if error.raw_os_error() != Some(libc::ENXIO) {
            return Err(Error::io(format!("detach {}", device.display()), error));
        }
    }
    Ok(())
}

/// Cancels a [`detach`] that is pending until the last close.
pub fn cancel_detach(device: &Path) -> Result<()> {
    let failed = |e| Error::io(format!("keep {} attached", device.display()), e);
    let node =
        rustix::fs::open(device, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).map_err(|e| failed(e.into()))?;
    let mut info = MaybeUninit::<LoopInfo>::zeroed();
    // SAFETY: the first request fills the structure, of which any bytes are valid; the second reads it.
    let done = unsafe {
        libc::ioctl(node.as_raw_fd(), LOOP_GET_STATUS64, info.as_mut_ptr()) == 0 && {
            let mut info = info.assume_init();
            info.flags &= !LO_FLAGS_AUTOCLEAR;
            libc::ioctl(node.as_raw_fd(), LOOP_SET_STATUS64, &raw const info) == 0
        }
    };
    if done { Ok(()) } else { Err(failed(io::Error::last_os_error())) }
}

/// The disk sequence number of a block device (Linux 5.15). Each attachment gets a new one. `None`: unknown.
pub fn sequence(device: &Path) -> Option<u64> {
    let path = Path::new("/sys/block").join(device.file_name()?).join("diskseq");
    std::fs::read_to_string(path).ok()?.trim().parse().ok()
}

/// The state of an earlier attachment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Attachment {
    /// It still exists.
    Unchanged,
    /// The device is free or does not exist.
    Detached,
    /// The device has another attachment now; the text is the reason.
    Replaced(&'static str),
}

/// Checks whether a loop device still has the attachment with this backing file and sequence number (if both numbers are
/// known).
pub fn check_attachment(device: &Path, backing: &Path, then: Option<u64>) -> Result<Attachment> {
    Ok(match status(device)? {
        None => Attachment::Detached,
        Some(status) if status.backing != backing => Attachment::Replaced("it is attached to another file now"),
        Some(_) if then.zip(sequence(device)).is_some_and(|(then, now)| then != now) => {
            Attachment::Replaced("it was attached again")
        }
        Some(_) => Attachment::Unchanged,
    })
}

/// Detaches a loop device ([`detach`]) if its attachment is unchanged ([`check_attachment`]). Returns the state before.
pub fn detach_if_unchanged(device: &Path, backing: &Path, then: Option<u64>) -> Result<Attachment> {
    let found = check_attachment(device, backing, then)?;
    if found == Attachment::Unchanged {
        detach(device)?;
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn structures_have_the_kernels_size() {
        assert_eq!(std::mem::size_of::<LoopInfo>(), 232);
        assert_eq!(std::mem::size_of::<LoopConfig>(), 304);
    }

    #[test]
    fn missing_device_is_detached() {
        assert_eq!(status(Path::new("/dev/loop-nothing")).unwrap(), None);
        detach(Path::new("/dev/loop-nothing")).unwrap();
        let found = detach_if_unchanged(Path::new("/dev/loop-nothing"), Path::new("/x"), None).unwrap();
        assert_eq!(found, Attachment::Detached);
    }
}
