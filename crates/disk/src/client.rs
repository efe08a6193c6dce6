//! Asking a disk's daemon.

use crate::protocol::{self, Answer, Ask, FaultChange, Faults, LINE_MAX_BYTES, Lead, Read as Served, Stat};
use crate::state::Paths;
use crate::{DiskInfo, Error, Result};
use ahead_sys::local_socket;
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::time::Duration;

/// How long the daemon may take for an answer. It only looks at counters; a daemon that needs longer is stopped or stuck.
const ANSWER_TIME: Duration = Duration::from_secs(10);

/// A line to a disk's daemon. Each question opens a connection of its own, so nothing is held open.
#[derive(Clone, Debug)]
pub struct Client {
    name: String,
}

impl Client {
    /// For this disk.
    pub fn new(disk: &DiskInfo) -> Client {
        Client::named(&disk.name)
    }

    /// For the disk of this name, which may not be complete yet.
    pub fn named(name: &str) -> Client {
        Client { name: name.into() }
    }

    /// What it has done since its counters were last reset. Needs root.
    pub fn stat(&self) -> Result<Stat> {
        self.stat_and(false)
    }

    /// Sets its counters to zero, and gives what they were.
    pub fn reset(&self) -> Result<Stat> {
        self.stat_and(true)
    }

    /// Its last reads since its counters were reset, at most some thousands, in the order they were answered.
    pub fn reads(&self) -> Result<Vec<Served>> {
        match self.ask(&Ask::Reads)? {
            Answer::Reads(reads) => Ok(reads),
            other => Err(unexpected(&other)),
        }
    }

    /// Changes what is injected, and gives what is injected from now on.
    pub fn fault(&self, change: FaultChange) -> Result<Faults> {
        match self.ask(&Ask::Fault(change))? {
            Answer::Faults(faults) => Ok(faults),
            other => Err(unexpected(&other)),
        }
    }

    /// Puts its model into the state after power-on: nothing is in the drive's own buffer any more, which evicting pages
    /// does not reach. What a network volume has spent of its bursts stays spent. Needs root.
    pub fn restart(&self) -> Result<()> {
        self.do_it(&Ask::Restart)
    }

    /// Puts the disk's model in force, with answers sent earlier by `lead`; counters and head start anew.
    pub fn engage(&self, lead: Lead) -> Result<()> {
        self.do_it(&Ask::Engage { lead })
    }

    /// Asks the server to end.
    pub fn end(&self) -> Result<()> {
        self.do_it(&Ask::End)
    }

    fn do_it(&self, ask: &Ask) -> Result<()> {
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
                Error::Kernel(ahead_sys::Error::needs_root(format!("asking the disk {}", self.name)))
            }
            ErrorKind::ConnectionRefused | ErrorKind::NotFound | ErrorKind::UnexpectedEof | ErrorKind::BrokenPipe => {
                Error::Daemon(format!("the daemon of the disk {} is gone; clean up with: ahead restore", self.name))
            }
            ErrorKind::WouldBlock | ErrorKind::TimedOut => {
                Error::Daemon(format!("the daemon of the disk {} does not answer", self.name))
            }
            _ => Error::io(format!("ask the disk {}", self.name), e),
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
    Error::Daemon(format!("the daemon gave an answer to another question: {answer:?}"))
}
