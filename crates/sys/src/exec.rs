//! Fork and exec with a gate between them: the child has its process number, user and streams before it executes the program.
//!
//! ```text
//!     fork_held ──▶ child: signals, streams, own number in its environment ──▶ read(gate) ──▶ user ──▶ execve
//!                                                                                  ▲                     │
//!     caller ───────────── write one byte, or close: the child exits ──────────────┘     error number ◀──┘ on failure
//! ```
//!
//! Between fork and exec only async-signal-safe calls are allowed (signal-safety(7)): another thread may have held the
//! allocator's lock during the fork. All memory that the child needs is therefore allocated before the fork.

#![allow(unsafe_code)]

use crate::held_calls::{CallListener, Filter, receive_listener, send_descriptor};
use crate::signals::SignalSet;
use crate::{Error, Result};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use rustix::process::Pid;
use std::ffi::{CString, OsString};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::process::CommandExt;

/// A variable of the child's environment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Variable {
    pub name: OsString,
    pub value: Value,
}

/// The value of a variable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    Text(OsString),
    /// The child's own process number, which is known only after the fork (`LISTEN_PID` of sd_listen_fds(3)).
    OwnPid,
}

/// The user that the child becomes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// User id.
    pub uid: u32,
    /// Primary group id.
    pub gid: u32,
    pub groups: Vec<u32>,
}

/// The steps of the child between fork and exec.
#[derive(Clone)]
pub struct Setup {
    /// Paths to execute, tried in order, as execvp(3) tries the directories of `PATH`.
    pub candidates: Vec<CString>,
    /// The program's arguments, its name included.
    pub arguments: Vec<CString>,
    pub environment: Vec<Variable>,
    /// The user that the child becomes. With a user, the child also loses every descriptor but the standard streams.
    pub identity: Option<Identity>,
    /// Whether the child starts a new session. Only together with `identity`.
    pub new_session: bool,
    /// Signals that this process blocks and the program does not.
    pub unblocked: SignalSet,
    /// Calls of the program that wait for [`HeldChild::calls`], its `read` of the gate included.
    pub filter: Option<Filter>,
}

/// A child that waits before its exec.
#[derive(Debug)]
pub struct HeldChild {
    /// Its process number.
    pub pid: Pid,
    /// Writing one byte starts the program. If it is closed, the child exits with status 125.
    pub gate: OwnedFd,
    /// Closed by the exec. If the exec fails, the child writes the error number here first (4 bytes, native order).
    pub exec_error: OwnedFd,
    /// With a filter.
    pub calls: Option<CallListener>,
}

/// Digits of the largest process number, plus the NUL.
const PID_BYTES: usize = 11;

/// An environment for execve(2). The pointers refer to `lines`, which must not change while they are used.
struct EnvironmentBlock {
    lines: Vec<Vec<u8>>,
    /// Lines that end with the child's process number: index of the line, offset of the number.
    pid_at: Vec<(usize, usize)>,
}

impl EnvironmentBlock {
    fn new(variables: &[Variable]) -> Result<EnvironmentBlock> {
        let mut block = EnvironmentBlock { lines: Vec::new(), pid_at: Vec::new() };
        for variable in variables {
            let mut line = variable.name.clone().into_vec();
            line.push(b'=');
            let end = line.len();
            if let Value::Text(text) = &variable.value {
                line.extend(text.as_bytes());
            }
            let checked = CString::new(line).map_err(|e| Error::io("environment", io::Error::other(e)))?;
            let mut line = checked.into_bytes_with_nul();
            if variable.value == Value::OwnPid {
                block.pid_at.push((block.lines.len(), end));
                line.resize(end + PID_BYTES, 0);
            }
            block.lines.push(line);
        }
        Ok(block)
    }

    fn pointers(&mut self) -> Pointers {
        let mut starts: Vec<*mut u8> = self.lines.iter_mut().map(|line| line.as_mut_ptr()).collect();
        // SAFETY: the offset lies in the line, which has room for a process number at the offset.
        let pids = self.pid_at.iter().map(|(line, offset)| unsafe { starts[*line].add(*offset) }).collect();
        starts.push(std::ptr::null_mut());
        Pointers { lines: starts.into_iter().map(|start| start.cast_const().cast()).collect(), pids }
    }
}

