//! The end of a run: the program ends, or a program that does not end by itself (a server, a desktop program) is ready.
//!
//! Readiness is observed from outside, without a change to the program: a line of its output, a listening port in the kernel's
//! socket table (without a connection to it), or a file that appears.

mod stream;

use crate::{Error, Result, Stopped};
use ahead_process::family;
use ahead_process::{Child, Command, Event, Signals};
use regex_lite::Regex;
use std::cell::Cell;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::ops::RangeInclusive;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, Receiver, Sender};
use std::time::{Duration, Instant};
use stream::{LineSeen, PIPE_MOST_BYTES, Pass, Stream};

ahead_model::options! {
    /// The end of a run of a program that does not end by itself. Without a condition, the run ends with the program.
    #[derive(Clone, Debug, Default)]
    pub struct Until {
        /// A line of the program's standard output or standard error matches. Both are redirected to pipes.
        pub output: Option<Regex>,
        /// A process listens on this TCP port.
        pub port: Option<u16>,
        /// This file appears, or is replaced or written.
        pub file: Option<PathBuf>,
        /// How long the run goes on after it was ready: what a program reads beside its first work competes for the disk, too.
        pub linger: Duration,
    }
}

/// The exit statuses of programs that a signal ended, also of a shell that waited for such a program.
const ENDED_BY_SIGNAL: RangeInclusive<i32> = 128 + 1..=128 + 64;

/// The result of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Finished {
    /// The status to pass on: that of the program; 0 if `ahead` ended it because it was ready or the time limit had passed.
    pub status: i32,
    /// When the program was ready, the time limit passed, or the program ended.
    pub at: Instant,
    /// The end of the run: `at`, or later if it went on ([`Until::linger`]).
    pub observed_until: Instant,
    /// The requested readiness was reached.
    pub ready: bool,
    /// The signal that stopped `ahead`.
    pub stopped: Option<i32>,
}

impl Finished {
    /// Whether a signal to this process, or to the program alone, interrupted the run. A program that exits with status 0 after a
    /// signal (a server) was not interrupted.
    pub fn is_interrupted(self) -> bool {
        !self.ready && (self.stopped.is_some() && self.status != 0 || ENDED_BY_SIGNAL.contains(&self.status))
    }

    /// For callers that discard a run if a signal stopped it.
    ///
    /// Errors: [`Stopped`], with the signal.
    pub fn unless_stopped(self) -> std::result::Result<Finished, Stopped> {
        self.stopped.map_or(Ok(self), |signal| Err(Stopped(signal)))
    }
}

/// Interval between checks of a port or a file. A check takes 20 to 50 µs. The interval is the accuracy of a readiness time.
const LOOK_EVERY: Duration = Duration::from_millis(2);
/// How long a program may take to end after SIGTERM.
const GRACE: Duration = Duration::from_secs(5);

impl Until {
    /// Whether there is any condition.
    pub fn is_set(&self) -> bool {
        self.output.is_some() || self.port.is_some() || self.file.is_some()
    }

    /// Returns the command to start, with pipes if output is searched, and the state of the conditions before the start.
    pub(crate) fn prepare(&self, command: &Command) -> Result<(Command, Watch<'_>)> {
        let signs = self.signs(&["self".into()])?;
        if self.is_set() {
            // Processes that the program leaves behind become our children, so that they can be ended.
            family::adopt_orphans()?;
        }
        let mut started = command.clone();
        if self.output.is_some() {
            started.capture_output = true;
            started.discard_output = false;
        }
        Ok((started, Watch { signs, pass_on: !command.discard_output, streams: Vec::new() }))
    }

    /// The conditions that can be checked from outside, with their state now. `processes`: names in `/proc` of the processes
    /// whose network namespaces count.
    ///
    /// # Errors
    /// A process listens on the port already.
    pub(crate) fn signs(&self, processes: &[String]) -> Result<Signs<'_>> {
        let looker = self.file.clone().map(Looker::new).transpose()?;
        let before = looker.as_ref().map(|looker| looker.look(FIRST_ANSWER_TIME).ok_or(Error::FileNotAnswering));
        let signs = Signs { until: self, looker, file_before: before.transpose()?.flatten() };
        if let Some(port) = self.port
            && signs.is_there(processes)
        {
            return Err(Error::PortInUse(port));
        }
        Ok(signs)
    }

    /// Whether output is searched. Only the process that starts the program can read it.
    pub fn needs_output(&self) -> bool {
        self.output.is_some()
    }

    /// Runs a command to its end or readiness.
    pub(crate) fn run(&self, command: &Command, signals: &Signals) -> Result<Finished> {
        let (command, watch) = self.prepare(command)?;
        let mut child = Child::spawn_held(&command)?;
        child.release(&command)?;
        watch.wait(&mut child, signals, None)
    }
}

