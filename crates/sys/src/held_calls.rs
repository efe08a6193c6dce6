//! System calls of a program that wait until this process lets them go on: seccomp's user notification (seccomp_unotify(2)), without any
//! privilege.
//!
//! ```text
//!     child: Filter::install ──listener──▶ CallListener ─ receive ─▶ what the call names ─ go_on ─▶ the kernel makes the call
//!                                              │ its end, or SIGKILL
//!                                              ▼
//!                                          caretaker: lets all calls go on until no process has the filter
//! ```
//!
//! A filter stays until the end of the last process that has it, and without a listener its calls fail (`ENOSYS`). Therefore a forked process,
//! the caretaker, takes over when the listener is dropped, also by SIGKILL. It allocates nothing: its parent may have had several threads.
//!
//! A process with a filter cannot gain privileges any more (`PR_SET_NO_NEW_PRIVS`): setuid programs that it starts run as the user.

#![allow(unsafe_code)]

use crate::{Error, Result};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};

/// Which calls are held, and which are refused.
#[derive(Clone, Debug)]
pub struct Filter(Vec<libc::sock_filter>);

/// A call that is held.
#[derive(Clone, Copy, Debug)]
pub struct Held {
    pub number: i64,
    /// It is not held if this argument (by index) has one of these bits.
    pub unless: Option<(u32, u32)>,
}

/// A call that waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeldCall {
    id: u64,
    /// The thread, as this process numbers it.
    pub tid: u32,
    pub number: i64,
    pub arguments: [u64; 6],
}

/// `struct seccomp_data` of linux/seccomp.h: offsets of the call's number, of the architecture and of the arguments (the lower half first).
const NUMBER: u32 = 0;
const ARCHITECTURE: u32 = 4;
const ARGUMENTS: u32 = 16;

/// Classic BPF: load a word of the data, compare or test bits and jump, return (linux/bpf_common.h).
const LOAD: u16 = 0x20;
const JUMP_IF_EQUAL: u16 = 0x15;
const JUMP_IF_BITS: u16 = 0x45;
const RETURN: u16 = 0x06;

/// `AUDIT_ARCH_…` of linux/audit.h: calls of other architectures (32-bit programs) have other numbers, and are not held.
#[cfg(target_arch = "x86_64")]
const OWN_ARCHITECTURE: u32 = 0xc000_003e;
#[cfg(target_arch = "aarch64")]
const OWN_ARCHITECTURE: u32 = 0xc000_00b7;
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
const OWN_ARCHITECTURE: u32 = u32::MAX;

/// `SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV` (Linux 5.19): only a fatal signal ends a wait, so that no call is reported twice.
const WAIT_KILLABLE: libc::c_ulong = 1 << 5;

/// `struct seccomp_notif` of linux/seccomp.h.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Notification {
    id: u64,
    pid: u32,
    flags: u32,
    number: i32,
    architecture: u32,
    instruction_pointer: u64,
    arguments: [u64; 6],
}

/// `struct seccomp_notif_resp`.
#[repr(C)]
struct Response {
    id: u64,
    value: i64,
    error: i32,
    flags: u32,
}

/// `SECCOMP_USER_NOTIF_FLAG_CONTINUE` (Linux 5.5).
const CONTINUE: u32 = 1;

/// `SECCOMP_IOCTL_NOTIF_RECV`, `_IOWR('!', 0, struct seccomp_notif)`, and `SECCOMP_IOCTL_NOTIF_SEND`, `_IOWR('!', 1, struct seccomp_notif_resp)`.
const RECEIVE: libc::c_ulong = 0xc050_2100;
const SEND: libc::c_ulong = 0xc018_2101;

