//! Execs that wait for a permission: a fanotify group with marks on single programs (fanotify(7), Linux 5.0).
//!
//! ```text
//!     execve of a marked file ─▶ waits in the kernel ─▶ ExecEvent ─▶ allow ─▶ goes on
//! ```
//!
//! Each exec of a marked file waits until it is allowed, or the last descriptor of the group is closed. So whatever holds a group must answer soon, and
//! must not wait for anything else.

#![allow(unsafe_code)]

use crate::{Error, Result};
use std::fs::File;
use std::io::{self, ErrorKind, Read, Write};
use std::mem::{MaybeUninit, size_of};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

/// A group of marks.
#[derive(Debug)]
pub struct Group(File);

/// An exec of a marked file, which waits.
#[derive(Debug)]
pub struct ExecEvent {
    /// The process that executes it; 0 if it has no number here.
    pub pid: u32,
    /// The file, open for reading.
    pub file: File,
}

/// What a group reports.
#[derive(Debug)]
pub enum GroupEvent {
    Exec(ExecEvent),
    /// Events did not fit into the queue. Their execs were allowed.
    Overflow,
}

impl Group {
    /// A group without marks, non-blocking. Needs CAP_SYS_ADMIN.
    ///
    /// Its queue has no limit. In a limited one the kernel charges an event to the memory of this control group, and *denies* the exec if there is none
    /// (`fanotify_alloc_event`, fs/notify/fanotify/fanotify.c). Each waiting process has one event, so the number of processes is the limit.
    ///
    /// # Errors
    /// [`Error::NotPermitted`]; [`Error::Unsupported`]: a kernel without permission events.
    pub fn new() -> Result<Group> {
        let flags = libc::FAN_CLASS_CONTENT | libc::FAN_CLOEXEC | libc::FAN_NONBLOCK | libc::FAN_UNLIMITED_QUEUE;
        // SAFETY: numbers only.
        let fd = unsafe { libc::fanotify_init(flags, (libc::O_RDONLY | libc::O_CLOEXEC | libc::O_LARGEFILE) as u32) };
        if fd >= 0 {
            // SAFETY: a new descriptor, which no other object owns.
            return Ok(Group(File::from(unsafe { OwnedFd::from_raw_fd(fd) })));
        }
        let (what, error) = ("holding execs", io::Error::last_os_error());
        Err(match error.raw_os_error() {
            Some(libc::EPERM) => Error::needs_root(what),
            Some(libc::ENOSYS | libc::EINVAL) => {
                Error::Unsupported { what: what.into(), why: "the kernel has no permission events of fanotify".into() }
            }
            _ => Error::io(what, error),
        })
    }

    /// Marks the inode of an open file: its execs wait from now on. The number of marks is limited by `fs.fanotify.max_user_marks`.
    pub fn mark(&self, file: impl AsFd) -> Result<()> {
        self.change(libc::FAN_MARK_ADD, file)
    }

    /// Removes the mark of an open file.
    pub fn unmark(&self, file: impl AsFd) -> Result<()> {
        self.change(libc::FAN_MARK_REMOVE, file)
    }

    fn change(&self, how: libc::c_uint, file: impl AsFd) -> Result<()> {
        let file = file.as_fd().as_raw_fd();
        // SAFETY: numbers; without a path the mark is on the open file itself.
        let done =
            unsafe { libc::fanotify_mark(self.0.as_raw_fd(), how, libc::FAN_OPEN_EXEC_PERM, file, std::ptr::null()) };
        if done == 0 { Ok(()) } else { Err(Error::io("mark a program", io::Error::last_os_error())) }
    }

    /// The next event; `None`: none waits. One at a time: the kernel denies an exec if this process has no free descriptor for its file.
    pub fn next(&self) -> Result<Option<GroupEvent>> {
        let mut event = MaybeUninit::<libc::fanotify_event_metadata>::uninit();
        const BYTES: usize = size_of::<libc::fanotify_event_metadata>();
        // SAFETY: the kernel writes into this many bytes, which outlive the slice; zeros are valid before.
        let bytes = unsafe {
            event.as_mut_ptr().write_bytes(0, 1);
            std::slice::from_raw_parts_mut(event.as_mut_ptr().cast::<u8>(), BYTES)
        };
        match (&self.0).read(bytes) {
            Ok(length) if length >= BYTES => {}
            Ok(_) => return Ok(None),
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => return Ok(None),
            Err(error) => return Err(Error::io("read events of fanotify", error)),
        }
        // SAFETY: every byte is initialized, and any value is valid.
        let event = unsafe { event.assume_init() };
        if event.fd < 0 {
            return Ok(Some(GroupEvent::Overflow));
        }
        // SAFETY: the kernel has made this descriptor for us.
        let file = File::from(unsafe { OwnedFd::from_raw_fd(event.fd) });
        Ok(Some(GroupEvent::Exec(ExecEvent { pid: u32::try_from(event.pid).unwrap_or(0), file })))
    }

    /// Lets an exec go on.
    pub fn allow(&self, event: ExecEvent) -> Result<()> {
        let answer = libc::fanotify_response { fd: event.file.as_raw_fd(), response: libc::FAN_ALLOW };
        let mut bytes = [0; size_of::<libc::fanotify_response>()];
        bytes[..4].copy_from_slice(&answer.fd.to_ne_bytes());
        bytes[4..].copy_from_slice(&answer.response.to_ne_bytes());
        match (&self.0).write(&bytes) {
            Ok(_) => Ok(()),
            // The process was killed while it waited.
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
            Err(error) => Err(Error::io("allow an exec", error)),
        }
    }
}

impl From<Group> for OwnedFd {
    fn from(group: Group) -> OwnedFd {
        group.0.into()
    }
}

impl From<OwnedFd> for Group {
    /// Of a group that was given to another process.
    fn from(fd: OwnedFd) -> Group {
        Group(fd.into())
    }
}

impl AsFd for Group {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
