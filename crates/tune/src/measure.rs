//! Measuring: a window is set, the jobs run under it, cold, and the next one is set; at the end the first one is back.
//!
//! The window that was there is noted before the first change, so that `ahead restore` sets it back whatever happens, and whatever
//! the setting reads then: it is ours until the end. The setting counts for files that are opened later: each run opens its own.

use crate::search::{Depth, Try, search};
use crate::verdict::{Candidate, Job, Verdict, judge, score};
use crate::work::{Kind, Program, Sizes};
use crate::{Error, Result, System, Target, program};
use ahead_bench::{Files, How, Observed, Setting, Spread, Under, Variant, run};
use ahead_kernel::undo::{self, ProcessId};
use ahead_kernel::{cache, machine};
use ahead_policy::DeviceTraits;
use ahead_profile::Profile;
use serde::Serialize;
use std::collections::BTreeMap;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

const MIB: u64 = 1 << 20;
/// What is read at first, to know how long the jobs have to be: file, and windows under which a stream and faults run.
const FIRST_BYTES: u64 = 16 * MIB;
const FIRST_STREAM_KB: u64 = 1024;
const FIRST_FAULTS_KB: u64 = 128;
const FIRST_FAULTS: u64 = 12;
/// A job takes about so long under a good window, seconds: long by comparison with what a scheduler takes away.
const JOB_S: f64 = 0.4;
/// The file of one stream: long enough for some windows of 16 MiB, short enough for anybody's disk.
const STREAM_BYTES: (u64, u64) = (16 * MIB, 256 * MIB);
/// Where there is no room for that: at least this.
const SMALLEST_BYTES: u64 = MIB;
/// Faults of a run.
const FAULTS: (u64, u64) = (12, 1000);
/// Of what is free, at most one part in so many is taken.
const ROOM_SHARE: u64 = 2;
/// A job that takes less than that is run again, so often at most, seconds. The fastest of these runs counts: what happens beside
/// them only makes them slower, and a short run may be hit as a whole.
const LEAST_S: f64 = 0.5;
const MOST_REPEATS: usize = 4;
/// How long files may stay in memory though they are evicted, and how often that is tried; there is no event to wait for.
const COLD_TIME: Duration = Duration::from_secs(3);
const COLD_EVERY: Duration = Duration::from_millis(5);

/// What is to be measured.
pub struct Plan<'a> {
    /// Whose window.
    pub target: &'a Target,
    /// The machine.
    pub system: &'a System,
    /// How much is tried.
    pub depth: Depth,
    /// Streams at the same time.
    pub streams: u64,
    /// What a program has read, and its name: the only job then.
    pub profile: Option<(&'a str, &'a Profile)>,
    /// Ends it when it is set.
    pub stop: &'a AtomicBool,
}

/// A window as it was measured: medians.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Measured {
    /// The window, KiB.
    pub kb: u64,
    /// How often it was run.
    pub runs: u64,
    /// Geometric mean of the jobs' ratios.
    pub score: f64,
    /// What each job came to.
    pub jobs: Vec<Job>,
    /// Median time of a fault; null without that job.
    pub fault_latency_s: Option<f64>,
    /// Longest call of the streams; null without that job.
    pub stream_latency_s: Option<f64>,
    /// Bytes that faults made the device read, or the cache hold where nobody counts, by bytes used.
    pub amplification: Option<f64>,
    /// Bytes that a fault leaves in memory and nobody has used.
    pub unused_bytes_per_fault: Option<f64>,
}

/// What came of it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Measurement {
    /// The window before and after, KiB.
    pub current_kb: u64,
    /// Every window that was tried, from the smallest to the largest.
    pub candidates: Vec<Measured>,
    /// What to make of it.
    #[serde(flatten)]
    pub verdict: Verdict,
    /// Time for the runs of candidates.
    pub measured_s: f64,
    /// The same with making files and finding out how long they have to be.
    pub elapsed_s: f64,
}

/// Measures a target. `tell` hears what is done next.
///
/// Errors: not root; no directory on the target to measure in; no room; a read-only file system; a run that failed; it was
/// asked to stop. The window is set back in any case.
pub fn measure(plan: &Plan, tell: &mut dyn FnMut(String)) -> Result<Measurement> {
    let (target, began) = (plan.target, Instant::now());
    if !machine::is_root() {
        return Err(ahead_kernel::Error::needs_root(format!("trying windows of {}", target.name)).into());
    }
    let current_kb = target.current_kb()?;
    let jobs = Jobs::of(plan)?;
    let guard = undo::note_setting(ProcessId::own()?, &target.setting)?;
    tell("making the files".into());
    let mut bench = Bench::new(plan, jobs, tell)?;
    let began_runs = Instant::now();
    let candidates = search(&mut bench, current_kb, plan.depth)?;
    let measured_s = began_runs.elapsed().as_secs_f64();
    let names = bench.names();
    let verdict = judge(&candidates, &names, current_kb);
    let candidates = bench.describe(&candidates, &names);
    drop(bench);
    guard.undo()?;
    Ok(Measurement { current_kb, candidates, verdict, measured_s, elapsed_s: began.elapsed().as_secs_f64() })
}

