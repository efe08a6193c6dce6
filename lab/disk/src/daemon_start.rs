//! Starts the daemon, and controls it until the disk is complete.
//!
//! ```text
//!     standard input of the daemon:    the image, opened once by the starter
//!     standard output of the daemon:   a socket: setup ─▶, ◀─ ready or an error, commit or abandon ─▶
//! ```
//!
//! Until [`StartedDaemon::commit`] the daemon waits on this socket. On an error the starter ends the daemon and undoes its notes. If the
//! starter is killed, the socket closes, and the daemon starts a helper that undoes the notes.

use crate::launcher::Launcher;
use crate::server::{ABANDON, COMMIT, name_taken};
use crate::{Error, Result};
use ahead_disk::protocol::{self, LINE_MAX_BYTES, Setup, Started};
use ahead_disk::state::{self, Paths};
use ahead_disk::teardown::{END_TIME, undo_all_of};
use ahead_process::Signals;
use ahead_process::undo::{Guard, ProcessId};
use ahead_process::wait_end;
use std::fs::File;
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::process::Child;

/// A daemon that serves a disk that is not complete yet. Drop undoes everything.
#[derive(Debug)]
pub(crate) struct StartedDaemon {
    pub process: ProcessId,
    child: Child,
    /// `None` after the commit.
    socket: Option<UnixStream>,
}

impl StartedDaemon {
    /// Starts the daemon on this image and waits until the daemon serves. With `preload` this includes the copy of the image. A signal
    /// ends the wait.
    pub fn launch(launcher: &Launcher, setup: &Setup, image: &File, signals: &Signals) -> Result<StartedDaemon> {
        state::make_home()?;
        let (log, logged) = create_log(&setup.name)?;
        let failed = |e| Error::io("start the disk's daemon", e);
        let (own_end, daemon_end) = UnixStream::pair().map_err(failed)?;
        let child = launcher
            .command(["serve"])
            .stdin(image.try_clone().map_err(failed)?)
            .stdout(OwnedFd::from(daemon_end))
            .stderr(log)
            .spawn()
            .map_err(failed)?;
        let process = ProcessId::of(child.id())?.ok_or_else(|| ended_early(&setup.name))?;
        logged.give_to(process)?;
        // From here on, drop ends the daemon.
        let mut daemon = StartedDaemon { process, child, socket: Some(own_end) };
        daemon.send(&protocol::encode(setup)?)?;
        let line = daemon.receive(signals)?;
        if line.is_empty() {
            return Err(ended_early(&setup.name));
        }
        match protocol::decode(&line)? {
            Started::Ready => Ok(daemon),
            Started::Failed { message, unavailable: false } => Err(Error::Daemon(message)),
            Started::Failed { message, unavailable: true } => {
                Err(Error::Kernel(ahead_sys::Error::Unsupported { what: "an emulated disk".into(), why: message }))
            }
        }
    }

    /// Lets the daemon run alone: the disk is complete.
    pub fn commit(mut self) -> Result<()> {
        self.send(&format!("{COMMIT}\n"))?;
        self.socket = None;
        Ok(())
    }

    /// The first line of the daemon; empty if it has ended.
    fn receive(&self, signals: &Signals) -> Result<String> {
        let mut line = String::new();
        if let Some(stream) = &self.socket {
            if let Some(signal) = signals.wait_or(stream)? {
                return Err(Error::Interrupted(signal.number));
            }
            let failed = |e| Error::io("read from the disk's daemon", e);
            // The daemon writes the line at once.
            stream.set_read_timeout(Some(END_TIME)).map_err(failed)?;
            match BufReader::new(stream.take(LINE_MAX_BYTES)).read_line(&mut line) {
                // The daemon was killed before it had read the setup.
                Err(e) if e.kind() == ErrorKind::ConnectionReset => {}
                read => drop(read.map_err(failed)?),
            }
        }
        Ok(line)
    }

    /// Another program in place of a daemon; `alive`: whether the program still runs.
    #[cfg(test)]
    pub fn stand_in(alive: bool) -> StartedDaemon {
        let (own_end, daemon_end) = UnixStream::pair().unwrap();
        let mut command = std::process::Command::new("cat");
        let mut child = command.stdin(OwnedFd::from(daemon_end)).stdout(std::process::Stdio::null()).spawn().unwrap();
        drop(command);
        let process = ProcessId::of(child.id()).unwrap().unwrap();
        if !alive {
            child.kill().unwrap();
            // Wait until the socket has no reader: neither the program nor a process that another test has just forked.
            rustix::event::poll(&mut [rustix::event::PollFd::new(&own_end, rustix::event::PollFlags::empty())], None)
                .unwrap();
        }
        StartedDaemon { process, socket: Some(own_end), child }
    }

    fn send(&mut self, line: &str) -> Result<()> {
        let written = self.socket.as_mut().map_or(Ok(()), |stream| stream.write_all(line.as_bytes()));
        written.map_err(|e| Error::io("write to the disk's daemon", e))
    }
}

impl Drop for StartedDaemon {
    fn drop(&mut self) {
        if self.socket.is_none() {
            return;
        }
        // A daemon that has failed does not read, and needs no message.
        let _ = self.send(&format!("{ABANDON}\n"));
        self.socket = None;
        if !wait_end(self.process, END_TIME).unwrap_or(false) {
            let _ = self.child.kill();
            // SIGKILL does not end a daemon that waits for a file system that does not answer; its notes stay.
            let _ = wait_end(self.process, END_TIME);
        }
        let _ = self.child.try_wait();
        if let Err(error) = undo_all_of(self.process) {
            tracing::warn!("{error}");
        }
    }
}

/// Makes the log file of the daemon. The file reserves the name while the disk is being made.
fn create_log(name: &str) -> Result<(File, Guard)> {
    let path = Paths::of(name).log;
    ahead_process::undo::create_file(ProcessId::own()?, &path, 0o600).map_err(|e| match e.exists() {
        true => name_taken(name),
        false => e.into(),
    })
}

fn ended_early(name: &str) -> Error {
    let log = Paths::of(name).log;
    let text = std::fs::read_to_string(&log).unwrap_or_default();
    let last = text.lines().last().unwrap_or("it logged nothing").to_owned();
    Error::Daemon(format!("the disk's daemon ended during its start: {last}"))
}
