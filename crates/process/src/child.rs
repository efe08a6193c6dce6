//! Starts a program so that a tracer misses none of its events, and passes on its signals and its status.
//!
//! ```text
//!     spawn_held ──▶ child waits on a pipe ──▶ (the caller arms its tracer, starts its prefetch) ──▶ release ──▶ exec
//!                                                                                                       │
//!                      exit status  ◀── wait: signals sent to us are passed on to the child ◀───────────┘
//! ```
//!
//! Signals that would end this process are blocked and read from a descriptor ([`Signals`]), so that every guard runs. The
//! terminal sends a signal to the whole foreground group, the child included: this process then only waits for the child's end. A
//! signal that another process sends to this process alone is passed on.
//!
//! No rights pass from root to a user. The child takes the user's groups and ids before it looks up its program. It inherits
//! only standard input, output and error, and an environment that [`environment`] has filtered. As with `su -c`, another user's
//! program gets its own session: otherwise it could insert characters into the terminal of root's shell (`TIOCSTI`). Signals of
//! the terminal are therefore passed on to it, too.

use crate::environment::{self, Environment};
use crate::signals::{Signals, collected};
use ahead_sys::exec::{self, Identity, Setup};
use ahead_sys::held_calls::{CallListener, Filter};
use ahead_sys::process_id::ProcessId;
use ahead_sys::user::User;
use ahead_sys::{Error, Result, polling, signals};
use rustix::event::{PollFd, PollFlags};
use rustix::process::{Pid, PidfdFlags, Signal, WaitIdOptions, WaitIdStatus, pidfd_open, pidfd_send_signal};
use std::ffi::{CString, OsString};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The end of a program, as a shell reports it: its status, or 128 + the signal that ended it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// It exited with this status.
    Exited(i32),
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

ahead_model::options! {
    /// A program to start, and its settings.
    #[derive(Clone, Debug, Default)]
    pub struct Command {
        /// Program and arguments; the program is looked up in `PATH` as a shell does.
        pub argv: Vec<OsString>,
        /// The user to run it as (needs root). `None`: the current user.
        pub user: Option<User>,
        /// Capture standard output and error in pipes.
        pub capture_output: bool,
        /// Send standard output and error to /dev/null (repeated runs of `compare`).
        pub discard_output: bool,
        /// Standard input. `None`: inherited.
        pub input: Option<Arc<File>>,
        /// Standard error, also with `discard_output`. Ignored with `capture_output`.
        pub errors: Option<Arc<File>>,
    }
}

/// A started program.
#[derive(Debug)]
pub struct Child {
    pid: Pid,
    pidfd: OwnedFd,
    gate: Option<OwnedFd>,
    exec_error: Option<OwnedFd>,
    output: Option<OwnedFd>,
    errors: Option<OwnedFd>,
    ended: Option<Ended>,
    /// Then the terminal does not send it signals.
    has_own_session: bool,
}

/// The event that ended [`Child::wait_event`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// The program ended.
    Ended(Ended),
    /// A signal that asks for an end arrived. It was passed on if the child did not get it from the terminal.
    Signal(i32),
    /// The descriptor with this index is readable.
    Readable(usize),
    /// The deadline has passed.
    Timeout,
}

/// Reasons why a released program did not start. 126 and 127 are the statuses of env(1) and timeout(1).
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
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
    /// An operation of this process failed before the exec: exit status 125.
    #[error(transparent)]
    Own(#[from] Error),
}

impl ExecError {
    /// The exit status for this error.
    pub fn code(&self) -> i32 {
        match self {
            ExecError::NotFound(_) => 127,
            ExecError::CannotExecute(..) => 126,
            ExecError::Killed(_, signal) => 128 + signal,
            ExecError::Own(_) => 125,
        }
    }
}

impl Command {
    /// A program and its arguments.
    pub fn new(argv: impl IntoIterator<Item = impl Into<OsString>>) -> Command {
        Command { argv: argv.into_iter().map(Into::into).collect(), ..Command::default() }
    }