impl Filter {
    /// A filter that holds these calls, and lets the `refused` ones fail with `ENOSYS`. All others go on at once.
    pub fn new(held: &[Held], refused: &[i64]) -> Filter {
        let code = |code, jt, jf, k| libc::sock_filter { code, jt, jf, k };
        let ends = |action| code(RETURN, 0, 0, action);
        let (hold, allow) = (libc::SECCOMP_RET_USER_NOTIF, libc::SECCOMP_RET_ALLOW);
        let mut filter = vec![
            code(LOAD, 0, 0, ARCHITECTURE),
            code(JUMP_IF_EQUAL, 1, 0, OWN_ARCHITECTURE),
            ends(allow),
            code(LOAD, 0, 0, NUMBER),
        ];
        for number in refused {
            filter.push(code(JUMP_IF_EQUAL, 0, 1, *number as u32));
            filter.push(ends(libc::SECCOMP_RET_ERRNO | libc::ENOSYS as u32));
        }
        for call in held {
            match call.unless {
                None => filter.extend([code(JUMP_IF_EQUAL, 0, 1, call.number as u32), ends(hold)]),
                Some((argument, bits)) => filter.extend([
                    code(JUMP_IF_EQUAL, 0, 4, call.number as u32),
                    code(LOAD, 0, 0, ARGUMENTS + 8 * argument),
                    code(JUMP_IF_BITS, 0, 1, bits),
                    ends(allow),
                    ends(hold),
                ]),
            }
        }
        filter.push(ends(allow));
        Filter(filter)
    }

    /// Installs the filter for the calling thread and its children, and returns the listener's descriptor, or the error number, negated.
    /// Async-signal-safe.
    pub(crate) fn install(&self) -> RawFd {
        let program = libc::sock_fprog { len: self.0.len() as u16, filter: self.0.as_ptr().cast_mut() };
        let listener = libc::SECCOMP_FILTER_FLAG_NEW_LISTENER;
        // SAFETY: the first call changes a flag of the process. The others read the program and the filter, which outlive them.
        unsafe {
            libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
            for flags in [listener | WAIT_KILLABLE, listener] {
                let fd = libc::syscall(libc::SYS_seccomp, libc::SECCOMP_SET_MODE_FILTER, flags, &raw const program);
                if fd >= 0 {
                    return fd as RawFd;
                }
                if *libc::__errno_location() != libc::EINVAL {
                    break;
                }
            }
            -*libc::__errno_location()
        }
    }
}

/// The calls of a child that has a [`Filter`].
#[derive(Debug)]
pub struct CallListener {
    listener: OwnedFd,
    /// The caretaker takes over when it is closed.
    _keep: OwnedFd,
    waiting: Waiting,
    caretaker: u32,
}

/// The call that waits, in memory that the caretaker shares. Its number is 0 if none waits.
#[derive(Clone, Copy, Debug)]
struct Waiting(*mut Notification);

// SAFETY: memory of a mapping that is never removed; only the owner of the listener uses it, and after its end the caretaker.
unsafe impl Send for Waiting {}

impl Waiting {
    fn new() -> Result<Waiting> {
        let (protection, flags) =
            (rustix::mm::ProtFlags::READ | rustix::mm::ProtFlags::WRITE, rustix::mm::MapFlags::SHARED);
        // SAFETY: a new mapping at an address of the kernel's choice.
        let memory =
            unsafe { rustix::mm::mmap_anonymous(std::ptr::null_mut(), size_of::<Notification>(), protection, flags) };
        memory.map(|memory| Waiting(memory.cast())).map_err(|e| Error::io("map memory", e))
    }

    /// Waits for a call. Async-signal-safe. `false`: there is none.
    fn receive(self, listener: RawFd) -> bool {
        // SAFETY: the kernel fills the structure, which must be zero before; it is in a mapping that stays.
        unsafe {
            self.0.write_volatile(Notification::default());
            libc::ioctl(listener, RECEIVE, self.0) == 0
        }
    }

