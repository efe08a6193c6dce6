//! Starts this program again: as the daemon of a disk, or as a helper that outlives this process.

use crate::{Error, Result};
use ahead_process::undo::ProcessId;
use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

/// Starts this program again, as daemon or helper.
#[derive(Clone, Debug)]
pub struct Launcher {
    pub program: PathBuf,
    /// The arguments before `serve`, `detach NAME` or `finish-after PID START`.
    pub arguments: Vec<OsString>,
}

impl Launcher {
    /// The running program, also after a rename of its file, with these arguments first.
    pub fn this_program(arguments: &[&str]) -> Launcher {
        Launcher { program: "/proc/self/exe".into(), arguments: arguments.iter().map(OsString::from).collect() }
    }

    /// The command line of this program with these arguments, in the root directory.
    pub(crate) fn command<'a>(&self, arguments: impl IntoIterator<Item = &'a str>) -> Command {
        let mut command = Command::new(&self.program);
        // The name for ps(1): the path may be /proc/self/exe.
        command.arg0("ahead").args(&self.arguments).args(arguments).current_dir("/");
        command
    }

    /// Starts a helper that waits for the end of this process and undoes its notes.
    pub(crate) fn spawn_finish_after(&self, process: ProcessId) -> Result<()> {
        let (pid, start) = (process.pid.to_string(), process.start_ticks.to_string());
        self.spawn(["finish-after", &pid, &start]).map(drop)
    }

    /// Starts a helper that detaches a disk: the daemon must not do this.
    pub(crate) fn spawn_detach(&self, name: &str) -> Result<()> {
        let mut child = self.spawn(["detach", name])?;
        // Without wait the helper stays a zombie as long as the daemon lives.
        let reap = move || drop(child.wait());
        std::thread::Builder::new().spawn(reap).map(drop).map_err(|e| Error::io("start a thread", e))
    }

    fn spawn<'a>(&self, arguments: impl IntoIterator<Item = &'a str>) -> Result<Child> {
        let mut command = self.command(arguments);
        command.stdin(Stdio::null()).stdout(Stdio::null());
        command.spawn().map_err(|e| Error::io("start a helper", e))
    }
}