    /// Refuses a command whose program does not exist, as [`Child::release`] would: for a caller that needs other things before it starts the
    /// program.
    ///
    /// # Errors
    /// [`ExecError::NotFound`].
    pub fn check_found(&self) -> std::result::Result<(), ExecError> {
        let Some(program) = self.argv.first() else { return Ok(()) };
        c_strings(std::slice::from_ref(program))?;
        // A path that another user alone may search counts as found: starting the program decides.
        match self.program_path() {
            Some(_) => Ok(()),
            None => Err(ExecError::NotFound(program.to_string_lossy().into_owned())),
        }
    }

    /// The path at which the program is, as a shell finds it. `None`: there is none, or it cannot be reached.
    pub fn program_path(&self) -> Option<PathBuf> {
        let candidates = Environment::of(self.user.as_ref()).candidates(self.argv.first()?);
        candidates.into_iter().map(PathBuf::from).find(|path| path.metadata().is_ok())
    }

    /// Becomes the program, with the streams of this process and as its user. Returns only if that fails.
    pub fn replace_process(&self) -> ExecError {
        let Some((program, arguments)) = self.argv.split_first() else { return ExecError::NotFound(String::new()) };
        let name = program.to_string_lossy().into_owned();
        let error = std::process::Command::new(program).args(arguments).exec();
        match error.kind() {
            io::ErrorKind::NotFound => ExecError::NotFound(name),
            _ => ExecError::CannotExecute(name, error),
        }
    }
}

fn c_strings(texts: &[OsString]) -> Result<Vec<CString>> {
    let failed = |e| Error::io("an argument contains a NUL byte", io::Error::other(e));
    texts.iter().map(|text| CString::new(text.as_bytes()).map_err(failed)).collect()
}

/// The steps of the child between fork and exec.
fn setup_of(command: &Command) -> Result<Setup> {
    let program = command
        .argv
        .first()
        .ok_or_else(|| Error::Unsupported { what: "starting a program".into(), why: "no command was given".into() })?;
    let user = command.user.as_ref();
    let environment = Environment::of(user);
    let identity = |user: &User| Ok(Identity { uid: user.uid, gid: user.gid, groups: user.groups()? });
    Ok(Setup {
        candidates: c_strings(&environment.candidates(program))?,
        arguments: c_strings(&command.argv)?,
        environment: environment.variables,
        identity: user.map(identity).transpose()?,
        new_session: user.is_some_and(|user| !environment::came_through_sudo(user)),
        unblocked: collected(),
        filter: None,
    })
}

impl Child {
    /// Forks a child that waits before its exec. The child has its process number and its standard streams.
    pub fn spawn_held(command: &Command) -> Result<Child> {
        Child::spawn(command, setup_of(command)?).map(|(child, _)| child)
    }

    /// As [`Child::spawn_held`], for a caller that lets each call go on which the filter holds, from now on. The program gets no other user's rights by
    /// setuid.
    ///
    /// # Errors
    /// The kernel refuses the filter.
    pub fn spawn_with_held_calls(command: &Command, filter: Filter) -> Result<(Child, CallListener)> {
        let (child, calls) = Child::spawn(command, Setup { filter: Some(filter), ..setup_of(command)? })?;
        let calls = calls.expect("with a filter there are calls");
        crate::family::leave_out(calls.caretaker());
        Ok((child, calls))
    }

    fn spawn(command: &Command, setup: Setup) -> Result<(Child, Option<CallListener>)> {
        let captured = if command.capture_output { Some((exec::pipe()?, exec::pipe()?)) } else { None };
        let null = command.discard_output.then(|| File::options().write(true).open("/dev/null")).transpose();
        let null = null.map_err(|e| Error::io("open /dev/null", e))?;
        let errors = command.errors.as_deref().map(AsFd::as_fd);
        let (output, errors) = match (&captured, &null) {
            (Some(((_, output), (_, errors))), _) => (Some(output.as_fd()), Some(errors.as_fd())),
            (None, Some(null)) => (Some(null.as_fd()), errors.or(Some(null.as_fd()))),
            (None, None) => (None, errors),
        };
        let held = exec::fork_held(&setup, [command.input.as_deref().map(AsFd::as_fd), output, errors])?;
        let pidfd = pidfd_open(held.pid, PidfdFlags::empty()).map_err(|e| Error::io("pidfd_open", e))?;
        let (output, errors) = match captured {
            Some(((output, _), (errors, _))) => (Some(output), Some(errors)),
            None => (None, None),
        };
        let (gate, exec_error) = (Some(held.gate), Some(held.exec_error));
        let (ended, has_own_session) = (None, setup.new_session);
        Ok((Child { pid: held.pid, pidfd, gate, exec_error, output, errors, ended, has_own_session }, held.calls))
    }

