//! Takes open files of other processes, in helper processes that nothing waits for.
//!
//! ```text
//!     watching thread ── take ──▶ helper: thread's descriptor ─▶ the open file of the decision? ── taken ──▶ window ── give back ──▶ closed
//!         │                         │                              │ no: the helper ends, and what it has taken with it
//!         │                         └ no answer in 100 ms: another helper is used, this one may hang
//!         └── wants a helper ──▶ forker (one thread) ── fork ──▶ helper
//! ```
//!
//! A program may exchange the file behind a descriptor between the decision and the act, for one of a private FUSE server. To close that, the
//! kernel waits for the server, and no signal ends the wait; to advise on the memory of a process, it waits for a lock of that process. Therefore
//! no thread of the steering process does either. A helper has a separate table of descriptors, without our locks, observers and output; it may hang as
//! long as it likes, and is busy until what it has taken is closed: its socket is closed last.

mod served;

use crate::refusal::Refusal;
use crate::times::Times;
use ahead_fetch::calls::pieces;
use ahead_model::{DeviceNumber, PAGE_BYTES};
use ahead_observe::StateQuery;
use ahead_policy::steering::{Mapped, Target};
use ahead_process::messages::{Received, get, give, pair, put, taken};
use ahead_sys::fork::{fork_copy, fork_worker};
use ahead_sys::{Error, Result, daemon, polling, signals};
use rustix::event::{PollFd, PollFlags};
use rustix::process::{WaitOptions, wait};
use serde::{Deserialize, Serialize};
use std::ffi::CStr;
use std::fs::File;
use std::ops::Range;
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

/// Longest wait for an answer: it takes some microseconds, and milliseconds on a busy machine. What holds it up is a lock of the process.
const ANSWER: Duration = Duration::from_millis(100);

/// Longest wait for a helper that gives back what the last act took.
const RETURN: Duration = Duration::from_millis(5);

/// Helpers that exist at a time, those that hang included.
const MOST: usize = 16;

/// Helpers of one device: a file system that does not answer must not stop the others.
const MOST_OF_DEVICE: usize = 4;

/// Helpers that advise on mappings: processes that hold their locks must not stop the windows of others.
const MOST_OF_MAPPINGS: usize = 4;

/// The name of the helper processes, as `ps` shows it.
const NAME: &CStr = c"ahead-helper";

/// A number above those of taken descriptors, below the usual limit of 1024.
const LAST_DESCRIPTOR: i32 = 1000;

/// Requests for one mapping at a time: as many as a message has room for.
const MOST_PIECES: usize = 256;

/// What a helper does.
#[derive(Clone, Debug, Serialize, Deserialize)]
enum Request {
    /// Takes an open file, if it is the one of the decision and as it was left.
    Take(Wanted),
    /// Gives what it has taken the window that its disk has now.
    Advise,
    /// Closes what it has taken.
    GiveBack,
    /// Has the pages of a mapping read, by their addresses.
    WillNeed { pid: u32, addresses: Vec<Range<u64>> },
}

/// An open file to be taken.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct Wanted {
    pub target: Target,
    pub number: u32,
    /// The window that it should have.
    pub expected_pages: u64,
    /// Closing it neither waits nor writes.
    pub is_quiet_on_close: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
enum Answer {
    Taken {
        disk_window_pages: u64,
    },
    /// `ends`: this helper ends now.
    NotTaken {
        why: Refusal,
        ends: bool,
    },
    /// The error.
    Advised(Option<String>),
    /// It was closed, or is by the end of this helper.
    GivenBack {
        held_ns: u64,
        ends: bool,
    },
    Requested(Option<Refusal>),
}

/// Our end of a helper.
#[derive(Debug)]
struct Helper {
    socket: OwnedFd,
    does: Does,
}

/// What a busy helper does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Does {
    Nothing,
    /// Takes or gives back an open file of this device and process.
    Hold {
        device: DeviceNumber,
        pid: u32,
    },
    /// Advises on a mapping of an open file of this process.
    Advise {
        pid: u32,
        open: u64,
        decided_ns: u64,
    },
}

/// The helpers of a steering process.
#[derive(Debug)]
pub struct Helpers {
    origin: Origin,
    idle: Vec<Helper>,
    busy: Vec<Helper>,
    held: Times,
    latency: Times,
    failures: Vec<(u64, Refusal)>,
}

/// Where helpers come from.
#[derive(Debug)]
enum Origin {
    /// The forker, which forks.
    Forker(OwnedFd),
    /// Threads, for tests: a process with threads cannot fork.
    #[cfg(test)]
    Threads,
}

impl Helpers {
    /// Forks the forker of helpers, which ends with this process. For a process without other threads.
    ///
    /// Errors: this process has threads; those of fork(2).
    pub fn start() -> Result<Helpers> {
        let failed = |e: std::io::Error| Error::io("start a helper process", e);
        let (ours, theirs) = pair().map_err(|e| failed(e.into()))?;
        let null = || File::options().read(true).write(true).open("/dev/null").map(OwnedFd::from);
        fork_worker([theirs, null().map_err(failed)?], null().map_err(failed)?, |[socket, _]| fork_helpers(socket))?;
        Ok(Helpers::with(Origin::Forker(ours)))
    }

