//! Comparing a program cold and warm, without a profile.
//!
//! ```text
//!     one run: which files are used │ evict, check │ cold │ warm │ evict, check │ cold │ warm │ …
//!                                                      ╰── until the intervals of both medians are small, or a limit is reached
//! ```
//!
//! The first run is recorded: by root exactly, by other users with all files. Where that is refused, files are looked for from outside, which is a
//! lower bound. Eviction, times and device reads are those of a comparison with a profile.

use super::input::Input;
use super::report::ColdState;
use super::timed::Timed;
use super::{Comparison, Measured, Runner, Sample};
use crate::cold::{self, CachedFile};
use crate::machine::wait_for_machine_as_root;
use crate::notify::Notify;
use crate::record::{Recorder, Source, used_files};
use crate::until::Until;
use crate::{Error, Result, Stopped};
use ahead_model::spread::median_interval;
use ahead_process::undo::machine_lock::MachineLock;
use ahead_process::{Command, Signals};
use ahead_profile::Profile;
use ahead_sys::machine;
use ahead_sys::user::User;
use serde::Serialize;
use std::ffi::OsString;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

ahead_model::options! {
    /// What to measure.
    #[derive(Debug)]
    pub struct ColdAndWarm {
        /// The program and its arguments.
        pub command: Vec<OsString>,
        /// The user as whom it runs; `None`: the calling one.
        pub user: Option<User>,
        /// The end of each run.
        pub until: Until,
        /// Rounds; `None`: until the intervals are small.
        pub runs: Option<u32>,
        /// A shell command before each run; its time does not count.
        pub prepare: Option<String>,
        /// Go on if the program fails.
        pub ignore_failure: bool,
        /// Show the program's output.
        pub show_output: bool,
        /// Standard input of each run.
        pub input: Input,
    }
}

/// The interval of a median is small if it reaches no further than this share of the median to either side: the tolerance within which two
/// measurements of one program agree on an emulated disk (docs/results/everyday.md).
pub const INTERVAL_SHARE: f64 = 0.03;
/// That of the warm median is also small if it reaches no further than this share of the cold one: of the difference it is nothing.
const INTERVAL_SHARE_OF_COLD: f64 = 0.01;
/// Fewest rounds for an interval of 95 %: with five, the smallest and the largest value enclose the median with 93.75 %.
pub const LEAST_RUNS: u32 = 6;
/// Most rounds: the interval of 30 values lies between the 10th and the 21st, and narrows by a tenth only with 10 more.
const MOST_RUNS: u32 = 30;
/// No round begins after this time: as long as a user waits for a measurement.
const MOST_TIME: Duration = Duration::from_secs(180);

/// Why there are no more rounds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Enough {
    /// As many as were asked for.
    #[default]
    Asked,
    /// The intervals are small.
    Interval,
    /// The most that are made.
    Runs,
    /// The time is over.
    Time,
}

/// A program cold and warm. Fields as in docs/reference/json.md; the command line comes before them.
#[derive(Clone, Debug, Default, Serialize)]
#[non_exhaustive]
pub struct ColdReport {
    /// `uname -r`.
    pub kernel: String,
    /// Architecture, processors and memory, for people.
    pub machine: String,
    /// The end of the measurement, seconds since 1970 (UTC).
    pub measured_unix_s: u64,
    /// The read-ahead windows of the disk that were seen, KiB.
    pub read_ahead_kb_seen: Vec<u64>,
    /// A recording had switched fault-around off during a run.
    pub recorded_meanwhile: bool,
    /// The emulated disk's model, where the files lie on one.
    pub model: Option<String>,
    /// Rounds.
    pub runs: u32,
    /// Why there are no more.
    pub enough: Enough,
    /// Everything evicted before.
    #[serde(skip)]
    pub cold: Measured,
    /// Everything cached.
    #[serde(skip)]
    pub warm: Measured,
    /// Whether the intervals of both medians are small.
    pub is_precise: bool,
    /// How the page cache was emptied, and what stayed.
    pub cold_state: ColdState,
    /// Files that the command uses, as far as they are known.
    pub files: u64,
    /// Their used bytes.
    pub files_bytes: u64,
    /// How these files were found: `a recorded run`, or `from outside`, which is a lower bound.
    pub files_by: &'static str,
    /// Of these, files that cannot be evicted as a whole.
    #[serde(skip)]
    pub kept_files: Vec<CachedFile>,
}

