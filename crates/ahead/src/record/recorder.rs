//! Runs a command, or observes running processes, and makes a profile of the pages that they read.
//!
//! ```text
//!     child, held ─▶ observer follows ─▶ (machine's lock ─▶ read-ahead off ─▶ evict) ─▶ exec … end or readiness
//!                                                                                          │
//!     profile of all runs ◀── merge ◀── profile of the run ◀── learn ◀── observation ◀─────┘
//! ```

use super::device_times;
use super::exact::{limit_read_ahead, mapped_folio_pages, switch_fault_around_off, switch_read_ahead_off};
use super::first_start::{FirstStart, is_alike, is_of_programs};
use super::read_ahead::SwitchedOn;
use super::single_faults::SingleFaults;
use super::source::{Observer, Source, Wanted, start_held};
use super::{LeftOut, Observation, Run, learn, written_files};
use crate::error::Context;
use crate::machine::wait_for_machine;
use crate::notify::Notify;
use crate::stopping::{check_stopped, pause, unless_stopped};
use crate::until::{Finished, Until};
use crate::{Error, Result, Stopped, drives, restore};
use ahead_observe::{Scope, now_ns};
use ahead_process::undo::Guard;
use ahead_process::undo::machine_lock::MachineLock;
use ahead_process::{Command, Signals, family};
use ahead_profile::learn::Counters;
use ahead_profile::{Outside, PathBytes, Profile};
use ahead_sys::{evict, usage};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::time::{Duration, Instant, SystemTime};

/// Whether the kernel's read-ahead is off during a cold recording, so that the recorded pages are those used and no others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum ReadAhead {
    /// On where the recording is exact with it: each fault maps one page, and accesses to cached pages are seen. Otherwise off, where
    /// the machine permits that; otherwise on, with a notice.
    #[default]
    OffIfNeeded,
    /// Off where the machine permits that; otherwise on, with a notice.
    OffIfPossible,
    /// Off; an error where the machine does not permit that.
    Off,
    /// As it is set.
    Unchanged,
}

ahead_model::options! {
    /// How to record.
    #[derive(Clone, Debug)]
    pub struct Recorder {
        /// Evict the page cache, dentries and inodes of the whole machine before each run, and record metadata, too.
        pub cold: bool,
        /// The caches are cold without an eviction, because the machine has just started: record metadata, too, and change no setting. For
        /// [`Recorder::observe`].
        pub starts_cold: bool,
        /// The kernel's read-ahead during a cold recording.
        pub read_ahead: ReadAhead,
        /// Runs of the command; the profile stores for each page how many of them used it.
        pub runs: u32,
        /// Record another run if the one run of [`Recorder::record`] was the first start of the program ([`FirstStart`]), and keep the last.
        pub again_after_first_start: bool,
        /// The earlier profile of the command: a run that used the same was no first start, whatever it wrote. `None`: there is none.
        pub earlier: Option<Profile>,
        /// The end of each run.
        pub until: Until,
        /// Time limit of each run, after which the program and all processes that it started are ended. `None`: no limit.
        pub duration: Option<Duration>,
        /// The only source of events to use. `None`: the best one that works.
        pub source: Option<Source>,
        /// Keep only what lies below this directory, with paths relative to it: an absolute path without symbolic links. `None`: keep all.
        pub root: Option<PathBuf>,
    }
}

impl Default for Recorder {
    fn default() -> Recorder {
        Recorder {
            cold: false,
            starts_cold: false,
            read_ahead: ReadAhead::default(),
            runs: 1,
            again_after_first_start: false,
            earlier: None,
            until: Until::default(),
            duration: None,
            source: None,
            root: None,
        }
    }
}

/// The result of a recording.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Recording {
    /// All runs, merged.
    pub profile: Profile,
    /// Entries that did not fit into the limits of a profile.
    pub entries_beyond_limits: u64,
    /// When the last run started, on CLOCK_MONOTONIC.
    pub started_ns: u64,
    /// Entries outside [`Recorder::root`], which the profile lacks.
    pub outside: Outside,
    /// Runs in the profile, at least one.
    pub runs: usize,
    /// Requested runs.
    pub runs_asked: usize,
    /// The status to pass on: that of the program; 1 if the requested readiness was not reached.
    pub status: u8,
    /// How a signal ended the recording early, as text; `None`: no signal did.
    pub interrupted: Option<String>,
    /// The signal that stopped `ahead` during the last run.
    pub stopped: Option<i32>,
    /// The status of the first program that ended by itself with a status other than 0.
    pub failed_status: Option<i32>,
    /// Whether the last run reached the requested readiness; `None`: none was requested.
    pub ready: Option<bool>,
    /// The duration of the last run.
    pub duration: Duration,
    /// The time before the program of the last run started.
    pub setup: Duration,
    /// The time from the end of the last run to its profile.
    pub evaluation: Duration,
    /// Items missing from the profile of the last run, by reason.
    pub left_out: LeftOut,
    /// Events of the last run that the observer did not keep.
    pub counters: Counters,
    /// The signs that the first run was the program's first start; `None`: there are none, or it is unknown (a warm recording, one of
    /// running processes, or one without BPF).
    pub first_start: Option<FirstStart>,
}

