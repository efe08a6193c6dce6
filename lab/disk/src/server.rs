//! The daemon: serves one disk until its file system is unmounted.
//!
//! ```text
//!     standard input:   the image, open
//!     standard output:  a socket: setup (one line) … "commit" once the disk is complete ─▶
//!                       ◀─ ready, or why not (one line)
//!     control socket:   questions and answers
//! ```
//!
//! The image comes as a descriptor: at its path something else may lie by now. The starter holds the other end of the socket.
//! Should that end without a word before the commit (the starter was killed), the daemon has everything undone and ends.
//! After the commit it lives until `detach` tells it that the disk has been taken down. On SIGTERM it asks for its own
//! detaching, and goes on if the disk is in use.

mod answers;
mod control;
mod engine;
mod fuse;
mod image;
mod lateness;

use crate::lifecycle::{Launcher, taken};
use crate::{Error, Result};
use ahead_disk::protocol::{self, LINE_MAX_BYTES, Setup, Started};
use ahead_disk::state::{self, Paths};
use ahead_process::Signals;
use ahead_sys::daemon::{new_session, set_io_flusher};
use ahead_undo::{Action, Guard, ProcessId};
use answers::Answers;
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

/// What the starter says when the disk is complete.
pub(crate) const COMMIT: &str = "commit";
/// What the starter says when it gives up and will undo everything itself.
pub(crate) const ABANDON: &str = "abandon";

/// What the daemon waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Event {
    /// The disk is complete.
    Committed,
    /// The starter gave up, and undoes everything itself.
    Abandoned,
    /// The starter was killed.
    StarterGone,
    /// Somebody asks the daemon to stop.
    Signal,
    /// The disk was taken down, or somebody unmounted the FUSE file system.
    Ended,
}

/// Serves a disk: the daemon's whole life. `launcher` is how it starts a helper for what it must not do itself.
pub fn serve(launcher: &Launcher) -> Result<()> {
    // A daemon that was started by hand from a shell is a group's leader already; then there is no terminal to leave.
    if let Err(error) = new_session() {
        tracing::debug!("{error}");
    }
    let signals = Signals::take()?;
    let inherited = |fd: std::io::Result<std::os::fd::OwnedFd>| fd.map_err(|e| Error::io("take over the image", e));
    let image = File::from(inherited(std::io::stdin().as_fd().try_clone_to_owned())?);
    let starter = UnixStream::from(inherited(std::io::stdout().as_fd().try_clone_to_owned())?);
    let line = line_of(&starter).map_err(|e| Error::io("read the setup", e))?;
    if line.is_empty() {
        return starter_is_gone(launcher, vec![]);
    }
    let setup: Setup = protocol::decode(&line)?;
    let (events, happened) = channel();
    let started = start(&setup, image, events.clone());
    let heard = say(
        &starter,
        &match &started {
            Ok(_) => Started::Ready,
            Err(error) => Started::Failed { message: error.to_string(), unavailable: error.is_unavailable() },
        },
    );
    if heard.is_err() {
        // Nobody is left to hear why it did not start, either.
        return starter_is_gone(launcher, started.unwrap_or_default());
    }
    let guards = started?;
    watch_starter(starter, events.clone())?;
    watch_signals(signals, events)?;
    for event in happened {
        match event {
            Event::Committed => {}
            Event::Ended => {
                drop(guards);
                return Ok(());
            }
            Event::Abandoned => {
                leave(guards);
                return Ok(());
            }
            Event::StarterGone => return starter_is_gone(launcher, guards),
            Event::Signal => launcher.spawn_detach(&setup.name)?,
        }
    }
    Ok(())
}

/// Nobody else undoes anything then, and what was noted for us by the one who is gone is not ours to undo while we hold it.
fn starter_is_gone(launcher: &Launcher, guards: Vec<Guard>) -> Result<()> {
    launcher.spawn_finish_after(ProcessId::own()?)?;
    leave(guards);
    Err(Error::Daemon("who started it is gone".into()))
}

