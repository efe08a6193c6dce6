//! `ahead tune`: sets the read-ahead window of a disk, and keeps it. The laboratory measures which window is best.

mod print;

use crate::{exit, messages, programs, restore};
use ahead_disk::tune::{Checked, Restored, Set, Store, System, Target, all, find};
use ahead_model::quantity::{parse_rate, parse_size, parse_time};
use ahead_process::Signals;
use ahead_process::undo::machine_lock::MachineLock;
use ahead_report::table::Screen;
use clap::{ArgGroup, Args};
use serde_json::{Value, json};
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

/// Find the read-ahead window that serves a disk best, set it, and keep it
///
/// Tries windows from 16 KiB to 16 MiB on files that it makes on the target and removes again. Four jobs run under each window, cold: one
/// stream, several streams, scattered faults of a mapping, and all of these at once. The score of a window is the geometric mean of its
/// rates, each divided by the best rate of that job. `*` marks the recommended window: the smallest one whose score is within 2 % of the
/// best. The current window is set again at the end, also after an error. A device without a mount is only read, never written to.
#[derive(Clone, Debug, Args)]
#[command(group = ArgGroup::new("what").args(["target", "all", "plan"]).required(true))]
#[command(group = ArgGroup::new("sets").args(["apply", "persist"]).multiple(true))]
pub struct Tune {
    /// A directory or file on the target (a mount point, say), or its block device
    pub target: Option<PathBuf>,
    /// Tune every device with a mount
    #[arg(long)]
    pub all: bool,
    /// Touch no disk: print Wu's table of latency and throughput for each request size, from --access-time and --bandwidth
    #[arg(long, requires_all = ["access_time", "bandwidth"],
          conflicts_with_all = ["apply", "persist", "check", "restore", "kb", "workload", "exhaustive"])]
    pub plan: bool,
    /// Time until the first byte of a request, as in 8ms
    #[arg(long, value_name = "TIME", value_parser = parse_time, requires = "plan")]
    pub access_time: Option<Duration>,
    /// Bandwidth from the first byte on, as in 100MB/s (a megabyte is 1024 × 1024 bytes)
    #[arg(long, value_name = "SIZE/s", value_parser = parse_rate, requires = "plan")]
    pub bandwidth: Option<u64>,
    /// Measure this workload instead of the four jobs: a profile of `ahead record`, whose files must lie on the target, or a trace of
    /// `ahead sim trace`, which is repeated on files of the same lengths
    #[arg(long, value_name = "FILE")]
    pub workload: Option<PathBuf>,
    /// Number of streams at the same time
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u64).range(2..=64))]
    pub streams: u64,
    /// Try every window three times: this takes four times as long and shows the whole curve
    #[arg(long)]
    pub exhaustive: bool,
    /// Measure nothing, and set this window with --apply or --persist, as in 512K or 4M; KiB if no unit is given
    #[arg(long, value_name = "SIZE", value_parser = parse_kb, requires = "sets", conflicts_with_all = ["workload", "exhaustive"])]
    pub kb: Option<u64>,
    /// Set the window; --restore sets the earlier one again
    #[arg(long)]
    pub apply: bool,
    /// Set the window now and after each restart, by a udev rule for exactly this target, or by a systemd unit where the target has no
    /// udev event
    #[arg(long)]
    pub persist: bool,
    /// Compare the rule with the current window; exit status 1 if they differ or there is no rule
    #[arg(long, conflicts_with_all = ["apply", "persist", "restore", "kb", "workload", "exhaustive"])]
    pub check: bool,
    /// Undo --apply and --persist
    #[arg(long, conflicts_with_all = ["apply", "persist", "kb", "workload", "exhaustive"])]
    pub restore: bool,
    /// Print every column: latencies, amplification, unused bytes, spread
    #[arg(short, long)]
    pub verbose: bool,
    /// Print JSON instead of a table (see docs/reference/json.md)
    #[arg(long)]
    pub json: bool,
    /// Keep rules and earlier values below this directory instead of /
    #[arg(long, value_name = "DIR", hide = true)]
    pub root: Option<PathBuf>,
}

/// Limit of --kb, KiB: 1 GiB.
const MAX_KB: u64 = 1 << 20;

/// Parses a window into KiB. The flag's name is the unit of a bare number.
fn parse_kb(text: &str) -> Result<u64, String> {
    let kb = match parse_size(text) {
        Ok(bytes) if text.ends_with(char::is_alphabetic) => (bytes % 1024 == 0).then_some(bytes / 1024).ok_or(()),
        _ => text.parse().map_err(drop),
    };
    match kb {
        Ok(kb) if kb > 0 && kb % 4 == 0 && kb <= MAX_KB => Ok(kb),
        _ => Err(format!("{text:?} is not a window; write a multiple of 4 KiB up to 1 GiB, as in 512K or 4M")),
    }
}

/// The laboratory's results for a target.
#[derive(Debug)]
pub struct Measured {
    /// The recommended window, KiB.
    pub recommended_kb: u64,
    /// The results as text: tables and remarks.
    pub text: String,
    /// The results as keys of the JSON object.
    pub json: serde_json::Map<String, Value>,
}