    /// Lets the waiting call go on, if there is one. Async-signal-safe.
    fn go_on(self, listener: RawFd) {
        // SAFETY: both structures outlive the call.
        unsafe {
            let id = (*self.0).id;
            if id != 0 {
                // An error: its thread was ended meanwhile.
                let response = Response { id, value: 0, error: 0, flags: CONTINUE };
                libc::ioctl(listener, SEND, &raw const response);
                (&raw mut (*self.0).id).write_volatile(0);
            }
        }
    }
}

impl CallListener {
    /// Takes the descriptor that [`Filter::install`] made, and starts the caretaker.
    pub(crate) fn new(listener: OwnedFd) -> Result<CallListener> {
        let pipe = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC);
        let (dropped, keep) = pipe.map_err(|e| Error::io("pipe", e))?;
        let waiting = Waiting::new()?;
        // SAFETY: both children call only async-signal-safe functions, and exit.
        let child = unsafe { libc::fork() };
        match child {
            -1 => return Err(Error::io("fork", io::Error::last_os_error())),
            0 => take_care(listener.as_raw_fd(), dropped.as_raw_fd(), waiting),
            _ => {}
        }
        let mut status = 0;
        // SAFETY: waits for the child made above. It hands its number over and ends at once.
        while unsafe { libc::waitpid(child, &raw mut status, 0) } == -1
            && io::Error::last_os_error().kind() == io::ErrorKind::Interrupted
        {}
        // SAFETY: the child has written it and ended.
        let caretaker = unsafe { (*waiting.0).pid };
        Ok(CallListener { listener, _keep: keep, waiting, caretaker })
    }

    /// The process that lets calls go on after this value's end.
    pub fn caretaker(&self) -> u32 {
        self.caretaker
    }

    /// The call that waits, if the descriptor is readable. `None`: its thread was ended meanwhile.
    pub fn receive(&self) -> Option<HeldCall> {
        if !self.waiting.receive(self.listener.as_raw_fd()) {
            return None;
        }
        // SAFETY: filled by the kernel.
        let Notification { id, pid, number, arguments, .. } = unsafe { *self.waiting.0 };
        Some(HeldCall { id, tid: pid, number: number.into(), arguments })
    }

    /// Lets the call that was received last go on.
    pub fn go_on(&self) {
        self.waiting.go_on(self.listener.as_raw_fd());
    }
}

impl AsFd for CallListener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.listener.as_fd()
    }
}

/// The caretaker: a child of a child, so that it is no zombie of ours. It holds only the listener, as descriptor 0, and the pipe, as 1.
fn take_care(listener: RawFd, dropped: RawFd, waiting: Waiting) -> ! {
    // SAFETY: only async-signal-safe calls, on numbers and on memory of this function or of the mapping.
    unsafe {
        let caretaker = libc::fork();
        if caretaker != 0 {
            (&raw mut (*waiting.0).pid).write_volatile(caretaker.max(0) as u32);
            libc::_exit(0);
        }
        // Above all numbers that are used.
        let (listener, dropped) = (libc::fcntl(listener, libc::F_DUPFD, 3), libc::fcntl(dropped, libc::F_DUPFD, 3));
        libc::dup2(listener, 0);
        libc::dup2(dropped, 1);
        libc::syscall(libc::SYS_close_range, 2, libc::c_uint::MAX, 0);
        // Not ended by the terminal, with the program that it serves.
        libc::setsid();
        let mut byte = 0u8;
        while libc::read(1, (&raw mut byte).cast(), 1) == -1 && *libc::__errno_location() == libc::EINTR {}
        waiting.go_on(0);
        loop {
            let mut ready = libc::pollfd { fd: 0, events: libc::POLLIN, revents: 0 };
            libc::poll(&raw mut ready, 1, -1);
            if ready.revents & libc::POLLIN != 0 {
                if waiting.receive(0) {
                    waiting.go_on(0);
                }
            } else if ready.revents != 0 {
                // No process has the filter.
                libc::_exit(0);
            }
        }
    }
}

