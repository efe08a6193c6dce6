//! Where the metrics of a program are published: a file that is replaced, or a socket.

use crate::undo::home;
use ahead_sys::{Error, Result};
use rustix::fs::Mode;
use std::cell::Cell;
use std::fs::{self, File, Permissions};
use std::io::{self, ErrorKind, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Connections that are served before decisions are looked at again.
const MOST_AT_ONCE: usize = 16;

/// After a failure to accept a connection, the listener is not polled for this time: it stays readable while no descriptor is free (`EMFILE`).
const PAUSE: Duration = Duration::from_secs(1);

/// Only the owner may connect.
const SOCKET_MASK: u32 = 0o177;

/// Where metrics are published, in the text format of Prometheus.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MetricsPlace {
    /// A file, replaced each second.
    File(PathBuf),
    /// A Unix socket: each connection gets the text, and is closed.
    Socket(PathBuf),
}

impl MetricsPlace {
    /// `FILE`, `unix:SOCKET`, or `unix:` for the default socket.
    ///
    /// # Errors
    /// It is empty.
    pub fn parse(text: &str, default_socket: &str) -> std::result::Result<MetricsPlace, String> {
        match text.strip_prefix("unix:") {
            Some("") => Ok(MetricsPlace::Socket(default_socket.into())),
            Some(path) => Ok(MetricsPlace::Socket(path.into())),
            None if text.is_empty() => Err("expected a file, unix:SOCKET or unix:".into()),
            None => Ok(MetricsPlace::File(text.into())),
        }
    }
}

/// The place of the metrics, while a program runs.
#[derive(Debug)]
pub enum Publisher {
    /// Replaced by a rename: a reader sees the whole text of some moment.
    File { path: PathBuf, temporary: PathBuf },
    /// Each connection gets the text.
    Socket {
        path: PathBuf,
        listener: UnixListener,
        /// End of the pause after a failure.
        paused_until: Cell<Option<Instant>>,
    },
}

impl Publisher {
    /// # Errors
    /// The directory cannot be written; another program listens on the socket.
    pub fn new(place: &MetricsPlace) -> Result<Publisher> {
        match place {
            MetricsPlace::File(path) => {
                let name = path.file_name().unwrap_or_default().to_string_lossy();
                let temporary = path.with_file_name(format!(".{name}.{}", std::process::id()));
                let publisher = Publisher::File { path: path.clone(), temporary };
                publisher.write_file("")?;
                Ok(publisher)
            }
            MetricsPlace::Socket(path) => {
                if path.starts_with(home::HOME)
                    && let Some(directory) = path.parent()
                {
                    home::make_directory("publishing metrics", directory)?;
                }
                let listener = listen(path).map_err(|source| failed(path, source))?;
                Ok(Publisher::Socket { path: path.clone(), listener, paused_until: Cell::new(None) })
            }
        }
    }

    /// Whether it is a file, to be replaced from time to time.
    pub fn is_file(&self) -> bool {
        matches!(self, Publisher::File { .. })
    }