/// The laboratory's way to measure a target.
pub struct Measurer<'a> {
    /// A message before the measurement of each target.
    pub note: Option<&'a str>,
    /// Measures one target.
    pub measure: &'a dyn Fn(&System, &Target) -> anyhow::Result<Measured>,
}

/// The results for one target, and the changes.
struct Tuned {
    target: Target,
    current_kb: u64,
    /// `None`: the user gave the window.
    measured: Option<Measured>,
    recommended_kb: u64,
    /// The window that is set now, KiB; `None`: nothing was set.
    applied_kb: Option<u64>,
    set: Set,
}

/// Errors of single targets: the others are still tuned.
#[derive(Default)]
struct Failures(Vec<anyhow::Error>);

impl Failures {
    /// Reports the error of the target `name`.
    fn add(&mut self, name: &str, error: anyhow::Error) {
        eprintln!("ahead: {}: {}", print::shown(name), exit::message(&error));
        self.0.push(error);
    }

    /// The same; an error that every other target would have, too, is returned.
    fn add_own(&mut self, name: &str, error: impl Into<anyhow::Error>) -> anyhow::Result<()> {
        let error = error.into();
        if is_for_every_target(&error) {
            return Err(error);
        }
        self.add(name, error);
        Ok(())
    }

    /// The exit status: a failure counts more than a feature that is not supported here.
    fn status(&self) -> ExitCode {
        ExitCode::from(self.0.iter().map(exit::code_of).min().unwrap_or(0))
    }
}

impl Tune {
    /// Whether the laboratory is needed to measure or to compute.
    fn needs_laboratory(&self) -> bool {
        self.plan || !(self.check || self.restore || self.kb.is_some())
    }

    /// Runs the command; becomes the laboratory's program where that is needed.
    pub fn run(self) -> anyhow::Result<ExitCode> {
        if self.needs_laboratory() {
            return programs::LABORATORY.replace_process_with_own_arguments();
        }
        self.run_with(None)
    }

    /// Runs the command. `measurer`: present in the laboratory only.
    pub fn run_with(&self, measurer: Option<&Measurer<'_>>) -> anyhow::Result<ExitCode> {
        let system = self.root.as_deref().map_or_else(System::default, System::keeping_in);
        let store = Store::new(system.clone());
        if self.restore {
            let _alone = self.lock_machine()?;
            // A window that a killed `ahead tune` has left is not the user's choice.
            restore::everything()?;
            return self.restore(&system, &store);
        }
        ahead::restore::settings_if_free(&messages::print);
        let targets = match &self.target {
            Some(path) => find(&system, path)?,
            None => all(&system)?,
        };
        if self.check {
            return self.check(&store, &targets);
        }
        self.tune(&system, &store, targets, measurer)
    }

    /// Waits for the machine-wide lock. A cold recording switches read-ahead off everywhere, and another measurement tries windows: these
    /// values must not be measured, nor kept as earlier values. From then on signals are collected: none interrupts a change.
    fn lock_machine(&self) -> anyhow::Result<Option<MachineLock>> {
        // A user who may not lock may not set a window either; setting one reports that.
        Ok(ahead::wait_for_machine_as_root(&Signals::take()?, &messages::print)?)
    }

    fn check(&self, store: &Store, targets: &[Target]) -> anyhow::Result<ExitCode> {
        let (mut checked, mut failures): (Vec<(&Target, Checked)>, _) = (Vec::new(), Failures::default());
        for target in targets {
            match store.check(target) {
                Ok(one) => checked.push((target, one)),
                Err(error) if self.all => failures.add_own(&target.name, error)?,
                Err(error) => return Err(error.into()),
            }
        }
        let text = match self.json {
            true => pretty(&one_or_all(
                checked.iter().map(|(target, checked)| print::checked_json(target, checked)).collect(),
            ))?,
            false => checked.iter().map(|(target, checked)| print::checked(target, checked)).collect(),
        };
        std::io::stdout().write_all(text.as_bytes())?;
        // A target that cannot have a rule is reported, and does not change the result for the others.
        match checked.iter().all(|(_, checked)| checked.agrees()) {
            true if checked.is_empty() => Ok(failures.status()),
            agree => Ok(ExitCode::from(u8::from(!agree))),
        }
    }

    fn restore(&self, system: &System, store: &Store) -> anyhow::Result<ExitCode> {
        let (mut done, mut failures): (Vec<Restored>, _) = (Vec::new(), Failures::default());
        match &self.target {
            Some(path) => {
                for target in find(system, path)? {
                    done.extend(store.restore(&target)?);
                }
            }
            None => {
                for (name, one) in store.restore_all()? {
                    match one {
                        Ok(one) => done.push(one),
                        Err(error) => failures.add_own(&name, error)?,
                    }
                }
            }
        }
        let text = match self.json {
            true => pretty(&json!({ "restored": done }))?,
            false if done.is_empty() && failures.0.is_empty() => "nothing to restore\n".into(),
            false => done.iter().map(print::restored).collect(),
        };
        std::io::stdout().write_all(text.as_bytes())?;
        match done.iter().any(|one| one.kept_kb.is_some()) {
            true => Ok(ExitCode::FAILURE),
            false => Ok(failures.status()),
        }
    }

