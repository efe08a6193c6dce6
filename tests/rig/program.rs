//! Programs: the words of a command are collected, then it is run to its end, or beside the test.
//!
//! ```text
//!     ahead(["replay", "--wait", "--json"]).arg(&profile).json()          ended with status 0, its output parsed
//!     ahead(["bench", "streams"]).fails(2).says("--directory")            ended with this status and message
//!     let mut running = ahead(["record", "--all"]).start();               beside the test; killed when dropped
//! ```
//!
//! Every wait has a limit: a program that hangs fails its test.

use ahead_process::undo::ProcessId;
use ahead_sys::locks::IgnorePoison;
use serde_json::Value;
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::fs::File;
use std::io::{Read, Write};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

/// The largest time for a program. Programs take seconds; a few measurements take two minutes.
const LONGEST: Duration = Duration::from_secs(300);

/// The user `nobody`, who is unprivileged everywhere.
pub const STRANGER: u32 = 65_534;

/// A program that cargo built.
pub fn built(name: &str) -> PathBuf {
    assert_cmd::cargo::cargo_bin(name)
}

/// `ahead` with these arguments.
pub fn ahead<A: AsRef<OsStr>>(arguments: impl IntoIterator<Item = A>) -> Program {
    program(built("ahead")).args(arguments)
}

/// A program, found in `PATH` if it is a name alone.
pub fn program(path: impl AsRef<OsStr>) -> Program {
    Program {
        words: vec![path.as_ref().to_owned()],
        // The tests may be started with sudo: they are root's tests.
        environment: ["SUDO_USER", "SUDO_UID", "SUDO_GID"].map(|name| (name.into(), None)).to_vec(),
        directory: None,
        is_group: false,
        input: Input::Null,
        output: None,
        limit: LONGEST,
    }
}

/// A program in C that was compiled with these options; a source is compiled once in each process that asks for it once.
pub fn compiled(source: &Path, options: &[&str]) -> PathBuf {
    let to = super::machine::target_directory().join(source.file_stem().unwrap());
    program("cc").args(options).arg("-o").arg(&to).arg(source).ok();
    to
}

/// A program and its arguments.
#[derive(Debug)]
pub struct Program {
    words: Vec<OsString>,
    environment: Vec<(OsString, Option<OsString>)>,
    directory: Option<PathBuf>,
    is_group: bool,
    input: Input,
    output: Option<File>,
    limit: Duration,
}

#[derive(Debug)]
enum Input {
    Null,
    Open,
    Bytes(Vec<u8>),
    File(File),
}

impl Program {
    pub fn arg(mut self, word: impl AsRef<OsStr>) -> Program {
        self.words.push(word.as_ref().to_owned());
        self
    }

    pub fn args<A: AsRef<OsStr>>(mut self, words: impl IntoIterator<Item = A>) -> Program {
        self.words.extend(words.into_iter().map(|word| word.as_ref().to_owned()));
        self
    }

    /// Starts another program, whose words follow these.
    pub fn runs(self, other: Program) -> Program {
        self.args(other.words)
    }

    /// Started by these words: `env`, `setpriv` and the like.
    pub fn behind<A: AsRef<OsStr>>(mut self, words: impl IntoIterator<Item = A>) -> Program {
        let before = words.into_iter().map(|word| word.as_ref().to_owned());
        self.words = before.chain(self.words).collect();
        self
    }

    /// Started by a shell script, which has the words as `"$@"`.
    pub fn by_script(self, script: &str) -> Program {
        self.behind(["sh", "-c", script, "sh"])
    }

    /// Started by a script in a separate mount namespace. A new namespace holds a copy of every mount: the test holds the machine alone.
    pub fn apart(self, script: &str) -> Program {
        self.by_script(script).behind(["unshare", "--mount", "--propagation", "private"])
    }

    pub fn as_user(self, user: u32) -> Program {
        let [user, group] = ["--reuid", "--regid"].map(|option| format!("{option}={user}"));
        self.behind(["setpriv", &user, &group, "--clear-groups"])
    }

    pub fn as_stranger(self) -> Program {
        self.as_user(STRANGER)
    }

    /// With the variables in which sudo names the calling user, here the user `nobody`.
    pub fn behind_sudo(self) -> Program {
        let user = STRANGER.to_string();
        self.env("SUDO_UID", &user).env("SUDO_GID", &user).env("SUDO_USER", "nobody")
    }

    pub fn env(mut self, name: &str, value: impl AsRef<OsStr>) -> Program {
        self.environment.push((name.into(), Some(value.as_ref().to_owned())));
        self
    }

