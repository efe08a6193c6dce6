//! `ahead tune`: sets the read-ahead window of a disk, and keeps it. Which window serves it best is measured by the laboratory.

mod print;

use crate::record::wait_to_be_alone;
use crate::{exit, laboratory, restore};
use ahead_model::quantity::{parse_size, parse_time};
use ahead_process::Signals;
use ahead_report::table::Screen;
use ahead_sys::machine;
use ahead_tune::{Checked, Restored, Set, Store, System, Target, all, find};
use ahead_undo::machine_lock::MachineLock;
use clap::{ArgGroup, Args};
use serde_json::{Value, json};
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

/// Find the read-ahead window that serves a disk best, set it, and keep it
///
/// Tries windows from 16 KiB to 16 MiB on the target itself, on files that are made for it and removed again: one stream, several
/// streams, faults of a mapping here and there, and all of it at once. Each run is cold; the window that is set now is back at
/// the end, however it ends. Recommended is the window with the best geometric mean over these jobs, of equals the smallest. A
/// device that nothing is mounted from is only read, never written to.
#[derive(Clone, Debug, Args)]
#[command(group = ArgGroup::new("what").args(["target", "all", "plan"]).required(true))]
#[command(group = ArgGroup::new("sets").args(["apply", "persist"]).multiple(true))]
pub struct Tune {
    /// A directory or file on what is to be tuned (a mount point, say), or its block device
    pub target: Option<PathBuf>,
    /// Every device that something is mounted from
    #[arg(long)]
    pub all: bool,
    /// Touch no disk: print what a disk of --access-time and --bandwidth gives for each size of a request, as Wu did
    #[arg(long, requires_all = ["access_time", "bandwidth"],
          conflicts_with_all = ["apply", "persist", "check", "restore", "kb", "workload", "exhaustive"])]
    pub plan: bool,
    /// Until the first byte of a request, as in 8ms
    #[arg(long, value_name = "TIME", value_parser = parse_time, requires = "plan")]
    pub access_time: Option<Duration>,
    /// From then on, as in 100MB/s (a megabyte is 1024 × 1024 bytes)
    #[arg(long, value_name = "SIZE/s", value_parser = parse_bandwidth, requires = "plan")]
    pub bandwidth: Option<f64>,
    /// Measure what programs have read instead: a profile of `ahead record`, whose files must lie on the target, or a trace of
    /// `ahead sim trace`, which is repeated on files of the same lengths
    #[arg(long, value_name = "FILE")]
    pub workload: Option<PathBuf>,
    /// Streams at the same time
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u64).range(2..=64))]
    pub streams: u64,
    /// Try every window three times: takes four times as long, and shows the whole curve
    #[arg(long)]
    pub exhaustive: bool,
    /// Measure nothing: this is the window to set with --apply or --persist, as in 512K or 4M; a number alone is KiB
    #[arg(long, value_name = "SIZE", value_parser = parse_kb, requires = "sets", conflicts_with_all = ["workload", "exhaustive"])]
    pub kb: Option<u64>,
    /// Set the window; what is set now is kept for --restore
    #[arg(long)]
    pub apply: bool,
    /// Set it, and again after each restart: by a udev rule, or a systemd unit where no udev event tells of the target, that
    /// names exactly this target
    #[arg(long)]
    pub persist: bool,
    /// Compare the rule with what is set; exit status 1 if they differ or there is no rule
    #[arg(long, conflicts_with_all = ["apply", "persist", "restore", "kb", "workload", "exhaustive"])]
    pub check: bool,
    /// Take back what --apply and --persist have done
    #[arg(long, conflicts_with_all = ["apply", "persist", "kb", "workload", "exhaustive"])]
    pub restore: bool,
    /// Print JSON instead of a table (see docs/reference/json.md)
    #[arg(long)]
    pub json: bool,
    /// Keep rules and earlier values below this directory instead of /
    #[arg(long, value_name = "DIR", hide = true)]
    pub root: Option<PathBuf>,
}

