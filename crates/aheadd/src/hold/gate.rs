//! The gate: the only process that has the kernel's group. It waits for nothing but events, orders and deadlines.

use super::{FoundStart, HoldLosses, reader};
use ahead_process::messages::{Received, get, give, pair, put, taken};
use ahead_sys::fanotify::{ExecEvent, Group, GroupEvent};
use ahead_sys::fork::fork_copy;
use ahead_sys::{Result, openat, polling, priority};
use rustix::event::{PollFd, PollFlags};
use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;
use std::ffi::{CStr, OsStr};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::{Duration, Instant};

/// The name of the process, as `ps` shows it.
const NAME: &CStr = c"aheadd-gate";

/// Longest time to read what is started, and then for the service to take it: on a busy machine both wait for a processor.
const TAKE_TIME: Duration = Duration::from_millis(50);

/// Longest wait of an exec: the longest head start of a replay (`LONGEST_HEAD_START`).
const LONGEST_HOLD: Duration = Duration::from_secs(10);

/// Longest wait for the file of a program to be marked, on a disk that is busy.
const OPEN_TIME: Duration = Duration::from_secs(10);

/// Execs that wait at a time. Each has a descriptor and a child; the limit of descriptors is 1024 or more.
const MOST_HELD: usize = 64;

/// Execs that may begin to wait within a second: each costs a fork. Whatever starts programs more often has them in the cache.
const MOST_PER_SECOND: u32 = 50;

/// Between two reports of losses.
const REPORT_TIME: Duration = Duration::from_secs(1);

/// Programs that wait to be marked: as many as the service knows of some users.
const MOST_ORDERS: usize = 4096;

/// Children that have not ended yet. One that does not end when it is killed waits for a disk.
const MOST_LEAVING: usize = 64;

/// From the service.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum GateOrder {
    Mark { program: Vec<u8>, is_on: bool },
    Taken(u64),
    Release(u64),
}

/// To the service.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum GateReport {
    Held(u64, FoundStart),
    Losses(HoldLosses),
}

/// An exec that waits.
#[derive(Debug)]
struct Hold {
    number: u64,
    event: ExecEvent,
    reader: Pid,
    state: HoldState,
    until: Instant,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum HoldState {
    /// By the reader.
    Read,
    /// To the service.
    Offered,
    Taken,
}

/// A file that is being opened, to be marked.
#[derive(Debug)]
struct Opening {
    socket: OwnedFd,
    opener: Pid,
    is_on: bool,
    until: Instant,
}

#[derive(Debug)]
struct Gate {
    /// Children drop it first: an exec waits until the last copy is closed.
    group: Option<Group>,
    service: OwnedFd,
    service_pid: u32,
    /// Where readers answer, and our end of it.
    answers: (OwnedFd, OwnedFd),
    holds: Vec<Hold>,
    next_number: u64,
    /// When this second began, and how many execs began to wait in it.
    second: (Instant, u32),
    /// It has not taken an exec in time. Then none is held until it gives an order.
    is_service_slow: bool,
    marks: VecDeque<(Vec<u8>, bool)>,
    opening: Option<Opening>,
    leaving: Vec<Pid>,
    losses: HoldLosses,
    reported: (Instant, HoldLosses),
}

/// Serves until the service has ended. At an error the process ends, too: the kernel lets every exec go on then.
pub(super) fn serve(service: OwnedFd, group: Group, service_pid: u32) {
    let _ = rustix::thread::set_name(NAME);
    if let Err(error) = priority::prefer_on_processor() {
        tracing::debug!("{error}");
    }
    let Ok(answers) = pair() else { return };
    let mut gate = Gate {
        group: Some(group),
        service,
        service_pid,
        answers,
        holds: Vec::new(),
        next_number: 0,
        second: (Instant::now(), 0),
        is_service_slow: false,
        marks: VecDeque::new(),
        opening: None,
        leaving: Vec::new(),
        losses: HoldLosses::default(),
        reported: (Instant::now(), HoldLosses::default()),
    };
    while gate.turn().is_ok_and(|goes_on| goes_on) {}
}

impl Gate {
    /// Waits for something to do, and does it. `false`: the service has ended.
    fn turn(&mut self) -> Result<bool> {
        self.wait()?;
        while let Some(event) = self.group.as_ref().map_or(Ok(None), Group::next)? {
            match event {
                GroupEvent::Exec(event) => self.admit(event),
                GroupEvent::Overflow => self.losses.overflows += 1,
            }
        }
        self.offer();
        let goes_on = self.obey();
        self.expire();
        self.open_files();
        self.leaving.retain(|child| matches!(waitpid(Some(*child), WaitOptions::NOHANG), Ok(None)));
        self.report();
        Ok(goes_on)
    }

    fn wait(&self) -> Result<()> {
        let report = (self.reported.1 != self.losses).then(|| self.reported.0 + REPORT_TIME);
        let opening = self.opening.as_ref();
        let deadlines = self.holds.iter().map(|hold| hold.until).chain(opening.map(|opening| opening.until));
        let fds = [Some(self.service.as_fd()), Some(self.answers.1.as_fd())];
        let fds =
            fds.into_iter().chain([self.group.as_ref().map(AsFd::as_fd), opening.map(|file| file.socket.as_fd())]);
        let mut fds: Vec<PollFd<'_>> = fds.flatten().map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)).collect();
        polling::until(&mut fds, deadlines.chain(report).min()).map(drop)
    }