    /// The listening socket, to be polled.
    pub fn listener(&self, now: Instant) -> Option<BorrowedFd<'_>> {
        match self {
            Publisher::Socket { listener, .. } if self.paused_until(now).is_none() => Some(listener.as_fd()),
            _ => None,
        }
    }

    /// When the listening socket is polled again. `None`: it is polled, or there is none.
    pub fn paused_until(&self, now: Instant) -> Option<Instant> {
        match self {
            Publisher::File { .. } => None,
            Publisher::Socket { paused_until, .. } => paused_until.get().filter(|until| now < *until),
        }
    }

    /// Replaces the file. A socket needs nothing.
    ///
    /// # Errors
    /// The disk is full, or the directory cannot be written.
    pub fn write_file(&self, text: &str) -> Result<()> {
        let Publisher::File { path, temporary } = self else { return Ok(()) };
        let create = || File::options().write(true).create_new(true).mode(0o644).open(temporary);
        let file = match create() {
            // Left by a process with our number that was killed. Removing a link does not follow it.
            Err(e) if e.kind() == ErrorKind::AlreadyExists => fs::remove_file(temporary).and_then(|()| create()),
            created => created,
        };
        let write = |mut file: File| {
            // The umask may have removed permissions.
            file.set_permissions(Permissions::from_mode(0o644))?;
            file.write_all(text.as_bytes())
        };
        let written = file.and_then(write).and_then(|()| fs::rename(temporary, path));
        written.map_err(|source| {
            // On a full disk the part that was written takes room.
            let _ = fs::remove_file(temporary);
            failed(path, source)
        })
    }

    /// Serves the connections that wait. A client that reads slowly gets what fits into its socket, which is more than the text.
    pub fn serve(&self, text: impl FnOnce() -> String) {
        if let Publisher::Socket { listener, .. } = self {
            self.serve_accepted(|| listener.accept().map(|(client, _)| client), text);
        }
    }

    /// As [`Self::serve`], with connections from `accept`.
    fn serve_accepted(&self, mut accept: impl FnMut() -> io::Result<UnixStream>, text: impl FnOnce() -> String) {
        let Publisher::Socket { paused_until, .. } = self else { return };
        let mut clients = Vec::new();
        while clients.len() < MOST_AT_ONCE {
            match accept() {
                Ok(client) => clients.push(client),
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) => {
                    tracing::info!("metrics: accept a connection: {error}");
                    paused_until.set(Some(Instant::now() + PAUSE));
                    break;
                }
            }
        }
        if clients.is_empty() {
            return;
        }
        let text = text();
        for mut client in clients {
            let sent = client.set_nonblocking(true).and_then(|()| client.write_all(text.as_bytes()));
            if let Err(error) = sent {
                tracing::debug!("metrics were not sent: {error}");
            }
        }
    }
}

impl Drop for Publisher {
    /// The file stays with the last values; the socket is removed.
    fn drop(&mut self) {
        if let Publisher::Socket { path, .. } = self {
            let _ = fs::remove_file(path);
        }
    }
}

fn failed(place: &Path, source: io::Error) -> Error {
    Error::io(format!("metrics in {}", place.display()), source)
}

