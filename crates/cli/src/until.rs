//! When a run is over: at the program's end, or when what never ends by itself is ready.
//!
//! Ready is what can be seen from outside without touching the program: a line of its output, a port in the kernel's
//! table of listening sockets (nothing connects to it), a file that appears.

use crate::exit::Stopped;
use ahead_process::family;
use ahead_process::{Child, Command, Event, Signals};
use anyhow::{Context, bail};
use clap::Args;
use regex::bytes::Regex;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::cell::Cell;
use std::ffi::OsString;
use std::fs::File;
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::ops::RangeInclusive;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, Receiver, Sender};
use std::time::{Duration, Instant};

/// How a run ends that does not end by itself
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "End of the run")]
pub struct Until {
    /// Ends when a line of the program's output or errors matches; both become pipes for that
    #[arg(long, value_name = "REGEX")]
    until_output: Option<Regex>,
    /// Ends when something listens on this TCP port, as the kernel's table says
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    until_port: Option<u16>,
    /// Ends when this file appears, or is replaced or written
    #[arg(long, value_name = "F")]
    until_file: Option<PathBuf>,
}

/// The statuses of programs that a signal ended; a shell that waited for one has it, too.
const ENDED_BY_SIGNAL: RangeInclusive<i32> = 128 + 1..=128 + 64;

/// How a run went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Finished {
    /// The status to pass on: the program's own; 0 when it was ended by us because it was ready or its time was over.
    pub status: i32,
    /// When it was ready, its time was over, or it had ended.
    pub at: Instant,
    /// The end that was asked for was reached.
    pub ready: bool,
    /// The signal that asked us to stop.
    pub stopped: Option<i32>,
}

impl Finished {
    /// A signal broke it off, sent to us or to the program alone: it did not come to the end that it has otherwise. A
    /// program that ends well at a signal (a server) has come to its end.
    pub fn is_interrupted(self) -> bool {
        !self.ready && (self.stopped.is_some() && self.status != 0 || ENDED_BY_SIGNAL.contains(&self.status))
    }

    /// For whom a run is worth nothing when he was asked to stop meanwhile.
    pub fn unless_stopped(self) -> Result<Finished, Stopped> {
        self.stopped.map_or(Ok(self), |signal| Err(Stopped(signal)))
    }
}

/// How often a port or a file is looked for. Both cost some 20 to 50 µs; a readiness time is this exact.
const LOOK_EVERY: Duration = Duration::from_millis(2);
/// How long a program may take to end after SIGTERM.
const GRACE: Duration = Duration::from_secs(5);

impl Until {
    /// Whether an end other than the program's own was asked for.
    pub fn is_set(&self) -> bool {
        self.until_output.is_some() || self.until_port.is_some() || self.until_file.is_some()
    }

    /// The flags that say the same to another `ahead`.
    pub fn to_arguments(&self) -> Vec<OsString> {
        let output = self.until_output.as_ref().map(|regex| ["--until-output".into(), regex.as_str().into()]);
        let port = self.until_port.map(|port| ["--until-port".into(), port.to_string().into()]);
        let file = self.until_file.as_ref().map(|file| ["--until-file".into(), file.into()]);
        [output, port, file].into_iter().flatten().flatten().collect()
    }

    /// The command as it has to be started for this, and what has to be known before it is.
    pub fn prepare(&self, command: &Command) -> anyhow::Result<(Command, Watch<'_>)> {
        let signs = self.signs(&["self".into()])?;
        if self.is_set() {
            // What the program leaves behind when it ends shall still be ours to end.
            family::adopt_orphans()?;
        }
        let mut started = command.clone();
        if self.until_output.is_some() {
            started.capture_output = true;
            started.discard_output = false;
        }
        Ok((started, Watch { signs, pass_on: !command.discard_output, streams: Vec::new() }))
    }

