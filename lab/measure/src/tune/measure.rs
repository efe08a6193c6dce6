//! Measuring: set a window, run the jobs under it, cold, continue with the next window, and restore the first one at the end.
//!
//! A note of the first window is written before the first change, so that `ahead restore` can restore it after any failure. Until the end
//! the setting belongs to this process, with any value. The kernel applies the setting to files that are opened later: each run opens its
//! files.

use crate::bench::{Observed, Variant};
use crate::tune::regions::{Source, TestRegions};
use crate::tune::search::{Depth, WindowTrial, search};
use crate::tune::trace_workload::TraceWorkload;
use crate::tune::verdict::{Candidate, Job, Verdict, best_rates, judge, score, spread};
use crate::tune::work::{CALL_BYTES, JobKind, ProfileWorkload, Sizes, WorkloadResult};
use crate::tune::{Error, Result, profile_workload};
use ahead_disk::tune::lower_cache::LowerCache;
use ahead_disk::tune::{System, Target};
use ahead_model::Spread;
use ahead_process::undo::ProcessId;
use ahead_profile::Profile;
use ahead_sim::Recording;
use ahead_sys::machine;
use serde::Serialize;
use std::collections::BTreeMap;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

const MIB: u64 = 1 << 20;
/// The first runs find the necessary length of the jobs: size of their file, windows of the stream and of the faults, number of faults.
const FIRST_BYTES: u64 = 16 * MIB;
const FIRST_STREAM_KB: u64 = 1024;
const FIRST_FAULTS_KB: u64 = 128;
const FIRST_FAULTS: u64 = 12;
/// Time of a job under a good window, seconds: long compared with the time slices of a scheduler.
const JOB_S: f64 = 0.4;
/// Smallest and largest file of one stream: several windows of 16 MiB fit, and most disks have the space.
const STREAM_BYTES: (u64, u64) = (16 * MIB, 256 * MIB);
/// Smallest file where space is scarce.
const SMALLEST_BYTES: u64 = MIB;
/// Fewest and most faults of a run.
const FAULTS: (u64, u64) = (12, 1000);
/// Files take at most one part in this many of the free space.
const ROOM_SHARE: u64 = 2;
/// A job that takes less time than this, seconds, runs again, at most `MAX_REPEATS` times. The fastest run counts: other processes can
/// only make a run slower, and they may slow down the whole of a short run.
const MIN_TOTAL_S: f64 = 0.5;
const MAX_REPEATS: usize = 4;
/// The kernel reads ahead twice the full window before a stream's window has grown to its full length. A stream has the most bytes ahead
/// when it enters the second window of full length.
const GROWN_WINDOWS: u64 = 4;
/// At that moment the rest of one window and all of the next one are ahead of the stream.
const MAX_WINDOWS_AHEAD: u64 = 2;
/// Why a measurement stops although files could be made.
const OTHER_DEVICE: &str = "test files would lie on another device now";

/// The jobs that run under each window.
#[derive(Clone, Copy, Debug)]
pub enum Workload<'a> {
    /// The common jobs: one stream, several streams, scattered faults, and all of these at once.
    Common,
    /// The reads of a program, from its profile: name and profile.
    Profile(&'a str, &'a Profile),
    /// The operations of programs, from a trace: name and operations.
    Trace(&'a str, &'a Recording),
}

/// The target, the jobs and the settings of a measurement.
pub struct Plan<'a> {
    /// The target whose window is measured.
    pub target: &'a Target,
    /// The machine.
    pub system: &'a System,
    /// Determines the number of windows.
    pub depth: Depth,
    /// Streams at the same time.
    pub streams: u64,
    /// The jobs that run under each window.
    pub workload: Workload<'a>,
    /// Ends the measurement when it is set.
    pub stop: &'a AtomicBool,
}

/// The progress of a measurement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Finished runs of jobs.
    pub done: u64,
    /// Upper limit of the number of runs.
    pub total: u64,
    /// The current window and job.
    pub what: String,
}

/// The results of a window: medians of its runs.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Measured {
    /// The window, KiB.
    pub kb: u64,
    pub runs: u64,
    /// Geometric mean of the jobs' ratios.
    pub score: f64,
    /// Range of the scores of the window's single runs, divided by their median; null for one run.
    pub spread: Option<f64>,
    /// The result of each job.
    pub jobs: Vec<Job>,
    /// Median time of a fault; null without that job.
    pub fault_latency_s: Option<f64>,
    /// Longest call of the streams, or of the workload.
    pub longest_call_s: Option<f64>,
    /// Bytes that the device read for faults (without counts of the device: bytes in the cache afterwards), divided by bytes used. For a
    /// workload: bytes in the cache afterwards, divided by bytes used.
    pub amplification: Option<f64>,
    /// Unused bytes in the cache for each fault; null without that job.
    pub unused_bytes_per_fault: Option<f64>,
    /// Unused bytes in the cache after a workload; null without one.
    pub unused_bytes: Option<f64>,
    /// Most bytes in the cache ahead of a stream. Null without that job, and if the file ends before this maximum.
    pub ahead_bytes_per_stream: Option<f64>,
}

