//! The loop.

use crate::conditions::Conditions;
use crate::counters::ServiceCounters;
use crate::head_start::HeadStarts;
use crate::hold::HeldExec;
use crate::idle::IdleMoments;
use crate::prefetching::{PrefetchOutcome, PrefetchTask, PrefetchWorkers, WorkFor, WorkKind};
use crate::recording::RecordingQueue;
use crate::settings::ServiceSettings;
use crate::starts::{FollowedStarts, OwnStart, SeenStart, StartEnd, StartWork};
use crate::survey::{Survey, SurveyedApp};
use crate::users::Users;
use ahead_apps::{AppStore, AppVersion, StartKey, StartSituation, Treatment, UseDays, WaitLimits};
use ahead_observe::{Launch, LaunchEvent, LaunchOptions, Launches, ProcessFiles, StartId, now_ns};
use ahead_process::undo::home::open_lock;
use ahead_process::{Publisher, Signals, Worker};
use ahead_sys::exec::Identity;
use ahead_sys::{memory, mounts, polling};
use anyhow::{Context, Result, bail};
use rustix::event::{PollFd, PollFlags};
use rustix::system::sysinfo;
use sd_notify::NotifyState;
use std::fs::{File, TryLockError};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// What was learned is written this long after the first change: a crash forgets the starts of this time.
const FLUSH_AFTER: Duration = Duration::from_secs(5);
/// Ends of starts do not wake the loop, so it looks for them this often while starts are followed.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// The file with metrics is replaced this often.
const PUBLISH_EVERY: Duration = Duration::from_secs(1);
/// The machine's own mount namespace is that of its first process. In a container that may not be looked at: then it is ours.
const FIRST_PROCESS: u32 = 1;
/// One program of an idle moment gets this part of the available memory: all of them get less than half.
const IDLE_BUDGET: u64 = 16;
/// The lock of the running service, in the directory of the store.
const LOCK: &str = "service.lock";

/// How the service runs.
#[derive(Clone, Debug)]
pub struct ServiceOptions {
    /// The file with the settings.
    pub config: PathBuf,
    /// The directory of what is known.
    pub store: PathBuf,
}

/// Serves until a signal asks for an end.
///
/// # Errors
/// Not permitted or not supported here; the settings are wrong; another service runs.
pub fn run(options: &ServiceOptions) -> Result<()> {
    let signals = Signals::take()?;
    let settings = ServiceSettings::load(&options.config)?;
    let store = AppStore::make(&options.store)?;
    let _lock = lock(&options.store)?;
    let mut service = Service::new(options, settings, store)?;
    let _ = sd_notify::notify(&[NotifyState::Ready]);
    tracing::debug!("{} is served", options.store.display());
    while service.turn(&signals)? {}
    service.end();
    Ok(())
}

/// The lock by which a second service is refused.
fn lock(store: &Path) -> Result<File> {
    let path = store.join(LOCK);
    let file = open_lock("serving starts", &path)?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => {
            bail!("another aheadd serves {} already; see: systemctl status aheadd", store.display())
        }
        Err(TryLockError::Error(error)) => Err(error).with_context(|| format!("lock {}", path.display())),
    }
}

struct Service {
    home: PathBuf,
    launches: Launches,
    users: Users,
    starts: FollowedStarts,
    prefetches: PrefetchWorkers,
    head_starts: HeadStarts,
    recordings: RecordingQueue,
    conditions: Conditions,
    settings: ServiceSettings,
    limits: WaitLimits,
    counters: ServiceCounters,
    /// Where the counters are published, and when next, if it is a file.
    publisher: Option<Publisher>,
    next_publish: Instant,
    namespace: u32,
    days: UseDays,
    idle: IdleMoments,
    survey: Option<Survey>,
    /// Removes what is old, once a day of use.
    tidying: Option<Worker>,
    next_flush: Option<Instant>,
}