    /// What can be looked for from outside, and what was there before. `processes`: whose network namespaces count, by
    /// their names in `/proc`.
    ///
    /// # Errors
    /// Somebody listens on the port already.
    pub fn signs(&self, processes: &[String]) -> anyhow::Result<Signs<'_>> {
        let looker = self.until_file.clone().map(Looker::new).transpose()?;
        let before = looker
            .as_ref()
            .map(|looker| looker.look(FIRST_ANSWER_TIME).context("--until-file: its file system does not answer"));
        let signs = Signs { until: self, looker, file_before: before.transpose()?.flatten() };
        if let Some(port) = self.until_port
            && signs.is_there(processes)
        {
            bail!("port {port} is listened on already: end whoever does, or name another port");
        }
        Ok(signs)
    }

    /// Whether an output is waited for, which only who starts the program can read.
    pub fn needs_output(&self) -> bool {
        self.until_output.is_some()
    }

    /// Runs a command to its end or readiness.
    pub fn run(&self, command: &Command, signals: &Signals) -> anyhow::Result<Finished> {
        let (command, watch) = self.prepare(command)?;
        let mut child = Child::spawn_held(&command)?;
        child.release(&command)?;
        watch.wait(&mut child, signals, None)
    }
}

/// What tells a file from another one that has its name later: inode, size, and time of modification.
type Identity = (u64, u64, i64, i64);

fn identity(path: &Path) -> Option<Identity> {
    let metadata = std::fs::metadata(path).ok()?;
    Some((metadata.ino(), metadata.size(), metadata.mtime(), metadata.mtime_nsec()))
}

/// How long a look at a file is waited for.
const ANSWER_TIME: Duration = Duration::from_millis(10);
/// The same of the first, before the program starts: the file may lie on a disk that sleeps.
const FIRST_ANSWER_TIME: Duration = Duration::from_secs(10);

/// Looks at a file in a thread of its own: a file system that does not answer keeps that thread waiting, and not us.
#[derive(Debug)]
struct Looker {
    ask: Sender<()>,
    answers: Receiver<Option<Identity>>,
    is_asked: Cell<bool>,
}

impl Looker {
    fn new(path: PathBuf) -> anyhow::Result<Looker> {
        let ((ask, asked), (give, answers)) = (mpsc::channel(), mpsc::channel());
        // It ends with the looker, or with the process.
        let work = move || asked.iter().try_for_each(|()| give.send(identity(&path)));
        std::thread::Builder::new().spawn(work).context("start a thread")?;
        Ok(Looker { ask, answers, is_asked: Cell::new(false) })
    }

    /// The file that is there, if there is one; `None`: there is no answer yet.
    fn look(&self, limit: Duration) -> Option<Option<Identity>> {
        if !self.is_asked.replace(true) {
            self.ask.send(()).ok()?;
        }
        let answer = self.answers.recv_timeout(limit).ok()?;
        self.is_asked.set(false);
        Some(answer)
    }
}

/// What tells from outside that a program is ready.
#[derive(Debug)]
pub struct Signs<'a> {
    until: &'a Until,
    looker: Option<Looker>,
    file_before: Option<Identity>,
}

impl Signs<'_> {
    /// When to look the next time; `None`: there is nothing to look for.
    pub fn next_look(&self) -> Option<Instant> {
        let looks = self.until.until_port.is_some() || self.until.until_file.is_some();
        looks.then(|| Instant::now() + LOOK_EVERY)
    }

    /// Whether one of these processes (names in `/proc`) sees a listener on the port, or the file is there and another
    /// one than before.
    pub fn is_there(&self, processes: &[String]) -> bool {
        let port = |port| processes.iter().any(|process| is_listened_on(process, port));
        let file = self.looker.as_ref().and_then(|looker| looker.look(ANSWER_TIME)).flatten();
        self.until.until_port.is_some_and(port) || file.is_some() && file != self.file_before
    }
}

/// Waits for the end of one run.
#[derive(Debug)]
pub struct Watch<'a> {
    signs: Signs<'a>,
    pass_on: bool,
    streams: Vec<Stream>,
}