impl Recording {
    /// Whether the recording may replace an earlier profile: it was not interrupted, and its program did not fail.
    pub fn is_complete(&self) -> bool {
        self.interrupted.is_none() && self.failed_status.is_none()
    }

    /// Whether the command may be run again: nothing has failed or asked to stop.
    fn has_succeeded(&self) -> bool {
        self.is_complete() && (self.status, self.stopped) == (0, None)
    }
}

/// One recorded run.
#[derive(Debug)]
pub(super) struct RecordedRun {
    profile: Profile,
    left_out: LeftOut,
    counters: Counters,
    finished: Finished,
    started_ns: u64,
    setup: Duration,
    evaluation: Duration,
    /// Files that the run wrote and that a later start reads.
    written: Vec<PathBytes>,
}

/// Modification times that many programs compare: whole seconds. Git does not trust an index that is as old as its files, so each start within
/// the second of a clone reads all files; the first start of a later second writes an index that it trusts.
const STAMP: Duration = Duration::from_secs(1);

/// The status of a recording that did not reach the requested readiness.
const FAILED: u8 = 1;

impl Recorder {
    /// Runs a command, [`Recorder::runs`] times, and records it. Without root by [`Source::Calls`]: `cold` then evicts each file before its first use, as
    /// far as a user may.
    ///
    /// With `signals`, one that stops this process is passed on to the program, and ends the recording after this run. Earlier runs are kept.
    /// Without, a signal has its usual effect, and what was changed of the machine is undone after this process has ended.
    ///
    /// # Errors
    /// Not permitted or not supported here; the program cannot be started; [`Stopped`] if no run was recorded.
    pub fn record(&self, command: &Command, signals: Option<&Signals>, notify: Notify<'_>) -> Result<Recording> {
        with_signals(signals, |signals| self.record_all(command, signals, notify))
    }

    fn record_all(&self, command: &Command, signals: &Signals, notify: Notify<'_>) -> Result<Recording> {
        if !self.cold {
            restore::settings_if_free(notify);
        }
        let mut record_once = || self.record_command(command, None, signals, notify);
        let mut first = self.repeat(self.runs, &mut record_once)?;
        if self.earlier.as_ref().is_some_and(|earlier| is_alike(earlier, &first.profile, is_of_programs)) {
            first.first_start = None;
        }
        if first.first_start.is_none() || !self.again_after_first_start || !first.has_succeeded() {
            return Ok(first);
        }
        self.record_later_start(first, record_once, signals, notify)
    }

    /// Records a later start than the first, which had signs of a first start.
    fn record_later_start(
        &self,
        first: Recording,
        mut record_once: impl FnMut() -> Result<RecordedRun>,
        signals: &Signals,
        notify: Notify<'_>,
    ) -> Result<Recording> {
        notify(&first.first_start.as_ref().map(FirstStart::notice).unwrap_or_default());
        let is_within_a_stamp = first.duration < STAMP;
        let since_start = Duration::from_nanos(now_ns().saturating_sub(first.started_ns));
        let next_stamp = if is_within_a_stamp { STAMP.saturating_sub(since_start) } else { Duration::ZERO };
        let second = pause(signals, next_stamp).and_then(|()| self.repeat(1, &mut record_once));
        let second = match second {
            Ok(second) if is_within_a_stamp && second.first_start.is_some() && second.has_succeeded() => second,
            second => return Ok(choose(second, first)),
        };
        notify("the second run wrote such a file again: recording a third run");
        Ok(choose(self.repeat(1, record_once), choose(Ok(second), first)))
    }

    /// Observes running processes until the condition of [`Recorder::until`] is met, the time limit has passed, the process of
    /// [`Scope::Family`] has ended, or a signal arrives. Needs root.
    ///
    /// # Errors
    /// Not permitted or not supported here; there is no such process or cgroup.
    pub fn observe(&self, scope: &Scope, signals: Option<&Signals>, notify: Notify<'_>) -> Result<Recording> {
        restore::settings_if_free(notify);
        with_signals(signals, |signals| self.repeat(1, || self.observe_others(scope, signals, notify)))
    }