impl Service {
    fn new(options: &ServiceOptions, settings: ServiceSettings, store: AppStore) -> Result<Service> {
        let publisher = settings.metrics.as_ref().map(Publisher::new).transpose()?;
        let launches = Launches::start(&LaunchOptions::default())?;
        let mut conditions = Conditions::new(settings.pause_while_running.clone());
        conditions.see_running();
        Ok(Service {
            home: options.store.clone(),
            launches,
            days: store.use_days(),
            users: Users::new(store),
            starts: FollowedStarts::default(),
            prefetches: PrefetchWorkers::new(&options.store),
            head_starts: HeadStarts::new(),
            recordings: RecordingQueue::new(&options.store),
            conditions,
            limits: settings.wait_limits(),
            settings,
            counters: ServiceCounters::default(),
            publisher,
            next_publish: Instant::now(),
            namespace: mounts::namespace(Some(FIRST_PROCESS)).or_else(|_| mounts::namespace(None))?,
            idle: IdleMoments::new(Instant::now(), Duration::from_secs(sysinfo().uptime.max(0).unsigned_abs())),
            survey: Survey::begin(&options.store),
            tidying: None,
            next_flush: None,
        })
    }

    /// Waits for the next event and handles what there is. Returns whether the service goes on.
    fn turn(&mut self, signals: &Signals) -> Result<bool> {
        let streams = self.prefetches.streams().chain(self.recordings.streams()).chain(self.conditions.streams());
        let tidying = self.tidying.iter().flat_map(Worker::streams);
        let listener = self.publisher.iter().filter_map(|publisher| publisher.listener(Instant::now()));
        let all = [signals.as_fd(), self.launches.as_fd()].into_iter().chain(streams).chain(tidying).chain(listener);
        let all = all.chain(self.head_starts.streams()).chain(self.survey.iter().flat_map(Survey::streams));
        let mut all: Vec<PollFd<'_>> = all.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)).collect();
        polling::until(&mut all, self.next_look())?;
        drop(all);
        if signals.poll().is_some_and(|signal| signal.asks_to_stop()) {
            return Ok(false);
        }
        let now = Instant::now();
        self.head_starts.take().into_iter().for_each(|held| self.hold(held, now));
        self.take_events()?;
        self.receive(now);
        self.end_windows()?;
        let is_off = self.conditions.are_off(self.users.store(), now);
        self.recordings.update(is_off, now);
        self.counters.is_paused = is_off;
        self.publish(now);
        self.use_idle_moment(is_off, now);
        match self.next_flush {
            None if self.users.is_changed() => self.next_flush = Some(now + FLUSH_AFTER),
            Some(at) if now >= at => {
                self.users.flush_all();
                self.next_flush = None;
            }
            _ => {}
        }
        Ok(true)
    }

    /// When there is something to do without an event; `None`: nothing.
    fn next_look(&self) -> Option<Instant> {
        let now = Instant::now();
        let ends = (!self.starts.is_empty()).then(|| now + LOOK_EVERY);
        let over = self.starts.next_over_ns().map(|over| now + Duration::from_nanos(over.saturating_sub(now_ns())));
        let file = self.publisher.as_ref().filter(|publisher| publisher.is_file()).map(|_| self.next_publish);
        let resume = self.publisher.as_ref().and_then(|publisher| publisher.paused_until(now));
        // An idle moment begins after the survey.
        let idle = self.idle.due().filter(|_| self.survey.is_none());
        let next = [self.next_flush, idle, ends, over, file, resume];
        let work = [self.recordings.next_update(), self.prefetches.next_look(now)];
        next.into_iter().chain(work).flatten().min()
    }

    /// Gives the metrics to those who ask, or replaces their file.
    fn publish(&mut self, now: Instant) {
        let Some(publisher) = &self.publisher else { return };
        publisher.serve(|| self.metrics());
        if publisher.is_file() && now >= self.next_publish {
            let written = publisher.write_file(&self.metrics());
            self.next_publish = now + PUBLISH_EVERY;
            tracing::trace!("{written:?}");
        }
    }

    fn metrics(&self) -> String {
        let losses = self.launches.losses().unwrap_or_default();
        let (lost_events, lost_starts, hold_losses) = (losses.events, losses.starts, self.head_starts.losses());
        ServiceCounters { lost_events, lost_starts, hold_losses, ..self.counters }.metrics_text()
    }

