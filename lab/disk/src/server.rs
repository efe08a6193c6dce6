//! The daemon: serves one disk until its file system is unmounted.
//!
//! ```text
//!     standard input:   the image, open
//!     standard output:  a socket: setup (one line) … "commit" when the disk is complete ─▶
//!                       ◀─ ready or an error (one line)
//!     control socket:   requests and answers
//! ```
//!
//! The image is passed as a descriptor: its path may lead to another file by now. The starter holds the other end of the socket. If the
//! socket closes before the commit (the starter was killed), the daemon starts a helper that undoes everything, and ends. After the
//! commit the daemon runs until `detach` reports that the disk is down. On SIGTERM the daemon starts `detach`, and continues if the disk
//! is in use.

mod answer_queue;
mod control;
mod engine;
mod fuse;
mod image;
mod lateness;

use crate::launcher::Launcher;
use crate::write_log::WriteLog;
use crate::{Error, Result};
use ahead_disk::protocol::{self, LINE_MAX_BYTES, Setup, Started};
use ahead_disk::state::{self, Paths};
use ahead_process::Signals;
use ahead_process::undo::{Action, Guard, ProcessId};
use ahead_sys::daemon::{new_session, set_io_flusher};
use answer_queue::AnswerQueue;
use engine::Engine;
use fuse::DiskFile;
use image::Image;
use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};

pub use fuse::REQUEST_MAX_BYTES;

/// Message of the starter: the disk is complete.
pub(crate) const COMMIT: &str = "commit";
/// Message of the starter: it gives up, and undoes everything.
pub(crate) const ABANDON: &str = "abandon";

/// The events of the daemon.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ServerEvent {
    /// The disk is complete.
    Committed,
    /// The starter gave up, and undoes everything.
    Abandoned,
    /// The starter was killed.
    StarterGone,
    /// The daemon has received a signal to stop.
    Signal,
    /// The disk is down, or another process has unmounted the FUSE file system.
    Ended,
}

/// Runs the daemon of a disk. `launcher` starts helpers for actions that the daemon must not do itself.
pub fn serve(launcher: &Launcher) -> Result<()> {
    // A daemon that a shell has started is a group leader, and setsid fails: the daemon has no terminal to leave.
    if let Err(error) = new_session() {
        tracing::debug!("{error}");
    }
    let signals = Signals::take()?;
    let inherited = |fd: std::io::Result<std::os::fd::OwnedFd>| {
        fd.map_err(|e| Error::io("duplicate the descriptor of the image", e))
    };
    let image = File::from(inherited(std::io::stdin().as_fd().try_clone_to_owned())?);
    let starter = UnixStream::from(inherited(std::io::stdout().as_fd().try_clone_to_owned())?);
    let line = read_line(&starter).map_err(|e| Error::io("read the setup", e))?;
    if line.is_empty() {
        return end_without_starter(launcher, vec![]);
    }
    let setup: Setup = protocol::decode(&line)?;
    let (events, happened) = channel();
    let started = start(&setup, image, events.clone());
    let sent = send(
        &starter,
        &match &started {
            Ok(_) => Started::Ready,
            Err(error) => Started::Failed { message: error.to_string(), unavailable: error.is_unavailable() },
        },
    );
    if sent.is_err() {
        // No process remains that could read the error.
        return end_without_starter(launcher, started.unwrap_or_default());
    }
    let guards = started?;
    watch_starter(starter, events.clone())?;
    watch_signals(signals, events)?;
    for event in happened {
        match event {
            ServerEvent::Committed => {}
            ServerEvent::Ended => {
                drop(guards);
                return Ok(());
            }
            ServerEvent::Abandoned => {
                keep_notes(guards);
                return Ok(());
            }
            ServerEvent::StarterGone => return end_without_starter(launcher, guards),
            ServerEvent::Signal => launcher.spawn_detach(&setup.name)?,
        }
    }
    Ok(())
}

/// Starts a helper that undoes the notes after the end of the daemon. The starter cannot do this, and the daemon must not while it uses
/// the disk.
fn end_without_starter(launcher: &Launcher, guards: Vec<Guard>) -> Result<()> {
    launcher.spawn_finish_after(ProcessId::own()?)?;
    keep_notes(guards);
    Err(Error::Daemon("the process that started it has ended".into()))
}

/// Keeps the notes: the process that waits for the end of the daemon undoes them.
fn keep_notes(guards: Vec<Guard>) {
    for guard in guards {
        guard.leave();
    }
}