/// Reads memory of a process of this user, up to `most_bytes`. Shorter where it ends; empty: not permitted, or it has ended.
pub fn read_memory(tid: u32, address: u64, most_bytes: usize) -> Vec<u8> {
    let mut bytes = vec![0; most_bytes];
    let local = libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: most_bytes };
    let remote = libc::iovec { iov_base: address as *mut libc::c_void, iov_len: most_bytes };
    // SAFETY: the kernel writes at most `most_bytes` into the buffer, and checks the addresses of the other process.
    let read = unsafe { libc::process_vm_readv(tid as libc::pid_t, &raw const local, 1, &raw const remote, 1, 0) };
    bytes.truncate(usize::try_from(read).unwrap_or(0));
    bytes
}

/// Reads a text that ends with NUL. `None`: it cannot be read, or is longer than `most_bytes`.
pub fn read_text(tid: u32, address: u64, most_bytes: usize) -> Option<Vec<u8>> {
    /// A text that lies in two pages, of which the second is not mapped, is read up to the end of the first.
    const PAGE: u64 = 4096;
    /// Most paths are shorter: one call.
    const FIRST_BYTES: u64 = 256;
    let (mut text, mut at, mut next) = (Vec::new(), address, FIRST_BYTES);
    while text.len() < most_bytes {
        let part = read_memory(tid, at, next.min(PAGE - at % PAGE) as usize);
        match part.iter().position(|byte| *byte == 0) {
            Some(end) => {
                text.extend(&part[..end]);
                return (text.len() < most_bytes).then_some(text);
            }
            None if part.is_empty() => return None,
            None => text.extend(&part),
        }
        (at, next) = (at + part.len() as u64, PAGE);
    }
    None
}

/// Sends a number through a socket, and a descriptor if it is not negative. Async-signal-safe.
pub(crate) fn send_descriptor(socket: RawFd, descriptor: RawFd) {
    #[repr(C)]
    struct Control {
        header: libc::cmsghdr,
        descriptor: RawFd,
        _padding: i32,
    }
    // SAFETY: CMSG_LEN computes; zero is a valid value of these structures, whose pointers refer to memory of this function.
    unsafe {
        let mut number = descriptor;
        let mut vector = libc::iovec { iov_base: (&raw mut number).cast(), iov_len: size_of::<RawFd>() };
        let mut control: Control = std::mem::zeroed();
        control.header.cmsg_len = libc::CMSG_LEN(size_of::<RawFd>() as u32) as _;
        control.header.cmsg_level = libc::SOL_SOCKET;
        control.header.cmsg_type = libc::SCM_RIGHTS;
        control.descriptor = descriptor;
        let mut message: libc::msghdr = std::mem::zeroed();
        message.msg_iov = &raw mut vector;
        message.msg_iovlen = 1;
        if descriptor >= 0 {
            message.msg_control = (&raw mut control).cast();
            message.msg_controllen = size_of::<Control>() as _;
        }
        libc::sendmsg(socket, &raw const message, libc::MSG_NOSIGNAL);
    }
}

/// The listener that a child has sent by [`send_descriptor`].
pub(crate) fn receive_listener(socket: &OwnedFd) -> Result<CallListener> {
    use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};
    let (mut number, mut space) = ([0; 4], [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))]);
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let failed = |e: io::Error| Error::Unsupported { what: "seccomp's user notification".into(), why: e.to_string() };
    let mut vectors = [io::IoSliceMut::new(&mut number)];
    let received = rustix::io::retry_on_intr(|| recvmsg(socket, &mut vectors, &mut control, RecvFlags::CMSG_CLOEXEC));
    let received = received.map_err(|e| failed(e.into()))?;
    let listener = control.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut descriptors) => descriptors.next(),
        _ => None,
    });
    match (listener, i32::from_ne_bytes(number)) {
        (Some(listener), _) => CallListener::new(listener),
        (None, number) if received.bytes == 4 && number < 0 => Err(failed(io::Error::from_raw_os_error(-number))),
        (None, _) => Err(failed(io::ErrorKind::UnexpectedEof.into())),
    }
}
