//! Starting a program so that nothing it does is missed, and passing on its signals and its status.
//!
//! ```text
//!     spawn_held ──▶ child waits on a pipe ──▶ (the caller arms its tracer, starts its prefetch) ──▶ release ──▶ exec
//!                                                                                                       │
//!                      exit status  ◀── wait: signals sent to us are passed on to the child ◀───────────┘
//! ```
//!
//! Signals that would end us are blocked and read from a descriptor ([`Signals`]), so that every guard runs. One that
//! the terminal sends goes to the whole foreground group, the child included: we only keep living until it ends. One
//! that somebody sends to us alone is passed on.
//!
//! From root to a user pass no rights: the child takes the user's groups and numbers before it looks for its program,
//! inherits standard input, output and error alone, and an environment that [`environment`] has chosen. Another user's program
//! is in a session of its own, as with `su -c`: it could push characters into the terminal of root's shell otherwise
//! (`TIOCSTI`). So what the terminal sends is passed on to it, too.

#![allow(unsafe_code)]

mod environment;
mod signals;

use environment::{Environment, Pointers};
pub use signals::{Arrived, Signals, end_by_signals};

use crate::undo::ProcessId;
use crate::user::User;
use crate::{Error, Result};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, WaitIdOptions, WaitIdStatus, pidfd_open, pidfd_send_signal};
use std::ffi::{CString, OsString};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How a program ended, as a shell reports it: its own status, or 128 + the signal that ended it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// It exited with this status.
    Exited(i32),
    /// This signal ended it.
    Signaled(i32),
}

impl Ended {
    /// The exit status to pass on.
    pub fn code(self) -> i32 {
        match self {
            Ended::Exited(code) => code,
            Ended::Signaled(signal) => 128 + signal,
        }
    }
}

/// What to start and how.
#[derive(Clone, Debug, Default)]
pub struct Command {
    /// Program and arguments; the program is looked up in `PATH` as a shell does.
    pub argv: Vec<OsString>,
    /// Run as this user (needs root); `None`: as ourselves.
    pub user: Option<User>,
    /// Give standard output and error as pipes to read from, instead of passing on our own.
    pub capture_output: bool,
    /// Send standard output and error to /dev/null (repeated runs of `compare`).
    pub discard_output: bool,
    /// Give this as standard input; `None`: our own.
    pub input: Option<Arc<File>>,
    /// Send standard error here, whatever `discard_output` says; without effect when it is captured.
    pub errors: Option<Arc<File>>,
}

/// A program that was started by us.
#[derive(Debug)]
pub struct Child {
    pid: Pid,
    pidfd: OwnedFd,
    gate: Option<OwnedFd>,
    exec_error: Option<OwnedFd>,
    output: Option<OwnedFd>,
    errors: Option<OwnedFd>,
    ended: Option<Ended>,
    /// The terminal sends it nothing.
    has_own_session: bool,
}

/// What [`Child::wait_event`] saw.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// The program ended.
    Ended(Ended),
    /// A signal that asks us to stop arrived (and was passed on where that is ours to do).
    Signal(i32),
    /// The descriptor with this index can be read.
    Readable(usize),
    /// The time is over.
    Timeout,
}

/// Why a released program did not start. 126 and 127 are the statuses that env(1) and timeout(1) use.
#[derive(Debug, thiserror::Error)]
pub enum ExecError {
    /// No such program: exit status 127.
    #[error("{0}: not found")]
    NotFound(String),
    /// It exists but cannot be executed: exit status 126.
    #[error("{0}: cannot execute: {1}")]
    CannotExecute(String, io::Error),
    /// A signal ended it before its exec: exit status 128 and the signal.
    #[error("{0}: ended by signal {1} before it was started")]
    Killed(String, i32),
    /// We failed before the exec: exit status 125.
    #[error(transparent)]
    Own(#[from] Error),
}

impl ExecError {
    /// The exit status of the contract.
    pub fn code(&self) -> i32 {
        match self {
            ExecError::NotFound(_) => 127,
            ExecError::CannotExecute(..) => 126,
            ExecError::Killed(_, signal) => 128 + signal,
            ExecError::Own(_) => 125,
        }
    }
}

fn pipe() -> Result<(OwnedFd, OwnedFd)> {
    rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).map_err(|e| Error::io("pipe", e))
}