/// The pointers of an [`EnvironmentBlock`], for a child that may not allocate.
struct Pointers {
    lines: Vec<*const libc::c_char>,
    pids: Vec<*mut u8>,
}

impl Pointers {
    /// Writes the process number into the lines that need it. Async-signal-safe.
    ///
    /// # Safety
    /// The block still exists, and no other code uses it.
    unsafe fn write_pid(&self, pid: u32) {
        for at in &self.pids {
            let (mut digits, mut length, mut rest) = ([0u8; PID_BYTES], 0, pid);
            while rest > 0 || length == 0 {
                digits[length] = b'0' + (rest % 10) as u8;
                (rest, length) = (rest / 10, length + 1);
            }
            for index in 0..length {
                // SAFETY: there is room for PID_BYTES; a u32 has at most ten digits.
                unsafe { at.add(index).write(digits[length - 1 - index]) };
            }
            // SAFETY: as above.
            unsafe { at.add(length).write(0) };
        }
    }
}

/// The descriptors that the child uses before its exec.
#[derive(Clone, Copy)]
struct Ends {
    /// Standard input, output and error, where they are not inherited.
    streams: [Option<i32>; 3],
    gate: i32,
    gate_write: i32,
    error: i32,
    /// Takes the listener of the filter.
    calls: Option<i32>,
}

/// Forks a child that waits before its exec. The child has its process number and its streams. `streams` replaces standard input,
/// output and error; `None` inherits.
///
/// Errors: the fork failed; the kernel refuses the filter.
pub fn fork_held(setup: &Setup, streams: [Option<BorrowedFd<'_>>; 3]) -> Result<HeldChild> {
    let mut block = EnvironmentBlock::new(&setup.environment)?;
    let environment = block.pointers();
    let arguments: Vec<*const libc::c_char> =
        setup.arguments.iter().map(|argument| argument.as_ptr()).chain([std::ptr::null()]).collect();
    let (gate_read, gate_write) = pipe()?;
    let (error_read, error_write) = pipe()?;
    let socket = || socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None);
    let sockets = setup.filter.as_ref().map(|_| socket()).transpose().map_err(|e| Error::io("create a socket", e))?;
    let streams = streams.map(|stream| stream.map(|fd| fd.as_raw_fd()));
    // SAFETY: the child calls only async-signal-safe functions on memory allocated before the fork, then execs or exits.
    let pid = unsafe { libc::fork() };
    match pid {
        -1 => return Err(Error::io("fork", io::Error::last_os_error())),
        // SAFETY: this is the child of that fork.
        0 => unsafe {
            let (gate, gate_write) = (gate_read.as_raw_fd(), gate_write.as_raw_fd());
            let calls = sockets.as_ref().map(|(_, calls)| calls.as_raw_fd());
            let ends = Ends { streams, gate, gate_write, error: error_write.as_raw_fd(), calls };
            become_program(setup, &arguments, &environment, ends)
        },
        _ => {}
    }
    let pid = Pid::from_raw(pid).expect("fork returned a positive process number");
    let listener = |(own, childs): (OwnedFd, OwnedFd)| {
        // Otherwise the end of the child would not end the wait.
        drop(childs);
        receive_listener(&own)
    };
    let calls = sockets.map(listener).transpose().inspect_err(|_| {
        // The child is only ended.
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
        let _ = rustix::process::waitpid(Some(pid), rustix::process::WaitOptions::empty());
    })?;
    Ok(HeldChild { pid, gate: gate_write, exec_error: error_read, calls })
}

/// A pipe that no program inherits: read end, write end.
pub fn pipe() -> Result<(OwnedFd, OwnedFd)> {
    rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).map_err(|e| Error::io("pipe", e))
}

