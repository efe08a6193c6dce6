//! Measuring: a window is set, the jobs run under it, cold, and the next one is set; at the end the first one is back.
//!
//! The window that was there is noted before the first change, so that `ahead restore` sets it back whatever happens, and whatever
//! the setting reads then: it is ours until the end. The setting counts for files that are opened later: each run opens its own.

use crate::ground::{Ground, Source};
use crate::search::{Depth, Try, search};
use crate::trace::Trace;
use crate::verdict::{Candidate, Job, Verdict, best_rates, judge, score, spread};
use crate::work::{CALL_BYTES, Kind, Program, Ran, Sizes};
use crate::{Error, Result, program};
use ahead_bench::{Observed, Spread, Variant};
use ahead_profile::Profile;
use ahead_sim::Recording;
use ahead_sys::machine;
use ahead_tune::lower_cache::LowerCache;
use ahead_tune::{System, Target};
use ahead_undo::ProcessId;
use serde::Serialize;
use std::collections::BTreeMap;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

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
/// Before a stream's window has grown to its full length the kernel has read ahead twice that, and it has the most ahead of itself
/// when it enters the second one of that length.
const GROWN_WINDOWS: u64 = 4;
/// That is the rest of the one and all of the next.
const MOST_AHEAD: u64 = 2;
/// Why nothing is measured though files could be made.
const NOT_THERE: &str = "its files would lie on another device now";

/// What is run under each window.
#[derive(Clone, Copy, Debug)]
pub enum Workload<'a> {
    /// Jobs that matter everywhere: one stream, several, faults here and there, and all of it at once.
    Common,
    /// What a program has read, as its profile tells: its name, and the profile.
    Profile(&'a str, &'a Profile),
    /// What programs did, as a trace tells: its name, and what they did.
    Trace(&'a str, &'a Recording),
}

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
    /// By what.
    pub workload: Workload<'a>,
    /// Ends it when it is set.
    pub stop: &'a AtomicBool,
}

/// How far a measurement is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Runs of jobs that are done.
    pub done: u64,
    /// How many there will be, at most.
    pub total: u64,
    /// What is done now.
    pub what: String,
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
    /// How far the scores of its single runs lie apart, by their median; null of one run.
    pub spread: Option<f64>,
    /// What each job came to.
    pub jobs: Vec<Job>,
    /// Median time of a fault; null without that job.
    pub fault_latency_s: Option<f64>,
    /// Longest call of the streams, or of the workload.
    pub longest_call_s: Option<f64>,
    /// Bytes that faults made the device read, or the cache hold where nobody counts, by bytes used. Of a workload: bytes that it
    /// leaves in memory by bytes used.
    pub amplification: Option<f64>,
    /// Bytes that a fault leaves in memory and nobody has used; null without that job.
    pub unused_bytes_per_fault: Option<f64>,
    /// Bytes that a workload leaves in memory and nobody has used; null without one.
    pub unused_bytes: Option<f64>,
    /// Bytes that a stream has in memory ahead of itself, at most; null without that job, and where the file ends before.
    pub ahead_bytes_per_stream: Option<f64>,
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

/// Measures a target. `tell` hears how far it is.
///
/// Errors: not root; nothing on the target to measure; no room; a read-only file system; it has vanished; a run that failed; it
/// was asked to stop. The window is set back in any case.
pub fn measure(plan: &Plan, tell: &mut dyn FnMut(Progress)) -> Result<Measurement> {
    let (target, began) = (plan.target, Instant::now());
    if !machine::is_root() {
        return Err(ahead_sys::Error::needs_root(format!("trying windows of {}", target.name)).into());
    }
    let current_kb = target.current_kb()?;
    let guard = ahead_undo::note_setting(ProcessId::own()?, &target.setting)?;
    let mut bench = Bench::new(plan, tell).map_err(|error| vanished(plan, error))?;
    let began_runs = Instant::now();
    let candidates = search(&mut bench, current_kb, plan.depth).map_err(|error| vanished(plan, error))?;
    let measured_s = began_runs.elapsed().as_secs_f64();
    let jobs = bench.jobs();
    let mut verdict = judge(&candidates, &jobs, current_kb);
    let doubts = verdict.doubt.take().into_iter().chain(LowerCache::of(plan.system, target).doubt().map(str::to_owned));
    verdict.doubt = doubts.reduce(|one, other| format!("{one}; {other}"));
    let candidates = bench.describe(&candidates, &jobs);
    drop(bench);
    guard.undo()?;
    Ok(Measurement { current_kb, candidates, verdict, measured_s, elapsed_s: began.elapsed().as_secs_f64() })
}

