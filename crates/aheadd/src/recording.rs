//! Programs whose next start is to be recorded, and the one worker that waits for it.
//!
//! ```text
//!     waited for the disk ─▶ wish ─▶ worker: attached ─▶ first exec of a wanted program ─┬─ as wished ─▶ recorded ─▶ learned
//!                              ▲                                                         ╰─ another script, user: missed
//!                              ╰──────────────── later, and less and less often ◀────────────────────────────────╯
//! ```
//!
//! The observer is attached only while there is a wish. It follows the first exec of a program's file, by any user and with any script, so the
//! worker compares before it claims a start.

use crate::starts::{START_WINDOW, SeenStart};
use crate::survey::seeks;
use ahead::Recorder;
use ahead_apps::{AppStore, StartKey, UserApps};
use ahead_observe::{FirstExec, ProgramFile, StartId};
use ahead_process::{CancelToken, ResultPipe, Worker};
use anyhow::{Context, bail};
use rustix::event::{PollFd, PollFlags, poll};
use serde::{Deserialize, Serialize};
use std::io::Write;
use std::os::fd::BorrowedFd;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Wishes at the same time: programs of the first minutes of a new machine.
const MOST_WISHES: usize = 64;
/// Locked memory of the observer.
const MEMORY_BYTES: u64 = 4 << 20;
/// Attaching takes some hundred milliseconds of processor time, so a changed list waits this long after the last time.
const LEAST_BETWEEN: Duration = Duration::from_secs(1);
/// After a start that was not the wished one, the program is not waited for: at first for this time, then for twice as long each time.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(300);
/// The user may hold the lock of the store without end.
const LOCK_TIME: Duration = Duration::from_secs(5);
/// A claim and the exec that it belongs to are seen by two observers, one after the other.
const SAME_EXEC_NS: u64 = 1_000_000_000;

/// A program whose next start is to be recorded.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Wish {
    uid: u32,
    start: StartKey,
    program: ProgramFile,
}

#[derive(Debug)]
struct PendingWish {
    wish: Wish,
    missed: u32,
    not_before: Instant,
}

/// What the worker reports, one line each.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum RecorderReport {
    Attached,
    /// The start is recorded: the number of the wish, and the exec.
    Claimed {
        wish: usize,
        pid: u32,
        time_ns: u64,
    },
    /// Another start of this program came first: the number of a wish for it.
    Missed {
        wish: usize,
    },
    /// The recording is in the store.
    Learned {
        agreed: f64,
        seeks: bool,
    },
    Failed(String),
}

#[derive(Debug)]
struct RecordingWorker {
    worker: Worker,
    wishes: Vec<Wish>,
    is_attached: bool,
    claimed: Option<usize>,
}

/// The wishes and the worker.
#[derive(Debug)]
pub struct RecordingQueue {
    home: PathBuf,
    pending: Vec<PendingWish>,
    running: Option<RecordingWorker>,
    /// Those that end by themselves.
    ending: Vec<Worker>,
    last_begin: Option<Instant>,
    /// The last start that was claimed: process and time.
    claim: Option<(u32, u64)>,
}

/// A recording that is in the store.
#[derive(Debug)]
pub struct LearnedStart {
    pub uid: u32,
    pub start: StartKey,
    /// For [`UserApps::learned`].
    pub agreed: f64,
    /// A device of the recording seeks.
    pub seeks: bool,
}

impl RecordingQueue {
    /// No wish yet. `home`: the directory of the store.
    pub fn new(home: &Path) -> RecordingQueue {
        let (pending, ending) = (Vec::new(), Vec::new());
        RecordingQueue { home: home.into(), pending, running: None, ending, last_begin: None, claim: None }
    }

    /// Whether the next start of a program is to be recorded.
    pub fn set(&mut self, seen: &SeenStart, is_wanted: bool, now: Instant) {
        let wish = Wish { uid: seen.uid, start: seen.start.clone(), program: seen.program };
        let is_it = |other: &Wish| other.uid == wish.uid && other.start.app == wish.start.app;
        match self.pending.iter().position(|pending| is_it(&pending.wish)) {
            Some(at) if !is_wanted => drop(self.pending.remove(at)),
            Some(at) => self.pending[at].wish = wish,
            None if is_wanted => {
                self.pending.drain(..(self.pending.len() + 1).saturating_sub(MOST_WISHES));
                self.pending.push(PendingWish { wish, missed: 0, not_before: now });
            }
            None => {}
        }
    }