    /// Records one run. The caller holds the machine-wide lock.
    pub(crate) fn record_locked(
        &self,
        command: &Command,
        lock: &MachineLock,
        signals: &Signals,
        notify: Notify<'_>,
    ) -> Result<Recording> {
        self.repeat(1, || self.record_command(command, Some(lock), signals, notify))
    }

    /// Records all runs, or those before a signal. An interrupted run is kept only if no complete run comes before it.
    pub(super) fn repeat(&self, asked: u32, mut record_once: impl FnMut() -> Result<RecordedRun>) -> Result<Recording> {
        let (mut runs, mut status): (Vec<RecordedRun>, u8) = (Vec::new(), 0);
        for _ in 0..asked {
            let recorded = match record_once() {
                Ok(recorded) => recorded,
                Err(Error::Stopped(stopped)) if !runs.is_empty() => {
                    status = stopped.code();
                    break;
                }
                Err(error) => return Err(error),
            };
            let finished = recorded.finished;
            status = finished.status as u8;
            if runs.is_empty() || !finished.is_interrupted() {
                runs.push(recorded);
            }
            if finished.is_interrupted() {
                break;
            }
            if let Some(signal) = finished.stopped {
                // The program of this run succeeded, but more runs were requested.
                if status == 0 && runs.len() < asked as usize {
                    status = Stopped(signal).code();
                }
                break;
            }
        }
        Ok(self.join(runs, asked as usize, status))
    }

    /// `runs`: at least one.
    fn join(&self, runs: Vec<RecordedRun>, runs_asked: usize, status: u8) -> Recording {
        let waits = self.until.is_set();
        let never_came = waits && runs.iter().any(|run| !run.finished.ready && run.finished.stopped.is_none());
        let interrupted = interruption(&runs, runs_asked);
        let by_themselves = runs.iter().map(|run| run.finished).filter(|run| !run.ready && !run.is_interrupted());
        let failed_status = by_themselves.map(|run| run.status).find(|status| *status != 0);
        let written = runs.first().map(|run| run.written.clone()).unwrap_or_default();
        let last = runs.last().expect("there is at least one run");
        let RecordedRun { left_out, counters, finished, started_ns, setup, evaluation, .. } = *last;
        let duration = Duration::from_micros(last.profile.recording.duration_us);
        let run_count = runs.len();
        let merged = ahead_profile::merge(runs.into_iter().map(|run| run.profile).collect());
        let (mut profile, outside) = match &self.root {
            Some(root) => ahead_profile::relative_to(merged, root.as_os_str().as_bytes()),
            None => (merged, Outside::default()),
        };
        let entries_beyond_limits = ahead_profile::fit(&mut profile);
        if let Some(how) = &interrupted {
            profile.recording.source.push_str(&format!(", INTERRUPTED {how}"));
        }
        Recording {
            profile,
            entries_beyond_limits,
            started_ns,
            outside,
            runs: run_count,
            runs_asked,
            // A program that succeeded before it was ready has not done the work that was to be recorded.
            status: if never_came && status == 0 { FAILED } else { status },
            interrupted,
            stopped: finished.stopped,
            failed_status,
            ready: waits.then_some(finished.ready),
            duration,
            setup,
            evaluation,
            left_out,
            counters,
            first_start: FirstStart::of(written, runs_asked),
        }
    }

    /// `accepts_residency`: pages may count that the program did not use.
    pub(super) fn wanted(&self, accepts_residency: bool) -> Wanted {
        Wanted { source: self.source, cold: self.cold || self.starts_cold, accepts_residency }
    }