    fn with(origin: Origin) -> Helpers {
        let (idle, busy, held, latency, failures) = Default::default();
        Helpers { origin, idle, busy, held, latency, failures }
    }

    /// Takes an open file, and calls `act` with the window of its disk and a function that gives that window to the open file.
    pub(crate) fn with_taken(
        &mut self,
        wanted: &Wanted,
        act: impl FnOnce(u64, &mut dyn FnMut() -> Result<()>) -> std::result::Result<(), Refusal>,
    ) -> std::result::Result<(), Refusal> {
        let Target { device, pid, .. } = wanted.target;
        let of_device = |helper: &Helper| matches!(helper.does, Does::Hold { device: other, .. } if other == device);
        let of_process = |helper: &Helper| matches!(helper.does, Does::Hold { pid: other, .. } if other == pid);
        self.await_fewer(of_process, 1)?;
        let helper = self.reserve(of_device, MOST_OF_DEVICE)?;
        let mut helper = Helper { does: Does::Hold { device, pid }, ..helper };
        let done = match helper.ask(&Request::Take(*wanted)) {
            Some(Answer::Taken { disk_window_pages }) => act(disk_window_pages, &mut || helper.advise()),
            Some(Answer::NotTaken { why, ends }) => {
                match ends {
                    true => self.busy.push(helper),
                    false => self.idle.push(Helper { does: Does::Nothing, ..helper }),
                }
                return Err(why);
            }
            // It may still take it, and gives it back at once.
            _ => Err(Refusal::Queue),
        };
        helper.say(&Request::GiveBack);
        self.busy.push(helper);
        done
    }

    /// Has pages read through a mapping of a process; returns at once. A failure is reported by [`Helpers::take_failures`].
    pub(crate) fn will_need(
        &mut self,
        target: &Target,
        mapping: &Mapped,
        ranges: &[Range<u64>],
        piece_pages: u64,
        decided_ns: u64,
    ) -> std::result::Result<(), Refusal> {
        let (pid, open) = (target.pid, target.open);
        if ahead_fetch::is_paused(target.device) {
            return Err(Refusal::Queue);
        }
        let is_mapping = |helper: &Helper| matches!(helper.does, Does::Advise { .. });
        let is_this = |helper: &Helper| matches!(helper.does, Does::Advise { pid: other, .. } if other == pid);
        self.await_fewer(is_this, 1)?;
        let helper = self.reserve(is_mapping, MOST_OF_MAPPINGS)?;
        let within = |range: &Range<u64>| range.start.max(mapping.first_page)..range.end.min(mapping.end_page);
        let address = |page: u64| mapping.address + (page - mapping.first_page) * PAGE_BYTES;
        let pieces = ranges.iter().map(within).flat_map(|range| pieces(&range, piece_pages)).take(MOST_PIECES);
        let addresses = pieces.map(|piece| address(piece.start)..address(piece.end)).collect();
        let helper = Helper { does: Does::Advise { pid, open, decided_ns }, ..helper };
        helper.say(&Request::WillNeed { pid, addresses });
        self.busy.push(helper);
        Ok(())
    }

    /// Receives what busy helpers have finished, and has one ready for the next act.
    pub(crate) fn prepare(&mut self) {
        self.collect();
        if self.idle.is_empty() && self.busy.len() < MOST {
            self.idle.extend(self.make());
        }
    }

    /// Time for which open files were held.
    pub(crate) fn held(&self) -> &Times {
        &self.held
    }

    /// Times from a decision to the end of the requests for a mapping.
    pub(crate) fn latency(&self) -> &Times {
        &self.latency
    }

    /// Requests for mappings that have failed since the last call.
    pub(crate) fn take_failures(&mut self) -> Vec<(u64, Refusal)> {
        self.collect();
        std::mem::take(&mut self.failures)
    }

    /// A helper without work. `is_alike`: busy helpers of which there are fewer than `most`.
    fn reserve(&mut self, is_alike: impl Fn(&Helper) -> bool, most: usize) -> std::result::Result<Helper, Refusal> {
        self.await_fewer(is_alike, most)?;
        if self.idle.is_empty() {
            // The last act is usually over by now.
            let _ = self.await_fewer(|_| true, 1);
        }
        let helper = self.idle.pop();
        helper.or_else(|| if self.busy.len() < MOST { self.make() } else { None }).ok_or(Refusal::Queue)
    }

    /// Waits until fewer than `most` busy helpers are alike, which usually takes microseconds.
    fn await_fewer(&mut self, is_alike: impl Fn(&Helper) -> bool, most: usize) -> std::result::Result<(), Refusal> {
        let deadline = Instant::now() + RETURN;
        loop {
            self.collect();
            if self.busy.iter().filter(|helper| is_alike(helper)).count() < most {
                return Ok(());
            }
            if !wait_for_any(self.busy.iter().filter(|helper| is_alike(helper)), deadline) {
                return Err(Refusal::Queue);
            }
        }
    }

