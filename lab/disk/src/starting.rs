//! Starting the daemon, and holding it until the disk is complete.
//!
//! ```text
//!     standard input of the daemon:    the image, opened once by us
//!     standard output of the daemon:   a socket: setup ─▶, ◀─ ready or why not, commit or abandon ─▶
//! ```
//!
//! Until [`Starting::commit`] the daemon hangs on that socket: if we return with an error it is told to end and
//! everything noted for it is undone; if we are killed, it notices and does the same itself.

use crate::lifecycle::{Launcher, taken};
use crate::server::{ABANDON, COMMIT};
use crate::{Error, Result};
use ahead_disk::protocol::{self, LINE_MAX_BYTES, Setup, Started};
use ahead_disk::state::{self, Paths};
use ahead_disk::teardown::{END_TIME, undo_all_of};
use ahead_process::Signals;
use ahead_process::wait_end;
use ahead_undo::{Guard, ProcessId};
use std::fs::File;
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};

/// A daemon that serves, but whose disk is not complete yet. Dropping it undoes everything.
#[derive(Debug)]
pub(crate) struct Starting {
    /// The daemon.
    pub process: ProcessId,
    child: Child,
    /// `None` once it goes on alone.
    conversation: Option<UnixStream>,
}

impl Starting {
    /// Starts the daemon on this image and waits until it serves. That takes as long as copying the image where it is to
    /// be served from memory; a signal ends the wait.
    pub fn launch(launcher: &Launcher, setup: &Setup, image: &File, signals: &Signals) -> Result<Starting> {
        state::make_home()?;
        let (log, logged) = new_log(&setup.name)?;
        let failed = |e| Error::io("start the disk's daemon", e);
        let (ours, its) = UnixStream::pair().map_err(failed)?;
        let child = launcher
            .command(["serve"])
            .stdin(image.try_clone().map_err(failed)?)
            .stdout(OwnedFd::from(its))
            .stderr(log)
            .spawn()
            .map_err(failed)?;
        let process = ProcessId::of(child.id())?.ok_or_else(|| ended_early(&setup.name))?;
        logged.give_to(process)?;
        // From here on, dropping it ends the daemon.
        let mut starting = Starting { process, child, conversation: Some(ours) };
        starting.tell(&protocol::encode(setup)?)?;
        let line = starting.hear(signals)?;
        if line.is_empty() {
            return Err(ended_early(&setup.name));
        }
        match protocol::decode(&line)? {
            Started::Ready => Ok(starting),
            Started::Failed { message, unavailable: false } => Err(Error::Daemon(message)),
            Started::Failed { message, unavailable: true } => {
                Err(Error::Kernel(ahead_sys::Error::Unsupported { what: "an emulated disk".into(), why: message }))
            }
        }
    }

    /// The disk is complete: the daemon goes on alone.
    pub fn commit(mut self) -> Result<()> {
        self.tell(&format!("{COMMIT}\n"))?;
        self.conversation = None;
        Ok(())
    }

    /// The daemon's first line; nothing if it has ended.
    fn hear(&self, signals: &Signals) -> Result<String> {
        let mut line = String::new();
        if let Some(stream) = &self.conversation {
            if let Some(signal) = signals.wait_or(stream)? {
                return Err(Error::Interrupted(signal.number));
            }
            let failed = |e| Error::io("read from the disk's daemon", e);
            // It writes the line at once.
            stream.set_read_timeout(Some(END_TIME)).map_err(failed)?;
            match BufReader::new(stream.take(LINE_MAX_BYTES)).read_line(&mut line) {
                // It was killed before it had read the setup.
                Err(e) if e.kind() == ErrorKind::ConnectionReset => {}
                read => drop(read.map_err(failed)?),
            }
        }
        Ok(line)
    }

    /// A program in the place of a daemon that serves; dead by now, if that is wanted.
    #[cfg(test)]
    pub fn stand_in(alive: bool) -> Starting {
        let (ours, its) = UnixStream::pair().unwrap();
        let mut command = Command::new("cat");
        let mut child = command.stdin(OwnedFd::from(its)).stdout(Stdio::null()).spawn().unwrap();
        drop(command);
        let process = ProcessId::of(child.id()).unwrap().unwrap();
        if !alive {
            child.kill().unwrap();
            // Until nobody reads from the socket: not itself any more, nor what another test has just forked.
            rustix::event::poll(&mut [rustix::event::PollFd::new(&ours, rustix::event::PollFlags::empty())], None)
                .unwrap();
        }
        Starting { process, conversation: Some(ours), child }
    }

    fn tell(&mut self, line: &str) -> Result<()> {
        let written = self.conversation.as_mut().map_or(Ok(()), |stream| stream.write_all(line.as_bytes()));
        written.map_err(|e| Error::io("talk to the disk's daemon", e))
    }
}

impl Drop for Starting {
    fn drop(&mut self) {
        if self.conversation.is_none() {
            return;
        }
        // A daemon that has failed by itself cannot be told any more, and needs not be.
        let _ = self.tell(&format!("{ABANDON}\n"));
        self.conversation = None;
        if !wait_end(self.process, END_TIME).unwrap_or(false) {
            let _ = self.child.kill();
            // One that waits for a file system that does not answer is not even ended by that; its notes stay.
            let _ = wait_end(self.process, END_TIME);
        }
        let _ = self.child.try_wait();
        if let Err(error) = undo_all_of(self.process) {
            tracing::warn!("{error}");
        }
    }
}

/// Makes the file for what the daemon has to say. It claims the name while the disk is being made.
fn new_log(name: &str) -> Result<(File, Guard)> {
    let path = Paths::of(name).log;
    ahead_undo::create_file(ProcessId::own()?, &path, 0o600).map_err(|e| match e.exists() {
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
