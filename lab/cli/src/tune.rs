//! The part of `ahead tune` that measures windows.

mod print;

use crate::interruptible::{interruptible, undisturbed};
use ahead_cli::tune::{Measurer, Tune, pretty};
use ahead_disk::tune::{System, Target};
use ahead_measure::tune::{Depth, Disk, Measurement, Plan, Workload, measure};
use ahead_profile::Profile;
use ahead_report::progress::Progress;
use ahead_report::table::Screen;
use ahead_sim::recordings;
use ahead_sim::{Recording, RecordingKind, Recordings};
use ahead_sys::machine;
use anyhow::bail;
use std::io::Write;
use std::path::Path;
use std::process::ExitCode;
use std::sync::atomic::AtomicBool;

/// A workload of the user's, instead of the common jobs.
enum UserWorkload {
    Profile(Box<Profile>),
    Trace(Recording),
}

/// A limit of profiles.
const PROFILE_NOTE: &str = "a profile does not distinguish faults from read calls: all of it is read by calls, and the effect of a window \
    on faults is not measured; `ahead sim trace` records both";

impl UserWorkload {
    /// Reads a profile or a trace.
    fn read(path: &Path) -> anyhow::Result<UserWorkload> {
        // The reader of profiles refuses every other file, with the reason.
        if recordings::kind_of(path)? != Some(RecordingKind::Trace) {
            return Ok(UserWorkload::Profile(Box::new(ahead_files::load(path)?)));
        }
        let trace = recordings::Files.load(RecordingKind::Trace, path);
        Ok(UserWorkload::Trace(trace.map_err(|why| anyhow::anyhow!("{}: {why}", path.display()))?))
    }

    /// The workload under this name.
    fn named<'a>(&'a self, name: &'a str) -> Workload<'a> {
        match self {
            UserWorkload::Profile(profile) => Workload::Profile(name, profile),
            UserWorkload::Trace(recording) => Workload::Trace(name, recording),
        }
    }
}

/// Measures targets; sets and keeps the recommended windows where the user asks for it.
pub fn run(tune: &Tune) -> anyhow::Result<ExitCode> {
    if let (Some(access_time), Some(bandwidth)) = (tune.access_time, tune.bandwidth) {
        return print_plan(tune, &Disk { access_time, bandwidth_bytes_per_s: bandwidth as f64 });
    }
    let loaded = tune.workload.as_deref().map(UserWorkload::read).transpose()?;
    let measure = |system: &System, target: &Target| {
        let measurement = measure_target(tune, system, target, loaded.as_ref())?;
        print::measured(&measurement, target.current_kb()?, tune.verbose, Screen::stdout())
    };
    let note = matches!(loaded, Some(UserWorkload::Profile(_))).then_some(PROFILE_NOTE);
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
    loaded: Option<&UserWorkload>,
) -> anyhow::Result<Measurement> {
    if !machine::is_root() {
        bail!(ahead_sys::Error::needs_root(format!("trying windows of {}", target.name)));
    }
    let depth = if tune.exhaustive { Depth::Exhaustive } else { Depth::Search };
    let name = tune.workload.as_deref().and_then(Path::file_name).map(|name| name.to_string_lossy().into_owned());
    let work = |stop: &AtomicBool| {
        let progress = Progress::new(1);
        let mut report =
            |at: ahead_measure::tune::Progress| progress.at(at.done, at.total, format!("{}: {}", target.name, at.what));
        let workload = loaded.zip(name.as_deref()).map_or(Workload::Common, |(loaded, name)| loaded.named(name));
        let plan = Plan { target, system, depth, streams: tune.streams, workload, stop };
        measure(&plan, &mut report).map_err(|error| match error {
            ahead_measure::tune::Error::Bench(error) => anyhow::Error::from(error),
            error => error.into(),
        })
    };
    interruptible(|stop| undisturbed(|| work(stop)))
}