/// Distinguishes a file from a later one of the same name: inode, size, and modification time.
type UntilIdentity = (u64, u64, i64, i64);

fn identity(path: &Path) -> Option<UntilIdentity> {
    let metadata = std::fs::metadata(path).ok()?;
    Some((metadata.ino(), metadata.size(), metadata.mtime(), metadata.mtime_nsec()))
}

/// Timeout of a check of the file.
const ANSWER_TIME: Duration = Duration::from_millis(10);
/// Timeout of the first check, before the program starts: the file may be on a disk that has to spin up.
const FIRST_ANSWER_TIME: Duration = Duration::from_secs(10);

/// Checks a file in a separate thread: if the file system does not answer, only that thread waits.
#[derive(Debug)]
struct Looker {
    ask: Sender<()>,
    answers: Receiver<Option<UntilIdentity>>,
    is_asked: Cell<bool>,
}

impl Looker {
    fn new(path: PathBuf) -> Result<Looker> {
        let ((ask, asked), (give, answers)) = (mpsc::channel(), mpsc::channel());
        // The thread ends when the looker is dropped, or with the process.
        let work = move || asked.iter().try_for_each(|()| give.send(identity(&path)));
        std::thread::Builder::new().spawn(work).map_err(|e| Error::io("start a thread", e))?;
        Ok(Looker { ask, answers, is_asked: Cell::new(false) })
    }

    /// The file if it exists; the outer `None`: there is no answer yet.
    fn look(&self, limit: Duration) -> Option<Option<UntilIdentity>> {
        if !self.is_asked.replace(true) {
            self.ask.send(()).ok()?;
        }
        let answer = self.answers.recv_timeout(limit).ok()?;
        self.is_asked.set(false);
        Some(answer)
    }
}

/// Conditions, visible from outside, that a program is ready.
#[derive(Debug)]
pub(crate) struct Signs<'a> {
    until: &'a Until,
    looker: Option<Looker>,
    file_before: Option<UntilIdentity>,
}

impl Signs<'_> {
    /// When to check again; `None`: there is no condition on a port or a file.
    pub fn next_look(&self) -> Option<Instant> {
        let looks = self.until.port.is_some() || self.until.file.is_some();
        looks.then(|| Instant::now() + LOOK_EVERY)
    }

    /// Whether a listener on the port exists in the network namespace of one of these processes (names in `/proc`), or the file
    /// exists and differs from the earlier one.
    pub fn is_there(&self, processes: &[String]) -> bool {
        let port = |port| processes.iter().any(|process| is_listened_on(process, port));
        let file = self.looker.as_ref().and_then(|looker| looker.look(ANSWER_TIME)).flatten();
        self.until.port.is_some_and(port) || file.is_some() && file != self.file_before
    }
}

/// Waits for the end of one run.
#[derive(Debug)]
pub(crate) struct Watch<'a> {
    signs: Signs<'a>,
    pass_on: bool,
    streams: Vec<Stream>,
}