    fn tune(
        &self,
        system: &System,
        store: &Store,
        targets: Vec<Target>,
        measurer: Option<&Measurer<'_>>,
    ) -> anyhow::Result<ExitCode> {
        // Held until the last window is set.
        let _alone = self.lock_machine()?;
        let (mut tuned, mut failures, mut are_all_set) = (Vec::new(), Failures::default(), true);
        for mut target in targets {
            target.notes.extend(store.unread(&target).filter(|_| self.persist));
            target.notes.extend(measurer.and_then(|measurer| measurer.note).map(str::to_owned));
            for note in &target.notes {
                eprintln!("ahead: {}", print::shown(note));
            }
            match self.one(system, store, &target, measurer) {
                Ok(mut one) => {
                    // A measurement is printed in any case.
                    let failed = self.set(store, &mut one).err();
                    are_all_set &= failed.is_none();
                    failed.into_iter().for_each(|error| failures.add(&target.name, error));
                    tuned.push(one);
                }
                // With --all, an error of one target does not end the command.
                Err(error) if self.all => failures.add_own(&target.name, error)?,
                Err(error) => return Err(error),
            }
        }
        let text = match self.json {
            true => pretty(&one_or_all(tuned.iter().map(print::tuned_json).collect()))?,
            false => tuned.iter().map(|tuned| print::tuned(tuned, Screen::stdout())).collect::<Vec<_>>().join("\n"),
        };
        std::io::stdout().write_all(text.as_bytes())?;
        Ok(if are_all_set && !tuned.is_empty() { ExitCode::SUCCESS } else { failures.status() })
    }

    fn one(
        &self,
        system: &System,
        store: &Store,
        target: &Target,
        measurer: Option<&Measurer<'_>>,
    ) -> anyhow::Result<Tuned> {
        if self.apply || self.persist {
            // Checked before a measurement of minutes.
            store.may_set(target, self.persist)?;
        }
        let measured = match (self.kb, measurer) {
            (None, Some(measurer)) => Some((measurer.measure)(system, target)?),
            _ => None,
        };
        let current_kb = target.current_kb()?;
        let recommended_kb = self.kb.or(measured.as_ref().map(|m| m.recommended_kb)).unwrap_or(current_kb);
        let set = Set::default();
        Ok(Tuned { target: target.clone(), current_kb, measured, recommended_kb, applied_kb: None, set })
    }

    fn set(&self, store: &Store, tuned: &mut Tuned) -> anyhow::Result<()> {
        if self.apply || self.persist {
            tuned.set = store.set(&tuned.target, tuned.recommended_kb, self.persist)?;
            tuned.applied_kb = Some(tuned.target.current_kb()?);
        }
        Ok(())
    }
}

/// Whether every target would have this error.
fn is_for_every_target(error: &anyhow::Error) -> bool {
    let not_permitted = |cause: &(dyn std::error::Error + 'static)| {
        matches!(cause.downcast_ref(), Some(ahead_sys::Error::NotPermitted { .. }))
    };
    error.chain().any(|cause| cause.is::<exit::Stopped>() || not_permitted(cause))
}

/// The object of a single target, or a list of several.
fn one_or_all(mut answers: Vec<Value>) -> Value {
    if answers.len() == 1 { answers.remove(0) } else { json!({ "targets": answers }) }
}

/// Indented JSON with a newline at its end.
pub fn pretty(value: &Value) -> anyhow::Result<String> {
    Ok(format!("{}\n", serde_json::to_string_pretty(value)?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use ahead_disk::tune::Error;

    /// Regression: the status was 0 although every target had failed.
    #[test]
    fn worst_failure_is_the_exit_status() {
        let status = |errors: Vec<anyhow::Error>| format!("{:?}", Failures(errors).status());
        let unsupported = || Error::unsupported("a rule for x", "it has no serial number").into();
        assert_eq!(status(vec![]), format!("{:?}", ExitCode::SUCCESS));
        assert_eq!(status(vec![unsupported()]), format!("{:?}", ExitCode::from(exit::UNAVAILABLE)));
        let failed = anyhow::anyhow!("it has vanished");
        assert_eq!(status(vec![unsupported(), failed]), format!("{:?}", ExitCode::FAILURE));
    }

    #[test]
    fn window_is_a_multiple_of_a_page() {
        for (text, kb) in [("512", 512), ("512K", 512), ("4M", 4096), ("1GiB", 1 << 20)] {
            assert_eq!(parse_kb(text), Ok(kb));
        }
        for bad in ["0", "5", "-4", "1048580", "5K", "2G", "K"] {
            assert!(parse_kb(bad).is_err(), "{bad}");
        }
    }
}