/// The results of a measurement.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Measurement {
    /// The window before and after, KiB.
    pub current_kb: u64,
    /// Every tried window, from the smallest to the largest.
    pub candidates: Vec<Measured>,
    /// The recommendation.
    #[serde(flatten)]
    pub verdict: Verdict,
    /// Time of the runs of all candidates, seconds.
    pub measured_s: f64,
    /// As `measured_s`, with making the files and finding their sizes.
    pub elapsed_s: f64,
}

/// Measures a target, and calls `report` before each run of a job.
///
/// Errors: not root; nothing on the target to measure; no space; a read-only file system; the target vanished; a run failed; `stop` was
/// set. The first window is restored in any case.
pub fn measure(plan: &Plan, report: &mut dyn FnMut(Progress)) -> Result<Measurement> {
    let (target, began) = (plan.target, Instant::now());
    if !machine::is_root() {
        return Err(ahead_sys::Error::needs_root(format!("trying windows of {}", target.name)).into());
    }
    let current_kb = target.current_kb()?;
    let guard = ahead_process::undo::note_setting(ProcessId::own()?, &target.setting)?;
    let mut bench = WindowBench::new(plan, report).map_err(|error| if_vanished(plan, error))?;
    let began_runs = Instant::now();
    let candidates = search(&mut bench, current_kb, plan.depth).map_err(|error| if_vanished(plan, error))?;
    let measured_s = began_runs.elapsed().as_secs_f64();
    let jobs = bench.jobs();
    let mut verdict = judge(&candidates, &jobs, current_kb);
    let doubts = verdict.doubt.take().into_iter().chain(LowerCache::of(plan.system, target).doubt().map(str::to_owned));
    verdict.doubt = doubts.reduce(|one, other| format!("{one}; {other}"));
    let candidates = bench.results(&candidates, &jobs);
    drop(bench);
    guard.undo()?;
    Ok(Measurement { current_kb, candidates, verdict, measured_s, elapsed_s: began.elapsed().as_secs_f64() })
}

/// Replaces an error by [`Error::Vanished`] if the target does not exist any more.
fn if_vanished(plan: &Plan, error: Error) -> Error {
    let is_final = matches!(error, Error::Bench(crate::bench::Error::Stopped) | Error::Vanished { .. });
    if is_final || plan.target.is_there(plan.system) {
        return error;
    }
    Error::Vanished { name: plan.target.name.clone(), why: error.to_string() }
}

/// Results of a run other than its rates.
#[derive(Clone, Copy, Debug, Default)]
struct RunDetail {
    fault_s: Option<f64>,
    longest_call_s: Option<f64>,
    amplification: Option<f64>,
    unused_per_fault: Option<f64>,
    unused: Option<f64>,
    ahead: Option<f64>,
}

impl RunDetail {
    /// The cost of a workload that uses `used_bytes` bytes.
    fn of_workload(ran: WorkloadResult, used_bytes: u64) -> RunDetail {
        // If the cache holds less than was used, pages were evicted during the run, and the figure is meaningless.
        let unused = ran.cached_bytes.checked_sub(used_bytes).map(|bytes| bytes as f64);
        let amplification = unused.map(|unused| 1.0 + unused / used_bytes.max(1) as f64);
        RunDetail { longest_call_s: Some(ran.longest_call_s), unused, amplification, ..RunDetail::default() }
    }
}

/// Runs jobs under windows, and keeps their details.
struct WindowBench<'a> {
    plan: &'a Plan<'a>,
    report: &'a mut dyn FnMut(Progress),
    work: PreparedWorkload<'a>,
    details: BTreeMap<u64, Vec<RunDetail>>,
    done: u64,
}

enum PreparedWorkload<'a> {
    Common { regions: TestRegions, sizes: Sizes },
    Profile(ProfileWorkload),
    Trace { regions: TestRegions, trace: TraceWorkload<'a> },
}

