//! The control socket: on each connection root sends one request, a line, and the daemon answers.

use super::ServerEvent;
use super::engine::Engine;
use crate::{Error, Result};
use ahead_disk::protocol::{self, Answer, Ask, LINE_MAX_BYTES};
use ahead_sys::local_socket;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::time::Duration;

/// Limit of concurrent clients. Each has a thread, for seconds at most; `ahead disk` needs one at a time.
const MAX_CLIENTS: usize = 32;

/// Timeout of a request, and of its answer.
const CLIENT_TIMEOUT: Duration = Duration::from_secs(5);

/// Starts to answer on this socket; sends [`ServerEvent::Ended`] to `end` after a request to end.
pub fn listen(socket: &Path, engine: Arc<Engine>, end: Sender<ServerEvent>) -> Result<()> {
    let failed = |e| Error::io(format!("listen on {}", socket.display()), e);
    let listener = UnixListener::bind(socket).map_err(failed)?;
    std::fs::set_permissions(socket, std::fs::Permissions::from_mode(0o600)).map_err(failed)?;
    let clients = Arc::new(());
    let serve = move || {
        for stream in listener.incoming().flatten() {
            // Before the mode of the socket was set, the umask may have let another user connect. The daemon closes the connection of a
            // client beyond the limit.
            if !local_socket::is_peer_ours(&stream) || Arc::strong_count(&clients) > MAX_CLIENTS {
                continue;
            }
            let (engine, end, client) = (engine.clone(), end.clone(), clients.clone());
            // A slow client must not delay other clients.
            let started = std::thread::Builder::new().name("control".into()).spawn(move || {
                if let Err(error) = answer(&stream, &engine, &end) {
                    tracing::debug!("control: {error}");
                }
                drop(client);
            });
            if let Err(error) = started {
                tracing::error!("cannot start a thread for a client: {error}");
            }
        }
    };
    std::thread::Builder::new().name("listen".into()).spawn(serve).map(drop).map_err(failed)
}

fn answer(stream: &UnixStream, engine: &Engine, end: &Sender<ServerEvent>) -> std::io::Result<()> {
    stream.set_read_timeout(Some(CLIENT_TIMEOUT))?;
    stream.set_write_timeout(Some(CLIENT_TIMEOUT))?;
    let mut line = String::new();
    BufReader::new(stream.take(LINE_MAX_BYTES)).read_line(&mut line)?;
    let ask = protocol::decode(&line);
    let is_end = matches!(ask, Ok(Ask::End));
    let answer = ask.map_or_else(|e| Answer::Error(e.to_string()), |ask| answer_to(ask, engine));
    let line = protocol::encode(&answer).map_err(std::io::Error::other)?;
    let mut stream = stream;
    let written = stream.write_all(line.as_bytes());
    if is_end {
        // After the answer, because the process ends.
        end.send(ServerEvent::Ended).map_err(std::io::Error::other)?;
    }
    written
}

fn answer_to(ask: Ask, engine: &Engine) -> Answer {
    match ask {
        Ask::Stat { reset } => Answer::Stat(Box::new(engine.stat(reset))),
        Ask::Reads => Answer::Reads(engine.reads()),
        Ask::Fault(change) => engine.fault(change).map_or_else(|e| Answer::Error(e.to_string()), Answer::Faults),
        Ask::Engage { lead } => {
            engine.engage(lead);
            Answer::Done
        }
        Ask::Restart => {
            engine.restart();
            Answer::Done
        }
        Ask::End => Answer::Done,
    }
}
