//! Starts a program together with the prefetch of its files.
//!
//! ```text
//!     PrefetchProcess ─▶ profile loaded ─▶ head start over
//!                              │                 │
//!     program, held ··(2 s at most)··(11 s at most)·┴─▶ runs ─▶ ends; the prefetch process is ended, or left waiting for its device
//! ```

use crate::notify::Notify;
use crate::prefetch::{
    Account, LONGEST_HEAD_START, LONGEST_STILL, PrefetchProcess, ProfileFile, Request, Stage, as_us,
};
use crate::{Error, Result};
use ahead_process::{Child, Command, Ended, Event, Signals};
use std::time::{Duration, Instant};

/// A program to start with its prefetch.
#[derive(Clone, Debug)]
pub struct Launch {
    command: Command,
    request: Request,
}

/// The result of a launched program.
#[derive(Debug)]
#[non_exhaustive]
pub struct Launched {
    /// Its status, or why it could not be started.
    pub ended: Result<Ended>,
    /// The account, if it was requested and is complete.
    pub account: Option<Account>,
}

/// Maximum wait of the program after the profile was loaded, if the prefetch process reports nothing: that process may not even get
/// to check its clock.
const LONGEST_SILENCE: Duration = LONGEST_HEAD_START.saturating_add(Duration::from_secs(1));

impl Launch {
    /// A program, and the prefetch of its files.
    pub fn new(command: Command, request: Request) -> Launch {
        Launch { command, request }
    }

    /// Runs the program to its end. The prefetch never fails it: without a usable profile the program just runs, and a notice has the
    /// reason.
    ///
    /// `began`: the start of the caller, from which all time limits count. `explain`: see [`PrefetchProcess::start`].
    pub fn run(
        &self,
        signals: &Signals,
        began: Instant,
        notify: Notify<'_>,
        explain: &dyn Fn(&Error) -> String,
    ) -> Launched {
        let started = PrefetchProcess::start(&self.request, notify, explain);
        let mut prefetch = started.inspect_err(|error| notify(&format!("runs without prefetching: {error}"))).ok();
        let mut held = Held { launch: self, signals, notify, failed: false };
        let ended = held.run(prefetch.as_mut(), began);
        let program_us = ended.is_ok().then(|| as_us(began.elapsed()));
        // Also if the program could not be started: the account is complete after this.
        let is_wanted = self.request.send_account || self.request.account_file.is_some();
        let account = prefetch.as_mut().and_then(|prefetch| {
            prefetch.end(is_wanted, program_us.is_some(), notify);
            held.report_failure(prefetch);
            let account = prefetch.account().inspect_err(|error| notify(&error.to_string())).ok().flatten();
            account.map(|account| Account { program_us, ..account })
        });
        Launched { ended, account }
    }
}

/// The program, held before its exec.
struct Held<'a> {
    launch: &'a Launch,
    signals: &'a Signals,
    notify: Notify<'a>,
    /// Whether the failure of the prefetch process was reported.
    failed: bool,
}

impl Held<'_> {
    fn run(&mut self, mut prefetch: Option<&mut PrefetchProcess>, began: Instant) -> Result<Ended> {
        let command = &self.launch.command;
        let mut child = Child::spawn_held(command)?;
        if let Some(prefetch) = prefetch.as_deref_mut()
            && let Some(ended) = self.wait_for_head_start(&mut child, prefetch, began)?
        {
            return Ok(ended);
        }
        child.release(command)?;
        prefetch.iter_mut().for_each(|prefetch| prefetch.follow(child.pid()));
        loop {
            let streams = prefetch.as_deref_mut().map(|prefetch| prefetch.worker().streams()).unwrap_or_default();
            match child.wait_event(self.signals, &streams, None)? {
                Event::Ended(ended) => {
                    prefetch.iter_mut().for_each(|prefetch| self.receive(prefetch));
                    return Ok(ended);
                }
                Event::Readable(_) => prefetch.iter_mut().for_each(|prefetch| self.receive(prefetch)),
                Event::Timeout | Event::Signal(_) => {}
            }
        }
    }

    /// Reads the messages of the prefetch process, and reports its failure once.
    fn receive(&mut self, prefetch: &mut PrefetchProcess) {
        prefetch.worker().receive();
        self.report_failure(prefetch);
    }

    fn report_failure(&mut self, prefetch: &mut PrefetchProcess) {
        if let Some(why) = prefetch.failure().filter(|_| prefetch.worker().is_complete() && !self.failed) {
            self.failed = true;
            (self.notify)(&why);
        }
    }

    /// Waits until the head start is over. `Some`: a signal ended the program before its exec.
    fn wait_for_head_start(
        &mut self,
        child: &mut Child,
        prefetch: &mut PrefetchProcess,
        began: Instant,
    ) -> Result<Option<Ended>> {
        loop {
            let deadline = match prefetch.stage() {
                Stage::Loading => began + LONGEST_STILL,
                Stage::Loaded => began + LONGEST_SILENCE,
                Stage::Started => return Ok(None),
            };
            if prefetch.worker().is_complete() {
                return Ok(None);
            }
            match child.wait_event(self.signals, &prefetch.worker().streams(), Some(deadline))? {
                Event::Ended(ended) => return Ok(Some(ended)),
                Event::Readable(_) => self.receive(prefetch),
                // A signal is passed on to the program, which may end or not.
                Event::Signal(_) => {}
                Event::Timeout if Instant::now() < deadline => {}
                Event::Timeout => {
                    if prefetch.stage() == Stage::Loading {
                        let (limit, profile) = (LONGEST_STILL.as_secs(), &self.launch.request.profile);
                        let profile = match profile {
                            ProfileFile::Named(path) => path.display().to_string(),
                            ProfileFile::OfCommand(_) | ProfileFile::Listed(_) => "the profile".into(),
                        };
                        (self.notify)(&format!("starts without prefetching: {profile} was not read within {limit} s"));
                    }
                    return Ok(None);
                }
            }
        }
    }
}
