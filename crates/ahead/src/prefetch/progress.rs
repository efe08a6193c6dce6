//! How far the program is: sources of progress, the best that is permitted.
//!
//! ```text
//!     observer    BPF: every first use of a file of the profile, by the program and its descendants       root
//!        ▼ not permitted, or it fails
//!     proc        /proc/PID: what is executed, mapped and open, and the positions of open files           the program's user
//!        ▼ not permitted, or there is no program
//!     clock       the program's own timeline
//! ```
//!
//! Nothing here waits for the program, and the program waits for nothing here.

#[cfg(feature = "observe")]
mod observer;
mod proc;

use ahead_plan::window::Flow;
use ahead_profile::Profile;
use ahead_sys::locks::IgnorePoison;
use serde::{Deserialize, Serialize};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::Duration;

/// The program that a prefetch follows. Clones are the same program.
#[derive(Clone, Debug, Default)]
pub struct Program(Arc<Started>);

#[derive(Debug, Default)]
struct Started {
    pid: Mutex<Option<u32>>,
    changed: Condvar,
}

impl Program {
    /// A process that runs already, and its descendants. 1: every process of the machine.
    pub fn running(pid: u32) -> Program {
        let program = Program::default();
        program.started(pid);
        program
    }

    /// Sets the process that was started. Later calls change nothing.
    pub fn started(&self, pid: u32) {
        self.lock().get_or_insert(pid);
        self.0.changed.notify_all();
    }

    /// Its process number; `None`: it was not started yet.
    fn pid(&self) -> Option<u32> {
        *self.lock()
    }

    /// Waits until it is started, at most for this time. `None`: it was not.
    #[cfg(feature = "observe")]
    fn wait_for_pid(&self, timeout: Duration) -> Option<u32> {
        let waited = self.0.changed.wait_timeout_while(self.lock(), timeout, |pid| pid.is_none());
        *waited.ignore_poison().0
    }

    fn lock(&self) -> MutexGuard<'_, Option<u32>> {
        self.0.pid.lock().ignore_poison()
    }
}

/// Where the progress of the program is seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum ProgressSource {
    /// BPF programs report first uses.
    Observer,
    /// What the program's processes have mapped and opened, in /proc.
    Proc,
    /// The time since the program's start.
    Clock,
}

impl ProgressSource {
    /// The name in tables and messages.
    pub fn name(self) -> &'static str {
        match self {
            ProgressSource::Observer => "BPF",
            ProgressSource::Proc => "/proc",
            ProgressSource::Clock => "the clock",
        }
    }
}

/// A file that the program uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seen {
    /// The file, as an index into the profile.
    pub file: usize,
    /// Where it reads in the file, bytes; 0: unknown, or the first open.
    pub offset_bytes: u64,
}

/// A source of progress.
pub trait Progress {
    /// Its name in the account.
    fn source(&self) -> ProgressSource;

    /// Waits for events, at most for `timeout`, and returns those of this time.
    ///
    /// Errors: the source has failed, and reports nothing any more; the reason.
    fn events(&mut self, timeout: Duration) -> Result<Vec<Seen>, String>;
}

/// The sources for a program, the best first. The clock needs none. `root`: the directory below which the paths are; empty for the root
/// directory.
pub fn sources(program: &Program, profile: &Profile, flow: &Flow, root: &[u8]) -> Vec<StartSource> {
    let mut all: Vec<StartSource> = Vec::new();
    #[cfg(feature = "observe")]
    if ahead_sys::machine::is_root() {
        let (files, program) = (observer::files(profile, flow, root), program.clone());
        all.push(Box::new(move || Ok(Box::new(observer::Observer::start(&files, program)?) as Box<dyn Progress>)));
    }
    #[cfg(not(feature = "observe"))]
    let _ = root;
    let own = proc::Proc::new(program.clone(), profile, flow);
    all.push(Box::new(move || Ok(Box::new(own) as Box<dyn Progress>)));
    all
}

/// A started source, or why it could not be started.
pub type Start = Result<Box<dyn Progress>, String>;

/// Starts a source, in the thread that reads it.
pub type StartSource = Box<dyn FnOnce() -> Start + Send>;
