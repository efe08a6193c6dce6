//! The client of a disk's daemon.

use crate::protocol::{self, Answer, Ask, FaultChange, Faults, LINE_MAX_BYTES, Lead, Read as Served, Stat};
use crate::state::Paths;
use crate::{DiskInfo, Error, Result};
use ahead_sys::local_socket;
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::time::Duration;

/// Timeout for an answer. The daemon only reads counters; one that needs longer is stopped or stuck.
const ANSWER_TIME: Duration = Duration::from_secs(10);

/// A client of a disk's daemon. Each request opens its own connection.
#[derive(Clone, Debug)]
pub struct Client {
    name: String,
}

impl Client {
    /// The client of this disk.
    pub fn new(disk: &DiskInfo) -> Client {
        Client::named(&disk.name)
    }

    /// The client of the disk with this name, which may be incomplete yet.
    pub fn named(name: &str) -> Client {
        Client { name: name.into() }
    }

    /// The counters since their last reset. Needs root.
    pub fn stat(&self) -> Result<Stat> {
        self.stat_and(false)
    }

    /// Resets the counters, and returns their values before.
    pub fn reset(&self) -> Result<Stat> {
        self.stat_and(true)
    }

    /// The last reads since the reset, at most [`protocol::READS_KEPT`], in the order of their answers.
    pub fn reads(&self) -> Result<Vec<Served>> {
        match self.ask(&Ask::Reads)? {
            Answer::Reads(reads) => Ok(reads),
            other => Err(unexpected(&other)),
        }
    }

    /// Changes the injected faults, and returns the new ones.
    pub fn fault(&self, change: FaultChange) -> Result<Faults> {
        match self.ask(&Ask::Fault(change))? {
            Answer::Faults(faults) => Ok(faults),
            other => Err(unexpected(&other)),
        }
    }

    /// Puts the model into its state after power-on: the drive's buffer, which eviction does not reach, is empty. Burst credits
    /// of a network volume stay spent. Needs root.
    pub fn restart(&self) -> Result<()> {
        self.request_done(&Ask::Restart)
    }

    /// Enables the disk's model, with answers sent earlier by `lead`. Resets counters and head position.
    pub fn engage(&self, lead: Lead) -> Result<()> {
        self.request_done(&Ask::Engage { lead })
    }

    /// Asks the server to end.
    pub fn end(&self) -> Result<()> {
        self.request_done(&Ask::End)
    }

    fn request_done(&self, ask: &Ask) -> Result<()> {
        match self.ask(ask)? {
            Answer::Done => Ok(()),
            other => Err(unexpected(&other)),
        }
    }

    fn stat_and(&self, reset: bool) -> Result<Stat> {
        match self.ask(&Ask::Stat { reset })? {
            Answer::Stat(stat) => Ok(*stat),
            other => Err(unexpected(&other)),
        }
    }

    fn ask(&self, ask: &Ask) -> Result<Answer> {
        let socket = Paths::of(&self.name).socket;
        let failed = |e: std::io::Error| match e.kind() {
            ErrorKind::PermissionDenied => {
                Error::Kernel(ahead_sys::Error::needs_root(format!("querying the disk {}", self.name)))
            }
            ErrorKind::ConnectionRefused | ErrorKind::NotFound | ErrorKind::UnexpectedEof | ErrorKind::BrokenPipe => {
                Error::Daemon(format!(
                    "the daemon of the disk {} has ended; clean up with: sudo ahead restore",
                    self.name
                ))
            }
            ErrorKind::WouldBlock | ErrorKind::TimedOut => {
                Error::Daemon(format!("the daemon of the disk {} does not answer", self.name))
            }
            _ => Error::io(format!("query the disk {}", self.name), e),
        };
        let mut stream = local_socket::connect(&socket, ANSWER_TIME).map_err(failed)?;
        stream.write_all(protocol::encode(ask)?.as_bytes()).map_err(failed)?;
        let mut line = String::new();
        let read = BufReader::new(stream.take(LINE_MAX_BYTES)).read_line(&mut line).map_err(failed)?;
        if read == 0 {
            return Err(failed(ErrorKind::UnexpectedEof.into()));
        }
        match protocol::decode(&line)? {
            Answer::Error(message) => Err(Error::Daemon(message)),
            answer => Ok(answer),
        }
    }
}

fn unexpected(answer: &Answer) -> Error {
    Error::Daemon(format!("the daemon's answer does not match the request: {answer:?}"))
}
