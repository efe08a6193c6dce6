//! The control socket: whoever may open it (root) asks, one line each.

use super::Event;
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

/// Clients that are answered at a time. Each holds a thread, for seconds at most; `ahead disk` is one at a time.
const CLIENTS_MOST: usize = 32;

/// How long a client may take to ask or to take its answer.
const CLIENT_TIME: Duration = Duration::from_secs(5);

/// Answers on this socket from now on; `end` is told when somebody asks for the end.
pub fn listen(socket: &Path, engine: Arc<Engine>, end: Sender<Event>) -> Result<()> {
    let failed = |e| Error::io(format!("listen on {}", socket.display()), e);
    let listener = UnixListener::bind(socket).map_err(failed)?;
    std::fs::set_permissions(socket, std::fs::Permissions::from_mode(0o600)).map_err(failed)?;
    let clients = Arc::new(());
    let serve = move || {
        for stream in listener.incoming().flatten() {
            // Before the file was made root's alone, another user may have connected: the umask decides that. One client
            // too many finds its connection closed.
            if !local_socket::is_peer_ours(&stream) || Arc::strong_count(&clients) > CLIENTS_MOST {
                continue;
            }
            let (engine, end, client) = (engine.clone(), end.clone(), clients.clone());
            // One client that dawdles must not keep the others waiting.
            let started = std::thread::Builder::new().name("control".into()).spawn(move || {
                if let Err(error) = answer(&stream, &engine, &end) {
                    tracing::debug!("control: {error}");
                }
                drop(client);
            });
            if let Err(error) = started {
                tracing::error!("cannot answer: {error}");
            }
        }
    };
    std::thread::Builder::new().name("listen".into()).spawn(serve).map(drop).map_err(failed)
}

fn answer(stream: &UnixStream, engine: &Engine, end: &Sender<Event>) -> std::io::Result<()> {
    stream.set_read_timeout(Some(CLIENT_TIME))?;
    stream.set_write_timeout(Some(CLIENT_TIME))?;
    let mut line = String::new();
    BufReader::new(stream.take(LINE_MAX_BYTES)).read_line(&mut line)?;
    let ask = protocol::decode(&line);
    let is_end = matches!(ask, Ok(Ask::End));
    let answer = ask.map_or_else(|e| Answer::Error(e.to_string()), |ask| answer_to(ask, engine));
    let line = protocol::encode(&answer).map_err(std::io::Error::other)?;
    let mut stream = stream;
    let written = stream.write_all(line.as_bytes());
    if is_end {
        // Only after the answer: the process ends.
        end.send(Event::Ended).map_err(std::io::Error::other)?;
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