    /// Whether the worker records this start.
    pub fn has_claimed(&self, start: StartId) -> bool {
        self.claim.is_some_and(|(pid, time_ns)| pid == start.pid && time_ns.abs_diff(start.began_ns) < SAME_EXEC_NS)
    }

    /// Starts, changes and ends the worker as the wishes need it. `is_off`: nothing is recorded now.
    pub fn update(&mut self, is_off: bool, now: Instant) {
        self.ending.retain(|worker| !worker.has_ended());
        if self.running.as_ref().is_some_and(|running| running.claimed.is_some()) {
            return;
        }
        let due = self.pending.iter().filter(|pending| !is_off && pending.not_before <= now);
        let wishes: Vec<Wish> = due.map(|pending| pending.wish.clone()).collect();
        if self.running.as_ref().map_or(&[][..], |running| &running.wishes) == &wishes[..] {
            return;
        }
        if !wishes.is_empty() && self.last_begin.is_some_and(|last| now.duration_since(last) < LEAST_BETWEEN) {
            return;
        }
        self.end();
        if wishes.is_empty() {
            return;
        }
        self.last_begin = Some(now);
        match Worker::fork(|results, cancelled| work(&self.home, &wishes, results, cancelled)) {
            Ok(worker) => {
                self.running = Some(RecordingWorker { worker, wishes, is_attached: false, claimed: None });
            }
            Err(error) => tracing::warn!("no recording: {error}"),
        }
    }

    /// When [`Self::update`] has something to do without an event.
    pub fn next_update(&self) -> Option<Instant> {
        let begin = self.last_begin.map(|last| last + LEAST_BETWEEN);
        let is_waiting = |pending: &&PendingWish| {
            !self.running.as_ref().is_some_and(|running| running.wishes.contains(&pending.wish))
        };
        let idle = self.running.as_ref().is_none_or(|running| running.claimed.is_none());
        let next = self.pending.iter().filter(|pending| idle && is_waiting(pending)).map(|it| it.not_before).min();
        next.map(|next| begin.map_or(next, |begin| begin.max(next)))
    }

    /// Ends the worker.
    pub fn end(&mut self) {
        if let Some(mut running) = self.running.take() {
            running.worker.cancel();
            self.ending.push(running.worker);
        }
    }

    /// Its pipes, for poll(2).
    pub fn streams(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.running.iter().flat_map(|running| running.worker.streams())
    }

    /// Reads what the worker has sent. Returns a recording that is in the store.
    pub fn receive(&mut self, now: Instant) -> Option<LearnedStart> {
        let running = self.running.as_mut()?;
        running.worker.receive();
        let received = running.worker.received();
        let whole = received.iter().rposition(|byte| *byte == b'\n').map_or(0, |last| last + 1);
        let reports: Vec<RecorderReport> = received[..whole]
            .split(|byte| *byte == b'\n')
            .filter_map(|line| serde_json::from_slice(line).ok())
            .collect();
        let is_over = running.worker.is_complete();
        let (mut learned, mut missed) = (None, None);
        let wishes = running.wishes.clone();
        let known = |number: usize| wishes.get(number).cloned();
        for report in reports {
            match report {
                RecorderReport::Attached if !running.is_attached => {
                    running.is_attached = true;
                    tracing::debug!("the recorder waits for the next start of: {}", names(&wishes));
                }
                RecorderReport::Attached => {}
                RecorderReport::Claimed { wish, pid, time_ns } => {
                    running.claimed = Some(wish).filter(|wish| *wish < wishes.len());
                    self.claim = Some((pid, time_ns));
                }
                RecorderReport::Learned { agreed, seeks } => {
                    let wish = running.claimed.and_then(known);
                    learned = wish.map(|wish| LearnedStart { uid: wish.uid, start: wish.start, agreed, seeks });
                }
                RecorderReport::Missed { wish } => missed = known(wish),
                RecorderReport::Failed(why) if is_over => tracing::warn!("no recording: {why}"),
                RecorderReport::Failed(_) => {}
            }
        }
        if !is_over {
            // Reports are read again from the begin with each new one: there are few.
            return None;
        }
        missed = missed.or(running.claimed.and_then(known));
        self.end();
        match &learned {
            Some(learned) => self.remove(learned.uid, &learned.start),
            None => self.missed(missed, now),
        }
        learned
    }