    pub fn env_remove(mut self, name: &str) -> Program {
        self.environment.push((name.into(), None));
        self
    }

    pub fn current_dir(mut self, directory: impl AsRef<Path>) -> Program {
        self.directory = Some(directory.as_ref().to_owned());
        self
    }

    /// Standard input; without one it is empty.
    pub fn input(mut self, bytes: impl Into<Vec<u8>>) -> Program {
        self.input = Input::Bytes(bytes.into());
        self
    }

    pub fn input_file(mut self, file: File) -> Program {
        self.input = Input::File(file);
        self
    }

    /// For [`Program::start`]: the test writes the input.
    pub fn open_input(mut self) -> Program {
        self.input = Input::Open;
        self
    }

    /// Standard output goes to this file.
    pub fn output_file(mut self, file: File) -> Program {
        self.output = Some(file);
        self
    }

    pub fn limit(mut self, limit: Duration) -> Program {
        self.limit = limit;
        self
    }

    /// With its children it is a process group, which is killed as a whole when it is dropped.
    pub fn in_own_process_group(mut self) -> Program {
        self.is_group = true;
        self
    }

    /// For what this type does not do.
    pub fn command(&self) -> Command {
        let mut command = Command::new(&self.words[0]);
        command.args(&self.words[1..]);
        for (name, value) in &self.environment {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        if let Some(directory) = &self.directory {
            command.current_dir(directory);
        }
        if self.is_group {
            command.process_group(0);
        }
        command
    }

    /// Starts it beside the test.
    pub fn start(self) -> Running {
        let what = format!("{self}");
        self.try_start().unwrap_or_else(|error| panic!("{what}: {error}"))
    }

    fn try_start(self) -> std::io::Result<Running> {
        let (mut command, what, limit, is_group) = (self.command(), self.to_string(), self.limit, self.is_group);
        let (stdin, bytes) = match self.input {
            Input::Null => (Stdio::null(), None),
            Input::Open => (Stdio::piped(), None),
            Input::Bytes(bytes) => (Stdio::piped(), Some(bytes)),
            Input::File(file) => (file.into(), None),
        };
        command.stdin(stdin).stdout(self.output.map_or_else(Stdio::piped, Stdio::from)).stderr(Stdio::piped());
        let began = Instant::now();
        let mut child = command.spawn()?;
        let output = Stream::of(child.stdout.take());
        let errors = Stream::of(child.stderr.take());
        if let Some(bytes) = bytes
            && let Some(mut stdin) = child.stdin.take()
        {
            // A program that ends early does not read it.
            std::thread::spawn(move || stdin.write_all(&bytes));
        }
        Ok(Running { child, is_group, output, errors, what, limit, began })
    }

    /// Runs it to its end.
    pub fn done(self) -> Done {
        self.start().end()
    }

    /// Whether it exists and ends with status 0.
    pub fn works(self) -> bool {
        self.try_start().is_ok_and(|running| running.end().status.success())
    }

    /// Runs it to its end, which has status 0.
    pub fn ok(self) -> Done {
        self.done().success()
    }

    /// Runs it to its end, which has this status.
    pub fn fails(self, code: i32) -> Done {
        self.done().code(code)
    }

    /// What it prints before its end with status 0.
    pub fn text(self) -> String {
        self.ok().out
    }

    /// The same as JSON.
    pub fn json(self) -> Value {
        self.ok().json()
    }
}

impl fmt::Display for Program {
    fn fmt(&self, formatter: &mut fmt::Formatter) -> fmt::Result {
        let words: Vec<_> = self.words.iter().map(|word| word.to_string_lossy()).collect();
        write!(formatter, "{}", words.join(" "))
    }
}

/// An ended program.
#[derive(Clone, Debug)]
pub struct Done {
    pub what: String,
    pub status: ExitStatus,
    pub out: String,
    pub out_bytes: Vec<u8>,
    pub err: String,
    /// Until it had ended, and its output and messages with it.
    pub took: Duration,
}

impl Done {
    pub fn success(self) -> Done {
        assert!(self.status.success(), "{self}");
        self
    }

    pub fn code(self, code: i32) -> Done {
        assert_eq!(self.status.code(), Some(code), "{self}");
        self
    }

    /// Its messages contain this part.
    pub fn says(self, part: impl AsRef<str>) -> Done {
        assert!(self.err.contains(part.as_ref()), "{:?}: {self}", part.as_ref());
        self
    }

    pub fn says_all(self, parts: &[&str]) -> Done {
        parts.iter().fold(self, |done, part| done.says(part))
    }