    /// Process id.
    pub fn pid(&self) -> u32 {
        self.pid.as_raw_nonzero().get() as u32
    }

    /// The read ends of captured standard output and error.
    pub fn take_output(&mut self) -> Option<(OwnedFd, OwnedFd)> {
        self.output.take().zip(self.errors.take())
    }

    /// Lets the child exec. Returns after the exec has succeeded or failed.
    pub fn release(&mut self, command: &Command) -> std::result::Result<(), ExecError> {
        let (Some(gate), Some(exec_error)) = (self.gate.take(), self.exec_error.take()) else { return Ok(()) };
        let name = || command.argv.first().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        match rustix::io::write(&gate, &[1]) {
            // No process holds the read end: the child has ended.
            Err(rustix::io::Errno::PIPE) => {
                let ended = self.reap(true)?;
                let signal = ended.map_or(libc::SIGKILL, |ended| ended.code() - 128);
                return Err(ExecError::Killed(name(), signal));
            }
            written => written.map_err(|e| Error::io("start the program", e))?,
        };
        drop(gate);
        let mut number = [0; 4];
        // A successful exec closes the pipe; after a failure the child writes the error number.
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

    /// Waits for the program's end, a signal that asks for an end, a readable descriptor of `others`, or the deadline. Signals
    /// sent to this process alone have been passed on when this returns.
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
            if !polling::until(&mut fds, deadline)? {
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
                    // Its meaning is up to the program.
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

    /// Waits for the program's end and passes signals on.
    pub fn wait(&mut self, signals: &Signals) -> Result<Ended> {
        loop {
            if let Event::Ended(ended) = self.wait_event(signals, &[], None)? {
                return Ok(ended);
            }
        }
    }

    /// Sends a signal to the program. If the program has just ended, that is not an error.
    pub fn signal(&self, number: i32) {
        let sent = signals::send(self.pidfd.as_fd(), number);
        tracing::trace!("signal {number} passed on: {sent:?}");
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
    /// Ends a child that was never released.
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

/// Grace period after SIGTERM. A daemon only has to unmount, which takes milliseconds.
const END_GRACE: Duration = Duration::from_secs(5);

/// Ends a process: SIGTERM, and SIGKILL after [`END_GRACE`].
pub fn end(process: ProcessId) -> Result<()> {
    if !process.is_alive() {
        return Ok(());
    }
    let Some(pid) = Pid::from_raw(process.pid as i32) else { return Ok(()) };
    let Ok(pidfd) = pidfd_open(pid, PidfdFlags::empty()) else { return Ok(()) };
    // Checked again, because the number may have been reused before the descriptor pinned the process.
    if !process.is_alive() {
        return Ok(());
    }
    for signal in [Signal::TERM, Signal::KILL] {
        match pidfd_send_signal(&pidfd, signal) {
            Err(rustix::io::Errno::SRCH) => return Ok(()),
            other => other.map_err(|e| Error::io(format!("end process {}", process.pid), e))?,
        }
        if polling::until(&mut [PollFd::new(&pidfd, PollFlags::IN)], Some(Instant::now() + END_GRACE))? {
            return Ok(());
        }
    }
    Err(Error::io(format!("end process {}", process.pid), io::Error::from(io::ErrorKind::TimedOut)))
}

/// Waits for the end of a process, at most for `timeout`. Returns whether it has ended. It need not be a child.
pub fn wait_end(process: ProcessId, timeout: Duration) -> Result<bool> {
    let Some(pid) = Pid::from_raw(process.pid as i32) else { return Ok(true) };
    let pidfd = match pidfd_open(pid, PidfdFlags::empty()) {
        Ok(pidfd) => pidfd,
        Err(rustix::io::Errno::SRCH) => return Ok(true),
        Err(e) => return Err(Error::io(format!("wait for process {}", process.pid), e)),
    };
    // Checked after opening: the descriptor pins the process, but its number may have been reused before.
    if !process.keeps_its_number()? {
        return Ok(true);
    }
    // Readable when all of its threads have ended.
    polling::until(&mut [PollFd::new(&pidfd, PollFlags::IN)], Some(Instant::now() + timeout))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn command(argv: &[&str]) -> Command {
        Command::new(argv)
    }

    fn run(argv: &[&str]) -> std::result::Result<Ended, ExecError> {
        let signals = Signals::take()?;
        let command = command(argv);
        let mut child = Child::spawn_held(&command)?;
        child.release(&command)?;
        Ok(child.wait(&signals)?)
    }

    #[test]
    fn exit_status_is_passed_on() {
        assert_eq!(run(&["sh", "-c", "exit 7"]).unwrap().code(), 7);
        assert_eq!(run(&["sh", "-c", "kill -TERM $$"]).unwrap(), Ended::Signaled(15));
    }

    #[test]
    fn missing_program_is_127_and_directory_is_126() {
        assert_eq!(run(&["no-such-program-here"]).unwrap_err().code(), 127);
        assert_eq!(run(&["/"]).unwrap_err().code(), 126);
    }

    #[test]
    fn held_child_does_not_run_before_its_release() {
        let home = tempfile::tempdir().unwrap();
        let file = home.path().join("ran");
        let command = command(&["touch", file.to_str().unwrap()]);
        drop(Child::spawn_held(&command).unwrap());
        assert!(!file.exists());
    }

    #[test]
    fn held_child_that_was_killed_reports_the_signal() {
        let command = command(&["true"]);
        let mut child = Child::spawn_held(&command).unwrap();
        // Not SIGINT: programs that a shell runs in the background ignore it.
        child.signal(libc::SIGTERM);
        // Waits until no process holds the read end, neither the child nor a process that another test has just forked.
        let gate = child.gate.as_ref().unwrap();
        assert!(polling::until(&mut [PollFd::new(gate, PollFlags::empty())], None).unwrap());
        let error = child.release(&command).unwrap_err();
        assert_eq!(error.code(), 128 + libc::SIGTERM, "{error}");
        assert!(error.to_string().contains("before it was started"), "{error}");
    }

    #[test]
    fn captured_output_can_be_read() {
        let signals = Signals::take().unwrap();
        let command = command(&["sh", "-c", "echo out; echo err >&2"]).capture_output(true);
        let mut child = Child::spawn_held(&command).unwrap();
        let (output, errors) = child.take_output().unwrap();
        child.release(&command).unwrap();
        assert_eq!(child.wait(&signals).unwrap(), Ended::Exited(0));
        let read = |fd: OwnedFd| io::read_to_string(std::fs::File::from(fd)).unwrap();
        assert_eq!((read(output).as_str(), read(errors).as_str()), ("out\n", "err\n"));
    }

    #[test]
    fn input_and_errors_are_redirected() {
        let signals = Signals::take().unwrap();
        let home = tempfile::tempdir().unwrap();
        let (input, errors) = (home.path().join("input"), home.path().join("errors"));
        std::fs::write(&input, "asked").unwrap();
        let command = command(&["sh", "-c", "echo output; cat >&2"])
            .discard_output(true)
            .input(Some(Arc::new(File::open(&input).unwrap())))
            .errors(Some(Arc::new(File::create(&errors).unwrap())));
        let mut child = Child::spawn_held(&command).unwrap();
        child.release(&command).unwrap();
        assert_eq!(child.wait(&signals).unwrap(), Ended::Exited(0));
        assert_eq!(std::fs::read_to_string(&errors).unwrap(), "asked");
    }

    #[test]
    fn running_process_is_ended_by_sigterm() {
        let command = command(&["sleep", "1000"]);
        let mut child = Child::spawn_held(&command).unwrap();
        child.release(&command).unwrap();
        let id = ProcessId::of(child.pid()).unwrap().unwrap();
        end(id).unwrap();
        assert_eq!(child.reap(true).unwrap(), Some(Ended::Signaled(15)));
    }

    #[test]
    fn wait_end_reports_whether_the_process_has_ended() {
        let mut child = std::process::Command::new("sleep").arg("1000").spawn().unwrap();
        let id = ProcessId::of(child.id()).unwrap().unwrap();
        assert!(!wait_end(id, Duration::from_millis(1)).unwrap());
        child.kill().unwrap();
        assert!(wait_end(id, Duration::from_secs(60)).unwrap());
        child.wait().unwrap();
        assert!(wait_end(id, Duration::ZERO).unwrap());
    }
}