fn parse_bandwidth(text: &str) -> Result<f64, String> {
    match parse_size(text.strip_suffix("/s").unwrap_or(text)) {
        Ok(bytes) if bytes > 0 => Ok(bytes as f64),
        _ => Err(format!("{text:?} is no bandwidth; write a size by second, as in 100MB/s")),
    }
}

/// Largest window that may be set by hand, KiB: 1 GiB.
const MOST_KB: u64 = 1 << 20;

fn parse_kb(text: &str) -> Result<u64, String> {
    let kb = match parse_size(text) {
        Ok(bytes) if text.ends_with(char::is_alphabetic) => (bytes % 1024 == 0).then_some(bytes / 1024).ok_or(()),
        _ => text.parse().map_err(drop),
    };
    match kb {
        Ok(kb) if kb > 0 && kb % 4 == 0 && kb <= MOST_KB => Ok(kb),
        _ => Err(format!("{text:?} is not a window; write a multiple of 4 KiB up to 1 GiB, as in 512K or 4M")),
    }
}

/// What the laboratory has measured of a target.
#[derive(Debug)]
pub struct Measured {
    /// The window that serves best, KiB.
    pub recommended_kb: u64,
    /// The results for people: tables and remarks.
    pub text: String,
    /// The results for programs: keys of the JSON object.
    pub json: serde_json::Map<String, Value>,
}

/// How the laboratory measures.
pub struct Measurer<'a> {
    /// What is to be said of each target before.
    pub note: Option<&'a str>,
    /// Measures one target.
    pub measure: &'a dyn Fn(&System, &Target) -> anyhow::Result<Measured>,
}

/// The results for one target, and what was done.
struct Tuned {
    target: Target,
    current_kb: u64,
    /// `None`: the user named the window.
    measured: Option<Measured>,
    recommended_kb: u64,
    /// The window that was set, KiB.
    applied_kb: Option<u64>,
    set: Set,
}

/// What went wrong with some of many: the others are done.
#[derive(Default)]
struct Failures(Vec<anyhow::Error>);

impl Failures {
    /// Tells what went wrong with `name`.
    fn add(&mut self, name: &str, error: anyhow::Error) {
        eprintln!("ahead: {}: {}", print::shown(name), exit::message(&error));
        self.0.push(error);
    }

    /// The same, unless it would go wrong with every other one, too.
    fn add_own(&mut self, name: &str, error: impl Into<anyhow::Error>) -> anyhow::Result<()> {
        let error = error.into();
        if is_for_all(&error) {
            return Err(error);
        }
        self.add(name, error);
        Ok(())
    }

    /// The status: a failure comes before what is only not to be had here.
    fn status(&self) -> ExitCode {
        ExitCode::from(self.0.iter().map(exit::code_of).min().unwrap_or(0))
    }
}

impl Tune {
    /// Whether the laboratory has to measure or calculate.
    fn needs_laboratory(&self) -> bool {
        self.plan || !(self.check || self.restore || self.kb.is_some())
    }

    /// Runs it, in the laboratory's program where something is to be measured.
    pub fn run(self) -> anyhow::Result<ExitCode> {
        if self.needs_laboratory() {
            return laboratory::become_laboratory_with_own_arguments();
        }
        self.run_with(None)
    }

    /// Runs it; `measurer`: in the laboratory.
    pub fn run_with(&self, measurer: Option<&Measurer<'_>>) -> anyhow::Result<ExitCode> {
        let system = self.root.as_deref().map_or_else(System::default, System::keeping_in);
        let store = Store::new(system.clone());
        if self.restore {
            let _alone = self.alone()?;
            // What a killed `ahead tune` has left set was not chosen by a user.
            restore::left_by_killed()?;
            return self.restore(&system, &store);
        }
        restore::try_set_back();
        let targets = match &self.target {
            Some(path) => find(&system, path)?,
            None => all(&system)?,
        };
        if self.check {
            return self.check(&store, &targets);
        }
        self.tune(&system, &store, targets, measurer)
    }