impl ColdReport {
    /// The interval that holds the median of a variant with 95 %, seconds; `None`: too few runs.
    pub fn interval(measured: &Measured) -> Option<(f64, f64)> {
        median_interval(measured.samples.iter().map(|sample| sample.s))
    }
}

/// Whether the interval of the median of these samples is small.
fn is_small(samples: &[Sample], least_s: f64) -> bool {
    let median = ahead_model::Spread::of(samples.iter().map(|sample| sample.s)).median;
    let limit = (median * INTERVAL_SHARE).max(least_s);
    median_interval(samples.iter().map(|sample| sample.s))
        .is_some_and(|(low, high)| high - median <= limit && median - low <= limit)
}

fn are_small(cold: &[Sample], warm: &[Sample]) -> bool {
    let cold_median = ahead_model::Spread::of(cold.iter().map(|sample| sample.s)).median;
    is_small(cold, 0.0) && is_small(warm, cold_median * INTERVAL_SHARE_OF_COLD)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cache {
    Cold,
    Warm,
}

struct ColdRunner<'a> {
    setup: &'a ColdAndWarm,
    timed: Timed<'a>,
}

impl ColdAndWarm {
    /// A program, as the calling user and without input.
    pub fn new(command: Vec<OsString>) -> ColdAndWarm {
        ColdAndWarm {
            command,
            user: None,
            until: Until::default(),
            runs: None,
            prepare: None,
            ignore_failure: false,
            show_output: false,
            input: Input::none(),
        }
    }