/// Listens on a path. A socket that no process listens on any more is replaced; anything else stays.
fn listen(path: &Path) -> io::Result<UnixListener> {
    let listener = match bind(path) {
        Err(error) if error.kind() == ErrorKind::AddrInUse && is_abandoned(path) => {
            fs::remove_file(path)?;
            bind(path)
        }
        bound => bound,
    }?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

/// The mode of a socket is that of bind(2) with the umask. No other thread creates files here.
fn bind(path: &Path) -> io::Result<UnixListener> {
    let before = rustix::process::umask(Mode::from_raw_mode(SOCKET_MASK));
    let bound = UnixListener::bind(path);
    rustix::process::umask(before);
    bound
}

fn is_abandoned(path: &Path) -> bool {
    let is_socket = fs::symlink_metadata(path).is_ok_and(|metadata| metadata.file_type().is_socket());
    is_socket && UnixStream::connect(path).is_err_and(|error| error.kind() == ErrorKind::ConnectionRefused)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;
    use std::os::unix::fs::MetadataExt;

    #[test]
    fn place_of_metrics_is_a_file_or_a_socket() {
        let parse = |text: &str| MetricsPlace::parse(text, "/run/ahead/steer.sock");
        assert_eq!(parse("/x/m.prom"), Ok(MetricsPlace::File("/x/m.prom".into())));
        assert_eq!(parse("unix:/x/s"), Ok(MetricsPlace::Socket("/x/s".into())));
        assert_eq!(parse("unix:"), Ok(MetricsPlace::Socket("/run/ahead/steer.sock".into())));
        assert!(parse("").is_err());
    }

    #[test]
    fn file_is_replaced_as_a_whole() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("ahead.prom");
        let publisher = Publisher::new(&MetricsPlace::File(path.clone())).unwrap();
        let before = fs::metadata(&path).unwrap().ino();
        publisher.write_file("x 1\n").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "x 1\n");
        assert_ne!(fs::metadata(&path).unwrap().ino(), before);
        drop(publisher);
        assert_eq!(fs::read_dir(home.path()).unwrap().count(), 1);
        assert!(Publisher::new(&MetricsPlace::File(home.path().join("no/such"))).is_err());
    }

    #[test]
    fn failed_write_leaves_no_part_and_the_next_one_succeeds() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("m");
        let publisher = Publisher::new(&MetricsPlace::File(path.clone())).unwrap();
        // A directory cannot be replaced by a file: as on a full disk, the last step fails.
        fs::remove_file(&path).unwrap();
        fs::create_dir(&path).unwrap();
        assert!(publisher.write_file("x 1\n").is_err());
        assert_eq!(fs::read_dir(home.path()).unwrap().count(), 1);
        fs::remove_dir(&path).unwrap();
        publisher.write_file("x 1\n").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "x 1\n");
    }

    /// A link in place of the temporary file must not be written through.
    #[test]
    fn link_at_the_temporary_name_is_removed() {
        let home = tempfile::tempdir().unwrap();
        let (path, victim) = (home.path().join("m"), home.path().join("victim"));
        fs::write(&victim, "keep").unwrap();
        std::os::unix::fs::symlink(&victim, home.path().join(format!(".m.{}", std::process::id()))).unwrap();
        Publisher::new(&MetricsPlace::File(path)).unwrap().write_file("x").unwrap();
        assert_eq!(fs::read_to_string(&victim).unwrap(), "keep");
    }

    #[test]
    fn every_connection_gets_the_text_and_a_slow_client_does_not_block() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("s");
        let publisher = Publisher::new(&MetricsPlace::Socket(path.clone())).unwrap();
        publisher.serve(|| panic!("there is no client"));
        let (mut fast, slow) = (UnixStream::connect(&path).unwrap(), UnixStream::connect(&path).unwrap());
        let long = "x 1\n".repeat(1 << 20);
        publisher.serve(|| long.clone());
        drop(slow);
        let mut text = Vec::new();
        fast.read_to_end(&mut text).unwrap();
        assert!(long.as_bytes().starts_with(&text) && !text.is_empty());
        let mut third = UnixStream::connect(&path).unwrap();
        publisher.serve(|| "y 2\n".into());
        let mut text = String::new();
        third.read_to_string(&mut text).unwrap();
        assert_eq!(text, "y 2\n");
    }

    /// Regression: without a free descriptor, the loop polled a listener that stayed readable, and used a whole processor.
    #[test]
    fn listener_is_not_polled_after_a_failed_accept() {
        let home = tempfile::tempdir().unwrap();
        let publisher = Publisher::new(&MetricsPlace::Socket(home.path().join("s"))).unwrap();
        let now = Instant::now();
        publisher.serve_accepted(|| Err(ErrorKind::WouldBlock.into()), || panic!("there is no client"));
        assert!(publisher.listener(now).is_some() && publisher.paused_until(now).is_none());
        let no_descriptor = || Err(io::Error::from_raw_os_error(24)); // EMFILE
        publisher.serve_accepted(no_descriptor, || panic!("there is no client"));
        let until = publisher.paused_until(now).unwrap();
        assert!(publisher.listener(now).is_none() && until >= now + PAUSE);
        assert!(publisher.listener(until).is_some() && publisher.paused_until(until).is_none());
    }

    #[test]
    fn abandoned_socket_is_replaced_and_other_files_stay() {
        let home = tempfile::tempdir().unwrap();
        let (socket, file) = (home.path().join("s"), home.path().join("f"));
        drop(UnixListener::bind(&socket).unwrap());
        let publisher = Publisher::new(&MetricsPlace::Socket(socket.clone())).unwrap();
        assert!(Publisher::new(&MetricsPlace::Socket(socket.clone())).is_err(), "it is in use");
        drop(publisher);
        assert!(!socket.exists());
        fs::write(&file, "keep").unwrap();
        assert!(Publisher::new(&MetricsPlace::Socket(file.clone())).is_err());
        assert_eq!(fs::read_to_string(&file).unwrap(), "keep");
    }
}