/// Makes the directory, mounts the file system there and listens on the control socket. The guards are in the order of undoing, the
/// latest first.
fn start(setup: &Setup, image: File, events: Sender<ServerEvent>) -> Result<Vec<Guard>> {
    let paths = Paths::of(&setup.name);
    let model = setup.model.model()?;
    let image = Image::new(image, setup)?;
    // The privilege matters only under extreme shortage of memory.
    if let Err(error) = set_io_flusher() {
        tracing::info!("{error}");
    }
    state::make_home()?;
    let own = ProcessId::own()?;
    let directory = ahead_process::undo::create_directory(own, &paths.directory).map_err(|e| match e.exists() {
        true => name_taken(&setup.name),
        false => e.into(),
    })?;
    let mut guards = vec![directory];
    let engine = Arc::new(Engine::new(setup, model));
    let answers = AnswerQueue::start(engine.clone())?;
    let log = setup.write_log.as_deref().map(WriteLog::create).transpose()?;
    let file = DiskFile::new(setup, image, log, engine.clone(), answers);
    let source = fuse::source(&setup.name, own);
    guards.insert(0, ahead_process::undo::note(Action::unmount(&paths.directory, "fuse", &source))?);
    let session = fuser::Session::new(file, &paths.directory, &fuse::mount_options(source)).map_err(fuse_error)?;
    guards[0].made()?;
    let ended = events.clone();
    let run = move || {
        if let Err(error) = session.run() {
            tracing::error!("the FUSE session ended: {error}");
        }
        let _ = ended.send(ServerEvent::Ended);
    };
    std::thread::Builder::new().name("session".into()).spawn(run).map_err(|e| Error::io("start a thread", e))?;
    guards.insert(0, ahead_process::undo::note(Action::remove(&paths.socket))?);
    control::listen(&paths.socket, engine, events)?;
    guards[0].made()?;
    Ok(guards)
}

fn fuse_error(error: std::io::Error) -> Error {
    let what = "a FUSE file system";
    match error.kind() {
        std::io::ErrorKind::NotFound => Error::Kernel(ahead_sys::Error::Unsupported {
            what: what.into(),
            why: "/dev/fuse is missing (modprobe fuse, or give the container the device)".into(),
        }),
        kind if kind == std::io::ErrorKind::PermissionDenied || is_text_of_not_permitted(&error.to_string()) => {
            Error::Kernel(ahead_sys::Error::NotPermitted {
                what: what.into(),
                remedy: "run as root with CAP_SYS_ADMIN (a privileged container)".into(),
            })
        }
        _ => Error::io("mount a FUSE file system", std::io::Error::other(error.to_string().trim_end())),
    }
}

/// fusermount3 returns no error number, only a text with a newline.
fn is_text_of_not_permitted(text: &str) -> bool {
    ["Operation not permitted", "Permission denied"].iter().any(|words| text.trim_end().ends_with(words))
}

/// Reads a line. The starter waits for an answer before it writes the next line, so the buffer loses nothing.
fn read_line(mut starter: &UnixStream) -> std::io::Result<String> {
    let mut line = String::new();
    BufReader::new((&mut starter).take(LINE_MAX_BYTES)).read_line(&mut line)?;
    Ok(line)
}

fn send(mut starter: &UnixStream, started: &Started) -> Result<()> {
    let line = protocol::encode(started)?;
    starter.write_all(line.as_bytes()).map_err(|e| Error::io("write to the starter", e))
}

fn watch_starter(starter: UnixStream, events: Sender<ServerEvent>) -> Result<()> {
    let run = move || {
        let event = match read_line(&starter).as_deref().map(str::trim_end) {
            Ok(COMMIT) => ServerEvent::Committed,
            Ok(ABANDON) => ServerEvent::Abandoned,
            _ => ServerEvent::StarterGone,
        };
        let _ = events.send(event);
    };
    std::thread::Builder::new().name("starter".into()).spawn(run).map(drop).map_err(|e| Error::io("start a thread", e))
}

fn watch_signals(signals: Signals, events: Sender<ServerEvent>) -> Result<()> {
    let run = move || {
        // The wait fails only with a broken descriptor, which receives no signals.
        while let Ok(arrived) = signals.wait(None) {
            if arrived.is_some() && events.send(ServerEvent::Signal).is_err() {
                return;
            }
        }
    };
    std::thread::Builder::new().name("signals".into()).spawn(run).map(drop).map_err(|e| Error::io("start a thread", e))
}

/// The error of a reserved name.
pub(crate) fn name_taken(name: &str) -> Error {
    Error::Invalid(format!(
        "a disk named {name} exists already, or is being made: choose another --name, detach it, or clean up with \
         `sudo ahead restore`"
    ))
}