    /// Measures it. `progress`: called before each step with its name, and how many steps there are at most.
    ///
    /// # Errors
    /// Stopped by a signal; the program cannot be started, or fails; the caches cannot be emptied.
    pub fn measure(
        &self,
        signals: &Signals,
        notify: Notify<'_>,
        progress: &mut dyn FnMut(&str, u64),
    ) -> Result<ColdReport> {
        let rounds = self.runs.unwrap_or(MOST_RUNS);
        let steps = u64::from(rounds) * 2 + 1;
        self.run_of()?.check_found()?;
        let lock = wait_for_machine_as_root(signals, notify)?;
        progress("looking which files are used", steps);
        let (profile, files_by) = self.used_files(lock.as_ref(), signals, notify)?;
        let profile = Arc::new(profile);
        let mut runner = ColdRunner { setup: self, timed: Timed::new(&profile, lock, signals, notify)? };
        let began = Instant::now();
        let mut enough = if self.runs.is_some() { Enough::Asked } else { Enough::Runs };
        let mut goes_on = |samples: &[&[Sample]]| {
            if self.runs.is_some() {
                return true;
            } else if are_small(samples[0], samples[1]) {
                enough = Enough::Interval;
            } else if began.elapsed() > MOST_TIME {
                enough = Enough::Time;
            }
            enough == Enough::Runs
        };
        let mut before_run = |index: usize| progress(["cold", "warm"][index], steps);
        let variants = [Cache::Cold, Cache::Warm];
        let measured = Comparison::new(rounds).measure_while(&mut runner, &variants, &mut before_run, &mut goes_on)?;
        let [cold, warm] = measured.try_into().expect("cold and warm were measured");
        let timed = runner.timed;
        let profile_bytes = profile.data_bytes() + profile.metadata_bytes();
        let evicted = if machine::is_root() { "everything" } else { "data" };
        Ok(ColdReport {
            kernel: machine::kernel_release(),
            machine: machine::describe(),
            measured_unix_s: SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs()),
            read_ahead_kb_seen: timed.windows.clone(),
            recorded_meanwhile: timed.single_faults,
            model: timed.emulated_disk().map(|disk| disk.model.name),
            runs: cold.samples.len() as u32,
            enough,
            is_precise: are_small(&cold.samples, &warm.samples),
            cold_state: ColdState::new(evicted, &timed.kept, profile_bytes),
            files: profile.files.len() as u64,
            files_bytes: profile.data_bytes(),
            files_by,
            kept_files: cold::kept_files(&profile, signals)?,
            cold,
            warm,
        })
    }

    fn run_of(&self) -> Result<Command> {
        let input = Some(self.input.open()?);
        let command = Command::new(self.command.clone()).user(self.user.clone());
        Ok(command.discard_output(!self.show_output).input(input))
    }

    /// The files that the command uses, by one run.
    fn used_files(
        &self,
        lock: Option<&MachineLock>,
        signals: &Signals,
        notify: Notify<'_>,
    ) -> Result<(Profile, &'static str)> {
        let command = self.run_of()?.discard_output(true);
        let quiet: Notify<'_> = &|notice| tracing::info!("{notice}");
        let recorder = Recorder { until: self.until.clone(), ..Recorder::default() };
        let recorded = match lock {
            Some(lock) => recorder.cold(true).record_locked(&command, lock, signals, quiet),
            None => recorder.source(Some(Source::Calls)).record(&command, Some(signals), quiet),
        };
        match recorded {
            Ok(recording) => {
                recording.stopped.map_or(Ok(()), |signal| Err(Stopped(signal)))?;
                self.check_first(recording.failed_status.unwrap_or(0))?;
                return Ok((recording.profile, "a recorded run"));
            }
            Err(Error::Stopped(stopped)) => return Err(stopped.into()),
            Err(error @ Error::Exec(_)) => return Err(error),
            Err(error) => notify(&format!("not recorded, so files are looked for from outside: {error}")),
        }
        let (profile, status) = used_files(&command, &self.until, signals)?;
        self.check_first(status)?;
        Ok((profile, "from outside"))
    }

    fn check_first(&self, status: i32) -> Result<()> {
        if status == 0 || self.ignore_failure { Ok(()) } else { Err(Error::CommandFailed(status)) }
    }
}

impl Runner for ColdRunner<'_> {
    type Variant = Cache;

    fn run(&mut self, cache: &Cache) -> Result<Sample> {
        let setup = self.setup;
        self.timed.prepare(setup.prepare.as_deref())?;
        if *cache == Cache::Cold {
            self.timed.make_cold_for_a_run()?;
        }
        let (sample, finished) = self.timed.time(&setup.run_of()?, &setup.until)?;
        if setup.until.is_set() && !finished.ready {
            self.timed.notify_once("the command ended without being ready: its time is that to its end".into());
        }
        if sample.status != 0 && !setup.ignore_failure {
            let status = sample.status;
            return Err(Error::Failed(format!(
                "the command failed in a later run (exit status {status}): nothing was measured"
            )));
        }
        Ok(sample)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn samples(times: &[f64]) -> Vec<Sample> {
        times.iter().map(|s| Sample { s: *s, ..Sample::default() }).collect()
    }

    #[test]
    fn interval_is_small_relative_to_its_median_or_the_warm_one_to_the_cold() {
        let narrow = samples(&[1.0, 1.01, 0.99, 1.0, 1.02, 1.0]);
        let wide = samples(&[1.0, 1.1, 0.99, 1.0, 1.02, 1.0]);
        assert!(are_small(&narrow, &narrow) && !are_small(&wide, &narrow) && !are_small(&narrow, &wide));
        let short = samples(&[0.1, 0.11, 0.099, 0.1, 0.1, 0.1]);
        assert!(!is_small(&short, 0.0) && are_small(&narrow, &short));
        assert!(!are_small(&narrow[..5], &narrow[..5]), "too few for an interval");
    }
}