    pub fn never_says(self, part: &str) -> Done {
        assert!(!self.err.contains(part), "{part:?}: {self}");
        self
    }

    /// Its output contains this part.
    pub fn prints(self, part: impl AsRef<str>) -> Done {
        assert!(self.out.contains(part.as_ref()), "{:?}: {self}", part.as_ref());
        self
    }

    pub fn prints_all(self, parts: &[&str]) -> Done {
        parts.iter().fold(self, |done, part| done.prints(part))
    }

    /// Its message has one line.
    pub fn in_one_line(self) -> Done {
        assert_eq!(self.err.lines().count(), 1, "{self}");
        self
    }

    /// Its whole output.
    pub fn out_is(self, text: &str) -> Done {
        assert_eq!(self.out, text, "{self}");
        self
    }

    /// Its whole message.
    pub fn err_is(self, text: &str) -> Done {
        assert_eq!(self.err, text, "{self}");
        self
    }

    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.out_bytes).unwrap_or_else(|error| panic!("{error}: {self}"))
    }

    /// The first JSON in its messages, from the begin of a line on.
    pub fn err_json(&self) -> Value {
        let start =
            self.err.match_indices('{').map(|(at, _)| at).find(|at| *at == 0 || self.err[..*at].ends_with('\n'));
        let text = &self.err[start.unwrap_or_else(|| panic!("no JSON: {self}"))..];
        let first = serde_json::Deserializer::from_str(text).into_iter().next();
        first.unwrap().unwrap_or_else(|error| panic!("{error}: {self}"))
    }
}

impl fmt::Display for Done {
    fn fmt(&self, formatter: &mut fmt::Formatter) -> fmt::Result {
        write!(formatter, "{}: {}\n{}\n{}", self.what, self.status, self.out, self.err)
    }
}

/// A program beside the test. It is killed when dropped.
#[derive(Debug)]
pub struct Running {
    child: Child,
    is_group: bool,
    output: Stream,
    errors: Stream,
    what: String,
    limit: Duration,
    began: Instant,
}

impl Running {
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The next line of its output, without the end of line; "" at the end of the output.
    pub fn line(&mut self) -> String {
        self.output.wait(self.limit, &self.what, |read, rest| {
            let length = rest.iter().position(|byte| *byte == b'\n').map(|at| at + 1);
            length.or(read.has_ended.then_some(rest.len()))
        })
    }

    /// Waits until its output contains this part, and returns what came before the end of that line.
    pub fn prints(&mut self, part: &str) -> String {
        self.output.wait_for(self.limit, &self.what, part)
    }

    /// Waits until its messages contain this part.
    pub fn says(&mut self, part: &str) -> String {
        self.errors.wait_for(self.limit, &self.what, part)
    }

    /// Waits until its messages contain one of these parts, or have ended.
    pub fn says_any(&mut self, parts: &[&str]) -> String {
        self.errors.wait(self.limit, &self.what, |read, rest| {
            let said = String::from_utf8_lossy(rest);
            (read.has_ended || parts.iter().any(|part| said.contains(part))).then_some(rest.len())
        })
    }

    /// Writes a line to its input.
    pub fn send(&mut self, line: &str) {
        let input = self.child.stdin.as_mut().expect("a program with an open input");
        input.write_all(format!("{line}\n").as_bytes()).unwrap_or_else(|error| panic!("{}: {error}", self.what));
    }

    /// Writes a line to its input, and returns the next line of its output.
    pub fn ask(&mut self, line: &str) -> String {
        self.send(line);
        self.line()
    }

    pub fn close_input(&mut self) {
        drop(self.child.stdin.take());
    }

    /// Sends a signal: `INT`, `KILL`, `STOP`.
    pub fn signal(&self, name: &str) {
        super::process::signal(self.pid(), name);
    }

    pub fn has_ended(&mut self) -> bool {
        self.child.try_wait().unwrap().is_some()
    }

    /// Waits for its end, but not for that of others that have its output open.
    pub fn status(&mut self) -> ExitStatus {
        assert!(self.ends_within(self.limit), "{} does not end: {}", self.what, self.errors.text());
        self.child.wait().unwrap()
    }

    /// Also called while a failed test is unwound, so it does not panic.
    fn ends_within(&mut self, limit: Duration) -> bool {
        let pid = self.pid();
        // After a wait for it the number may be that of another process.
        let has_ended = self.child.try_wait().is_ok_and(|status| status.is_some());
        let ends = |process| ahead_process::wait_end(process, limit).unwrap_or(false);
        has_ended || ProcessId::of(pid).is_ok_and(|process| process.is_none_or(ends))
    }

