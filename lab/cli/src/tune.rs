//! `ahead tune` where it measures: which read-ahead window serves a disk best.

mod print;

use crate::bench::interruptible;
use crate::sim::recordings;
use ahead_cli::tune::{Measurer, Tune, pretty};
use ahead_profile::Profile;
use ahead_report::progress::Progress;
use ahead_report::table::Screen;
use ahead_sim::{Recording, RecordingKind, Recordings};
use ahead_sys::{daemon, machine};
use ahead_tune::{System, Target};
use ahead_tune_measure::{Depth, Disk, Measurement, Plan, Workload, measure};
use anyhow::bail;
use std::io::Write;
use std::path::Path;
use std::process::ExitCode;
use std::sync::atomic::AtomicBool;

/// What is measured with instead of the common jobs.
enum Loaded {
    Profile(Box<Profile>),
    Trace(Recording),
}

/// What is not in a profile.
const PROFILE_NOTE: &str = "a profile does not tell faults of mappings from calls: all of it is read by calls, and what a window does to \
                            faults does not show; `ahead sim trace` records both apart";

impl Loaded {
    /// Reads a profile or a trace, whichever it is.
    fn read(path: &Path) -> anyhow::Result<Loaded> {
        // Whatever else it is, the profile's reader refuses, and says why.
        if recordings::kind_of(path)? != Some(RecordingKind::Trace) {
            return Ok(Loaded::Profile(Box::new(ahead_profile::load(path)?)));
        }
        let trace = recordings::Files.load(RecordingKind::Trace, path);
        Ok(Loaded::Trace(trace.map_err(|why| anyhow::anyhow!("{}: {why}", path.display()))?))
    }

    /// Under this name.
    fn named<'a>(&'a self, name: &'a str) -> Workload<'a> {
        match self {
            Loaded::Profile(profile) => Workload::Profile(name, profile),
            Loaded::Trace(recording) => Workload::Trace(name, recording),
        }
    }
}

/// Measures, and sets and keeps what is recommended where the user asks for it.
pub fn run(tune: &Tune) -> anyhow::Result<ExitCode> {
    if let (Some(access_time), Some(bandwidth_bytes_per_s)) = (tune.access_time, tune.bandwidth) {
        return print_plan(tune, &Disk { access_time, bandwidth_bytes_per_s });
    }
    let loaded = tune.workload.as_deref().map(Loaded::read).transpose()?;
    let measure = |system: &System, target: &Target| {
        let measurement = measure_target(tune, system, target, loaded.as_ref())?;
        print::measured(&measurement, target.current_kb()?, Screen::stdout())
    };
    let note = matches!(loaded, Some(Loaded::Profile(_))).then_some(PROFILE_NOTE);
    tune.run_with(Some(&Measurer { note, measure: &measure }))
}

fn print_plan(tune: &Tune, disk: &Disk) -> anyhow::Result<ExitCode> {
    let text = match tune.json {
        true => pretty(&print::plan_json(disk))?,
        false => print::plan(disk, Screen::stdout()),
    };
    std::io::stdout().write_all(text.as_bytes())?;
    Ok(ExitCode::SUCCESS)
}

fn measure_target(
    tune: &Tune,
    system: &System,
    target: &Target,
    loaded: Option<&Loaded>,
) -> anyhow::Result<Measurement> {
    if !machine::is_root() {
        bail!(ahead_sys::Error::needs_root(format!("trying windows of {}", target.name)));
    }
    let depth = if tune.exhaustive { Depth::Exhaustive } else { Depth::Search };
    let name = tune.workload.as_deref().and_then(Path::file_name).map(|name| name.to_string_lossy().into_owned());
    let work = |stop: &AtomicBool| {
        // In a thread that keeps its priority to itself: what other programs take of the processors is not the disk's.
        if let Err(error) = daemon::set_nice() {
            tracing::debug!("other programs may disturb the times: {error}");
        }
        let progress = Progress::new(1);
        let mut tell =
            |at: ahead_tune_measure::Progress| progress.at(at.done, at.total, format!("{}: {}", target.name, at.what));
        let workload = loaded.zip(name.as_deref()).map_or(Workload::Common, |(loaded, name)| loaded.named(name));
        let plan = Plan { target, system, depth, streams: tune.streams, workload, stop };
        measure(&plan, &mut tell).map_err(|error| match error {
            ahead_tune_measure::Error::Bench(error) => anyhow::Error::from(error),
            error => error.into(),
        })
    };
    interruptible(|stop| {
        std::thread::scope(|scope| {
            let measuring = scope.spawn(|| work(stop));
            measuring.join().unwrap_or_else(|_| bail!("measuring has panicked"))
        })
    })
}