fn c_string(text: &OsString) -> Result<CString> {
    CString::new(text.as_bytes()).map_err(|e| Error::io("an argument holds a NUL byte", io::Error::other(e)))
}

/// Everything the child needs between fork and exec, allocated before: after fork only async-signal-safe calls are
/// allowed.
struct Prepared {
    candidates: Vec<CString>,
    argv: Vec<CString>,
    environment: Environment,
    identity: Option<(u32, u32, Vec<libc::gid_t>)>,
    has_own_session: bool,
}

impl Prepared {
    fn new(command: &Command) -> Result<Prepared> {
        let program = command.argv.first().ok_or_else(|| Error::Unsupported {
            what: "starting a program".into(),
            why: "no command was given".into(),
        })?;
        let user = command.user.as_ref();
        let environment = Environment::of(user)?;
        Ok(Prepared {
            candidates: environment.candidates(program)?,
            argv: command.argv.iter().map(c_string).collect::<Result<_>>()?,
            environment,
            identity: user.map(|user| Ok((user.uid, user.gid, user.groups()?))).transpose()?,
            has_own_session: user.is_some_and(|user| !environment::came_through_sudo(user)),
        })
    }
}

/// The descriptors that the child uses before its exec.
#[derive(Clone, Copy)]
struct Ends {
    /// Standard input, output and error, where they are not ours.
    redirect: [Option<i32>; 3],
    gate: i32,
    gate_write: i32,
    error: i32,
}

impl Child {
    /// Forks a child that waits before its exec. It already has its process id, user and standard streams.
    pub fn spawn_held(command: &Command) -> Result<Child> {
        let mut prepared = Prepared::new(command)?;
        let argv = pointers(&prepared.argv);
        let environment = prepared.environment.pointers();
        let (gate_read, gate_write) = pipe()?;
        let (error_read, error_write) = pipe()?;
        let streams = if command.capture_output { Some((pipe()?, pipe()?)) } else { None };
        let null = command.discard_output.then(|| File::options().write(true).open("/dev/null")).transpose();
        let null = null.map_err(|e| Error::io("open /dev/null", e))?;
        let (output, errors) = match (&streams, &null) {
            (Some(((_, output), (_, errors))), _) => (Some(output.as_raw_fd()), Some(errors.as_raw_fd())),
            (None, Some(null)) => (Some(null.as_raw_fd()), Some(command.errors.as_deref().unwrap_or(null).as_raw_fd())),
            (None, None) => (None, command.errors.as_ref().map(AsRawFd::as_raw_fd)),
        };
        let redirect = [command.input.as_ref().map(AsRawFd::as_raw_fd), output, errors];
        // SAFETY: the child calls only async-signal-safe functions on memory allocated before the fork, then execs or
        // exits.
        let pid = unsafe { libc::fork() };
        match pid {
            -1 => return Err(Error::io("fork", io::Error::last_os_error())),
            // SAFETY: we are the child of that fork.
            0 => unsafe {
                let (gate, gate_write) = (gate_read.as_raw_fd(), gate_write.as_raw_fd());
                let ends = Ends { redirect, gate, gate_write, error: error_write.as_raw_fd() };
                child_side(&prepared, &argv, &environment, ends)
            },
            _ => {}
        }
        let pid = Pid::from_raw(pid).expect("fork gave a positive process id");
        let pidfd = pidfd_open(pid, PidfdFlags::empty()).map_err(|e| Error::io("pidfd_open", e))?;
        let (output, errors) = match streams {
            Some(((output, _), (errors, _))) => (Some(output), Some(errors)),
            None => (None, None),
        };
        let (gate, exec_error, has_own_session) = (Some(gate_write), Some(error_read), prepared.has_own_session);
        Ok(Child { pid, pidfd, gate, exec_error, output, errors, ended: None, has_own_session })
    }

    /// Process id.
    pub fn pid(&self) -> u32 {
        self.pid.as_raw_nonzero().get() as u32
    }

    /// The read ends of captured standard output and error.
    pub fn take_output(&mut self) -> Option<(OwnedFd, OwnedFd)> {
        self.output.take().zip(self.errors.take())
    }