impl Watch<'_> {
    /// Waits until the program has ended, is ready, or `deadline` has passed. In the last two cases, ends the program and all
    /// processes that it started.
    pub fn wait(mut self, child: &mut Child, signals: &Signals, deadline: Option<Instant>) -> Result<Finished> {
        if let Some((output, errors)) = child.take_output() {
            self.streams = vec![Stream::new(output.into(), false)?, Stream::new(errors.into(), true)?];
        }
        let mut next_look = self.signs.next_look();
        let process = [child.pid().to_string()];
        let (mut end_at, mut ready_at, mut stopped) = (deadline, None, None);
        loop {
            if next_look.is_some_and(|at| Instant::now() >= at) {
                next_look = self.signs.next_look();
                if self.signs.is_there(&process) {
                    (ready_at, next_look) = (Some(Instant::now()), None);
                    end_at = self.end_of_linger(deadline);
                }
            }
            if end_at.is_some_and(|end_at| Instant::now() >= end_at) {
                return self.end(child, signals, ready_at, stopped);
            }
            let wake = [next_look, end_at].into_iter().flatten().min();
            let readable: Vec<BorrowedFd<'_>> = self.streams.iter().map(|stream| stream.pipe.as_fd()).collect();
            match child.wait_event(signals, &readable, wake)? {
                Event::Ended(ended) => {
                    let now = Instant::now();
                    let matches = self.read_all(Pass { signals, is_patient: stopped.is_none() })?;
                    // A program that ends while the run goes on has done its work.
                    let status = if ready_at.is_some() { 0 } else { ended.code() };
                    let (at, ready) = (ready_at.unwrap_or(now), matches || ready_at.is_some());
                    return Ok(Finished { status, at, observed_until: now, ready, stopped });
                }
                Event::Readable(index) => {
                    let matches = self.read(index, Pass { signals, is_patient: stopped.is_none() })?;
                    if matches && ready_at.is_none() {
                        (ready_at, next_look) = (Some(Instant::now()), None);
                        end_at = self.end_of_linger(deadline);
                    }
                }
                // The first signal is passed on, or the terminal has sent it to the program, too. The second one ends the program, and so
                // does the first one after readiness.
                Event::Signal(_) if stopped.is_some() || ready_at.is_some() => {
                    return self.end(child, signals, ready_at, stopped);
                }
                Event::Signal(number) => stopped = Some(number),
                Event::Timeout => {}
            }
        }
    }

    /// The end of a run that is ready now.
    fn end_of_linger(&self, deadline: Option<Instant>) -> Option<Instant> {
        [Instant::now().checked_add(self.signs.until.linger), deadline].into_iter().flatten().min()
    }

    /// Ends the program and all processes that it started, and passes on their remaining output.
    fn end(
        mut self,
        child: &mut Child,
        signals: &Signals,
        ready_at: Option<Instant>,
        stopped: Option<i32>,
    ) -> Result<Finished> {
        let now = Instant::now();
        let (own_status, signal) = end_family(child, signals)?;
        self.read_all(Pass { signals, is_patient: stopped.is_none() })?;
        let status = if stopped.is_some() && ready_at.is_none() { own_status } else { 0 };
        let (at, ready) = (ready_at.unwrap_or(now), ready_at.is_some());
        Ok(Finished { status, at, observed_until: now, ready, stopped: stopped.or(signal) })
    }

    /// Reads one stream once. Returns whether a line matched.
    fn read(&mut self, index: usize, pass: Pass<'_>) -> Result<bool> {
        let pass = self.pass_on.then_some(pass);
        match self.streams[index].read(self.signs.until.output.as_ref(), pass)? {
            LineSeen::Nothing => Ok(false),
            LineSeen::Match => Ok(true),
            LineSeen::End => {
                self.streams.remove(index);
                Ok(false)
            }
        }
    }

    /// Reads the remaining output in the pipes of a program that has ended. Another process may hold the pipes open and write
    /// without end, so this reads at most the capacity of a pipe.
    fn read_all(&mut self, pass: Pass<'_>) -> Result<bool> {
        let (mut matched, pass) = (false, self.pass_on.then_some(pass));
        for mut stream in self.streams.drain(..) {
            let end = stream.read_bytes + PIPE_MOST_BYTES;
            while stream.read_bytes < end {
                match stream.read(self.signs.until.output.as_ref(), pass)? {
                    LineSeen::Nothing if stream.is_empty => break,
                    LineSeen::End => break,
                    LineSeen::Match => matched = true,
                    LineSeen::Nothing => {}
                }
            }
        }
        Ok(matched)
    }
}

