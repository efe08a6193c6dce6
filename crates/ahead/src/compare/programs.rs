//! Comparing a program cold, with its profile, and warm.
//!
//! ```text
//!     evict, check │ cold │ evict, check │ ahead │ warm │ evict, check │ (rivals) │ …    ProgramRunner, round after round
//!     then one precise recording: which bytes are used      one observed run: which bytes come late      ──▶ Report
//! ```
//!
//! Times run from the start of the command line to its end (or readiness) and hold everything: loading the profile, the head start, the
//! prefetch. Device reads are all reads of the devices, the kernel's own included.

mod observed;
mod runner;

use super::input::Input;
use super::report::{ColdState, Report, RivalResult, recovered_share, verdict};
use super::usage::judge;
use super::{Comparison, Measured, bound};
use crate::notify::Notify;
use crate::until::Until;
use crate::{Account, Result};
use ahead_model::sorting;
use ahead_process::Signals;
use ahead_profile::Profile;
use ahead_sys::machine;
use ahead_sys::user::User;
use runner::{ProgramRunner, Variant};
use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

/// Another prefetcher: a shell command that runs before the program.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Rival {
    /// Its name in the report.
    pub name: String,
    /// The command, for `sh -c`.
    pub shell: String,
}

impl Rival {
    /// A shell command, and its name in the report.
    pub fn new(name: impl Into<String>, shell: impl Into<String>) -> Rival {
        Rival { name: name.into(), shell: shell.into() }
    }
}

ahead_model::options! {
    /// What to compare.
    #[derive(Debug)]
    pub struct ProgramComparison {
        /// The program and its arguments.
        pub command: Vec<OsString>,
        /// The file of its profile.
        pub profile_path: PathBuf,
        /// The profile.
        pub profile: Arc<Profile>,
        /// A description of the devices for the runs with the profile; `None`: the saved ones.
        pub device: Option<PathBuf>,
        /// The user as whom it runs; `None`: the calling one.
        pub user: Option<User>,
        /// The end of each run.
        pub until: Until,
        /// Rounds, and how many disturbed runs are measured again.
        pub comparison: Comparison,
        /// Other prefetchers.
        pub rivals: Vec<Rival>,
        /// A shell command before each run; its time does not count.
        pub prepare: Option<String>,
        /// Find out by further runs which bytes were used and which came late, where that is permitted.
        pub observe_use: bool,
        /// Go on if the program fails in its first run. Otherwise the comparison ends there.
        pub even_if_failed: bool,
        /// Standard input of each run.
        pub input: Input,
        /// The program `ahead`: timed runs with the profile start `ahead run`, because that is what users run.
        pub ahead_program: PathBuf,
    }
}

impl ProgramComparison {
    /// A program with its profile and the file of that, in five rounds as the calling user and without input. `ahead_program`: the program `ahead`.
    pub fn new(
        command: Vec<OsString>,
        profile_path: PathBuf,
        profile: Profile,
        ahead_program: PathBuf,
    ) -> ProgramComparison {
        ProgramComparison {
            command,
            profile_path,
            profile: Arc::new(profile),
            device: None,
            user: None,
            until: Until::default(),
            comparison: Comparison::new(5),
            rivals: Vec::new(),
            prepare: None,
            observe_use: true,
            even_if_failed: false,
            input: Input::none(),
            ahead_program,
        }
    }

    /// Measures it. `progress`: called before each step with its name, and how many steps there are.
    ///
    /// # Errors
    /// Stopped by a signal; the program cannot be started; the caches cannot be emptied.
    pub fn measure(
        &self,
        signals: &Signals,
        notify: Notify<'_>,
        progress: &mut dyn FnMut(&str, u64),
    ) -> Result<Report> {
        let mut runner = ProgramRunner::new(self, signals, notify)?;
        let mut variants = vec![Variant::Cold, Variant::Ahead, Variant::Warm];
        variants.extend((0..self.rivals.len()).map(Variant::Rival));
        let steps = u64::from(self.comparison.rounds) * variants.len() as u64 + 2;
        let mut before_run = |index: usize| progress(self.name_of(variants[index]), steps);
        let measured = self.comparison.measure(&mut runner, &variants, &mut before_run)?;
        progress("recording once more which bytes are used", steps);
        let reference = if self.observe_use { runner.record_reference()? } else { None };
        progress("observing which bytes come late", steps);
        let observed = if self.observe_use { runner.observe_late()? } else { None };
        self.report(&mut runner, measured, reference, observed)
    }

