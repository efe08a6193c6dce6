//! Rounds: each round runs every variant under every read-ahead once, in alternating order, so that a drift affects all of them.

use crate::bench::Result;
use crate::bench::files::Files;
use crate::bench::job::Job;
use crate::bench::observed::Observed;
use crate::bench::row::Row;
use crate::bench::run::{Evicted, Method, ReadAhead, RunSettings, run};
use ahead_policy::DeviceDescription;
use std::sync::atomic::AtomicBool;

/// The jobs and settings of a measurement.
pub struct Plan<'a> {
    pub job: &'a Job,
    pub files: &'a Files,
    /// The read-aheads; the others are compared with the first.
    pub read_aheads: &'a [ReadAhead],
    /// The description of the disk for policies.
    pub device: DeviceDescription,
    /// Number of rounds.
    pub runs: u32,
    /// Everything is cached before a run, instead of nothing.
    pub warm: bool,
    /// Reports the bytes of the files that were evicted so far.
    pub evicted: Option<Evicted<'a>>,
    /// Ends the measurement when it is set.
    pub stop: &'a AtomicBool,
}

/// The next run.
#[derive(Clone, Debug)]
pub struct Step {
    pub variant: String,
    pub read_ahead: String,
}

impl Plan<'_> {
    /// Number of all runs.
    pub fn steps(&self) -> u64 {
        let counted = self.read_aheads.iter().filter(|read_ahead| self.needs_counting_run(read_ahead)).count();
        ((self.runs as usize * self.read_aheads.len() + counted) * self.job.variants.len()) as u64
    }

    /// Whether hits and misses need an extra run: the kernel does not report them.
    fn needs_counting_run(&self, read_ahead: &ReadAhead) -> bool {
        matches!(read_ahead.method, Method::Kernel) && !self.warm
    }

    fn settings<'a>(&'a self, read_ahead: &'a ReadAhead, probes_cache: bool) -> RunSettings<'a> {
        let Plan { files, device, warm, evicted, stop, .. } = *self;
        RunSettings { files, read_ahead, device, warm, probes_cache, each: false, evicted, stop }
    }
}

/// Runs every combination, and calls `begin` before each run.
///
/// Errors: the error of the first run that failed; `stop` was set.
pub fn measure(plan: &Plan, mut begin: impl FnMut(Step)) -> Result<Vec<Row>> {
    let (variants, read_aheads) = (&plan.job.variants, plan.read_aheads);
    let mut observed: Vec<Vec<Vec<Observed>>> = vec![vec![Vec::new(); read_aheads.len()]; variants.len()];
    let mut found = vec![vec![None; read_aheads.len()]; variants.len()];
    let mut take = |variant: usize, index: usize, probes_cache: bool| {
        begin(Step { variant: variants[variant].name.clone(), read_ahead: read_aheads[index].name() });
        run(&variants[variant], &plan.settings(&read_aheads[index], probes_cache))
            .map_err(|error| plan.files.explain(error))
    };
    for (variant, found) in found.iter_mut().enumerate() {
        for index in (0..read_aheads.len()).filter(|index| plan.needs_counting_run(&read_aheads[*index])) {
            found[index] = Some(take(variant, index, true)?);
        }
    }
    for round in 0..plan.runs {
        for (variant, observed) in observed.iter_mut().enumerate() {
            let forward = 0..read_aheads.len();
            let order: Vec<usize> = if round % 2 == 0 { forward.collect() } else { forward.rev().collect() };
            for index in order {
                observed[index].push(take(variant, index, false)?);
            }
        }
    }
    let mut rows = Vec::new();
    for (variant, (observed, found)) in variants.iter().zip(observed.iter().zip(&found)) {
        for (index, runs) in observed.iter().enumerate() {
            rows.push(Row::of(plan.job.name, variant, &read_aheads[index], runs, &observed[0], found[index].as_ref()));
        }
    }
    Ok(rows)
}