    /// Holds an exec, or lets it go on.
    fn admit(&mut self, event: ExecEvent) {
        let now = Instant::now();
        if now >= self.second.0 + Duration::from_secs(1) {
            self.second = (now, 0);
        }
        // A setuid program runs as another user than the one who starts it.
        let is_elevated = event.file.metadata().map_or(true, |file| file.mode() & 0o6000 != 0);
        if self.is_service_slow || is_elevated || [0, self.service_pid].contains(&event.pid) {
            return self.allow(event);
        }
        let has_room = self.holds.len() < MOST_HELD && self.leaving.len() < MOST_LEAVING;
        if !has_room || self.second.1 >= MOST_PER_SECOND {
            self.losses.too_many += 1;
            return self.allow(event);
        }
        let number = self.next_number;
        let read = || {
            drop(self.group.take());
            let _ = put(&self.answers.0, &(number, reader::read(&event)));
        };
        let Ok(reader) = fork_copy(read) else { return self.allow(event) };
        (self.next_number, self.second.1) = (number + 1, self.second.1 + 1);
        self.holds.push(Hold { number, event, reader, state: HoldState::Read, until: now + TAKE_TIME });
    }

    fn allow(&self, event: ExecEvent) {
        let allowed = self.group.as_ref().map_or(Ok(()), |group| group.allow(event));
        if let Err(error) = allowed {
            tracing::debug!("{error}");
        }
    }

    fn release(&mut self, is_it: impl Fn(&Hold) -> bool) {
        let released: Vec<Hold> = self.holds.extract_if(.., |hold| is_it(hold)).collect();
        for hold in released {
            self.leaving.push(hold.reader);
            self.allow(hold.event);
        }
    }

    /// Offers to the service what readers have found.
    fn offer(&mut self) {
        while let Received::Answer((number, found)) =
            get::<(u64, Option<FoundStart>)>(&self.answers.1, Some(Instant::now()))
        {
            let offered = found.is_some_and(|found| put(&self.service, &GateReport::Held(number, found)).is_ok());
            if offered {
                self.set_state(number, HoldState::Offered, TAKE_TIME);
            } else {
                self.release(|hold| hold.number == number);
            }
        }
    }

    fn set_state(&mut self, number: u64, state: HoldState, time: Duration) {
        if let Some(hold) = self.holds.iter_mut().find(|hold| hold.number == number) {
            (hold.state, hold.until) = (state, Instant::now() + time);
        }
    }

    /// Carries out the orders of the service. `false`: it has ended.
    fn obey(&mut self) -> bool {
        loop {
            match get(&self.service, Some(Instant::now())) {
                Received::Nothing => return true,
                Received::Ended => return false,
                Received::Answer(GateOrder::Taken(number)) => self.set_state(number, HoldState::Taken, LONGEST_HOLD),
                Received::Answer(GateOrder::Release(number)) => self.release(|hold| hold.number == number),
                Received::Answer(GateOrder::Mark { program, is_on }) if self.marks.len() < MOST_ORDERS => {
                    self.marks.push_back((program, is_on));
                }
                Received::Answer(GateOrder::Mark { .. }) => {}
            }
            self.is_service_slow = false;
        }
    }

    /// Lets execs go on whose time is over.
    fn expire(&mut self) {
        let now = Instant::now();
        for hold in self.holds.iter().filter(|hold| hold.until <= now) {
            match hold.state {
                HoldState::Read => {
                    kill(hold.reader);
                    self.losses.unread += 1;
                }
                HoldState::Offered => {
                    self.is_service_slow = true;
                    self.losses.unanswered += 1;
                }
                HoldState::Taken => self.losses.unanswered += 1,
            }
        }
        self.release(|hold| hold.until <= now);
    }

    /// Marks the file that was opened, and has the next one opened.
    fn open_files(&mut self) {
        let now = Instant::now();
        if let Some(opening) = &self.opening {
            let is_ready = polling::until(&mut [PollFd::new(&opening.socket, PollFlags::IN)], Some(now));
            if is_ready.unwrap_or(true) {
                let changed =
                    taken(&opening.socket).zip(self.group.as_ref()).map(|(file, group)| match opening.is_on {
                        true => group.mark(file),
                        false => group.unmark(file),
                    });
                tracing::trace!("{changed:?}");
            } else if now < opening.until {
                return;
            } else {
                kill(opening.opener);
            }
        }
        self.leaving.extend(self.opening.take().map(|opening| opening.opener));
        if self.leaving.len() >= MOST_LEAVING {
            return;
        }
        let Some((program, is_on)) = self.marks.pop_front() else { return };
        let Ok((socket, theirs)) = pair() else { return };
        let open = || {
            drop(self.group.take());
            if let Some(file) = open_program(&program) {
                let _ = give(&theirs, file.as_fd());
            }
        };
        self.opening = fork_copy(open).ok().map(|opener| Opening { socket, opener, is_on, until: now + OPEN_TIME });
    }

    fn report(&mut self) {
        let (at, reported) = self.reported;
        if reported != self.losses && at.elapsed() >= REPORT_TIME {
            self.reported = (Instant::now(), self.losses);
            let _ = put(&self.service, &GateReport::Losses(self.losses));
        }
    }
}

/// A child that was not waited for, so its number is not used again.
fn kill(child: Pid) {
    if let Err(error) = kill_process(child, Signal::KILL) {
        tracing::debug!("{error}");
    }
}

/// A regular file on a disk. No link is followed, and no server is asked.
fn open_program(program: &[u8]) -> Option<OwnedFd> {
    let handle = openat::handle(Path::new(OsStr::from_bytes(program))).ok()?;
    let is_on_disk = handle.file_system().is_ok_and(|kind| kind.is_on_disk());
    if is_on_disk { handle.reopen().ok() } else { None }
}