/// The notes stay: whoever waits for our end undoes them, after we no longer hold anything.
fn leave(guards: Vec<Guard>) {
    for guard in guards {
        guard.leave();
    }
}

/// Makes the directory, mounts the file system there and answers on the socket. The guards are in
/// the order of undoing: the latest first.
fn start(setup: &Setup, image: File, events: Sender<Event>) -> Result<Vec<Guard>> {
    let paths = Paths::of(&setup.name);
    let model = setup.model.model()?;
    let image = Image::new(image, setup)?;
    // Without the privilege it works, too; only extreme shortage of memory can tell the difference.
    if let Err(error) = set_io_flusher() {
        tracing::info!("{error}");
    }
    state::make_home()?;
    let own = ProcessId::own()?;
    let directory = ahead_undo::create_directory(own, &paths.directory).map_err(|e| match e.exists() {
        true => taken(&setup.name),
        false => e.into(),
    })?;
    let mut guards = vec![directory];
    let engine = Arc::new(Engine::new(setup, model));
    let answers = Answers::start(engine.clone())?;
    let file = DiskFile::new(setup, image, engine.clone(), answers);
    let source = fuse::source(&setup.name, own);
    guards.insert(0, ahead_undo::note(Action::unmount(&paths.directory, "fuse", &source))?);
    let session = fuser::Session::new(file, &paths.directory, &fuse::mount_options(source)).map_err(fuse_error)?;
    guards[0].made()?;
    let ended = events.clone();
    let run = move || {
        if let Err(error) = session.run() {
            tracing::error!("the file system ended: {error}");
        }
        let _ = ended.send(Event::Ended);
    };
    std::thread::Builder::new().name("session".into()).spawn(run).map_err(|e| Error::io("start a thread", e))?;
    guards.insert(0, ahead_undo::note(Action::remove(&paths.socket))?);
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
        kind if kind == std::io::ErrorKind::PermissionDenied || is_said_not_permitted(&error.to_string()) => {
            Error::Kernel(ahead_sys::Error::NotPermitted {
                what: what.into(),
                remedy: "run as root with CAP_SYS_ADMIN (a privileged container)".into(),
            })
        }
        _ => Error::io("mount a FUSE file system", std::io::Error::other(error.to_string().trim_end())),
    }
}

/// fusermount3 does not pass on the error's number, only its words, with a newline.
fn is_said_not_permitted(text: &str) -> bool {
    ["Operation not permitted", "Permission denied"].iter().any(|words| text.trim_end().ends_with(words))
}

/// The starter waits for an answer before it writes the next line: nothing of that one is lost.
fn line_of(mut starter: &UnixStream) -> std::io::Result<String> {
    let mut line = String::new();
    BufReader::new((&mut starter).take(LINE_MAX_BYTES)).read_line(&mut line)?;
    Ok(line)
}

fn say(mut starter: &UnixStream, started: &Started) -> Result<()> {
    let line = protocol::encode(started)?;
    starter.write_all(line.as_bytes()).map_err(|e| Error::io("tell the starter", e))
}

fn watch_starter(starter: UnixStream, events: Sender<Event>) -> Result<()> {
    let run = move || {
        let event = match line_of(&starter).as_deref().map(str::trim_end) {
            Ok(COMMIT) => Event::Committed,
            Ok(ABANDON) => Event::Abandoned,
            _ => Event::StarterGone,
        };
        let _ = events.send(event);
    };
    std::thread::Builder::new().name("starter".into()).spawn(run).map(drop).map_err(|e| Error::io("start a thread", e))
}

fn watch_signals(signals: Signals, events: Sender<Event>) -> Result<()> {
    let run = move || {
        // Waiting only fails when the descriptor is broken; then there are no signals to hear of.
        while let Ok(arrived) = signals.wait(None) {
            if arrived.is_some() && events.send(Event::Signal).is_err() {
                return;
            }
        }
    };
    std::thread::Builder::new().name("signals".into()).spawn(run).map(drop).map_err(|e| Error::io("start a thread", e))
}
