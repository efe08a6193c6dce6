//! Announces every exec of the machine, and counts how long each start waits for I/O (`bpf/launches.bpf.c`).

mod decode;

use crate::objects::{self, Compiled, bpf_error, map, number};
use crate::program_file::ProgramFile;
use crate::reader::{EventStream, events};
use crate::tracer::check_host;
use ahead_sys::Result;
use libbpf_rs::{Link, MapCore, MapFlags, Object};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

static OBJECT: Compiled = Compiled(include_bytes!(concat!(env!("OUT_DIR"), "/launches.bpf.deflate")));

/// Sizes of the kernel's tables, which are locked memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LaunchOptions {
    /// Size of the ring buffer, rounded up to a power of two.
    pub ring_bytes: u32,
    /// Most starts that have an account at the same time; an entry takes about 150 bytes.
    pub starts: u32,
}

impl Default for LaunchOptions {
    /// Room for the execs of two seconds at 2,000 a second, of 200 bytes each; and for as many starts that run side by side.
    fn default() -> LaunchOptions {
        LaunchOptions { ring_bytes: 1 << 20, starts: 1 << 12 }
    }
}

/// A start: a process from its exec on, with its descendants. A process number is used again, so the time belongs to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StartId {
    pub pid: u32,
    /// Time of the exec on CLOCK_MONOTONIC.
    pub began_ns: u64,
}

/// An exec that succeeded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Launch {
    /// Time on CLOCK_MONOTONIC.
    pub time_ns: u64,
    /// The process, by the machine's number.
    pub pid: u32,
    pub parent: u32,
    /// The real user and group of the caller.
    pub uid: u32,
    pub gid: u32,
    /// The effective user or group is another one: a setuid or setgid program.
    pub is_elevated: bool,
    /// The start that the process is in from now on: its own, or the one that it was in if it executes that start's program again.
    /// `None`: the table of starts was full, and there is no account.
    pub start: Option<StartId>,
    /// The start that a new start is nested in. The waits of a nested start are only in its own account.
    pub nested_in: Option<StartId>,
    /// The executed file; for a script its interpreter.
    pub program: ProgramFile,
    /// Whether the kernel runs an interpreter on the named file. Each script is a separate start.
    pub is_script: bool,
    /// The script, where the kernel knows it at that time: if its interpreter gets a descriptor of it (binfmt_misc). Otherwise `name` says which
    /// it is.
    pub script: Option<ProgramFile>,
    /// The number of the mount namespace.
    pub mount_namespace: u32,
    /// The name as given to execve, at most 4095 bytes. It may be relative to the directory of the process.
    pub name: Vec<u8>,
    /// The name of a script's interpreter, at most 255 bytes; otherwise empty.
    pub interpreter: Vec<u8>,
    /// One of the names was longer.
    pub is_truncated: bool,
}

impl Launch {
    /// The start that begins with this exec.
    pub fn new_start(&self) -> Option<StartId> {
        self.start.filter(|start| *start == StartId { pid: self.pid, began_ns: self.time_ns })
    }
}

/// What a start waited for, without the starts nested in it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StartAccount {
    /// From its begin to its end, or until now.
    pub elapsed: Duration,
    /// How long at least one of its threads waited for I/O.
    pub waited: Duration,
    /// The part of it before the begin: execve reads the beginning of the program before it is announced.
    pub waited_in_exec: Duration,
    /// Waits of all threads.
    pub waits: u32,
    pub major_faults: u32,
    /// Bytes of the reads that its threads asked the disks for. The reads of execve itself are not among them.
    pub read_bytes: u64,
    /// Processes that run; 0 at the end.
    pub processes: u32,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LaunchEvent {
    Exec(Launch),
    /// The last process of a start has ended or executed another program. Starts nested in it may run.
    Ended(StartId, StartAccount),
}

/// What was not reported.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LaunchLosses {
    /// Events: the ring buffer was full, a program was not run, or an event could not be decoded.
    pub events: u64,
    /// Starts without an account, because a table was full.
    pub starts: u64,
}

