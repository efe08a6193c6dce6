//! The loop: waits for decisions, signals and times, and lets the logic act.
//!
//! ```text
//!     poll ─┬─ decisions ──────▶ steerer.decide ─┐
//!           ├─ a poll is due ──▶ steerer.poll ───┼─▶ acts in the kernel ─▶ log
//!           ├─ 4 × per second ─▶ steerer.tick ───┘      (nothing is steered: once; nothing is tracked: never)
//!           ├─ 1 × per second ─▶ metrics file;  a connection ─▶ metrics text
//!           └─ signal ─────────▶ SIGHUP: rules again;  others: everything is put back, summary
//! ```

use crate::counts::Counts;
use crate::error::{Error, Result};
use crate::helpers::Helpers;
use crate::kernel::Kernel;
use crate::log::{LogEntry, LoggedAct, Outcome};
use crate::pace::Pace;
use crate::permissions;
use crate::published::Published;
use crate::rules::Rules;
use crate::settings::Settings;
use crate::steerer::Steerer;
use crate::world::World;
use ahead_observe::{CounterOptions, Counters, DecisionEvents, DecisionSource, Detail, Sources, StateQuery};
use ahead_process::undo::guardian;
use ahead_process::undo::machine_lock::MachineLock;
use ahead_process::{Publisher, Signals};
use ahead_sys::{descriptors, polling, priority, usage};
use rustix::event::{PollFd, PollFlags};
use rustix::process::Signal;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

/// Interval of ticks while open files are steered, and while they are only tracked.
const TICK: Duration = Duration::from_millis(250);
const SLOW_TICK: Duration = Duration::from_secs(1);

/// Interval in which the file of the metrics is replaced.
const PUBLISH: Duration = Duration::from_secs(1);

/// Room for descriptors before the first thread: taken ones, own ones, BPF objects. Otherwise the kernel waits for up to 10 ms while a
/// descriptor is taken, to enlarge the table.
const DESCRIPTORS: u32 = 1024;

/// Steers the read-ahead of running programs.
pub struct Engine<'a> {
    settings: Settings,
    log: &'a mut dyn FnMut(&LogEntry),
    sources: Sources,
    events: DecisionEvents,
    kernel: Kernel,
    steerer: Steerer,
    publisher: Option<Publisher>,
    /// Why the metrics could not be written last: a full disk does not end the steering.
    unpublished: Option<String>,
    pace: Pace,
    began: Instant,
    /// Processor time of the start, which loads the observer.
    cpu_before: Duration,
    _published: Published,
    _lock: MachineLock,
}