    fn take_events(&mut self) -> Result<()> {
        let mut events = Vec::new();
        while self.launches.take(Launches::MOST_AT_ONCE, |event| events.push(event.clone()))? > 0 {
            for event in events.drain(..) {
                match event {
                    LaunchEvent::Exec(launch) => self.exec(&launch)?,
                    LaunchEvent::Ended(start, account) => {
                        let end = self.starts.end(start, &account);
                        self.ended(end);
                    }
                }
            }
        }
        Ok(())
    }

    fn exec(&mut self, launch: &Launch) -> Result<()> {
        self.conditions.see_exec(launch.pid, &launch.name);
        let Some(id) = launch.new_start() else { return Ok(()) };
        let now = Instant::now();
        let is_ours = !launch.is_elevated && launch.mount_namespace == self.namespace;
        if !is_ours || self.starts.is_full() || self.conditions.are_off(self.users.store(), now) {
            self.counters.starts_not_followed += 1;
            self.launches.end(id)?;
            return Ok(());
        }
        self.counters.starts += 1;
        let is_recorded = |start| self.recordings.has_claimed(start);
        if let Some(cover) = launch.nested_in.and_then(|outer| self.starts.cover(outer, is_recorded)) {
            self.starts.begin_covered(id, cover);
            return Ok(());
        }
        match self.see(id, launch)? {
            Some((seen, process)) => self.begin(seen, &process, now),
            None => drop(self.launches.end(id)?),
        }
        Ok(())
    }

    /// Who starts what. `None`: the process has ended or executed another program since.
    fn see(&self, id: StartId, launch: &Launch) -> Result<Option<(SeenStart, ProcessFiles)>> {
        let found = || {
            let process = ProcessFiles::of(launch.pid)?;
            let start = StartKey::of(&process.program()?, &process.command()?, &process.directory()?)?;
            let file = process.program_attributes()?;
            let mtime = file.stx_mtime;
            let mtime_ns = mtime.tv_sec.saturating_mul(1_000_000_000).saturating_add(mtime.tv_nsec.into());
            let version = AppVersion { inode: file.stx_ino, size_bytes: file.stx_size, mtime_ns };
            let (uid, gid, program) = (launch.uid, launch.gid, launch.program);
            // On a disk, stat(2) has the kernel's numbers.
            let is_it = launch.program.device.major == 0 || launch.program.inode == file.stx_ino;
            let is_named = !start.app.program.ends_with(b" (deleted)");
            (is_it && is_named).then_some((SeenStart { id, uid, gid, program, start, version }, process))
        };
        let Some(found) = found() else { return Ok(None) };
        // The process that was read is that of the start if the start has not ended since: its number is not free before.
        Ok(self.launches.account(id)?.map(|_| found))
    }

    /// An exec waits: for the head start of its prefetch, or not at all.
    fn hold(&mut self, held: HeldExec, now: Instant) {
        let is_off = self.conditions.are_off(self.users.store(), now);
        let Some(apps) = self.users.of(held.user.0, now).filter(|apps| !is_off && !apps.store().is_off()) else {
            return;
        };
        let key = apps.find(&held.start, held.version);
        let decision = apps.decide(&held.start, &key, cold(), &self.limits);
        match decision.treatment {
            Treatment::Prefetched if !self.prefetches.is_resident(held.user.0, &key, now) => {}
            Treatment::Prefetched | Treatment::LeftAlone => return,
            _ => return self.head_starts.unmark(&key),
        }
        let identity = ProcessFiles::of(held.pid).and_then(|process| process.identity());
        let Some(identity) = identity.filter(|identity| identity.uid == held.user.0) else { return };
        tracing::debug!("{key}: waits for its head start");
        let work_for = WorkFor::Held(held.pid);
        let task = PrefetchTask {
            kind: WorkKind::Prefetch,
            work_for,
            key,
            identity,
            since: now,
            budget_bytes: self.settings.budget_bytes(),
        };
        self.counters.held_execs += u64::from(self.prefetches.begin(task, Some(held)));
    }

