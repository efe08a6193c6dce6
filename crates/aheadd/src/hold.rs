//! Holds execs of marked programs until their head start is over.
//!
//! ```text
//!     exec ─▶ kernel: waits ─▶ gate process ── fork ──▶ reader: who, and with which arguments? ──▶ HeldExec ─▶ the service
//!               ▲                  │ ╰────── fork ──▶ opener: the file to mark                                    │
//!               ╰───── allowed ────┴◀────────────────────────────────────────────────────────── dropped ◀─────────╯
//!                                  ╰ at a deadline, and when the service does not answer or has ended
//! ```
//!
//! A program must never wait for something of the service that hangs. Therefore the kernel's group belongs to a process that does nothing but let execs
//! go on: the gate. What may wait (memory of the process, a path) is done by its children, which the gate kills after a time. If the gate is
//! killed, the kernel lets every exec go on.

mod gate;
mod reader;

use ahead_apps::{AppKey, AppVersion, StartKey};
use ahead_process::messages::{Received, get, pair, put};
use ahead_sys::fanotify::Group;
use ahead_sys::fork::fork_worker;
use ahead_sys::{Error, Result};
use gate::{GateOrder, GateReport};
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::rc::Rc;
use std::time::Instant;

/// Holds execs of marked programs. Dropping it lets all go on.
#[derive(Debug)]
pub struct Holder {
    socket: Rc<OwnedFd>,
    losses: HoldLosses,
}

/// Execs of marked programs that did not wait, or not as long as they were meant to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HoldLosses {
    /// Too many waited, or too many within a second.
    pub too_many: u64,
    /// Their arguments could not be read in time.
    pub unread: u64,
    /// The service did not answer in time.
    pub unanswered: u64,
    /// The kernel's queue was full.
    pub overflows: u64,
}

/// An exec that waits. Dropping it lets it go on.
#[derive(Debug)]
pub struct HeldExec {
    pub pid: u32,
    /// What is started. Its program is the marked file.
    pub start: StartKey,
    /// The file that is executed.
    pub version: AppVersion,
    /// The user and group; no setuid program is held.
    pub user: (u32, u32),
    number: u64,
    socket: Rc<OwnedFd>,
}

impl Holder {
    /// Starts to hold: the process of the gate. For a process with one thread. Needs CAP_SYS_ADMIN and CAP_SYS_PTRACE.
    ///
    /// # Errors
    /// [`Error::NotPermitted`] and [`Error::Unsupported`]: the service goes on without.
    pub fn start() -> Result<Holder> {
        let group = Group::new()?;
        let failed = |e: std::io::Error| Error::io("start the gate of execs", e);
        let (ours, theirs) = pair().map_err(|e| failed(e.into()))?;
        let null = File::options().read(true).write(true).open("/dev/null").map_err(failed)?;
        let service = std::process::id();
        fork_worker([theirs, group.into()], null.into(), |[socket, group]| {
            gate::serve(socket, Group::from(group), service);
        })?;
        Ok(Holder { socket: Rc::new(ours), losses: HoldLosses::default() })
    }

    /// Execs of the program at this path are held from now on, if it is a regular file on a disk. It is opened later, elsewhere.
    ///
    /// # Errors
    /// The gate has ended, or is busy.
    pub fn mark(&self, program: &Path) -> Result<()> {
        self.change(program, true)
    }

    /// Execs of the program at this path are held no longer.
    ///
    /// # Errors
    /// The gate has ended, or is busy.
    pub fn unmark(&self, program: &Path) -> Result<()> {
        self.change(program, false)
    }

    fn change(&self, program: &Path, is_on: bool) -> Result<()> {
        let order = GateOrder::Mark { program: program.as_os_str().as_bytes().to_vec(), is_on };
        put(&self.socket, &order).map_err(|e| Error::io(format!("hold execs of {}", program.display()), e))
    }

    /// Takes the execs that wait; never blocks.
    ///
    /// # Errors
    /// The gate has ended: no exec waits any more.
    pub fn take(&mut self, mut each: impl FnMut(HeldExec)) -> Result<()> {
        loop {
            match get(&self.socket, Some(Instant::now())) {
                Received::Nothing => return Ok(()),
                Received::Ended => return Err(Error::io("hold execs", std::io::Error::other("the gate has ended"))),
                Received::Answer(GateReport::Losses(losses)) => self.losses = losses,
                Received::Answer(GateReport::Held(number, found)) => {
                    // Otherwise the gate has ended.
                    let _ = put(&self.socket, &GateOrder::Taken(number));
                    each(HeldExec::new(number, found, self.socket.clone()));
                }
            }
        }
    }

    /// What was not held.
    pub fn losses(&self) -> HoldLosses {
        self.losses
    }
}

/// What a reader has found out about an exec.
#[derive(Debug, Serialize, Deserialize)]
struct FoundStart {
    pid: u32,
    app: AppKey,
    variant: Option<String>,
    version: AppVersion,
    user: (u32, u32),
}

impl HeldExec {
    fn new(number: u64, found: FoundStart, socket: Rc<OwnedFd>) -> HeldExec {
        let FoundStart { pid, app, variant, version, user } = found;
        HeldExec { pid, start: StartKey { app, variant }, version, user, number, socket }
    }
}

impl AsFd for Holder {
    /// Readable while execs are to be taken.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl Drop for HeldExec {
    fn drop(&mut self) {
        // Otherwise the gate lets it go on later.
        if let Err(error) = put(&self.socket, &GateOrder::Release(self.number)) {
            tracing::debug!("an exec waits for its deadline: {error}");
        }
    }
}