impl Watch<'_> {
    /// Waits until the program has ended, is ready, or `deadline` has passed; in the last two cases it and all that it
    /// started are ended.
    pub fn wait(mut self, child: &mut Child, signals: &Signals, deadline: Option<Instant>) -> anyhow::Result<Finished> {
        if let Some((output, errors)) = child.take_output() {
            self.streams = vec![Stream::new(output.into(), false)?, Stream::new(errors.into(), true)?];
        }
        let mut next_look = self.signs.next_look();
        let process = [child.pid().to_string()];
        let mut stopped = None;
        loop {
            if next_look.is_some_and(|at| Instant::now() >= at) {
                if self.signs.is_there(&process) {
                    return self.end(child, signals, true, stopped);
                }
                next_look = self.signs.next_look();
            }
            if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                return self.end(child, signals, false, stopped);
            }
            let wake = [next_look, deadline].into_iter().flatten().min();
            let readable: Vec<BorrowedFd<'_>> = self.streams.iter().map(|stream| stream.pipe.as_fd()).collect();
            match child.wait_event(signals, &readable, wake)? {
                Event::Ended(ended) => {
                    let at = Instant::now();
                    let ready = self.read_all(Pass { signals, is_patient: stopped.is_none() })?;
                    return Ok(Finished { status: ended.code(), at, ready, stopped });
                }
                Event::Readable(index) => {
                    if self.read(index, Pass { signals, is_patient: stopped.is_none() })? {
                        return self.end(child, signals, true, stopped);
                    }
                }
                // Passed on, or sent to the program as to us by the terminal. Asked twice, it is ended.
                Event::Signal(_) if stopped.is_some() => return self.end(child, signals, false, stopped),
                Event::Signal(number) => stopped = Some(number),
                Event::Timeout => {}
            }
        }
    }

    /// Ends the program and all that it started, and passes on what they still had to say.
    fn end(
        mut self,
        child: &mut Child,
        signals: &Signals,
        ready: bool,
        stopped: Option<i32>,
    ) -> anyhow::Result<Finished> {
        let at = Instant::now();
        let (own_status, signal) = end_family(child, signals)?;
        self.read_all(Pass { signals, is_patient: stopped.is_none() })?;
        let status = if stopped.is_some() && !ready { own_status } else { 0 };
        Ok(Finished { status, at, ready, stopped: stopped.or(signal) })
    }

    /// Reads what one stream has, once; `true`: a line matched.
    fn read(&mut self, index: usize, pass: Pass<'_>) -> anyhow::Result<bool> {
        let pass = self.pass_on.then_some(pass);
        match self.streams[index].read(self.signs.until.until_output.as_ref(), pass)? {
            Seen::Nothing => Ok(false),
            Seen::Match => Ok(true),
            Seen::End => {
                self.streams.remove(index);
                Ok(false)
            }
        }
    }

    /// Reads what is left in the pipes of a program that has ended. Another process may hold them open, and write for ever:
    /// no more is read than the pipe can have held at that end.
    fn read_all(&mut self, pass: Pass<'_>) -> anyhow::Result<bool> {
        let (mut matched, pass) = (false, self.pass_on.then_some(pass));
        for mut stream in self.streams.drain(..) {
            let end = stream.read_bytes + PIPE_MOST_BYTES;
            while stream.read_bytes < end {
                match stream.read(self.signs.until.until_output.as_ref(), pass)? {
                    Seen::Nothing if stream.is_empty => break,
                    Seen::End => break,
                    Seen::Match => matched = true,
                    Seen::Nothing => {}
                }
            }
        }
        Ok(matched)
    }
}

/// Ends the program and all that it started: SIGTERM to all, then SIGKILL to those that are left. Gives its status, and the
/// signal that asked us to stop meanwhile.
fn end_family(child: &mut Child, signals: &Signals) -> anyhow::Result<(i32, Option<i32>)> {
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

/// One captured stream of the program.
#[derive(Debug)]
struct Stream {
    pipe: File,
    is_errors: bool,
    line: Vec<u8>,
    is_empty: bool,
    read_bytes: u64,
}

/// How output is passed on: whoever reads it may be slow, or have stopped, and must not keep a signal from us.
#[derive(Clone, Copy)]
struct Pass<'a> {
    signals: &'a Signals,
    /// Waits for a reader until a signal arrives. After one, what nobody takes at once is dropped.
    is_patient: bool,
}