    /// Lets the child exec, and returns when it has (or could not).
    pub fn release(&mut self, command: &Command) -> std::result::Result<(), ExecError> {
        let (Some(gate), Some(exec_error)) = (self.gate.take(), self.exec_error.take()) else { return Ok(()) };
        let name = || command.argv.first().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        match rustix::io::write(&gate, &[1]) {
            // Nobody holds the other end: it is gone.
            Err(rustix::io::Errno::PIPE) => {
                let ended = self.reap(true)?;
                let signal = ended.map_or(libc::SIGKILL, |ended| ended.code() - 128);
                return Err(ExecError::Killed(name(), signal));
            }
            written => written.map_err(|e| Error::io("start the program", e))?,
        };
        drop(gate);
        let mut number = [0; 4];
        // The pipe closes on a successful exec; otherwise the child wrote the error's number.
        if rustix::io::retry_on_intr(|| rustix::io::read(&exec_error, &mut number)).map_err(|e| Error::io("read", e))?
            == 0
        {
            return Ok(());
        }
        let error = io::Error::from_raw_os_error(i32::from_ne_bytes(number));
        self.reap(true)?;
        Err(match error.kind() {
            io::ErrorKind::NotFound => ExecError::NotFound(name()),
            _ => ExecError::CannotExecute(name(), error),
        })
    }