    /// Takes the answers of busy helpers. One that ends is busy until its socket is closed.
    fn collect(&mut self) {
        for mut helper in std::mem::take(&mut self.busy) {
            match helper.answer(Some(Instant::now())) {
                Received::Nothing => self.busy.push(helper),
                Received::Ended => {
                    if let Does::Advise { open, .. } = helper.does {
                        self.failures.push((open, Refusal::Queue));
                    }
                }
                Received::Answer(answer) => match self.is_free(&helper, answer) {
                    true => self.idle.push(Helper { does: Does::Nothing, ..helper }),
                    false => self.busy.push(helper),
                },
            }
        }
    }

    /// Notes a late answer. Returns whether the helper has nothing more to do.
    fn is_free(&mut self, helper: &Helper, answer: Answer) -> bool {
        match (answer, helper.does) {
            (Answer::GivenBack { held_ns, ends }, _) => {
                self.held.add(Duration::from_nanos(held_ns));
                !ends
            }
            (Answer::NotTaken { ends, .. }, _) => !ends,
            (Answer::Requested(None), Does::Advise { decided_ns, .. }) => {
                self.latency.add(Duration::from_nanos(ahead_observe::now_ns().saturating_sub(decided_ns)));
                true
            }
            (Answer::Requested(Some(why)), Does::Advise { open, .. }) => {
                self.failures.push((open, why));
                true
            }
            // Of an act that was given up: it gives back now.
            (Answer::Taken { .. } | Answer::Advised(_) | Answer::Requested(_), _) => false,
        }
    }

    fn make(&self) -> Option<Helper> {
        let (ours, theirs) = pair().ok()?;
        match &self.origin {
            Origin::Forker(forker) => {
                give(forker, theirs.as_fd()).ok()?;
            }
            #[cfg(test)]
            Origin::Threads => {
                std::thread::spawn(move || StateQuery::new().map(|states| served::serve(&theirs, &states)));
            }
        }
        Some(Helper { socket: ours, does: Does::Nothing })
    }
}

impl Helper {
    fn say(&self, request: &Request) {
        if let Err(error) = put(self.socket.as_fd(), request) {
            tracing::debug!("a helper process has ended: {error}");
        }
    }

    fn ask(&mut self, request: &Request) -> Option<Answer> {
        self.say(request);
        match self.answer(Some(Instant::now() + ANSWER)) {
            Received::Answer(answer) => Some(answer),
            Received::Nothing | Received::Ended => None,
        }
    }

    fn answer(&mut self, deadline: Option<Instant>) -> Received<Answer> {
        get(self.socket.as_fd(), deadline)
    }

    fn advise(&mut self) -> Result<()> {
        let failed = |why: String| Err(Error::io("set the window of an open file", std::io::Error::other(why)));
        match self.ask(&Request::Advise) {
            Some(Answer::Advised(None)) => Ok(()),
            Some(Answer::Advised(Some(error))) => failed(error),
            _ => failed("the helper process does not answer".into()),
        }
    }
}

/// Waits until a helper has answered. `false`: none has until the deadline.
fn wait_for_any<'a>(helpers: impl Iterator<Item = &'a Helper>, deadline: Instant) -> bool {
    let mut polled: Vec<PollFd<'_>> = helpers.map(|helper| PollFd::new(&helper.socket, PollFlags::IN)).collect();
    polling::until(&mut polled, Some(deadline)).unwrap_or(false)
}

/// The forker forks a helper for each socket that it gets, until the steering process ends. It has no thread, so that its copies work, and
/// no descriptor of ours.
fn fork_helpers(socket: OwnedFd) {
    // The steering process ends it, and puts windows back after the signal that all of its processes get.
    signals::block_all();
    let _ = daemon::new_session();
    let _ = rustix::thread::set_name(NAME);
    let Ok(states) = StateQuery::new() else { return };
    let (mut socket, mut children) = (Some(socket), 0);
    while let Some(given) = socket.as_ref().and_then(taken) {
        while wait(WaitOptions::NOHANG).is_ok_and(|ended| ended.is_some()) {
            children -= 1;
        }
        // Those that hang stay children. Without room the socket is closed, and the steering process learns of it.
        if children < MOST && fork_copy(|| serve_as_helper(socket.take(), given, &states)).is_ok() {
            children += 1;
        }
    }
}

fn serve_as_helper(forker: Option<OwnedFd>, given: OwnedFd, states: &StateQuery) {
    drop(forker);
    // At its end, the kernel closes descriptors in order of their numbers: what was taken before the socket.
    let last = rustix::io::fcntl_dupfd_cloexec(&given, LAST_DESCRIPTOR);
    let socket = last.unwrap_or(given);
    served::serve(&socket, states);
}

#[cfg(test)]
mod tests;