/// What went wrong, where it did because the target is not there any more.
fn vanished(plan: &Plan, error: Error) -> Error {
    let is_told = matches!(error, Error::Bench(ahead_bench::Error::Stopped) | Error::Vanished { .. });
    if is_told || plan.target.is_there(plan.system) {
        return error;
    }
    Error::Vanished { name: plan.target.name.clone(), why: error.to_string() }
}

/// What is known of a run beside its rates.
#[derive(Clone, Copy, Debug, Default)]
struct Detail {
    fault_s: Option<f64>,
    longest_call_s: Option<f64>,
    amplification: Option<f64>,
    unused_per_fault: Option<f64>,
    unused: Option<f64>,
    ahead: Option<f64>,
}

impl Detail {
    /// What a workload has cost that uses so many bytes.
    fn of_workload(ran: Ran, used_bytes: u64) -> Detail {
        // Less than what was used is cached: some was evicted meanwhile, and it tells nothing.
        let unused = ran.cached_bytes.checked_sub(used_bytes).map(|bytes| bytes as f64);
        let amplification = unused.map(|unused| 1.0 + unused / used_bytes.max(1) as f64);
        Detail { longest_call_s: Some(ran.longest_call_s), unused, amplification, ..Detail::default() }
    }
}

/// Files and jobs, ready to run.
struct Bench<'a> {
    plan: &'a Plan<'a>,
    tell: &'a mut dyn FnMut(Progress),
    work: Ready<'a>,
    details: BTreeMap<u64, Vec<Detail>>,
    done: u64,
}

enum Ready<'a> {
    Common { ground: Ground, sizes: Sizes },
    Program(Program),
    Trace { ground: Ground, trace: Trace<'a> },
}