/// Ends the program and all processes that it started: SIGTERM to all, then SIGKILL to the remaining ones. Returns the program's
/// status, and a signal that arrived meanwhile.
fn end_family(child: &mut Child, signals: &Signals) -> Result<(i32, Option<i32>)> {
    let own = std::process::id();
    family::terminate(own)?;
    let deadline = Instant::now() + GRACE;
    let mut stopped = None;
    let ended = loop {
        match child.wait_event(signals, &[], Some(deadline))? {
            Event::Ended(ended) => break ended,
            Event::Timeout => child.signal(rustix::process::Signal::KILL.as_raw()),
            Event::Signal(number) => stopped = Some(number),
            Event::Readable(_) => {}
        }
    };
    family::end(own)?;
    Ok((ended.code(), stopped))
}

/// Whether a socket in the network namespace of a process listens on this port. Reads the whole socket table.
fn is_listened_on(process: &str, port: u16) -> bool {
    ["tcp", "tcp6"].iter().any(|protocol| {
        let table = File::open(format!("/proc/{process}/net/{protocol}"));
        table.is_ok_and(|table| has_listener(BufReader::new(table), port))
    })
}

/// `0: 0100007F:1F90 00000000:0000 0A …`: local address and port, remote address and port, state; 0A is LISTEN.
fn has_listener(table: impl BufRead, port: u16) -> bool {
    table.lines().map_while(std::io::Result::ok).skip(1).any(|line| {
        let mut fields = line.split_ascii_whitespace().skip(1);
        let local = fields.next().and_then(|address| u16::from_str_radix(address.rsplit_once(':')?.1, 16).ok());
        local == Some(port) && fields.nth(1) == Some("0A")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_listening_port_is_found_in_the_kernels_table() {
        let table = "  sl  local_address rem_address   st tx_queue\n   0: 0100007F:1F90 00000000:0000 0A 00000000:0\n   \
                     1: 0100007F:1F91 0100007F:0050 01 0:0\n";
        assert!(has_listener(table.as_bytes(), 8080));
        assert!(!has_listener(table.as_bytes(), 8081));
        assert!(!has_listener(&b"garbage\n x y z\n"[..], 1));
        let socket = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        assert!(is_listened_on("self", socket.local_addr().unwrap().port()));
    }

    /// Regression: a program that was killed by a signal to itself counted as one that had ended normally.
    #[test]
    fn a_run_is_interrupted_by_a_signal_to_either() {
        let now = Instant::now();
        let finished = |status, ready, stopped| Finished { status, at: now, observed_until: now, ready, stopped };
        for (status, ready, stopped) in [(143, false, Some(15)), (1, false, Some(2)), (137, false, None)] {
            assert!(finished(status, ready, stopped).is_interrupted(), "{status}");
        }
        for (status, ready, stopped) in [
            (0, false, None),
            (0, false, Some(15)),
            (0, true, Some(15)),
            (137, true, None),
            (1, false, None),
            (255, false, None),
        ] {
            assert!(!finished(status, ready, stopped).is_interrupted(), "{status}");
        }
    }

    /// Regression: a process that wrote without end into the pipe of an ended program made `ahead` read without end.
    #[test]
    fn endless_output_of_another_process_is_not_read_to_its_end() {
        let endless = || Stream::new(File::open("/dev/zero").unwrap(), false).unwrap();
        let until = Until { output: Some(Regex::new("never").unwrap()), ..Until::default() };
        let signs = until.signs(&[]).unwrap();
        let mut watch = Watch { signs, pass_on: false, streams: vec![endless(), endless()] };
        let signals = Signals::take().unwrap();
        assert!(!watch.read_all(Pass { signals: &signals, is_patient: true }).unwrap());
    }

    #[test]
    fn file_check_times_out_without_an_answer() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("ready");
        let looker = Looker::new(path.clone()).unwrap();
        let answer = || loop {
            // On a busy machine an answer may take longer than the timeout.
            if let Some(answer) = looker.look(ANSWER_TIME) {
                return answer;
            }
        };
        assert_eq!(answer(), None);
        std::fs::write(&path, "x").unwrap();
        assert_eq!(answer(), identity(&path));
        // A thread that does not answer.
        let (ask, _asked) = mpsc::channel();
        let (_give, answers) = mpsc::channel();
        let silent = Looker { ask, answers, is_asked: Cell::new(false) };
        assert_eq!((silent.look(ANSWER_TIME), silent.look(ANSWER_TIME), silent.is_asked.get()), (None, None, true));
    }
}