    /// Waits for the program's end, a signal that asks us to stop, one of `others` to become readable, or the deadline. Signals
    /// that were sent to us alone have been passed on when this returns.
    pub fn wait_event(
        &mut self,
        signals: &Signals,
        others: &[BorrowedFd<'_>],
        deadline: Option<Instant>,
    ) -> Result<Event> {
        if let Some(ended) = self.ended {
            return Ok(Event::Ended(ended));
        }
        loop {
            let mut fds = vec![PollFd::new(&self.pidfd, PollFlags::IN), PollFd::new(signals, PollFlags::IN)];
            fds.extend(others.iter().map(|fd| PollFd::from_borrowed_fd(*fd, PollFlags::IN)));
            if !poll_until(&mut fds, deadline)? {
                return Ok(Event::Timeout);
            }
            let ready: Vec<bool> = fds.iter().map(|fd| !fd.revents().is_empty()).collect();
            if ready[1]
                && let Some(arrived) = signals.poll()
            {
                if !arrived.from_terminal || self.has_own_session {
                    self.signal(arrived.number);
                }
                match arrived.asks_to_stop() {
                    true => return Ok(Event::Signal(arrived.number)),
                    // What it means is the program's affair.
                    false => continue,
                }
            }
            if let Some(index) = ready[2..].iter().position(|ready| *ready) {
                return Ok(Event::Readable(index));
            }
            return Ok(match self.reap(false)? {
                Some(ended) => Event::Ended(ended),
                None => Event::Timeout,
            });
        }
    }

    /// Waits for the end, passing signals on.
    pub fn wait(&mut self, signals: &Signals) -> Result<Ended> {
        loop {
            if let Event::Ended(ended) = self.wait_event(signals, &[], None)? {
                return Ok(ended);
            }
        }
    }

    /// Sends it a signal; a program that has just ended is no error.
    pub fn signal(&self, number: i32) {
        // Real-time signals have no name.
        // SAFETY: the number is that of a signal, and the kernel refuses any other.
        let sent = unsafe {
            libc::syscall(libc::SYS_pidfd_send_signal, self.pidfd.as_raw_fd(), number, std::ptr::null::<u8>(), 0)
        };
        tracing::trace!("signal {number} passed on: {sent}");
    }

    fn reap(&mut self, block: bool) -> Result<Option<Ended>> {
        let options = if block { WaitIdOptions::EXITED } else { WaitIdOptions::EXITED | WaitIdOptions::NOHANG };
        let status = rustix::io::retry_on_intr(|| {
            rustix::process::waitid(rustix::process::WaitId::PidFd(self.pidfd.as_fd()), options)
        })
        .map_err(|e| Error::io("wait for the program", e))?;
        self.ended = status.as_ref().map(ended_from);
        Ok(self.ended)
    }
}

impl Drop for Child {
    /// A child that was never released is ended: it must not run without us.
    fn drop(&mut self) {
        if self.gate.is_some() && self.ended.is_none() {
            self.signal(libc::SIGKILL);
            let _ = self.reap(true);
        }
    }
}

fn ended_from(status: &WaitIdStatus) -> Ended {
    match (status.exit_status(), status.terminating_signal()) {
        (Some(code), _) => Ended::Exited(code),
        (None, signal) => Ended::Signaled(signal.unwrap_or(libc::SIGKILL)),
    }
}

fn pointers(strings: &[CString]) -> Vec<*const libc::c_char> {
    strings.iter().map(|s| s.as_ptr()).chain([std::ptr::null()]).collect()
}

/// The child between fork and exec.
///
/// # Safety
/// To be called in a freshly forked child only; calls nothing that is not async-signal-safe, and never returns.
unsafe fn child_side(prepared: &Prepared, argv: &[*const libc::c_char], environment: &Pointers, ends: Ends) -> ! {
    // SAFETY: plain system calls on descriptors and memory that outlive the fork; the environment is the child's copy.
    unsafe {
        libc::close(ends.gate_write);
        let set = signals::heard_set();
        libc::pthread_sigmask(libc::SIG_UNBLOCK, &set, std::ptr::null_mut());
        // Rust ignores SIGPIPE for itself; programs expect the default.
        libc::signal(libc::SIGPIPE, libc::SIG_DFL);
        for (number, stream) in (0..).zip(ends.redirect) {
            if let Some(stream) = stream {
                libc::dup2(stream, number);
            }
        }
        environment.name_process(libc::getpid() as u32);
        let mut byte = 0u8;
        // End of file: the parent died before it released us.
        if libc::read(ends.gate, (&raw mut byte).cast(), 1) != 1 {
            libc::_exit(125);
        }
        let mut number = become_user(prepared);
        if number == 0 {
            number = libc::ENOENT;
            for candidate in &prepared.candidates {
                libc::execve(candidate.as_ptr(), argv.as_ptr(), environment.lines.as_ptr());
                // Go on along PATH as execvp does; remember that something was there but could not be executed.
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

/// Takes the user's groups and numbers, and keeps root's descriptors from the program. Gives 0, or the error's number.
///
/// # Safety
/// As [`child_side`].
unsafe fn become_user(prepared: &Prepared) -> i32 {
    let Some((uid, gid, groups)) = &prepared.identity else { return 0 };
    // SAFETY: plain system calls on numbers, and on memory that outlives the fork.
    unsafe {
        // Not closed but to be closed at the exec: the pipe for its error is one of them.
        let first: libc::c_uint = libc::STDERR_FILENO as libc::c_uint + 1;
        let is_done = libc::syscall(libc::SYS_close_range, first, libc::c_uint::MAX, libc::CLOSE_RANGE_CLOEXEC) == 0
            && (!prepared.has_own_session || libc::setsid() != -1)
            && libc::setgroups(groups.len(), groups.as_ptr()) == 0
            && libc::setgid(*gid) == 0
            && libc::setuid(*uid) == 0;
        if is_done { 0 } else { *libc::__errno_location() }
    }
}

/// Polls until something is ready (`true`) or the deadline has passed (`false`).
fn poll_until(fds: &mut [PollFd<'_>], deadline: Option<Instant>) -> Result<bool> {
    loop {
        let left = deadline.map(|d| d.saturating_duration_since(Instant::now()));
        let left = left.map(|d| Timespec { tv_sec: d.as_secs() as i64, tv_nsec: d.subsec_nanos().into() });
        match poll(fds, left.as_ref()) {
            Ok(ready) => return Ok(ready > 0),
            Err(rustix::io::Errno::INTR) => {}
            Err(e) => return Err(Error::io("poll", e)),
        }
    }
}

/// How long a process of ours may take to end after SIGTERM. A daemon only has to unmount; measured in milliseconds.
const END_GRACE: Duration = Duration::from_secs(5);

/// Ends a process of ours: SIGTERM, and SIGKILL after [`END_GRACE`].
pub fn end(process: ProcessId) -> Result<()> {
    if !process.is_alive() {
        return Ok(());
    }
    let Some(pid) = Pid::from_raw(process.pid as i32) else { return Ok(()) };
    let Ok(pidfd) = pidfd_open(pid, PidfdFlags::empty()) else { return Ok(()) };
    // Checked again now that the descriptor pins the process: the number may have been reused in between.
    if !process.is_alive() {
        return Ok(());
    }
    for signal in [Signal::TERM, Signal::KILL] {
        match pidfd_send_signal(&pidfd, signal) {
            Err(rustix::io::Errno::SRCH) => return Ok(()),
            other => other.map_err(|e| Error::io(format!("end process {}", process.pid), e))?,
        }
        if poll_until(&mut [PollFd::new(&pidfd, PollFlags::IN)], Some(Instant::now() + END_GRACE))? {
            return Ok(());
        }
    }
    Err(Error::io(format!("end process {}", process.pid), io::Error::from(io::ErrorKind::TimedOut)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn command(argv: &[&str]) -> Command {
        Command { argv: argv.iter().map(OsString::from).collect(), ..Command::default() }
    }

    fn run(argv: &[&str]) -> std::result::Result<Ended, ExecError> {
        let signals = Signals::take()?;
        let command = command(argv);
        let mut child = Child::spawn_held(&command)?;
        child.release(&command)?;
        Ok(child.wait(&signals)?)
    }

    #[test]
    fn the_status_is_passed_on() {
        assert_eq!(run(&["sh", "-c", "exit 7"]).unwrap().code(), 7);
        assert_eq!(run(&["sh", "-c", "kill -TERM $$"]).unwrap(), Ended::Signaled(15));
    }

    #[test]
    fn a_missing_program_is_127_and_a_directory_126() {
        assert_eq!(run(&["no-such-program-here"]).unwrap_err().code(), 127);
        assert_eq!(run(&["/"]).unwrap_err().code(), 126);
    }

    #[test]
    fn a_held_child_does_not_run_before_its_release() {
        let home = tempfile::tempdir().unwrap();
        let file = home.path().join("ran");
        let command = command(&["touch", file.to_str().unwrap()]);
        drop(Child::spawn_held(&command).unwrap());
        assert!(!file.exists());
    }

    #[test]
    fn a_held_child_that_was_killed_is_no_broken_pipe() {
        let command = command(&["true"]);
        let mut child = Child::spawn_held(&command).unwrap();
        // Not SIGINT: what a shell runs in the background ignores that.
        child.signal(libc::SIGTERM);
        // Until nobody reads what it waits for: not itself any more, nor what another test has just forked.
        let gate = child.gate.as_ref().unwrap();
        assert!(poll_until(&mut [PollFd::new(gate, PollFlags::empty())], None).unwrap());
        let error = child.release(&command).unwrap_err();
        assert_eq!(error.code(), 128 + libc::SIGTERM, "{error}");
        assert!(error.to_string().contains("before it was started"), "{error}");
    }

    #[test]
    fn captured_output_can_be_read() {
        let signals = Signals::take().unwrap();
        let command = Command { capture_output: true, ..command(&["sh", "-c", "echo out; echo err >&2"]) };
        let mut child = Child::spawn_held(&command).unwrap();
        let (output, errors) = child.take_output().unwrap();
        child.release(&command).unwrap();
        assert_eq!(child.wait(&signals).unwrap(), Ended::Exited(0));
        let read = |fd: OwnedFd| io::read_to_string(std::fs::File::from(fd)).unwrap();
        assert_eq!((read(output).as_str(), read(errors).as_str()), ("out\n", "err\n"));
    }

    #[test]
    fn input_and_errors_go_where_they_are_told_to() {
        let signals = Signals::take().unwrap();
        let home = tempfile::tempdir().unwrap();
        let (input, errors) = (home.path().join("input"), home.path().join("errors"));
        std::fs::write(&input, "asked").unwrap();
        let command = Command {
            discard_output: true,
            input: Some(Arc::new(File::open(&input).unwrap())),
            errors: Some(Arc::new(File::create(&errors).unwrap())),
            ..command(&["sh", "-c", "echo output; cat >&2"])
        };
        let mut child = Child::spawn_held(&command).unwrap();
        child.release(&command).unwrap();
        assert_eq!(child.wait(&signals).unwrap(), Ended::Exited(0));
        assert_eq!(std::fs::read_to_string(&errors).unwrap(), "asked");
    }

    #[test]
    fn a_process_of_ours_can_be_ended() {
        let command = command(&["sleep", "1000"]);
        let mut child = Child::spawn_held(&command).unwrap();
        child.release(&command).unwrap();
        let id = ProcessId::of(child.pid()).unwrap().unwrap();
        end(id).unwrap();
        assert_eq!(child.reap(true).unwrap(), Some(Ended::Signaled(15)));
    }
}