/// A pipe that can be written takes so much without waiting (`PIPE_BUF`).
const AT_ONCE_BYTES: usize = 4096;

impl Pass<'_> {
    fn write(self, to: &mut (impl Write + AsFd), bytes: &[u8]) -> std::io::Result<()> {
        let no_time = Timespec { tv_sec: 0, tv_nsec: 0 };
        let limit = if self.is_patient { None } else { Some(&no_time) };
        for part in bytes.chunks(AT_ONCE_BYTES) {
            let is_writable = {
                let mut fds = [PollFd::new(&*to, PollFlags::OUT), PollFd::new(self.signals, PollFlags::IN)];
                rustix::io::retry_on_intr(|| poll(&mut fds, limit))?;
                !fds[0].revents().is_empty()
            };
            if !is_writable {
                return Ok(());
            }
            to.write_all(part)?;
            to.flush()?;
        }
        Ok(())
    }
}

enum Seen {
    Nothing,
    Match,
    End,
}

/// A line is matched up to this length. Programs that print no newline must not fill our memory, and the line so far is
/// matched at every read: of one that comes byte by byte, the work grows with the square.
const LINE_MOST_BYTES: usize = 64 << 10;

/// The most that a pipe holds by default (`/proc/sys/fs/pipe-max-size`); ours hold less.
const PIPE_MOST_BYTES: u64 = 1 << 20;

impl Stream {
    fn new(pipe: File, is_errors: bool) -> anyhow::Result<Stream> {
        rustix::io::ioctl_fionbio(&pipe, true).context("set up a pipe")?;
        Ok(Stream { pipe, is_errors, line: Vec::new(), is_empty: false, read_bytes: 0 })
    }

