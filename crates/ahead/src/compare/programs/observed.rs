//! Runs that are observed and not timed: which bytes are used, and which come late.

use super::runner::{ProgramRunner, Variant};
use crate::compare::{late, usage};
use crate::record::{ReadAhead, Recorder, Run, learn, monotonic_ns};
use crate::stopping::{check_stopped, unless_stopped};
use crate::{Account, Error, Result, Stopped};
use ahead_observe::{Arrivals, Options, Tracer, now_ns};
use ahead_process::Child;
use ahead_profile::Profile;
use ahead_sys::machine;
use std::time::{Duration, SystemTime};

impl ProgramRunner<'_> {
    /// Records the command once more, exactly, where that is permitted: the measure of waste.
    pub fn record_reference(&mut self) -> Result<Option<Profile>> {
        let Some(lock) = &self.timed.lock else { return Ok(None) };
        self.timed.prepare(self.setup.prepare.as_deref())?;
        let read_ahead = ReadAhead::OffIfPossible;
        let recorder = Recorder { cold: true, read_ahead, until: self.setup.until.clone(), ..Recorder::default() };
        let command = self.run_of(self.setup.command.clone())?;
        // A notice of the recording explains its result and is no news to the user.
        let recorded = recorder.record_locked(&command, lock, self.timed.signals, &|notice| tracing::info!("{notice}"));
        match recorded {
            Ok(recording) if recording.interrupted.is_none() => Ok(Some(recording.profile)),
            Ok(recording) => match recording.stopped {
                Some(signal) => Err(Stopped(signal).into()),
                None => Ok(None),
            },
            Err(Error::Stopped(stopped)) => Err(stopped.into()),
            Err(error) => {
                self.timed.notify_once(format!("reference recording failed; using the profile instead: {error}"));
                Ok(None)
            }
        }
    }

    /// Runs the command once more with its profile and observes which bytes come late. The account has their number, unless events were lost;
    /// `None` where late bytes cannot be seen.
    pub fn observe_late(&mut self) -> Result<Option<Account>> {
        if !machine::is_root() || !late::is_observable(&self.setup.profile) {
            return Ok(None);
        }
        self.timed.prepare(self.setup.prepare.as_deref())?;
        let name = "late";
        let command = self.command(Variant::Ahead, name)?;
        let (command, watch) = self.setup.until.prepare(&command)?;
        let mut child = Child::spawn_held(&command)?;
        let observers = Tracer::start(&Options::default()).and_then(|tracer| Ok((tracer, Arrivals::start()?)));
        let (tracer, arrivals) = match observers {
            Ok(observers) => observers,
            Err(error) => {
                self.timed.notify_once(format!("late bytes cannot be observed: {error}"));
                return Ok(None);
            }
        };
        tracer.follow(child.pid(), true)?;
        self.timed.make_cold()?;
        check_stopped(self.timed.signals)?;
        let (started, started_ns) = (SystemTime::now(), now_ns());
        child.release(&command)?;
        let finished = watch.wait(&mut child, self.timed.signals, None)?.unless_stopped()?;
        let (observed, arrived) = (tracer.finish()?, arrivals.finish()?);
        let (mut account, _) = self.read_account(name, finished.status)?;
        let lost_events = observed.lost_events() + arrived.lost_events;
        (account.lost_events, account.late_bytes) = (Some(lost_events), None);
        if lost_events > 0 {
            return Ok(Some(account));
        }
        let run = Run {
            command: Vec::new(),
            directory: Vec::new(),
            started_ns,
            ended_ns: now_ns(),
            started,
            cpu: Duration::ZERO,
            ready_ns: finished.ready.then(|| monotonic_ns(finished.at)),
            cold: true,
            // Requested pages are used; the windows around faults do not matter here.
            precise: true,
            read_ahead_off: false,
            mapped_folio_pages: u64::MAX,
            single_faults: false,
        };
        let (seen, _) = unless_stopped(self.timed.signals, move || learn(&observed, &run))??;
        let issued = usage::issued(&self.setup.profile, &account);
        account.late_bytes = Some(late::bytes(&seen, started_ns, &issued, arrived.reads));
        Ok(Some(account))
    }
}