/// What is run under each window.
enum Jobs {
    /// Ours, on files that are made in this directory.
    Own(PathBuf),
    /// A program's reads, on files that are there.
    Program(Program),
}

impl Jobs {
    fn of(plan: &Plan) -> Result<Jobs> {
        let target = plan.target;
        if let Some((name, profile)) = plan.profile {
            return Ok(Jobs::Program(program::of_profile(plan.system, target, name, profile)?));
        }
        let why =
            "nothing that it has can be written to from here; mount a file system of it, or say what to set with --kb";
        let directory =
            target.directory.clone().ok_or_else(|| Error::unsupported(format!("measuring {}", target.name), why))?;
        Ok(Jobs::Own(directory))
    }
}

/// What is known of a run beside its rates.
#[derive(Clone, Copy, Debug, Default)]
struct Detail {
    fault_s: f64,
    stream_s: f64,
    amplification: Option<f64>,
    unused_bytes: Option<f64>,
}

/// Files and jobs, ready to run.
struct Bench<'a> {
    plan: &'a Plan<'a>,
    tell: &'a mut dyn FnMut(String),
    work: Ready,
    details: BTreeMap<u64, Vec<Detail>>,
}

enum Ready {
    /// `first`: the first file, held open. FUSE drops what is cached of a file when it is opened.
    Own {
        files: Files,
        sizes: Sizes,
        first: File,
    },
    Program(Program),
}

impl<'a> Bench<'a> {
    fn new(plan: &'a Plan, jobs: Jobs, tell: &'a mut dyn FnMut(String)) -> Result<Bench<'a>> {
        let work = match jobs {
            Jobs::Program(program) => Ready::Program(program),
            Jobs::Own(directory) => {
                let sizes = sizes_for(plan, &directory)?;
                let files = Files::make(&directory, &sizes.files(), plan.stop)?;
                let path = &files.paths()[0];
                let first = File::open(path).map_err(|e| Error::io(format!("open {}", path.display()), e))?;
                Ready::Own { files, sizes, first }
            }
        };
        Ok(Bench { plan, tell, work, details: BTreeMap::new() })
    }

    fn names(&self) -> Vec<String> {
        match &self.work {
            Ready::Own { sizes, .. } => Kind::ALL.iter().map(|kind| kind.name(sizes)).collect(),
            Ready::Program(program) => vec![program.name.clone()],
        }
    }

    fn describe(&self, candidates: &[Candidate], names: &[String]) -> Vec<Measured> {
        let own = matches!(self.work, Ready::Own { .. });
        let units: Vec<&'static str> =
            if own { Kind::ALL.iter().map(|kind| kind.unit()).collect() } else { vec!["bytes_per_s"] };
        let best: Vec<f64> = (0..names.len())
            .map(|job| candidates.iter().map(|candidate| candidate.rates()[job]).fold(f64::MIN_POSITIVE, f64::max))
            .collect();
        let of = |(candidate, score): (&Candidate, crate::verdict::Score)| {
            let details = self.details.get(&candidate.kb).map(Vec::as_slice).unwrap_or_default();
            let median = |of: fn(&Detail) -> Option<f64>| {
                let known: Vec<f64> = details.iter().filter_map(of).collect();
                (own && !known.is_empty()).then(|| Spread::of(known).median)
            };
            let job = |(job, rate): (usize, f64)| Job {
                name: names[job].clone(),
                rate,
                unit: units[job],
                ratio: rate / best[job],
            };
            Measured {
                kb: candidate.kb,
                runs: candidate.runs.len() as u64,
                score: score.value,
                jobs: candidate.rates().into_iter().enumerate().map(job).collect(),
                fault_latency_s: median(|detail| Some(detail.fault_s)),
                stream_latency_s: median(|detail| Some(detail.stream_s)),
                amplification: median(|detail| detail.amplification),
                unused_bytes_per_fault: median(|detail| detail.unused_bytes),
            }
        };
        candidates.iter().zip(score(candidates)).map(of).collect()
    }
}

impl Try for Bench<'_> {
    type Error = Error;

    fn run(&mut self, kb: u64) -> Result<Vec<f64>> {
        (self.tell)(format!("{kb} KiB"));
        undo::write_setting(&self.plan.target.setting, &kb.to_string())?;
        let (files, sizes, first) = match &self.work {
            Ready::Program(program) => return Ok(vec![program::rate(program, self.plan.stop)?]),
            Ready::Own { files, sizes, first } => (files, sizes, first),
        };
        let (mut rates, mut detail) = (Vec::new(), Detail::default());
        for kind in Kind::ALL {
            let variant = kind.variant(sizes, kb);
            let runs = repeat(&variant, files, kind == Kind::Faults, self.plan.stop)?;
            rates.push(Spread::of(runs.iter().map(|run| kind.rate(sizes, kb, run))).max);
            match kind {
                Kind::Streams => {
                    detail.stream_s = Spread::of(runs.iter().map(|run| seconds(run.latency_most_ns))).median
                }
                Kind::Faults => of_faults(&mut detail, &variant, &runs, first)?,
                _ => {}
            }
        }
        self.details.entry(kb).or_default().push(detail);
        Ok(rates)
    }
}