    /// Kills it, unless it has ended, closes its input, and waits for its end.
    pub fn kill(&mut self) -> ExitStatus {
        self.child.kill().unwrap();
        // What it has started reads its input.
        self.close_input();
        self.status()
    }

    /// Closes its input, and waits for its end and that of its output.
    pub fn end(mut self) -> Done {
        self.close_input();
        let deadline = self.began + self.limit;
        for stream in [&self.output, &self.errors] {
            let left = deadline.saturating_duration_since(Instant::now());
            stream.wait(left, &self.what, |read, _| read.has_ended.then_some(0));
        }
        let status = self.status();
        let out_bytes = self.output.bytes();
        let (what, out, err) =
            (self.what.clone(), String::from_utf8_lossy(&out_bytes).into_owned(), self.errors.text());
        Done { what, status, out, out_bytes, err, took: self.began.elapsed() }
    }

    /// Waits for its end, which has this status.
    pub fn ends_with(self, code: i32) -> Done {
        self.end().code(code)
    }

    /// Sends a signal and waits for the end.
    pub fn end_by(self, name: &str) -> Done {
        self.signal(name);
        self.end()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if self.is_group && self.child.try_wait().is_ok_and(|status| status.is_none()) {
            let _ = rustix::process::kill_process_group(
                rustix::process::Pid::from_child(&self.child),
                rustix::process::Signal::KILL,
            );
        }
        let _ = self.child.kill();
        // One that waits in the kernel for a file system does not end before the file system does.
        if self.ends_within(Duration::from_secs(10)) {
            let _ = self.child.wait();
        }
    }
}

/// What a thread has read of a pipe so far.
#[derive(Clone, Debug)]
struct Stream(Arc<(Mutex<Seen>, Condvar)>);

#[derive(Debug, Default)]
struct Seen {
    bytes: Vec<u8>,
    /// Returned as lines already.
    returned: usize,
    has_ended: bool,
}

impl Stream {
    fn of(pipe: Option<impl Read + Send + 'static>) -> Stream {
        let stream =
            Stream(Arc::new((Mutex::new(Seen { has_ended: pipe.is_none(), ..Seen::default() }), Condvar::new())));
        if let Some(mut pipe) = pipe {
            let writer = stream.clone();
            std::thread::spawn(move || {
                let mut buffer = [0; 1 << 16];
                loop {
                    let read = pipe.read(&mut buffer).unwrap_or(0);
                    let mut seen = writer.0.0.lock().ignore_poison();
                    seen.bytes.extend_from_slice(&buffer[..read]);
                    seen.has_ended = read == 0;
                    writer.0.1.notify_all();
                    if read == 0 {
                        return;
                    }
                }
            });
        }
        stream
    }

    /// Waits until `take` gives a number of bytes of the rest, and returns these.
    fn wait(&self, limit: Duration, what: &str, take: impl Fn(&Seen, &[u8]) -> Option<usize>) -> String {
        let deadline = Instant::now() + limit;
        let mut seen = self.0.0.lock().ignore_poison();
        loop {
            if let Some(length) = take(&seen, &seen.bytes[seen.returned..]) {
                let taken = String::from_utf8_lossy(&seen.bytes[seen.returned..][..length]).into_owned();
                seen.returned += length;
                return taken.trim_end_matches('\n').to_owned();
            }
            let left = deadline.saturating_duration_since(Instant::now());
            assert!(!left.is_zero(), "{what}: not within the limit: {}", String::from_utf8_lossy(&seen.bytes));
            seen = self.0.1.wait_timeout(seen, left).ignore_poison().0;
        }
    }

    fn wait_for(&self, limit: Duration, what: &str, part: &str) -> String {
        let found = self.wait(limit, what, |seen, rest| {
            let at = rest.windows(part.len()).position(|bytes| bytes == part.as_bytes());
            let end = at.and_then(|at| Some(at + rest[at..].iter().position(|byte| *byte == b'\n')? + 1));
            end.or(seen.has_ended.then_some(rest.len()))
        });
        assert!(found.contains(part), "{what} ended without {part:?}: {found}");
        found
    }

    fn bytes(&self) -> Vec<u8> {
        self.0.0.lock().ignore_poison().bytes.clone()
    }

    fn text(&self) -> String {
        String::from_utf8_lossy(&self.bytes()).into_owned()
    }
}

/// The number of the signal that ended a program.
pub fn signal_of(status: ExitStatus) -> Option<i32> {
    status.signal()
}