    /// `held`: the machine-wide lock, if the caller holds it.
    fn record_command(
        &self,
        command: &Command,
        held: Option<&MachineLock>,
        signals: &Signals,
        notify: Notify<'_>,
    ) -> Result<RecordedRun> {
        let began = Instant::now();
        let words: Vec<Vec<u8>> = command.argv.iter().map(|word| word.as_bytes().to_vec()).collect();
        let (command, watch) = self.until.prepare(command)?;
        if self.duration.is_some() {
            family::adopt_orphans()?;
        }
        let cpu_before = usage::cpu_of_ended_children();
        let (mut child, mut observer) = start_held(self.wanted(held.is_none()), &command, notify)?;
        check_stopped(signals)?;
        if observer.evicts() && self.read_ahead == ReadAhead::Off {
            return Err(ahead_sys::Error::needs_root("switching read-ahead off (--precise)").into());
        }
        let cold = self.cold && !observer.evicts();
        let own = if cold && held.is_none() { Some(wait_for_machine(signals, notify)?) } else { None };
        // Only after the wait for the lock: the setting is changed for every process, also for a running comparison.
        let single_faults = single_faults();
        let settings = match held.or(own.as_ref()).filter(|_| cold) {
            Some(lock) => self.switch_read_ahead(lock, single_faults.is_some() && observer.sees_hits(), notify)?,
            None => RecorderSettings::default(),
        };
        if cold {
            make_cold(signals)?;
        }
        observer.note_cold_caches(signals)?;
        check_stopped(signals)?;
        let setup = began.elapsed();
        let (started, started_ns) = (SystemTime::now(), now_ns());
        let deadline = self.duration.and_then(|duration| Instant::now().checked_add(duration));
        child.release(&command)?;
        let finished = watch.wait(&mut child, signals, deadline)?;
        // In this order: a delay between the two makes the recorded end too late, never earlier than the last reads.
        let ended_ns = monotonic_ns(finished.observed_until);
        let usage::Cpu { user, system } = usage::cpu_of_ended_children() - cpu_before;
        let cpu = user + system;
        let switched_on = SwitchedOn::now();
        let was_single = single_faults.as_ref().is_some_and(SingleFaults::holds);
        let precise = match settings {
            RecorderSettings { read_ahead_off: true, .. } => !observer.is_upper_bound(),
            RecorderSettings { needs_single_faults: true, .. } => was_single,
            _ => false,
        };
        if settings.needs_single_faults && !precise {
            notify(
                "faults did not stay limited to one page, so the profile is an upper bound; that of a precise recording is not",
            );
        }
        let read_ahead_off = settings.read_ahead_off;
        drop(settings);
        drop(single_faults);
        // The page cache is what a recording by residency evaluates: another cold recording would evict it.
        // The same for times of the devices.
        let measures = cold;
        let own = own.filter(|_| observer.is_upper_bound() || measures);
        let run = Run {
            command: words,
            directory: working_directory(),
            started_ns,
            ended_ns,
            started,
            cpu,
            ready_ns: finished.ready.then(|| monotonic_ns(finished.at)),
            cold,
            precise,
            read_ahead_off,
            mapped_folio_pages: mapped_folio_pages(),
            single_faults: was_single,
        };
        let mut recorded = evaluate(observer, run, switched_on, setup, finished, signals, notify)?;
        if measures {
            recorded.profile.recording.devices = device_times::measure(&recorded.profile);
        }
        drop(own);
        Ok(recorded)
    }

    /// Switches read-ahead off if that is requested, or needed and possible in a cold recording. `is_exact`: whether the used pages are seen
    /// with read-ahead, too.
    fn switch_read_ahead(&self, lock: &MachineLock, is_exact: bool, notify: Notify<'_>) -> Result<RecorderSettings> {
        let off = |guards| RecorderSettings { read_ahead_off: true, needs_single_faults: false, _guards: guards };
        match self.read_ahead {
            ReadAhead::Unchanged => Ok(RecorderSettings::default()),
            ReadAhead::Off => {
                let guards = switch_read_ahead_off(lock);
                guards.map(off).context(|| "--precise needs read-ahead switched off".into())
            }
            ReadAhead::OffIfNeeded if is_exact => {
                let guards = limit_read_ahead(lock).unwrap_or_else(|error| {
                    tracing::info!("read-ahead stays as it is: {error}");
                    Vec::new()
                });
                Ok(RecorderSettings { read_ahead_off: false, needs_single_faults: true, _guards: guards })
            }
            ReadAhead::OffIfNeeded | ReadAhead::OffIfPossible => match switch_read_ahead_off(lock) {
                Ok(guards) => Ok(off(guards)),
                Err(error) => {
                    notify(&format!("read-ahead stays on, so the profile will be an upper bound: {error}"));
                    Ok(RecorderSettings::default())
                }
            },
        }
    }
}

/// The machine's settings during a cold run, until this value is dropped.
#[derive(Debug, Default)]
struct RecorderSettings {
    read_ahead_off: bool,
    /// Read-ahead is on, and the recording is exact if each fault maps one page.
    needs_single_faults: bool,
    _guards: Vec<Guard>,
}

/// Works with these signals, or else with none.
pub(super) fn with_signals<T>(signals: Option<&Signals>, work: impl FnOnce(&Signals) -> Result<T>) -> Result<T> {
    match signals {
        Some(signals) => work(signals),
        None => work(&Signals::none()?),
    }
}