    fn remove(&mut self, uid: u32, start: &StartKey) {
        self.pending.retain(|pending| !(pending.wish.uid == uid && pending.wish.start.app == start.app));
    }

    /// The program is waited for later.
    fn missed(&mut self, wish: Option<Wish>, now: Instant) {
        let Some(missed) = wish else { return };
        for pending in self.pending.iter_mut().filter(|pending| pending.wish.program == missed.program) {
            let pause = FIRST_PAUSE.saturating_mul(1 << pending.missed.min(16)).min(LONGEST_PAUSE);
            pending.missed += 1;
            pending.not_before = now + pause;
        }
    }
}

fn work(home: &Path, wishes: &[Wish], mut results: ResultPipe, cancelled: CancelToken) {
    let mut send = |report: &RecorderReport| {
        let mut line = serde_json::to_vec(report).unwrap_or_default();
        line.push(b'\n');
        // The service may have ended.
        let _ = results.write_all(&line);
    };
    let end = record(home, wishes, cancelled, &mut send);
    send(&end.unwrap_or_else(|error| RecorderReport::Failed(format!("{error:#}"))));
}

fn record(
    home: &Path,
    wishes: &[Wish],
    cancelled: CancelToken,
    send: &mut dyn FnMut(&RecorderReport),
) -> anyhow::Result<RecorderReport> {
    ahead_process::end_by_signals();
    let mut programs: Vec<ProgramFile> = wishes.iter().map(|wish| wish.program).collect();
    programs.sort_unstable();
    programs.dedup();
    let recorder = Recorder::default().duration(Some(START_WINDOW)).starts_cold(true);
    let armed = recorder.arm(&programs, MEMORY_BYTES)?;
    // A recording that is not wanted any more needs no end: the kernel detaches the observer.
    let end = move || {
        cancelled.wait(|_| ());
        std::process::exit(0);
    };
    std::thread::Builder::new().name("ahead-cancelled".into()).spawn(end).context("start a thread")?;
    send(&RecorderReport::Attached);
    poll(&mut [PollFd::new(&armed, PollFlags::IN)], None)?;
    let Some(first) = armed.first() else { bail!("the observer has ended") };
    let wish = match wishes.iter().position(|wish| is_start_of(first, wish)) {
        Some(wish) => wish,
        None => {
            let of_program = wishes.iter().position(|wish| Some(wish.program) == first.program);
            return Ok(RecorderReport::Missed { wish: of_program.unwrap_or(0) });
        }
    };
    send(&RecorderReport::Claimed { wish, pid: first.pid, time_ns: first.time_ns });
    let started = started(first, &wishes[wish]);
    let recording = armed.finish(None, &|notice| tracing::debug!("{notice}"))?.context("no start has begun")?;
    let user = AppStore::open(home)?.map(|store| store.user(wishes[wish].uid)).transpose()?.flatten();
    let mut apps = UserApps::open(user.context("the user has no store")?);
    let seeks = seeks(&recording.profile);
    let agreed = {
        let _lock = apps.store().lock(LOCK_TIME)?;
        apps.learn(&started, recording.profile, |_| {})?
    };
    Ok(RecorderReport::Learned { agreed, seeks })
}

fn names(wishes: &[Wish]) -> String {
    wishes.iter().map(|wish| wish.start.app.to_string()).collect::<Vec<_>>().join(", ")
}

fn is_start_of(first: &FirstExec, wish: &Wish) -> bool {
    first.program == Some(wish.program)
        && first.uid == Some(wish.uid)
        && key_of(first, wish).is_some_and(|start| start.app == wish.start.app)
}

fn key_of(first: &FirstExec, wish: &Wish) -> Option<StartKey> {
    StartKey::of(&wish.start.app.program, &first.command, &first.directory)
}

/// The variant may be another one than that of the start before.
fn started(first: &FirstExec, wish: &Wish) -> StartKey {
    key_of(first, wish).unwrap_or_else(|| wish.start.clone())
}