    fn begin(&mut self, seen: SeenStart, process: &ProcessFiles, now: Instant) {
        self.idle.see_start(now);
        self.prefetches.cancel_idle_work();
        let Some(apps) = self.users.of(seen.uid, now).filter(|apps| !apps.store().is_off()) else {
            return self.starts.begin(OwnStart::new(seen, None, Treatment::Plain, StartWork::None));
        };
        let key = apps.find(&seen.start, seen.version);
        let decision = apps.decide(&seen.start, &key, cold(), &self.limits);
        let kind = match decision.treatment {
            Treatment::Prefetched => Some(WorkKind::Prefetch),
            Treatment::LeftAlone => Some(WorkKind::Look),
            Treatment::Plain | Treatment::Observed | Treatment::Covered => None,
        };
        self.recordings.set(&seen, decision.is_recorded, now);
        let work = match kind {
            None => StartWork::None,
            Some(_) if self.prefetches.adopt(seen.id, &key) => StartWork::Runs,
            Some(_) if self.prefetches.is_resident(seen.uid, &key, now) => {
                StartWork::Done(PrefetchOutcome { absent_percent: Some(0), ..PrefetchOutcome::default() })
            }
            Some(kind) => {
                let identity = process.identity().filter(|identity| identity.uid == seen.uid);
                let task = |identity| PrefetchTask {
                    kind,
                    work_for: WorkFor::Start(seen.id),
                    key: key.clone(),
                    identity,
                    since: now,
                    budget_bytes: self.settings.budget_bytes(),
                };
                let is_begun = identity.is_some_and(|identity| self.prefetches.begin(task(identity), None));
                if is_begun { StartWork::Runs } else { StartWork::None }
            }
        };
        tracing::debug!("{}: {:?}, {} ({work:?})", key, decision.treatment, decision.reason);
        // A start that should have had a worker and has none is a plain one.
        let has_none = kind.is_some() && work == StartWork::None;
        let treatment = if has_none { Treatment::Plain } else { decision.treatment };
        self.counters.prefetched_starts += u64::from(treatment == Treatment::Prefetched);
        self.counters.starts_left_alone += u64::from(treatment == Treatment::LeftAlone);
        self.starts.begin(OwnStart::new(seen, Some(key), treatment, work));
    }

    fn receive(&mut self, now: Instant) {
        for (task, outcome) in self.prefetches.receive(now) {
            let WorkFor::Start(start) = task.work_for else { continue };
            if let Some(version) = self.starts.own(start).map(|own| own.seen.version)
                && outcome.is_some_and(|outcome| outcome.seeks)
            {
                self.head_starts.mark(&task.key, version.inode);
            }
            let end = self.starts.done(start, outcome.map_or(StartWork::None, StartWork::Done));
            self.ended(end);
        }
        if let Some(learned) = self.recordings.receive(now) {
            if let Some(apps) = self.users.of(learned.uid, now) {
                let key = apps.learned(&learned.start, learned.agreed);
                tracing::debug!("{key}: recorded");
                self.counters.recordings += 1;
                let version = apps.app(&key).map_or_else(AppVersion::default, |app| app.history.version);
                if learned.seeks {
                    self.head_starts.mark(&key, version.inode);
                }
            }
            self.users.change(learned.uid);
            // The worker of the next recording reads it.
            self.users.flush(learned.uid);
        }
        if let Some(worker) = &mut self.tidying {
            worker.receive();
        }
        self.tidying.take_if(|worker| worker.is_complete() && worker.has_ended());
    }

    fn end_windows(&mut self) -> Result<()> {
        let (launches, mut failed) = (&self.launches, None);
        let mut account = |id: StartId| {
            let account = launches.end(id);
            account.unwrap_or_else(|error| {
                failed = Some(error);
                None
            })
        };
        let mut ends: Vec<StartEnd> = Vec::new();
        let now_ns = now_ns();
        while let Some(id) = self.starts.pop_over(now_ns) {
            ends.push(self.starts.over(id, &mut account));
        }
        failed.map_or(Ok(()), Err)?;
        ends.into_iter().for_each(|end| self.ended(end));
        Ok(())
    }