fn seconds(time_ns: u64) -> f64 {
    time_ns as f64 / 1e9
}

/// Runs a job, and again as long as all of its runs are short.
fn repeat(variant: &Variant, files: &Files, each: bool, stop: &AtomicBool) -> Result<Vec<Observed>> {
    let mut runs: Vec<Observed> = Vec::new();
    while runs.is_empty()
        || runs.len() < MOST_REPEATS && runs.iter().map(|run| seconds(run.elapsed_ns)).sum::<f64>() < LEAST_S
    {
        runs.push(run_once(variant, files, each, stop)?);
    }
    Ok(runs)
}

fn run_once(variant: &Variant, files: &Files, each: bool, stop: &AtomicBool) -> Result<Observed> {
    let under = Under { how: How::Kernel, pages: None };
    let device = DeviceTraits::default();
    make_cold(files)?;
    Ok(run(variant, &Setting { files, under: &under, device, warm: false, looks: false, each, stop })?)
}

/// Pages that are on their way into a list of some processor stay for a moment, whoever evicts them: soon after a write, mostly.
fn make_cold(files: &Files) -> Result<()> {
    let deadline = Instant::now() + COLD_TIME;
    loop {
        match files.make_cold() {
            Err(ahead_bench::Error::NotCold { .. }) if Instant::now() < deadline => std::thread::sleep(COLD_EVERY),
            done => return Ok(done?),
        }
    }
}

/// What faults have cost; what the last run has brought is still cached.
fn of_faults(detail: &mut Detail, variant: &Variant, runs: &[Observed], first: &File) -> Result<()> {
    let times = runs.iter().flat_map(|run| &run.each_ns).map(|time_ns| seconds(*time_ns));
    detail.fault_s = Spread::of(times).median;
    let Some(last) = runs.last() else { return Ok(()) };
    let length = first.metadata().map_err(|e| Error::io("look at the file of faults", e))?.len();
    let cached_bytes: u64 = cache::resident(first, 0, length)?.iter().map(|range| range.end - range.start).sum();
    let (used_bytes, faults) = (variant.used_bytes().max(1), last.each_ns.len().max(1));
    // Less than what was used is cached: it was dropped meanwhile (FUSE does when a file is opened), and tells nothing.
    let is_whole = cached_bytes >= used_bytes;
    let read_bytes = last.reads.map(|reads| reads.bytes).or(is_whole.then_some(cached_bytes));
    detail.amplification = read_bytes.map(|bytes| bytes as f64 / used_bytes as f64);
    detail.unused_bytes = is_whole.then(|| (cached_bytes - used_bytes) as f64 / faults as f64);
    Ok(())
}

/// How long the jobs have to be on this device.
fn sizes_for(plan: &Plan, directory: &Path) -> Result<Sizes> {
    let room = rustix::fs::statvfs(directory).map_err(|e| Error::io(format!("look at {}", directory.display()), e))?;
    let room_bytes = room.f_bavail.saturating_mul(room.f_frsize) / ROOM_SHARE / Sizes::share(plan.streams);
    let fitting = |bytes: u64| (bytes.min(room_bytes) / MIB * MIB).max(SMALLEST_BYTES);
    let first = Sizes { stream_bytes: fitting(FIRST_BYTES), streams: plan.streams, faults: FIRST_FAULTS };
    let files = Files::make(directory, &[first.stream_bytes], plan.stop)?;
    let first_run = |kind: Kind, kb: u64| -> Result<Observed> {
        undo::write_setting(&plan.target.setting, &kb.to_string())?;
        run_once(&kind.variant(&first, kb), &files, true, plan.stop)
    };
    let stream = first_run(Kind::OneStream, FIRST_STREAM_KB)?;
    let rate = Kind::OneStream.rate(&first, FIRST_STREAM_KB, &stream);
    let faults = first_run(Kind::Faults, FIRST_FAULTS_KB)?;
    let fault_s = Spread::of(faults.each_ns.iter().map(|time_ns| seconds(*time_ns))).median.max(1e-6);
    let (least, most) = STREAM_BYTES;
    Ok(Sizes {
        stream_bytes: fitting(((rate * JOB_S) as u64).clamp(least, most)),
        faults: ((JOB_S / fault_s) as u64).clamp(FAULTS.0, FAULTS.1),
        ..first
    })
}
