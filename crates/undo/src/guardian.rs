//! What outlives us: a process that undoes our changes at once when we are killed.
//!
//! ```text
//!     first setting noted ──▶ guardian started ──▶ it is ready ──▶ note, change, …work…, undo ──▶ our end ──▶ nothing to undo: it ends
//!                                                                          └── SIGKILL ──▶ it undoes what is noted for us
//! ```
//!
//! With read-ahead off the whole machine is slow, and the next `ahead`, which would set it back, may be started in a month. So
//! whoever changes a setting of the machine for a time is watched. The guardian is our own program, started anew: a session of
//! its own (a signal for our group, or the end of our terminal, does not reach it), no descriptor but the pipe by which it
//! says that it is ready. If it is killed, too, the notes stay, for `ahead restore`.

use super::{Action, ProcessId};
use ahead_process::family;
use ahead_sys::{Error, Result, exec};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::io;
use std::os::unix::process::CommandExt;
use std::process::{ChildStdout, Command, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

/// The arguments of our program that make it a guardian; our number and start time follow.
static ARGUMENTS: OnceLock<&'static [&'static str]> = OnceLock::new();

/// Whether a guardian was started.
static IS_STARTED: AtomicBool = AtomicBool::new(false);

/// How long it may take to be ready. It has to be read from a disk at worst, and the machine may be busy.
const READY_TIME: Timespec = Timespec { tv_sec: 10, tv_nsec: 0 };

/// From now on, the first change of a setting of the machine that is noted for this process starts a guardian: this program
/// with these arguments. Without this there is none: a library does not know what its program does with arguments.
pub fn enable(arguments: &'static [&'static str]) {
    let _ = ARGUMENTS.set(arguments);
}

/// Starts it where it is needed. Without one the change is made all the same: it is noted.
pub(super) fn begin(owner: ProcessId, action: &Action) {
    let Some(arguments) = ARGUMENTS.get() else { return };
    if !matches!(action, Action::SetFile { .. }) || owner.pid != std::process::id() {
        return;
    }
    if IS_STARTED.load(Ordering::Relaxed) {
        return;
    }
    if let Err(error) = start(arguments, owner) {
        tracing::info!("if this process is killed, its changes stay until the next ahead: {error}");
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
    if ready { Ok(()) } else { Err(failed(io::Error::other("it did not become ready"))) }
}

/// Waits for the byte that it writes.
fn is_ready(stdout: &ChildStdout) -> bool {
    let waited = rustix::io::retry_on_intr(|| poll(&mut [PollFd::new(stdout, PollFlags::IN)], Some(&READY_TIME)));
    waited == Ok(1) && rustix::io::read(stdout, &mut [0; 1]) == Ok(1)
}
