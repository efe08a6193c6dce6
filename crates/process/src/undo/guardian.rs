//! The guardian: a process that undoes the changes of this process at once if it is killed.
//!
//! ```text
//!     first setting noted ──▶ guardian started ──▶ it is ready ──▶ note, change, …work…, undo ──▶ this process ends ──▶ guardian ends
//!                                                                          └── SIGKILL ──▶ guardian undoes the noted changes
//! ```
//!
//! With read-ahead off the whole machine is slow, and the next `ahead`, which would restore it, may start a month later.
//! Therefore every process that changes a setting of the machine for some time has a guardian: our own program, started again
//! in its own session. Signals to the process group and the end of the terminal do not reach it. Its only descriptor is the
//! pipe that reports readiness. If the guardian is killed, too, the notes stay for `sudo ahead restore`.

use super::{Action, ProcessId};
use crate::family;
use ahead_sys::{Error, Result, exec};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::io;
use std::os::unix::process::CommandExt;
use std::process::{ChildStdout, Command, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

/// The arguments that make our program a guardian; process number and start time follow.
static ARGUMENTS: OnceLock<&'static [&'static str]> = OnceLock::new();

/// Whether a guardian was started.
static IS_STARTED: AtomicBool = AtomicBool::new(false);

/// Timeout for readiness. The program may have to be read from a disk, and the machine may be busy.
const READY_TIME: Timespec = Timespec { tv_sec: 10, tv_nsec: 0 };

/// Enables the guardian: the first noted change of a kernel setting starts this program with these arguments. Without this call
/// there is no guardian, because a library does not know the arguments of its program.
pub fn enable(arguments: &'static [&'static str]) {
    let _ = ARGUMENTS.set(arguments);
}

/// Starts the guardian if it is needed. If that fails, the caller makes the change nevertheless, since it is noted.
pub(super) fn begin(owner: ProcessId, action: &Action) {
    if matches!(action, Action::SetFile { .. }) && owner.pid == std::process::id() {
        start_once(owner);
    }
}

/// Starts the guardian of this process now. Its start takes milliseconds: for a process whose first change must not wait for it.
///
/// Errors: this process cannot be identified (no /proc).
pub fn start_early() -> Result<()> {
    ProcessId::own().map(start_once)
}

fn start_once(owner: ProcessId) {
    let Some(arguments) = ARGUMENTS.get() else { return };
    if IS_STARTED.load(Ordering::Relaxed) {
        return;
    }
    if let Err(error) = start(arguments, owner) {
        tracing::info!("no guardian (if this process is killed, `sudo ahead restore` undoes its changes): {error}");
    }
}

fn start(arguments: &[&str], owner: ProcessId) -> Result<()> {
    let failed = |e| Error::io("start a guardian", e);
    let mut command = Command::new("/proc/self/exe");
    command.arg0("ahead").args(arguments).args([owner.pid.to_string(), owner.start_ticks.to_string()]);
    command.env_clear().current_dir("/").stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    exec::detach(&mut command);
    let mut child = command.spawn().map_err(failed)?;
    IS_STARTED.store(true, Ordering::Relaxed);
    family::leave_out(child.id());
    let ready = child.stdout.take().is_some_and(|stdout| is_ready(&stdout));
    if ready { Ok(()) } else { Err(failed(io::Error::other("it is not ready after 10 s"))) }
}

/// Waits for the byte that reports readiness.
fn is_ready(stdout: &ChildStdout) -> bool {
    let waited = rustix::io::retry_on_intr(|| poll(&mut [PollFd::new(stdout, PollFlags::IN)], Some(&READY_TIME)));
    waited == Ok(1) && rustix::io::read(stdout, &mut [0; 1]) == Ok(1)
}