/// The child between fork and exec.
///
/// # Safety
/// Only for a freshly forked child. Calls only async-signal-safe functions, and never returns.
unsafe fn become_program(setup: &Setup, arguments: &[*const libc::c_char], environment: &Pointers, ends: Ends) -> ! {
    // SAFETY: plain system calls on descriptors and memory that outlive the fork; the environment is the child's copy.
    unsafe {
        libc::close(ends.gate_write);
        setup.unblocked.unblock();
        // Rust ignores SIGPIPE; programs expect the default action.
        libc::signal(libc::SIGPIPE, libc::SIG_DFL);
        for (number, stream) in (0..).zip(ends.streams) {
            if let Some(stream) = stream {
                libc::dup2(stream, number);
            }
        }
        environment.write_pid(libc::getpid() as u32);
        if let (Some(filter), Some(calls)) = (&setup.filter, ends.calls) {
            send_descriptor(calls, filter.install());
        }
        let mut byte = 0u8;
        // End of file: the parent ended before it opened the gate.
        if libc::read(ends.gate, (&raw mut byte).cast(), 1) != 1 {
            libc::_exit(125);
        }
        let mut number = become_user(setup);
        if number == 0 {
            number = libc::ENOENT;
            for candidate in &setup.candidates {
                libc::execve(candidate.as_ptr(), arguments.as_ptr(), environment.lines.as_ptr());
                // Continue along PATH as execvp does. A file that exists but cannot be executed decides the error.
                let failed = *libc::__errno_location();
                if failed != libc::ENOENT && failed != libc::ENOTDIR {
                    number = failed;
                }
            }
        }
        libc::write(ends.error, (&raw const number).cast(), 4);
        libc::_exit(if number == libc::ENOENT { 127 } else { 126 })
    }
}

/// Takes the user's groups and ids, and closes root's descriptors at the exec. Returns 0, or the error number.
///
/// # Safety
/// As [`become_program`].
unsafe fn become_user(setup: &Setup) -> i32 {
    let Some(Identity { uid, gid, groups }) = &setup.identity else { return 0 };
    // SAFETY: plain system calls on numbers, and on memory that outlives the fork.
    unsafe {
        let is_done = close_at_exec()
            && (!setup.new_session || libc::setsid() != -1)
            && libc::setgroups(groups.len(), groups.as_ptr()) == 0
            && libc::setgid(*gid) == 0
            && libc::setuid(*uid) == 0;
        if is_done { 0 } else { *libc::__errno_location() }
    }
}

/// Marks every descriptor but the standard streams to be closed at the exec. They stay open until then: one is the pipe for
/// the error of the exec. Async-signal-safe.
fn close_at_exec() -> bool {
    let first = libc::STDERR_FILENO as libc::c_uint + 1;
    // SAFETY: numbers only.
    unsafe { libc::syscall(libc::SYS_close_range, first, libc::c_uint::MAX, libc::CLOSE_RANGE_CLOEXEC) == 0 }
}

/// Makes the command start in a new session, with no descriptor but its standard streams. Signals to the process group and the
/// end of the terminal do not reach it. Needs Linux 5.11.
pub fn detach(command: &mut std::process::Command) {
    let leave = || {
        // SAFETY: no argument.
        let is_done = unsafe { libc::setsid() } != -1 && close_at_exec();
        if is_done { Ok(()) } else { Err(io::Error::last_os_error()) }
    };
    // SAFETY: `leave` calls only async-signal-safe functions, and allocates nothing.
    unsafe { command.pre_exec(leave) };
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::CStr;

    #[test]
    fn own_pid_is_written_into_the_environment() {
        let variables = [
            Variable { name: "A".into(), value: Value::Text("b=c".into()) },
            Variable { name: "LISTEN_PID".into(), value: Value::OwnPid },
        ];
        let mut block = EnvironmentBlock::new(&variables).unwrap();
        let pointers = block.pointers();
        for pid in [7u32, 4_194_304, u32::MAX] {
            // SAFETY: the block exists, and no other code uses it.
            unsafe { pointers.write_pid(pid) };
            // SAFETY: each pointer refers to a line that ends with NUL; the last pointer is null and is left out.
            let lines =
                pointers.lines[..2].iter().map(|line| unsafe { CStr::from_ptr(*line) }.to_str().unwrap().to_owned());
            assert_eq!(lines.collect::<Vec<_>>(), ["A=b=c".to_owned(), format!("LISTEN_PID={pid}")]);
            assert!(pointers.lines[2].is_null());
        }
    }

    #[test]
    fn nul_in_a_variable_is_an_error() {
        let variable = Variable { name: "A".into(), value: Value::Text("b\0c".into()) };
        assert!(EnvironmentBlock::new(&[variable]).is_err());
    }
}