impl<'a> WindowBench<'a> {
    fn new(plan: &'a Plan, report: &'a mut dyn FnMut(Progress)) -> Result<WindowBench<'a>> {
        report(Progress { done: 0, total: 1, what: "making the test files".into() });
        let work = match plan.workload {
            Workload::Profile(name, profile) => {
                PreparedWorkload::Profile(profile_workload::of_profile(plan.system, plan.target, name, profile)?)
            }
            Workload::Trace(name, recording) => {
                let trace = TraceWorkload::new(name, recording)?;
                PreparedWorkload::Trace {
                    regions: test_regions(plan, &Source::of(plan.target)?, &trace.sizes())?,
                    trace,
                }
            }
            Workload::Common => {
                let source = Source::of(plan.target)?;
                let sizes = sizes_for(plan, &source)?;
                PreparedWorkload::Common { regions: test_regions(plan, &source, &sizes.files())?, sizes }
            }
        };
        Ok(WindowBench { plan, report, work, details: BTreeMap::new(), done: 0 })
    }

    /// The names of the jobs, and the units of their rates.
    fn jobs(&self) -> Vec<(String, &'static str)> {
        match &self.work {
            PreparedWorkload::Common { sizes, .. } => {
                JobKind::ALL.iter().map(|kind| (kind.name(sizes), kind.unit())).collect()
            }
            PreparedWorkload::Profile(ProfileWorkload { name, .. }) => vec![(name.clone(), "bytes_per_s")],
            PreparedWorkload::Trace { trace, .. } => vec![(trace.name().to_owned(), "bytes_per_s")],
        }
    }

    fn report_progress(&mut self, kb: u64, job: &str) {
        let jobs = if matches!(self.work, PreparedWorkload::Common { .. }) { JobKind::ALL.len() } else { 1 };
        let total = (self.plan.depth.max_runs() * jobs) as u64;
        (self.report)(Progress { done: self.done.min(total), total, what: format!("{kb} KiB: {job}") });
        self.done += 1;
    }

    fn results(&self, candidates: &[Candidate], jobs: &[(String, &'static str)]) -> Vec<Measured> {
        let best = best_rates(candidates);
        let of = |(candidate, score): (&Candidate, crate::tune::verdict::Score)| {
            let details = self.details.get(&candidate.kb).map(Vec::as_slice).unwrap_or_default();
            let median = |of: fn(&RunDetail) -> Option<f64>| {
                let known: Vec<f64> = details.iter().filter_map(of).collect();
                (!known.is_empty()).then(|| Spread::of(known).median)
            };
            let job = |(job, rate): (usize, f64)| Job {
                name: jobs[job].0.clone(),
                rate,
                unit: jobs[job].1,
                ratio: rate / best[job],
            };
            Measured {
                kb: candidate.kb,
                runs: candidate.runs.len() as u64,
                score: score.value,
                spread: spread(candidate, &best),
                jobs: candidate.rates().into_iter().enumerate().map(job).collect(),
                fault_latency_s: median(|detail| detail.fault_s),
                longest_call_s: median(|detail| detail.longest_call_s),
                amplification: median(|detail| detail.amplification),
                unused_bytes_per_fault: median(|detail| detail.unused_per_fault),
                unused_bytes: median(|detail| detail.unused),
                ahead_bytes_per_stream: median(|detail| detail.ahead),
            }
        };
        candidates.iter().zip(score(candidates)).map(of).collect()
    }
}

impl WindowTrial for WindowBench<'_> {
    type Error = Error;

    fn run(&mut self, kb: u64) -> Result<Vec<f64>> {
        ahead_process::undo::write_setting(&self.plan.target.setting, &kb.to_string())?;
        let jobs = self.jobs();
        let (mut rates, mut detail) = (Vec::new(), RunDetail::default());
        for (job, (name, _)) in jobs.iter().enumerate() {
            self.report_progress(kb, name);
            rates.push(match &self.work {
                PreparedWorkload::Profile(profile) => {
                    LowerCache::of(self.plan.system, self.plan.target).evict()?;
                    let ran = profile_workload::run(profile, self.plan.stop)?;
                    detail = RunDetail::of_workload(ran, profile_workload::used_bytes(profile));
                    ran.bytes_per_s
                }
                PreparedWorkload::Trace { regions, trace } => {
                    let ran = trace.run(regions, self.plan.stop)?;
                    detail = RunDetail::of_workload(ran, trace.used_bytes());
                    ran.bytes_per_s
                }
                PreparedWorkload::Common { regions, sizes } => {
                    let kind = JobKind::ALL[job];
                    let variant = kind.variant(sizes, kb);
                    let runs = repeat(&variant, regions, kind == JobKind::Faults, self.plan.stop)?;
                    measure_details(&mut detail, kind, &variant, &runs, regions)?;
                    if kind == JobKind::OneStream && !self.details.contains_key(&kb) {
                        detail.ahead = ahead_of_stream(regions, kb, self.plan.stop)?;
                    }
                    Spread::of(runs.iter().map(|run| kind.rate(sizes, kb, run))).max
                }
            });
        }
        self.details.entry(kb).or_default().push(detail);
        Ok(rates)
    }
}

fn seconds(time_ns: u64) -> f64 {
    time_ns as f64 / 1e9
}

