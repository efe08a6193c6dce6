//! Which files an own program uses, without any privilege: its calls wait a moment for this process, and its page tables show what it has mapped.
//!
//! ```text
//!     program ─ open, stat, getdents, execve ─▶ a path that is looked up
//!             ─ read, pread, sendfile ────────▶ the read pages of a file, exactly
//!             ─ mmap ─────────────────────────▶ a file, and when it was first mapped
//!             ─ munmap, execve, exit_group ───▶ its page tables before that, and now and then: the mapped pages (upper bound)
//! ```
//!
//! Neither needs the pages of the file to be reported to this user (cachestat and mincore are refused for files of others, which programs and
//! libraries are), or empty caches, so it works on any file system. A fault maps up to 16 pages around the accessed one: with these the pages are an
//! upper bound.
//!
//! Not seen: pages of a process that a signal ends, since the last look at it; 32-bit programs; reads by `io_submit`. io_uring is refused, as in
//! containers, so that programs read by calls that are seen.

mod collector;
mod decode;
mod descriptors;
mod seen;

use ahead_profile::learn::Observation;
use ahead_sys::held_calls::{CallListener, Filter, Held};
use ahead_sys::{Error, Result, polling};
use collector::Collector;
use rustix::event::{PollFd, PollFlags};
use std::os::fd::OwnedFd;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Shortest and longest interval between two looks at the page tables of all processes. The order of first uses is known as finely.
const SHORTEST_INTERVAL: Duration = Duration::from_millis(2);
const LONGEST_INTERVAL: Duration = Duration::from_millis(320);
/// The interval grows with the run: this part of its time. What is used first counts most.
const RUN_SHARE: u32 = 32;
/// A look at one process takes some 100 µs. The interval is this many times as long as the last look: 2 % of the time.
const LOOK_SHARE: u32 = 50;

/// The filter of a program that is observed.
pub fn filter() -> Filter {
    let held: Vec<Held> = decode::calls().into_iter().map(|(held, _)| held).collect();
    Filter::new(&held, &[libc::SYS_io_uring_setup])
}

/// A running observation.
#[derive(Debug)]
pub struct Calls {
    thread: JoinHandle<Collector>,
    /// Closing it ends the observation.
    stop: OwnedFd,
}

/// What was seen; the paths are not resolved.
#[derive(Debug)]
pub struct CallsSeen(Collector);

impl Calls {
    /// Observes a held child that was started with [`filter`], and what it starts. `evicts`: each file is evicted before its first use, as far as that is
    /// permitted and no other process has it mapped.
    ///
    /// # Errors
    /// The memory of the child cannot be read; no thread can be started.
    pub fn start(listener: CallListener, child: u32, evicts: bool) -> Result<Calls> {
        descriptors::check(child)?;
        let (stopped, stop) = ahead_sys::exec::pipe()?;
        let collector = Collector::new(child, evicts);
        let thread = std::thread::Builder::new().spawn(move || serve(&listener, &stopped, collector));
        Ok(Calls { thread: thread.map_err(|e| Error::io("start a thread", e))?, stop })
    }

    /// Stops observing. Calls of processes that still run go on.
    ///
    /// # Errors
    /// The observation failed.
    pub fn finish(self) -> Result<CallsSeen> {
        drop(self.stop);
        let failed = |_| Error::io("observe calls", std::io::Error::other("the thread panicked"));
        self.thread.join().map(CallsSeen).map_err(failed)
    }
}

impl CallsSeen {
    /// Finds the files. May wait for their file systems.
    ///
    /// # Errors
    /// The mount table cannot be read.
    pub fn observation(self) -> Result<Observation> {
        self.0.observation()
    }
}