impl<'a> Engine<'a> {
    /// Loads the observer, and starts the guardian of this process. `helpers`: `None` changes nothing, as `dry_run` does. Nothing is changed yet. A setting that a killed process has left is put
    /// back.
    ///
    /// Errors: [`Error::Busy`]: another process steers; missing privileges or features; the place of the metrics cannot be used.
    pub fn new(settings: Settings, helpers: Option<Helpers>, log: &'a mut dyn FnMut(&LogEntry)) -> Result<Engine<'a>> {
        let lock = MachineLock::try_acquire_steering()?.ok_or(Error::Busy)?;
        if !settings.dry_run {
            permissions::check()?;
        }
        for restored in ahead_process::undo::restore_settings()? {
            tracing::info!("left by a killed process: {}", restored.action);
        }
        descriptors::reserve(DESCRIPTORS);
        if !settings.dry_run {
            guardian::start_early()?;
        }
        if let Err(error) = priority::prefer_on_processor() {
            tracing::info!("acts may come late while all processors are busy: {error}");
        }
        let publisher = settings.metrics.as_ref().map(Publisher::new).transpose()?;
        let detail = settings.sample_hits.map_or(Detail::Decisions, |one_in| Detail::SampledHits(one_in.get()));
        let counters =
            Counters::start(&CounterOptions { detail, sends: true, own_pid: std::process::id(), source: None })?;
        let sources = counters.sources().clone();
        if sources.decisions == DecisionSource::Missing {
            let why = sources.missing.join("; ");
            return Err(ahead_sys::Error::Unsupported { what: "observing read-ahead".into(), why }.into());
        }
        let events = counters.events()?;
        let published = Published::new(&counters)?;
        let kernel = Kernel::new(counters, StateQuery::new()?, helpers.filter(|_| !settings.dry_run));
        let steerer = Steerer::new(limited(&settings, &settings.rules), settings.dry_run);
        let (began, cpu_before) = (Instant::now(), cpu());
        Ok(Engine {
            settings,
            log,
            sources,
            events,
            kernel,
            steerer,
            publisher,
            unpublished: None,
            pace: Pace::new(began),
            began,
            cpu_before,
            _published: published,
            _lock: lock,
        })
    }

    /// What this kernel shows and what not, one sentence each.
    pub fn sources(&self) -> Vec<String> {
        let by = match self.sources.decisions {
            DecisionSource::Tracepoints => "Decisions are observed by tracepoints.",
            DecisionSource::Fentry => "Decisions are observed at functions of the kernel (fentry).",
            DecisionSource::Kprobes => "Decisions are observed at functions of the kernel (kprobes).",
            DecisionSource::Missing => "Decisions are not observed.",
        };
        std::iter::once(by.to_owned()).chain(self.sources.missing.iter().cloned()).collect()
    }

    /// Steers until SIGTERM, SIGINT or SIGQUIT, the end of the duration, or an error. SIGHUP from a process reads the rules again. Everything
    /// is put back before it returns, after an error, too.
    pub fn run(&mut self, signals: &Signals) -> Result<Counts> {
        (self.began, self.cpu_before) = (Instant::now(), cpu());
        let watched = self.watch(signals);
        self.put_back("the end");
        let published = self.publish();
        watched.and(published)?;
        Ok(self.counts())
    }

    fn watch(&mut self, signals: &Signals) -> Result<()> {
        let end = self.settings.duration.and_then(|duration| self.began.checked_add(duration));
        let (mut tick_at, mut publish_at) = (Instant::now(), Instant::now());
        loop {
            let now = Instant::now();
            if end.is_some_and(|end| now >= end) {
                return Ok(());
            }
            let pause_until = self.steer()?;
            if self.is_ticking() && now >= tick_at {
                self.tick();
                tick_at = now + if self.steerer.steered() == (0, 0) { SLOW_TICK } else { TICK };
            }
            if self.publisher.is_some() && now >= publish_at {
                self.publish_or_warn();
                publish_at = now + PUBLISH;
            }
            let publisher = self.publisher.as_ref();
            let publish = publisher.filter(|publisher| publisher.is_file()).map(|_| publish_at);
            let resume = publisher.and_then(|publisher| publisher.paused_until(now));
            let next = [end, self.is_ticking().then_some(tick_at), self.poll_at(now), publish, resume];
            self.wait(signals, next.into_iter().flatten().min(), pause_until)?;
            while let Some(arrived) = signals.poll() {
                if arrived.number == Signal::HUP.as_raw() && !arrived.from_terminal {
                    self.reload();
                } else if arrived.asks_to_stop() {
                    return Ok(());
                }
            }
        }
    }

    /// Takes the decisions that wait, and polls the readers that are due. Returns the time before which no more decisions should be taken.
    fn steer(&mut self) -> Result<Option<Instant>> {
        let Engine { events, steerer, kernel, .. } = self;
        let taken = events.take(DecisionEvents::MOST_AT_ONCE, |decision| steerer.decide(kernel, decision))?;
        steerer.poll_readers(kernel);
        self.drain_log();
        Ok(self.pace.taken(taken as u64, Instant::now()))
    }

    fn tick(&mut self) {
        self.steerer.tick(&mut self.kernel);
        self.steerer.counts_mut().lost_events = self.events.lost();
        self.kernel.close_idle();
        self.drain_log();
    }

    fn is_ticking(&self) -> bool {
        self.steerer.needs_ticks() || self.kernel.fetcher().is_active()
    }

    /// The time of the next poll of a reader.
    fn poll_at(&self, now: Instant) -> Option<Instant> {
        let after_ns = self.steerer.next_poll_ns()?.saturating_sub(self.kernel.now_ns());
        now.checked_add(Duration::from_nanos(after_ns))
    }

    /// Waits for decisions, signals, connections and the deadline; in a storm not for decisions, but until the pause is over.
    fn wait(&self, signals: &Signals, deadline: Option<Instant>, pause_until: Option<Instant>) -> Result<()> {
        let listener = self.publisher.as_ref().and_then(|publisher| publisher.listener(Instant::now()));
        let events = pause_until.is_none().then(|| self.events.as_fd());
        let deadline = [deadline, pause_until].into_iter().flatten().min();
        let all = [Some(signals.as_fd()), events, listener];
        let all: Vec<BorrowedFd<'_>> = all.into_iter().flatten().collect();
        let mut polled: Vec<PollFd<'_>> = all.iter().map(|fd| PollFd::from_borrowed_fd(*fd, PollFlags::IN)).collect();
        polling::until(&mut polled, deadline)?;
        if let Some(publisher) =
            self.publisher.as_ref().filter(|publisher| publisher.listener(Instant::now()).is_some())
        {
            publisher.serve(|| self.counts().metrics_text());
        }
        Ok(())
    }

    fn drain_log(&mut self) {
        for entry in self.steerer.take_log() {
            if let Some(us) = entry.latency_us.filter(|_| entry.act == LoggedAct::Window) {
                self.steerer.counts_mut().latency.add(Duration::from_secs_f64(us / 1e6));
            }
            (self.log)(&entry);
        }
    }

    /// Reads the rules again. After a mistake in them, those before stay.
    fn reload(&mut self) {
        let rules =
            self.settings.rules_file.as_ref().map_or_else(|| Ok(self.settings.rules.clone()), |file| Rules::load(file));
        match rules {
            Ok(rules) => {
                self.steerer.reload(&mut self.kernel, limited(&self.settings, &rules));
                self.settings.rules = rules;
                self.steerer.log_rules(&mut self.kernel, Outcome::Done, "the rules were read again".into());
            }
            Err(error) => {
                let reason = format!("the rules before stay: {error}");
                self.steerer.log_rules(&mut self.kernel, Outcome::Failed, reason);
            }
        }
        self.drain_log();
    }

    fn put_back(&mut self, why: &str) {
        self.steerer.put_back(&mut self.kernel, why);
        self.steerer.counts_mut().lost_events = self.events.lost();
        self.drain_log();
    }

    fn publish(&self) -> Result<()> {
        match &self.publisher {
            Some(publisher) if publisher.is_file() => Ok(publisher.write_file(&self.counts().metrics_text())?),
            _ => Ok(()),
        }
    }

    /// Says once why the metrics cannot be written.
    fn publish_or_warn(&mut self) {
        let failed = self.publish().err().map(|error| error.to_string());
        if let Some(why) = failed.as_ref().filter(|_| self.unpublished.is_none()) {
            tracing::warn!("{why}");
        }
        self.unpublished = failed;
    }

    /// What was seen and done until now.
    fn counts(&self) -> Counts {
        let (windows, fetching) = self.steerer.steered();
        let (counts, fetcher) = (self.steerer.counts().clone(), self.kernel.fetcher());
        let machine = self.kernel.counters().machine().unwrap_or_default();
        Counts {
            seconds: self.began.elapsed().as_secs_f64(),
            dry_run: self.settings.dry_run,
            cpu_seconds: cpu().saturating_sub(self.cpu_before).as_secs_f64(),
            lost_events: counts.lost_events.max(machine.lost_events),
            expired_fetches: fetcher.expired(),
            fetch_latency: self.kernel.fetch_latency(),
            held: self.kernel.held(),
            exposed: self.kernel.exposed().clone(),
            machine,
            tracked: self.steerer.tracked(),
            windows,
            fetching,
            own_descriptors: fetcher.descriptors(),
            has_pressure: self.kernel.has_pressure(),
            ..counts
        }
    }
}

impl Drop for Engine<'_> {
    /// After a panic, too.
    fn drop(&mut self) {
        self.put_back("the end");
    }
}