impl<'a> Bench<'a> {
    fn new(plan: &'a Plan, tell: &'a mut dyn FnMut(Progress)) -> Result<Bench<'a>> {
        tell(Progress { done: 0, total: 1, what: "making the files".into() });
        let work = match plan.workload {
            Workload::Profile(name, profile) => {
                Ready::Program(program::of_profile(plan.system, plan.target, name, profile)?)
            }
            Workload::Trace(name, recording) => {
                let trace = Trace::new(name, recording)?;
                Ready::Trace { ground: ground(plan, &Source::of(plan.target)?, &trace.sizes())?, trace }
            }
            Workload::Common => {
                let source = Source::of(plan.target)?;
                let sizes = sizes_for(plan, &source)?;
                Ready::Common { ground: ground(plan, &source, &sizes.files())?, sizes }
            }
        };
        Ok(Bench { plan, tell, work, details: BTreeMap::new(), done: 0 })
    }

    /// The jobs' names, and the units of their rates.
    fn jobs(&self) -> Vec<(String, &'static str)> {
        match &self.work {
            Ready::Common { sizes, .. } => Kind::ALL.iter().map(|kind| (kind.name(sizes), kind.unit())).collect(),
            Ready::Program(Program { name, .. }) => vec![(name.clone(), "bytes_per_s")],
            Ready::Trace { trace, .. } => vec![(trace.name().to_owned(), "bytes_per_s")],
        }
    }

    fn say(&mut self, kb: u64, job: &str) {
        let jobs = if matches!(self.work, Ready::Common { .. }) { Kind::ALL.len() } else { 1 };
        let total = (self.plan.depth.most_runs() * jobs) as u64;
        (self.tell)(Progress { done: self.done.min(total), total, what: format!("{kb} KiB: {job}") });
        self.done += 1;
    }

    fn describe(&self, candidates: &[Candidate], jobs: &[(String, &'static str)]) -> Vec<Measured> {
        let best = best_rates(candidates);
        let of = |(candidate, score): (&Candidate, crate::verdict::Score)| {
            let details = self.details.get(&candidate.kb).map(Vec::as_slice).unwrap_or_default();
            let median = |of: fn(&Detail) -> Option<f64>| {
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

impl Try for Bench<'_> {
    type Error = Error;

    fn run(&mut self, kb: u64) -> Result<Vec<f64>> {
        ahead_undo::write_setting(&self.plan.target.setting, &kb.to_string())?;
        let jobs = self.jobs();
        let (mut rates, mut detail) = (Vec::new(), Detail::default());
        for (job, (name, _)) in jobs.iter().enumerate() {
            self.say(kb, name);
            rates.push(match &self.work {
                Ready::Program(program) => {
                    LowerCache::of(self.plan.system, self.plan.target).evict()?;
                    let ran = program::run(program, self.plan.stop)?;
                    detail = Detail::of_workload(ran, program::used_bytes(program));
                    ran.bytes_per_s
                }
                Ready::Trace { ground, trace } => {
                    let ran = trace.run(ground, self.plan.stop)?;
                    detail = Detail::of_workload(ran, trace.used_bytes());
                    ran.bytes_per_s
                }
                Ready::Common { ground, sizes } => {
                    let kind = Kind::ALL[job];
                    let variant = kind.variant(sizes, kb);
                    let runs = repeat(&variant, ground, kind == Kind::Faults, self.plan.stop)?;
                    look_closer(&mut detail, kind, &variant, &runs, ground)?;
                    if kind == Kind::OneStream && !self.details.contains_key(&kb) {
                        detail.ahead = ahead_of_stream(ground, kb, self.plan.stop)?;
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

/// Runs a job, and again as long as all of its runs are short.
fn repeat(variant: &Variant, ground: &Ground, each: bool, stop: &AtomicBool) -> Result<Vec<Observed>> {
    let mut runs: Vec<Observed> = Vec::new();
    while runs.is_empty()
        || runs.len() < MOST_REPEATS && runs.iter().map(|run| seconds(run.elapsed_ns)).sum::<f64>() < LEAST_S
    {
        runs.push(ground.run(variant, each, stop)?);
    }
    Ok(runs)
}

/// What a stream holds ahead of itself, bytes.
fn ahead_of_stream(ground: &Ground, kb: u64, stop: &AtomicBool) -> Result<Option<f64>> {
    let window = kb << 10;
    let bytes = ground.ahead_of_stream(GROWN_WINDOWS * window, CALL_BYTES, MOST_AHEAD * window, stop)?;
    Ok(bytes.map(|bytes| bytes as f64))
}

/// What the streams' calls and the faults have cost.
fn look_closer(detail: &mut Detail, kind: Kind, variant: &Variant, runs: &[Observed], ground: &Ground) -> Result<()> {
    match kind {
        Kind::Streams => {
            let longest = runs.iter().map(|run| seconds(run.latency_most_ns));
            detail.longest_call_s = Some(Spread::of(longest).median);
        }
        Kind::Faults => of_faults(detail, variant, runs, ground)?,
        Kind::OneStream | Kind::Mixed => {}
    }
    Ok(())
}

/// What faults have cost; what the last run has brought is still cached.
fn of_faults(detail: &mut Detail, variant: &Variant, runs: &[Observed], ground: &Ground) -> Result<()> {
    let times = runs.iter().flat_map(|run| &run.each_ns).map(|time_ns| seconds(*time_ns));
    detail.fault_s = Some(Spread::of(times).median);
    let Some(last) = runs.last() else { return Ok(()) };
    let cached_bytes = ground.cached_bytes()?;
    let (used_bytes, faults) = (variant.used_bytes().max(1), last.each_ns.len().max(1));
    // Less than what was used is cached: it was dropped meanwhile (FUSE does when a file is opened), and tells nothing.
    let is_whole = cached_bytes >= used_bytes;
    let read_bytes = last.reads.map(|reads| reads.bytes).or(is_whole.then_some(cached_bytes));
    detail.amplification = read_bytes.map(|bytes| bytes as f64 / used_bytes as f64);
    detail.unused_per_fault = is_whole.then(|| (cached_bytes - used_bytes) as f64 / faults as f64);
    Ok(())
}

/// What jobs run on. Where the target was unmounted just before, the same path has led to what lies below it: that is not measured.
fn ground(plan: &Plan, source: &Source, sizes: &[u64]) -> Result<Ground> {
    let ground = Ground::make(source, sizes, LowerCache::of(plan.system, plan.target), plan.stop)?;
    // By the files' own mount: their directory may be another user's, who may put a link in its place. An overlay has no window.
    let is_its = ground.number(plan.system).is_none_or(|number| number == plan.target.number);
    match is_its && plan.target.is_there(plan.system) {
        true => Ok(ground),
        false => Err(Error::Vanished { name: plan.target.name.clone(), why: NOT_THERE.into() }),
    }
}

/// How long the jobs have to be on this device.
fn sizes_for(plan: &Plan, source: &Source) -> Result<Sizes> {
    let room_bytes = source.room_bytes()? / ROOM_SHARE / Sizes::share(plan.streams);
    let fitting = |bytes: u64| (bytes.min(room_bytes) / MIB * MIB).max(SMALLEST_BYTES);
    let first = Sizes { stream_bytes: fitting(FIRST_BYTES), streams: plan.streams, faults: FIRST_FAULTS };
    let ground = ground(plan, source, &[first.stream_bytes])?;
    let first_run = |kind: Kind, kb: u64| -> Result<Observed> {
        ahead_undo::write_setting(&plan.target.setting, &kb.to_string())?;
        ground.run(&kind.variant(&first, kb), true, plan.stop)
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