/// A running observer of all execs. It detaches when it is dropped.
#[derive(Debug)]
pub struct Launches {
    stream: EventStream<LaunchEvent>,
    object: Object,
    _links: Vec<Link>,
    /// Number of missed program runs at the start.
    passed_over: u64,
}

impl Launches {
    /// The usual limit of [`Self::take`].
    pub const MOST_AT_ONCE: usize = 1024;

    /// Starts to observe. Needs root, or CAP_BPF and CAP_PERFMON, and BTF.
    ///
    /// # Errors
    /// [`ahead_sys::Error::NotPermitted`] and [`ahead_sys::Error::Unsupported`], with what is missing. Then no program stays attached.
    pub fn start(options: &LaunchOptions) -> Result<Launches> {
        check_host()?;
        let mut open = objects::open("launches", &OBJECT)?;
        for mut map in open.maps_mut() {
            let outcome = match map.name().to_string_lossy().as_ref() {
                // The kernel needs a whole page.
                "launches" => {
                    map.set_max_entries(options.ring_bytes.clamp(RING_LEAST_BYTES, 1 << 30).next_power_of_two())
                }
                "starts" => map.set_max_entries(options.starts.max(1)),
                _ => Ok(()),
            };
            outcome.map_err(|e| bpf_error("set up the tables of starts", e))?;
        }
        let (object, links) = objects::attach_all(open)?;
        let passed_over = objects::passed_over(&object)?;
        let stream = EventStream::new(events(&object, "launches")?, decode::event)?;
        Ok(Launches { stream, object, _links: links, passed_over })
    }

    /// Calls `each` with the events that wait, at most `most` of them, in the order in which they happened on each processor. Returns their
    /// number; never blocks.
    ///
    /// # Errors
    /// The ring buffer cannot be read any more.
    pub fn take(&mut self, most: usize, each: impl FnMut(&LaunchEvent)) -> Result<usize> {
        self.stream.take(most, each)
    }

    /// The account of a running start; `None`: it has ended, or is not followed any more.
    ///
    /// # Errors
    /// The table cannot be read.
    pub fn account(&self, start: StartId) -> Result<Option<StartAccount>> {
        let found = map(&self.object, "starts")?.lookup(&decode::key(start), MapFlags::ANY);
        let found = found.map_err(|e| bpf_error("read the account of a start", e))?;
        Ok(found.and_then(|bytes| decode::running(&bytes, start, crate::now_ns())))
    }

    /// Follows a start no longer, and returns its account so far; `None`: it has ended. What its processes start from now on is nested in
    /// nothing.
    ///
    /// # Errors
    /// The table cannot be read.
    pub fn end(&self, start: StartId) -> Result<Option<StartAccount>> {
        let account = self.account(start)?;
        match map(&self.object, "starts")?.delete(&decode::key(start)) {
            Err(error) if error.kind() != libbpf_rs::ErrorKind::NotFound => {
                Err(bpf_error("follow a start no longer", error))
            }
            _ => Ok(account),
        }
    }

    /// # Errors
    /// The counters cannot be read.
    pub fn losses(&self) -> Result<LaunchLosses> {
        let passed_over = objects::passed_over(&self.object)?.saturating_sub(self.passed_over);
        let events = number(&self.object, "losses", LOST_EVENT)? + self.stream.undecodable() + passed_over;
        Ok(LaunchLosses { events, starts: number(&self.object, "losses", LOST_START)? })
    }
}

/// Enough for one event with the longest names.
const RING_LEAST_BYTES: u32 = 16 << 10;

/// `enum launch_loss` of `bpf/launches.h`.
const LOST_EVENT: u32 = 0;
const LOST_START: u32 = 1;

impl AsFd for Launches {
    /// Readable while events wait: at once after an exec. Ends alone do not wake a caller in poll, so poll with a timeout.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}