/// Processor time of this process so far.
fn cpu() -> Duration {
    let used = usage::own_cpu();
    used.user + used.system
}

/// The rules with the limit of the command.
fn limited(settings: &Settings, rules: &Rules) -> Rules {
    let mut rules = rules.clone();
    if let Some(most) = settings.max_window_bytes {
        let limits = &mut rules.limits;
        limits.max_window_bytes = limits.max_window_bytes.min(most.max(ahead_model::PAGE_BYTES));
        limits.min_window_bytes = limits.min_window_bytes.min(limits.max_window_bytes);
    }
    rules
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn smaller_limit_of_command_and_rules_counts() {
        let rules = Rules::parse("[limits]\nmax_window = '4M'\nmin_window = '64K'\n").unwrap();
        let with = |max_window_bytes| {
            let limits = limited(&Settings { max_window_bytes, ..Settings::default() }, &rules).limits;
            (limits.min_window_bytes, limits.max_window_bytes)
        };
        assert_eq!(with(None), (64 << 10, 4 << 20));
        assert_eq!(with(Some(16 << 20)), (64 << 10, 4 << 20));
        assert_eq!(with(Some(32 << 10)), (32 << 10, 32 << 10));
        assert_eq!(with(Some(1)), (4096, 4096));
    }
}