    /// A cold recording switches read-ahead off everywhere, and another measurement tries windows: nobody's choice, which would be
    /// measured with, or written down as what was there before. Signals are collected from then on: no change is cut short by one.
    fn alone(&self) -> anyhow::Result<Option<MachineLock>> {
        // Who may not lock may not set anything either, and is told so where something is to be set.
        machine::is_root().then(|| wait_to_be_alone(&Signals::take()?)).transpose()
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
        // What no rule can be about is told; it is no reason to call the others wrong.
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
        // Until the last window is set.
        let _alone = self.alone()?;
        let (mut tuned, mut failures, mut are_all_set) = (Vec::new(), Failures::default(), true);
        for mut target in targets {
            target.notes.extend(store.unread(&target).filter(|_| self.persist));
            target.notes.extend(measurer.and_then(|measurer| measurer.note).map(str::to_owned));
            for note in &target.notes {
                eprintln!("ahead: {}", print::shown(note));
            }
            match self.one(system, store, &target, measurer) {
                Ok(mut one) => {
                    // What was measured is printed in any case.
                    let failed = self.set(store, &mut one).err();
                    are_all_set &= failed.is_none();
                    failed.into_iter().for_each(|error| failures.add(&target.name, error));
                    tuned.push(one);
                }
                // Of many, one that cannot be measured is no reason to leave out the others.
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
            // Before minutes of measuring.
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

/// Whether what went wrong would go wrong for every target.
fn is_for_all(error: &anyhow::Error) -> bool {
    let not_permitted = |cause: &(dyn std::error::Error + 'static)| {
        matches!(cause.downcast_ref(), Some(ahead_sys::Error::NotPermitted { .. }))
    };
    error.chain().any(|cause| cause.is::<exit::Stopped>() || not_permitted(cause))
}

/// One target's answer by itself, those of several as a list.
fn one_or_all(mut answers: Vec<Value>) -> Value {
    if answers.len() == 1 { answers.remove(0) } else { json!({ "targets": answers }) }
}

/// JSON for people to read, with a newline at its end.
pub fn pretty(value: &Value) -> anyhow::Result<String> {
    Ok(format!("{}\n", serde_json::to_string_pretty(value)?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use ahead_tune::Error;

    #[test]
    fn bandwidths_are_sizes_by_second() {
        assert_eq!(parse_bandwidth("100MB/s"), Ok((100 << 20) as f64));
        assert_eq!(parse_bandwidth("2G"), Ok((2u64 << 30) as f64));
        for bad in ["0", "", "/s", "100MB/h", "-1M/s"] {
            assert!(parse_bandwidth(bad).is_err(), "{bad}");
        }
    }

    /// Regression: it was 0 though every target had failed.
    #[test]
    fn the_worst_failure_is_the_status() {
        let status = |errors: Vec<anyhow::Error>| format!("{:?}", Failures(errors).status());
        let unsupported = || Error::unsupported("a rule for x", "it has no serial number").into();
        assert_eq!(status(vec![]), format!("{:?}", ExitCode::SUCCESS));
        assert_eq!(status(vec![unsupported()]), format!("{:?}", ExitCode::from(exit::UNAVAILABLE)));
        let failed = anyhow::anyhow!("it has vanished");
        assert_eq!(status(vec![unsupported(), failed]), format!("{:?}", ExitCode::FAILURE));
    }

    #[test]
    fn windows_are_whole_pages() {
        for (text, kb) in [("512", 512), ("512K", 512), ("4M", 4096), ("1GiB", 1 << 20)] {
            assert_eq!(parse_kb(text), Ok(kb));
        }
        for bad in ["0", "5", "-4", "1048580", "5K", "2G", "K"] {
            assert!(parse_kb(bad).is_err(), "{bad}");
        }
    }
}