/// Runs a job, and repeats the run while the total time is short.
fn repeat(variant: &Variant, regions: &TestRegions, each: bool, stop: &AtomicBool) -> Result<Vec<Observed>> {
    let mut runs: Vec<Observed> = Vec::new();
    while runs.is_empty()
        || runs.len() < MAX_REPEATS && runs.iter().map(|run| seconds(run.elapsed_ns)).sum::<f64>() < MIN_TOTAL_S
    {
        runs.push(regions.run(variant, each, stop)?);
    }
    Ok(runs)
}

/// The most bytes in the cache ahead of a stream.
fn ahead_of_stream(regions: &TestRegions, kb: u64, stop: &AtomicBool) -> Result<Option<f64>> {
    let window = kb << 10;
    let bytes = regions.ahead_of_stream(GROWN_WINDOWS * window, CALL_BYTES, MAX_WINDOWS_AHEAD * window, stop)?;
    Ok(bytes.map(|bytes| bytes as f64))
}

/// Adds the cost of the calls of streams, or of faults.
fn measure_details(
    detail: &mut RunDetail,
    kind: JobKind,
    variant: &Variant,
    runs: &[Observed],
    regions: &TestRegions,
) -> Result<()> {
    match kind {
        JobKind::Streams => {
            let longest = runs.iter().map(|run| seconds(run.latency_most_ns));
            detail.longest_call_s = Some(Spread::of(longest).median);
        }
        JobKind::Faults => measure_faults(detail, variant, runs, regions)?,
        JobKind::OneStream | JobKind::Mixed => {}
    }
    Ok(())
}

/// Adds the cost of faults. The pages of the last run are still in the cache.
fn measure_faults(detail: &mut RunDetail, variant: &Variant, runs: &[Observed], regions: &TestRegions) -> Result<()> {
    let times = runs.iter().flat_map(|run| &run.each_ns).map(|time_ns| seconds(*time_ns));
    detail.fault_s = Some(Spread::of(times).median);
    let Some(last) = runs.last() else { return Ok(()) };
    let cached_bytes = regions.cached_bytes()?;
    let (used_bytes, faults) = (variant.used_bytes().max(1), last.each_ns.len().max(1));
    // If the cache holds less than was used, pages were dropped (FUSE does this when a file is opened), and the figure is meaningless.
    let is_whole = cached_bytes >= used_bytes;
    let read_bytes = last.reads.map(|reads| reads.bytes).or(is_whole.then_some(cached_bytes));
    detail.amplification = read_bytes.map(|bytes| bytes as f64 / used_bytes as f64);
    detail.unused_per_fault = is_whole.then(|| (cached_bytes - used_bytes) as f64 / faults as f64);
    Ok(())
}

/// Makes the regions for jobs. After an unmount the same path leads to the file system below, which is not measured.
fn test_regions(plan: &Plan, source: &Source, sizes: &[u64]) -> Result<TestRegions> {
    let regions = TestRegions::make(source, sizes, LowerCache::of(plan.system, plan.target), plan.stop)?;
    // The mount of the open files decides: another user may own their directory, and replace it by a link. An overlay has no window.
    let is_on_target = regions.device_number(plan.system).is_none_or(|number| number == plan.target.number);
    match is_on_target && plan.target.is_there(plan.system) {
        true => Ok(regions),
        false => Err(Error::Vanished { name: plan.target.name.clone(), why: OTHER_DEVICE.into() }),
    }
}

/// Finds the necessary length of the jobs on this device.
fn sizes_for(plan: &Plan, source: &Source) -> Result<Sizes> {
    let room_bytes = source.room_bytes()? / ROOM_SHARE / Sizes::share(plan.streams);
    let fitting = |bytes: u64| (bytes.min(room_bytes) / MIB * MIB).max(SMALLEST_BYTES);
    let first = Sizes { stream_bytes: fitting(FIRST_BYTES), streams: plan.streams, faults: FIRST_FAULTS };
    let regions = test_regions(plan, source, &[first.stream_bytes])?;
    let first_run = |kind: JobKind, kb: u64| -> Result<Observed> {
        ahead_process::undo::write_setting(&plan.target.setting, &kb.to_string())?;
        regions.run(&kind.variant(&first, kb), true, plan.stop)
    };
    let stream = first_run(JobKind::OneStream, FIRST_STREAM_KB)?;
    let rate = JobKind::OneStream.rate(&first, FIRST_STREAM_KB, &stream);
    let faults = first_run(JobKind::Faults, FIRST_FAULTS_KB)?;
    let fault_s = Spread::of(faults.each_ns.iter().map(|time_ns| seconds(*time_ns))).median.max(1e-6);
    let (least, most) = STREAM_BYTES;
    Ok(Sizes {
        stream_bytes: fitting(((rate * JOB_S) as u64).clamp(least, most)),
        faults: ((JOB_S / fault_s) as u64).clamp(FAULTS.0, FAULTS.1),
        ..first
    })
}
