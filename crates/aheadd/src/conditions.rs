//! Whether anything is prefetched or recorded now: not while the machine saves power or memory is short, a game runs, or the service is off.

use ahead_apps::AppStore;
use ahead_boot::Circumstances;
use ahead_sys::other_process::OtherProcess;
use ahead_sys::pressure::{self, Resource};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

/// The circumstances of the machine are read again after this time: a few small files.
const READ_EVERY: Duration = Duration::from_secs(5);
/// Whether the service is off, and whether tasks wait for memory.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// Memory is short if tasks wait for it for more than this share of the time, as for a prefetch that runs (`ahead_fetch`).
const SHORT_SHARE: f64 = 0.1;
/// Programs that pause the service and run at the same time.
const MOST_PAUSING: usize = 16;

/// What was seen last.
#[derive(Debug)]
pub struct Conditions {
    /// Programs that pause the service while they run, by the names of their files.
    pause_names: Vec<String>,
    pausing: Vec<OtherProcess>,
    read_at: Option<Instant>,
    looked_at: Option<Instant>,
    /// How long tasks had waited for memory.
    stalled: Option<Duration>,
    machine_is_off: bool,
    service_is_off: bool,
    is_short: bool,
}

impl Conditions {
    /// Nothing was seen yet.
    pub fn new(pause_names: Vec<String>) -> Conditions {
        Conditions {
            pause_names,
            pausing: Vec::new(),
            read_at: None,
            looked_at: None,
            stalled: None,
            machine_is_off: false,
            service_is_off: false,
            is_short: false,
        }
    }

    /// Whether nothing is to be prefetched or recorded. Looks at the machine if the last look is old.
    pub fn are_off(&mut self, store: &AppStore, now: Instant) -> bool {
        let is_old = |at: Option<Instant>, every| at.is_none_or(|at| now.duration_since(at) >= every);
        if is_old(self.read_at, READ_EVERY) {
            self.read_at = Some(now);
            self.machine_is_off = Circumstances::now().off().is_some();
        }
        if is_old(self.looked_at, LOOK_EVERY) {
            let stalled = pressure::total(Resource::Memory).ok();
            let waited = self.stalled.zip(stalled).map_or(Duration::ZERO, |(then, now)| now.saturating_sub(then));
            let since = self.looked_at.map_or(LOOK_EVERY, |at| now.duration_since(at));
            self.is_short = waited.as_secs_f64() > SHORT_SHARE * since.as_secs_f64();
            (self.stalled, self.looked_at) = (stalled, Some(now));
            self.service_is_off = store.is_off();
        }
        self.pausing.retain(|process| !process.has_ended());
        self.machine_is_off || self.service_is_off || self.is_short || !self.pausing.is_empty()
    }

    /// A program is started. `name`: as given to execve.
    pub fn see_exec(&mut self, pid: u32, name: &[u8]) {
        let file = name.rsplit(|byte| *byte == b'/').next().unwrap_or_default();
        let pauses = self.pause_names.iter().any(|pausing| pausing.as_bytes() == file);
        if pauses && self.pausing.len() < MOST_PAUSING {
            self.pausing.extend(OtherProcess::open(pid).ok());
        }
    }

    /// Sees the programs that run already.
    pub fn see_running(&mut self) {
        if self.pause_names.is_empty() {
            return;
        }
        let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
        for pid in entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()) {
            if let Some(program) = ahead_observe::ProcessFiles::of(pid).and_then(|process| process.program()) {
                self.see_exec(pid, &program);
            }
        }
    }

    /// Readable when a program that pauses the service has ended, for poll(2).
    pub fn streams(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.pausing.iter().map(AsFd::as_fd)
    }
}