    /// The name of a variant in the report.
    fn name_of(&self, variant: Variant) -> &str {
        match variant {
            Variant::Cold => "cold",
            Variant::Ahead => "ahead",
            Variant::Warm => "warm",
            Variant::Rival(index) => &self.rivals[index].name,
        }
    }

    /// `measured`: of cold, ahead, warm, and each rival. `observed`: the account of the run that was observed for late bytes.
    fn report(
        &self,
        runner: &mut ProgramRunner<'_>,
        mut measured: Vec<Measured>,
        reference: Option<Profile>,
        observed: Option<Account>,
    ) -> Result<Report> {
        let rivals = measured.split_off(3);
        let [cold, ahead, warm] = measured.try_into().expect("cold, ahead and warm were measured");
        let disk = runner.timed.emulated_disk();
        let (used, used_according_to) = self.used_profile(reference.as_ref());
        let evicted = if machine::is_root() { "everything" } else { "data" };
        let profile_bytes = self.profile.data_bytes() + self.profile.metadata_bytes();
        let cold_state = ColdState::new(evicted, &runner.timed.kept, profile_bytes);
        let bounded = disk.as_ref().filter(|_| cold_state.is_cold);
        let bound = bounded.map(|disk| bound::bound(used, disk, warm.spread.min)).transpose()?;
        let least_s = bound.map_or(warm.spread.median, |bound| bound.s);
        let noise_s = cold.spread.noise().max(warm.spread.noise());
        let share = |measured: &Measured| {
            let share = recovered_share(cold.spread.median, measured.spread.median, least_s, noise_s);
            share.filter(|_| cold_state.is_cold)
        };
        let against = rivals.into_iter().enumerate().map(|(index, measured)| {
            let status = runner.rival_status(index);
            let recovered_share = share(&measured).filter(|_| status == 0);
            RivalResult { name: self.rivals[index].name.clone(), status, recovered_share, measured }
        });
        let against = against.collect();
        let mut account = self.median_account(runner.take_accounts(), used);
        let observed = observed.unwrap_or_default();
        (account.late_bytes, account.lost_events) = (observed.late_bytes, observed.lost_events);
        let windows = &runner.timed.windows;
        let verdict =
            cold_state.verdict().unwrap_or_else(|| verdict(&cold.spread, &ahead.spread, self.comparison.rounds));
        Ok(Report {
            kernel: machine::kernel_release(),
            machine: machine::describe(),
            read_ahead_kb: windows.first().copied(),
            read_ahead_kb_seen: windows.to_vec(),
            recorded_meanwhile: runner.timed.single_faults,
            measured_unix_s: SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs()),
            runs: self.comparison.rounds,
            program_status: runner.program_status(),
            ready: self.until.is_set().then(|| runner.was_always_ready()),
            model: disk.as_ref().map(|disk| disk.model.name.clone()),
            beyond_rig: disk.as_ref().is_some_and(|disk| disk.beyond_rig),
            speedup: cold_state.is_cold.then(|| cold.spread.median / ahead.spread.median),
            recovered_share: share(&ahead),
            cold_state,
            bound_s: bound.map(|bound| bound.s),
            bound_by: bound.map(|bound| bound.by),
            account,
            used_according_to,
            device: ahead.device,
            verdict,
            against,
            cold,
            ahead,
            warm,
        })
    }

    /// The profile that says which bytes are used, for the bound and the account: an exact recording of now, or else our own profile.
    fn used_profile<'p>(&'p self, reference: Option<&'p Profile>) -> (&'p Profile, &'static str) {
        match reference {
            Some(recorded) if recorded.recording.is_exact() => (recorded, "a recorded run"),
            _ if self.profile.recording.is_exact() => (&self.profile, "the profile"),
            _ => (&self.profile, "the profile, which is an upper bound"),
        }
    }

    /// The judged account of the run that prefetched the median amount.
    fn median_account(&self, mut accounts: Vec<Account>, used: &Profile) -> Account {
        accounts.iter_mut().for_each(|account| judge(&self.profile, used, account));
        sorting::sort_by_key(&mut accounts, |account| account.issued_bytes);
        accounts.swap_remove(accounts.len() / 2)
    }
}