/// The run after a first start if it succeeded, otherwise the one before.
fn choose(after: Result<Recording>, before: Recording) -> Recording {
    let Some(start) = before.first_start.clone() else { return before };
    let runs = start.runs + 1;
    let (failure, stopped) = match after {
        Ok(after) if after.is_complete() && after.status == 0 => {
            return Recording { first_start: Some(FirstStart { runs, kept_run: runs, ..start }), ..after };
        }
        Ok(after) if after.interrupted.is_some() || after.stopped.is_some() => {
            ("was interrupted".to_owned(), Some((after.status, after.stopped)))
        }
        Ok(after) => (format!("failed with status {}", after.failed_status.unwrap_or(after.status.into())), None),
        Err(Error::Stopped(signal)) => ("was interrupted".to_owned(), Some((signal.code(), Some(signal.0)))),
        Err(error) => (format!("was not recorded ({error})"), None),
    };
    let (status, stopped) = stopped.unwrap_or((before.status, before.stopped));
    let start = FirstStart { runs, failure: Some(failure), ..start };
    Recording { first_start: Some(start), status, stopped, ..before }
}

/// A time of this process on the clock of the events.
pub(crate) fn monotonic_ns(at: Instant) -> u64 {
    let now = now_ns();
    now.saturating_sub(u64::try_from(at.elapsed().as_nanos()).unwrap_or(u64::MAX))
}

/// How a signal ended the recording early; `None`: no signal did.
fn interruption(runs: &[RecordedRun], asked: usize) -> Option<String> {
    let complete = runs.iter().filter(|run| !run.finished.is_interrupted()).count();
    let how = match asked {
        1 => "by a signal".into(),
        asked => format!("by a signal after {complete} of {asked} runs"),
    };
    (complete < asked).then_some(how)
}

/// Evicts the caches of the whole machine, and the buffers of emulated drives.
fn make_cold(signals: &Signals) -> Result<()> {
    // A recording that was stopped must not evict anything.
    check_stopped(signals)?;
    unless_stopped(signals, evict::everything)??;
    // The disks that the program will read are not known yet, and only times depend on them: an error is not fatal.
    if let Err(error) = drives::restart(|_| true) {
        tracing::info!("{error}");
    }
    Ok(())
}

/// Makes each fault map a single page, if the kernel permits that: then exactly the accessed pages are recorded.
pub(super) fn single_faults() -> Option<SingleFaults> {
    switch_fault_around_off().inspect_err(|error| tracing::debug!("faults map windows of pages: {error}")).ok()
}

/// Makes the profile of an ended run. A signal that arrives meanwhile ends the evaluation. `switched_on`: the windows that were on
/// again at the end.
pub(super) fn evaluate(
    observer: Observer,
    run: Run,
    switched_on: SwitchedOn,
    setup: Duration,
    finished: Finished,
    signals: &Signals,
    notify: Notify<'_>,
) -> Result<RecordedRun> {
    let (began, started_ns) = (Instant::now(), run.started_ns);
    let observed = observer.finish()?;
    let learned = unless_stopped(signals, move || {
        let observation = observed.observation()?;
        learn_checked(&observation, &run, &switched_on)
    })??;
    if let Some(setting) = learned.switched_on {
        notify(&format!(
            "read-ahead was switched on during the run ({}), so the profile is an upper bound",
            setting.display()
        ));
    }
    let Learned { profile, left_out, counters, written, .. } = learned;
    let evaluation = began.elapsed();
    Ok(RecordedRun { profile, left_out, counters, finished, started_ns, setup, evaluation, written })
}

struct Learned {
    profile: Profile,
    left_out: LeftOut,
    counters: Counters,
    written: Vec<PathBytes>,
    /// The setting of a device that the program read: its read-ahead was on, although it should have been off.
    switched_on: Option<PathBuf>,
}

fn learn_checked(observation: &Observation, run: &Run, switched_on: &SwitchedOn) -> Result<Learned> {
    let (profile, left_out) = learn(observation, run)?;
    let counters = observation.counters;
    let written = if run.command.is_empty() { Vec::new() } else { written_files(observation, run)? };
    let setting = switched_on.of_any_in(&profile).filter(|_| run.precise && run.read_ahead_off).map(PathBuf::from);
    if setting.is_none() {
        return Ok(Learned { profile, left_out, counters, written, switched_on: None });
    }
    let (profile, left_out) = learn(observation, &Run { precise: false, read_ahead_off: false, ..run.clone() })?;
    Ok(Learned { profile, left_out, counters, written, switched_on: setting })
}

pub(super) fn working_directory() -> Vec<u8> {
    std::env::current_dir().map(|path| path.as_os_str().as_bytes().to_vec()).unwrap_or_default()
}
