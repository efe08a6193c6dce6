//! Rounds: every variant under everybody, once in each round, there and back, so that what drifts drifts for all.

use crate::Result;
use crate::files::Files;
use crate::job::Job;
use crate::row::Row;
use crate::run::{Evicted, How, Observed, Setting, Under, run};
use ahead_policy::DeviceDescription;
use std::sync::atomic::AtomicBool;

/// What is to be measured.
pub struct Plan<'a> {
    /// The job.
    pub job: &'a Job,
    /// Its files.
    pub files: &'a Files,
    /// Who reads ahead; the first is what the others are compared with.
    pub under: &'a [Under],
    /// What policies are told of the disk.
    pub device: DeviceDescription,
    /// How many rounds.
    pub runs: u32,
    /// Everything is cached before, instead of nothing.
    pub warm: bool,
    /// What the cache has lost of the files so far.
    pub evicted: Option<Evicted<'a>>,
    /// Ends it when it is set.
    pub stop: &'a AtomicBool,
}

/// A run that is about to begin.
#[derive(Clone, Debug)]
pub struct Step {
    /// Of the job's variant.
    pub variant: String,
    /// Under this.
    pub under: String,
}

impl Plan<'_> {
    /// How many runs that makes.
    pub fn steps(&self) -> u64 {
        let counted = self.under.iter().filter(|under| self.is_counted_apart(under)).count();
        ((self.runs as usize * self.under.len() + counted) * self.job.variants.len()) as u64
    }

    /// The kernel tells nobody how it found pages: that takes a run of its own.
    fn is_counted_apart(&self, under: &Under) -> bool {
        matches!(under.how, How::Kernel) && !self.warm
    }

    fn setting<'a>(&'a self, under: &'a Under, looks: bool) -> Setting<'a> {
        let Plan { files, device, warm, evicted, stop, .. } = *self;
        Setting { files, under, device, warm, looks, each: false, evicted, stop }
    }
}

/// Measures everything. `begin` is told of each run before it begins.
///
/// Errors: the first run that fails; it was asked to stop.
pub fn measure(plan: &Plan, mut begin: impl FnMut(Step)) -> Result<Vec<Row>> {
    let (variants, under) = (&plan.job.variants, plan.under);
    let mut seen: Vec<Vec<Vec<Observed>>> = vec![vec![Vec::new(); under.len()]; variants.len()];
    let mut found = vec![vec![None; under.len()]; variants.len()];
    let mut take = |variant: usize, who: usize, looks: bool| {
        begin(Step { variant: variants[variant].name.clone(), under: under[who].name() });
        run(&variants[variant], &plan.setting(&under[who], looks)).map_err(|error| plan.files.explain(error))
    };
    for (variant, found) in found.iter_mut().enumerate() {
        for who in (0..under.len()).filter(|who| plan.is_counted_apart(&under[*who])) {
            found[who] = Some(take(variant, who, true)?);
        }
    }
    for round in 0..plan.runs {
        for (variant, seen) in seen.iter_mut().enumerate() {
            let there = 0..under.len();
            let order: Vec<usize> = if round % 2 == 0 { there.collect() } else { there.rev().collect() };
            for who in order {
                seen[who].push(take(variant, who, false)?);
            }
        }
    }
    let mut rows = Vec::new();
    for (variant, (seen, found)) in variants.iter().zip(seen.iter().zip(&found)) {
        for (who, runs) in seen.iter().enumerate() {
            rows.push(Row::of(plan.job.name, variant, &under[who], runs, &seen[0], found[who].as_ref()));
        }
    }
    Ok(rows)
}