    fn ended(&mut self, end: StartEnd) {
        match end {
            StartEnd::Nothing => {}
            StartEnd::OnlyWork(start) => self.prefetches.cancel(start),
            StartEnd::Finished(own) => self.finish(*own),
        }
    }

    /// Takes over what a start has shown.
    fn finish(&mut self, mut own: OwnStart) {
        if own.treatment == Treatment::Observed && !self.recordings.has_claimed(own.seen.id) {
            own.treatment = Treatment::Plain;
        }
        let (now, unix_s) = (Instant::now(), unix_s());
        let measured = own.measured(unix_s);
        self.counters.requested_bytes += measured.issued_bytes;
        self.counters.wasted_bytes += measured.wasted_bytes;
        self.counters.waited_us += measured.waited_us;
        let waited = self.limits.is_wait(measured.waited_us, measured.elapsed_us);
        let user = (own.seen.uid, own.seen.gid);
        let day = self.use_day(unix_s);
        let apps = if waited { self.users.make(user, now) } else { self.users.of(user.0, now) };
        let Some(apps) = apps.filter(|apps| !apps.store().is_off()) else { return };
        let key = own.key.unwrap_or_else(|| apps.find(&own.seen.start, own.seen.version));
        apps.add(&key, measured, day, &self.limits);
        let next = apps.decide(&own.seen.start, &key, cold(), &self.limits);
        tracing::debug!("{key}: {measured:?}; next: {}", next.reason);
        self.users.change(user.0);
        self.recordings.set(&own.seen, next.is_recorded, now);
    }

    fn use_idle_moment(&mut self, is_off: bool, now: Instant) {
        let found = self.survey.as_mut().and_then(Survey::found);
        if let Some(found) = found {
            self.survey = None;
            found.iter().filter(|app| app.seeks).for_each(|app| self.head_starts.mark(&app.key, app.inode));
            if self.idle.is_used() {
                self.idle.choose(found, self.days.number);
            }
        }
        if self.survey.is_none() && self.idle.begins(now) && !is_off {
            self.survey = Survey::begin(&self.home);
        }
        if is_off || !self.starts.is_empty() || self.prefetches.is_idle_work_running() {
            return;
        }
        let Some(SurveyedApp { uid, gid, key, .. }) = self.idle.next() else { return };
        let available = memory::available_bytes().unwrap_or(0) / IDLE_BUDGET;
        let budget_bytes = Some(self.settings.budget_bytes().map_or(available, |budget| budget.min(available)));
        let identity = Identity { uid, gid, groups: vec![gid] };
        let (kind, work_for) = (WorkKind::Prefetch, WorkFor::Idle);
        self.prefetches.begin(PrefetchTask { kind, work_for, key, identity, since: now, budget_bytes }, None);
    }

    /// The day of use. On a new one, what is old is forgotten.
    fn use_day(&mut self, unix_s: u64) -> u32 {
        let before = self.days.number;
        let day = self.days.at(unix_s);
        if day != before && self.tidying.is_none() {
            let (home, days) = (self.home.clone(), self.days);
            let tidied = Worker::fork(|_, _| {
                let saved = AppStore::open(&home).and_then(|store| {
                    store.map_or(Ok(()), |store| {
                        tracing::info!("{:?}", store.tidy(day));
                        store.save_use_days(days)
                    })
                });
                saved.unwrap_or_else(|error| tracing::warn!("the day of use is not saved: {error}"));
            });
            self.tidying = tidied.inspect_err(|error| tracing::warn!("old programs are kept: {error}")).ok();
        }
        day
    }

    /// Writes what is known. What runs ends by itself.
    fn end(&mut self) {
        let _ = sd_notify::notify(&[NotifyState::Stopping]);
        self.prefetches.cancel_all();
        self.recordings.end();
        self.users.flush_all();
    }
}

/// A start as if nothing of it was in the page cache: only its worker finds out what is.
fn cold() -> StartSituation {
    StartSituation { absent_percent: Some(100), ..StartSituation::default() }
}

fn unix_s() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}
