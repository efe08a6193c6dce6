//! Starting the daemon, and holding it until the disk is complete.
//!
//! Until [`Starting::commit`] the daemon hangs on a pipe from us: if we return with an error it is told to end and
//! everything noted for it is undone; if we are killed, it notices and does the same itself.

use crate::lifecycle::{Launcher, taken};
use crate::protocol::{self, LINE_MAX_BYTES, Setup, Started};
use crate::server::{ABANDON, COMMIT};
use crate::state::{self, Paths};
use crate::{Error, Result};
use ahead_kernel::daemon::wait_end;
use ahead_kernel::undo::{self, Guard, Outcome, ProcessId, Restored};
use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::time::Duration;

/// How long a daemon may take to end once told. It only has to unmount; measured in milliseconds.
pub(crate) const END_TIME: Duration = Duration::from_secs(10);

/// A daemon that serves, but whose disk is not complete yet. Dropping it undoes everything.
#[derive(Debug)]
pub(crate) struct Starting {
    /// The daemon.
    pub process: ProcessId,
    child: Child,
    input: Option<ChildStdin>,
}

impl Starting {
    /// Starts the daemon and waits until it serves.
    pub fn launch(launcher: &Launcher, setup: &Setup) -> Result<Starting> {
        state::make_home()?;
        let (log, logged) = new_log(&setup.name)?;
        let mut child = launcher
            .command(["serve"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(log)
            .spawn()
            .map_err(|e| Error::io("start the disk's daemon", e))?;
        let process = ProcessId::of(child.id())?.ok_or_else(|| ended_early(&setup.name))?;
        logged.give_to(process)?;
        let output = child.stdout.take();
        let input = child.stdin.take();
        // From here on, dropping it ends the daemon.
        let mut starting = Starting { process, child, input };
        starting.tell(&protocol::encode(setup)?)?;
        let mut line = String::new();
        if let Some(output) = output {
            let read = BufReader::new(output.take(LINE_MAX_BYTES)).read_line(&mut line);
            read.map_err(|e| Error::io("hear from the disk's daemon", e))?;
        }
        if line.is_empty() {
            return Err(ended_early(&setup.name));
        }
        match protocol::decode(&line)? {
            Started::Ready => Ok(starting),
            Started::Failed { message, unavailable: false } => Err(Error::Daemon(message)),
            Started::Failed { message, unavailable: true } => {
                Err(Error::Kernel(ahead_kernel::Error::Unsupported { what: "an emulated disk".into(), why: message }))
            }
        }
    }

    /// The disk is complete: the daemon goes on alone.
    pub fn commit(mut self) -> Result<()> {
        self.tell(&format!("{COMMIT}\n"))?;
        self.input = None;
        Ok(())
    }

    /// A program in the place of a daemon that serves; dead by now, if that is wanted.
    #[cfg(test)]
    pub fn stand_in(alive: bool) -> Starting {
        let mut child = Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
        let process = ProcessId::of(child.id()).unwrap().unwrap();
        if !alive {
            child.kill().unwrap();
            // Until nobody reads from the pipe: not itself any more, nor what another test has just forked.
            let input = child.stdin.as_ref().unwrap();
            rustix::event::poll(&mut [rustix::event::PollFd::new(input, rustix::event::PollFlags::empty())], None)
                .unwrap();
        }
        Starting { process, input: child.stdin.take(), child }
    }

    fn tell(&mut self, line: &str) -> Result<()> {
        let written = self.input.as_mut().map_or(Ok(()), |input| input.write_all(line.as_bytes()));
        written.map_err(|e| Error::io("talk to the disk's daemon", e))
    }
}

impl Drop for Starting {
    fn drop(&mut self) {
        if self.input.is_none() {
            return;
        }
        // A daemon that has failed by itself cannot be told any more, and needs not be.
        let _ = self.tell(&format!("{ABANDON}\n"));
        self.input = None;
        if !wait_end(self.process, END_TIME).unwrap_or(false) {
            let _ = self.child.kill();
        }
        let _ = self.child.wait();
        if let Err(error) = undo_all_of(self.process) {
            tracing::warn!("{error}");
        }
    }
}

/// Makes the file for what the daemon has to say. It claims the name while the disk is being made.
fn new_log(name: &str) -> Result<(File, Guard)> {
    let path = Paths::of(name).log;
    undo::create_file(ProcessId::own()?, &path, 0o600).map_err(|e| match e.exists() {
        true => taken(name),
        false => e.into(),
    })
}

fn ended_early(name: &str) -> Error {
    let log = Paths::of(name).log;
    let said = std::fs::read_to_string(&log).unwrap_or_default();
    let last = said.lines().last().unwrap_or("it said nothing").to_owned();
    Error::Daemon(format!("the disk's daemon ended at once: {last}"))
}

/// Undoes what was noted for a process that has ended, and says what is left alone; the first failure is the error.
pub(crate) fn undo_all_of(process: ProcessId) -> Result<()> {
    first_failure(undo::restore_owned_by(process)?)
}

/// The same for the settings of the kernel, while the process still lives.
pub(crate) fn set_back(process: ProcessId) -> Result<()> {
    first_failure(undo::restore_settings_of(process)?)
}

fn first_failure(restored: Vec<Restored>) -> Result<()> {
    let mut first = Ok(());
    for Restored { action, outcome } in restored {
        match outcome {
            Ok(Outcome::Undone) => {}
            Ok(Outcome::LeftAlone(why)) => tracing::warn!("the {action} is left alone: {why}"),
            Err(error) => first = first.and(Err(error)),
        }
    }
    Ok(first?)
}

impl Launcher {
    /// The same program with these arguments below its `disk` command, away from the caller's directory.
    fn command<'a>(&self, arguments: impl IntoIterator<Item = &'a str>) -> Command {
        let mut command = Command::new(&self.program);
        // Named for ps(1): the path may be /proc/self/exe.
        command.arg0("ahead").args(&self.arguments).args(arguments).current_dir("/");
        command
    }

    /// Starts what waits for this process's end and undoes what is noted for it.
    pub(crate) fn spawn_finish_after(&self, process: ProcessId) -> Result<()> {
        let (pid, start) = (process.pid.to_string(), process.start_ticks.to_string());
        self.spawn(["finish-after", &pid, &start]).map(drop)
    }

    /// Starts the detaching of a disk, as its daemon must not do it.
    pub(crate) fn spawn_detach(&self, name: &str) -> Result<()> {
        let mut child = self.spawn(["detach", name])?;
        // Somebody has to take its status, or it stays a zombie for as long as the daemon lives.
        let reap = move || drop(child.wait());
        std::thread::Builder::new().spawn(reap).map(drop).map_err(|e| Error::io("start a thread", e))
    }

    fn spawn<'a>(&self, arguments: impl IntoIterator<Item = &'a str>) -> Result<Child> {
        let mut command = self.command(arguments);
        command.stdin(Stdio::null()).stdout(Stdio::null());
        command.spawn().map_err(|e| Error::io("start a helper", e))
    }
}