    /// Reads once, passes it on, and looks for the pattern in every line that is complete or could become one.
    fn read(&mut self, pattern: Option<&Regex>, pass: Option<Pass<'_>>) -> anyhow::Result<Seen> {
        let mut buffer = [0; 1 << 16];
        let bytes = match self.pipe.read(&mut buffer) {
            Ok(0) => return Ok(Seen::End),
            Ok(count) => {
                self.read_bytes += count as u64;
                &buffer[..count]
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                self.is_empty = true;
                return Ok(Seen::Nothing);
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => return Ok(Seen::Nothing),
            Err(error) => return Err(error).context("read the program's output"),
        };
        if let Some(pass) = pass {
            // Nobody listens any more (`| head`): the program need not know.
            let _ = if self.is_errors {
                pass.write(&mut std::io::stderr(), bytes)
            } else {
                pass.write(&mut std::io::stdout(), bytes)
            };
        }
        Ok(if self.matches(bytes, pattern) { Seen::Match } else { Seen::Nothing })
    }

    fn matches(&mut self, bytes: &[u8], pattern: Option<&Regex>) -> bool {
        let mut matched = false;
        for piece in bytes.split_inclusive(|byte| *byte == b'\n') {
            let room = LINE_MOST_BYTES.saturating_sub(self.line.len()).min(piece.len());
            self.line.extend(&piece[..room]);
            let is_whole = piece.ends_with(b"\n");
            if room > 0 {
                // A prompt has no newline: the line so far counts, too.
                let text = self.line.strip_suffix(b"\n").unwrap_or(&self.line);
                matched |= pattern.is_some_and(|pattern| pattern.is_match(text));
            }
            if is_whole {
                self.line.clear();
            }
        }
        matched
    }
}

/// Whether a process's network namespace has a socket that listens on this port. The table is as long as there are sockets.
fn is_listened_on(process: &str, port: u16) -> bool {
    ["tcp", "tcp6"].iter().any(|protocol| {
        let table = File::open(format!("/proc/{process}/net/{protocol}"));
        table.is_ok_and(|table| has_listener(BufReader::new(table), port))
    })
}

/// `0: 0100007F:1F90 00000000:0000 0A …`: the local address and port, the other end's, and the state; 0A is LISTEN.
fn has_listener(table: impl BufRead, port: u16) -> bool {
    table.lines().map_while(Result::ok).skip(1).any(|line| {
        let mut fields = line.split_ascii_whitespace().skip(1);
        let local = fields.next().and_then(|address| u16::from_str_radix(address.rsplit_once(':')?.1, 16).ok());
        local == Some(port) && fields.nth(1) == Some("0A")
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Seek, SeekFrom};

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

    /// Regression: a program that was killed, and not `ahead`, was taken for one that had come to its end.
    #[test]
    fn a_run_is_interrupted_by_a_signal_to_either() {
        let finished = |status, ready, stopped| Finished { status, at: Instant::now(), ready, stopped };
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

    /// Regression: whoever wrote for ever into the pipe of a program that had ended kept us reading for ever.
    #[test]
    fn what_others_go_on_writing_after_the_end_is_not_read_to_an_end() {
        let endless = || Stream::new(File::open("/dev/zero").unwrap(), false).unwrap();
        let until = Until { until_output: Some(Regex::new("never").unwrap()), ..Until::default() };
        let signs = until.signs(&[]).unwrap();
        let mut watch = Watch { signs, pass_on: false, streams: vec![endless(), endless()] };
        let signals = Signals::take().unwrap();
        assert!(!watch.read_all(Pass { signals: &signals, is_patient: true }).unwrap());
    }

    #[test]
    fn a_file_is_looked_at_and_no_answer_is_not_waited_for() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("ready");
        let looker = Looker::new(path.clone()).unwrap();
        let answer = || loop {
            // On a busy machine an answer may take longer than it is waited for.
            if let Some(answer) = looker.look(ANSWER_TIME) {
                return answer;
            }
        };
        assert_eq!(answer(), None);
        std::fs::write(&path, "x").unwrap();
        assert_eq!(answer(), identity(&path));
        // Asked, and not answered.
        let (ask, _asked) = mpsc::channel();
        let (_give, answers) = mpsc::channel();
        let silent = Looker { ask, answers, is_asked: Cell::new(false) };
        assert_eq!((silent.look(ANSWER_TIME), silent.look(ANSWER_TIME), silent.is_asked.get()), (None, None, true));
    }

    #[test]
    fn what_nobody_takes_is_dropped_after_a_signal() {
        let signals = Signals::take().unwrap();
        let (reader, mut writer) = std::io::pipe().unwrap();
        let pass = Pass { signals: &signals, is_patient: false };
        // More than any pipe holds.
        pass.write(&mut writer, &vec![b'x'; 4 << 20]).unwrap();
        drop(writer);
        let passed = std::io::read_to_string(reader).unwrap().len();
        assert!((AT_ONCE_BYTES..4 << 20).contains(&passed), "{passed}");
    }

    /// Regression: a line without an end was matched again at each byte, up to a mebibyte.
    #[test]
    fn a_line_that_is_too_long_is_not_matched_again() {
        let mut stream = Stream::new(tempfile::tempfile().unwrap(), false).unwrap();
        let pattern = Regex::new("x$").unwrap();
        assert!(!stream.matches(&vec![b'y'; LINE_MOST_BYTES], Some(&pattern)));
        assert!(!stream.matches(b"x", Some(&pattern)));
        assert_eq!(stream.line.len(), LINE_MOST_BYTES);
        assert!(!stream.matches(b"x\n", Some(&pattern)) && stream.matches(b"x\n", Some(&pattern)));
    }

    #[test]
    fn lines_are_matched_whole_across_reads() {
        let mut stream = Stream::new(tempfile::tempfile().unwrap(), false).unwrap();
        let pattern = Regex::new("^started$").unwrap();
        assert!(!stream.matches(b"x\nstar", Some(&pattern)));
        assert!(stream.matches(b"ted\n", Some(&pattern)));
        assert!(!stream.matches(b"not started\n", Some(&pattern)));
        stream.pipe.write_all(b"started").unwrap();
        stream.pipe.seek(SeekFrom::Start(0)).unwrap();
        assert!(matches!(stream.read(Some(&pattern), None).unwrap(), Seen::Match));
    }
}