/// Lets calls go on until the other end of `stopped` is closed or no process is left.
fn serve(listener: &CallListener, stopped: &OwnedFd, mut collector: Collector) -> Collector {
    let started = Instant::now();
    let mut next_look = started + SHORTEST_INTERVAL;
    loop {
        let mut fds = [PollFd::new(listener, PollFlags::IN), PollFd::new(stopped, PollFlags::IN)];
        if polling::until(&mut fds, Some(next_look)).is_err() {
            return collector;
        }
        let (calls, is_stopped) = (fds[0].revents(), !fds[1].revents().is_empty());
        if calls.contains(PollFlags::IN) {
            if let Some(call) = listener.receive() {
                collector.take(&call);
            }
            listener.go_on();
        } else if !calls.is_empty() || is_stopped {
            return collector;
        }
        let began = Instant::now();
        if began >= next_look {
            collector.look_at_all();
            let interval = (started.elapsed() / RUN_SHARE).clamp(SHORTEST_INTERVAL, LONGEST_INTERVAL);
            next_look = began + interval.max(began.elapsed() * LOOK_SHARE);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ahead_process::{Child, Command, Signals};
    use ahead_profile::learn::{AccessKind, FileSeen};
    use std::io::{Read, Write};
    use std::os::unix::ffi::OsStrExt;
    use std::path::Path;
    use std::sync::Arc;

    /// A held program and its observer. `None`, with the reason printed: the kernel or a container refuses the filter.
    fn start(command: &Command) -> Option<(Child, Calls)> {
        let started = Child::spawn_with_held_calls(command, filter());
        let (mut child, listener) = started.map_err(|error| eprintln!("skipped: {error}")).ok()?;
        let calls = Calls::start(listener, child.pid(), false).unwrap();
        child.release(command).unwrap();
        Some((child, calls))
    }

    fn observe(words: &[&str]) -> Option<Observation> {
        let command = Command::new(words).discard_output(true);
        let (mut child, calls) = start(&command)?;
        child.wait(&Signals::none().unwrap()).unwrap();
        Some(calls.finish().unwrap().observation().unwrap())
    }

    fn id_of(observation: &Observation, path: &Path) -> u32 {
        let name = path.file_name().unwrap().as_bytes();
        let is_it = |file: &&FileSeen| file.path.rsplit(|byte| *byte == b'/').next() == Some(name);
        observation.files.values().find(is_it).unwrap_or_else(|| panic!("{} is missing", path.display())).id
    }

    #[test]
    fn reads_mapped_programs_lookups_and_execs_are_seen() {
        let mut file = tempfile::NamedTempFile::new_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        file.write_all(&[7; 10 * 4096]).unwrap();
        let [data, missing] = [file.path().to_owned(), file.path().with_extension("missing")];
        let script = format!(
            "dd bs=4096 skip=3 count=2 if={} of=/dev/null; test -e {}; exit 0",
            data.display(),
            missing.display()
        );
        let Some(observation) = observe(&["sh", "-c", &script]) else { return };
        let page = ahead_sys::machine::page_size();
        let id = id_of(&observation, &data);
        let pages: Vec<_> = observation.accesses.iter().filter(|access| access.file == id).collect();
        let expected = 3 * 4096 / page..(5 * 4096u64).div_ceil(page);
        assert_eq!((pages[0].pages.start, pages.last().unwrap().pages.end), (expected.start, expected.end));
        assert!(pages.iter().all(|access| access.kind == AccessKind::Read));
        let shell = std::fs::canonicalize("/bin/sh").unwrap();
        let id = id_of(&observation, &shell);
        assert!(observation.accesses.iter().any(|access| access.file == id && access.kind == AccessKind::Around));
        let seen = observation.lookups.iter().find(|seen| seen.path == missing.as_os_str().as_bytes()).unwrap();
        assert!(seen.failed && !seen.listed);
        let programs: Vec<_> = observation.execs.iter().map(|exec| String::from_utf8_lossy(&exec.name)).collect();
        assert!(programs.iter().any(|name| name.ends_with("sh")), "{programs:?}");
        assert!(programs.iter().any(|name| name.ends_with("dd")), "{programs:?}");
        assert_eq!((observation.lost_events(), observation.counters.unreadable), (0, 0));
    }

    #[test]
    fn program_that_outlives_the_observer_goes_on() {
        let (input, mut start_it) = std::io::pipe().unwrap();
        let input = Arc::new(std::fs::File::from(OwnedFd::from(input)));
        let command = Command::new(["sh", "-c", "read line; test -e /etc/passwd && dd if=/etc/passwd bs=1 count=4"]);
        let command = command.input(Some(input)).capture_output(true);
        let Some((mut child, calls)) = start(&command) else { return };
        calls.finish().unwrap();
        start_it.write_all(b"go\n").unwrap();
        let (output, _errors) = child.take_output().unwrap();
        let mut text = Vec::new();
        std::fs::File::from(output).read_to_end(&mut text).unwrap();
        assert_eq!((text.len(), child.wait(&Signals::none().unwrap()).unwrap().code()), (4, 0));
    }

    #[test]
    fn caretaker_ends_with_the_last_process() {
        let command = Command::new(["true"]);
        let Ok((child, listener)) = Child::spawn_with_held_calls(&command, filter()) else { return };
        let caretaker = ahead_sys::process_id::ProcessId::of(listener.caretaker()).unwrap();
        drop(listener);
        drop(child);
        // It ends when no process has the filter.
        let deadline = Instant::now() + Duration::from_secs(30);
        while caretaker.is_some_and(ahead_sys::process_id::ProcessId::is_alive) {
            assert!(Instant::now() < deadline, "the caretaker stays");
            std::thread::yield_now();
        }
    }
}
