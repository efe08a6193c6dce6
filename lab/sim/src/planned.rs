//! `plan`: what `ahead run` does with the profile that a workload repeats. The prefetch goes ahead of the program, and then beside it.
//!
//! ```text
//!     profile ──pieces, plan, pacing (the same code as in the real prefetch)──▶ steps
//!                                                                               │ workers take them in order
//!     worker    ├ call ┤├ call ┤······ enough queued: waits ······├ call ┤
//!                              │ head start
//!     program   ···············▶├ compute ┤├ read ┤├ compute ┤ …      under the kernel's read-ahead, here Linux 6.18
//! ```
//!
//! The catalogue of policies has only the name, and the kernel's part: a policy cannot hold a program back, and `ahead_policy` stands before
//! `ahead_plan` in the order of the crates. So the simulator adds the workers to the machine, as processes.
//!
//! All files of a profile lie on the scenario's disk, whose description the planner gets. The machine has other metadata than the profile, so
//! recorded metadata and lookups are not prefetched. The first reads are not timed, and opening a file costs the workers nothing.

use crate::layout::FileLayout;
use crate::replay::{ReplayCosts, calls_of};
use crate::workload::{Op, Ops, PrefetchOp};
use ahead_model::{DeviceDescription, PAGE_BYTES};
use ahead_plan::pacing::{MOST_WAITING, MOST_WORKERS, Pacing, Queued};
use ahead_plan::{Piece, Plan, Source};
use ahead_policy::FileId;
use ahead_profile::Profile;
use std::collections::VecDeque;
use std::iter;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The used ranges of a profile, for the planner.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UsedRanges {
    /// `Source::File` is the number of a file in the recording.
    pieces: Vec<Piece>,
    /// The processor time of the program, microseconds; 0: unknown.
    cpu_us: u64,
}

/// The machine on which a plan is carried out.
pub(crate) struct PlanSettings<'a> {
    pub description: DeviceDescription,
    /// The longest read-ahead call, bytes.
    pub cap_bytes: u64,
    /// The limit on prefetched bytes.
    pub budget_bytes: u64,
    /// The files of the recording.
    pub files: &'a [FileLayout],
    /// The number of the first of them.
    pub first_file: u32,
    /// The number of the program that waits for the head start.
    pub gate: u32,
}

impl UsedRanges {
    /// Those of a profile whose files are numbered in this order.
    pub(crate) fn of(profile: &Profile, order: &[usize]) -> UsedRanges {
        let mut number = vec![0; profile.files.len()];
        order.iter().enumerate().for_each(|(id, file)| number[*file] = id);
        let numbered = |piece: Piece| match piece.source {
            Source::File(file) => Some(Piece { source: Source::File(number[file]), ..piece }),
            Source::Metadata(_) => None,
        };
        let pieces = ahead_plan::pieces(profile, PAGE_BYTES).into_iter().filter_map(numbered).collect();
        UsedRanges { pieces, cpu_us: profile.recording.cpu_us }
    }

    /// The workers that carry the plan out, and whether the program waits for a head start.
    pub(crate) fn workers(&self, settings: &PlanSettings) -> (Vec<Ops>, bool) {
        let description = &settings.description;
        let mut pieces = self.pieces.clone();
        for piece in &mut pieces {
            if let Source::File(file) = piece.source {
                let page = piece.range.start / PAGE_BYTES;
                piece.physical_bytes = Some(settings.files[file].place(page).block * PAGE_BYTES);
            }
        }
        let compute_us = (self.cpu_us > 0).then_some(self.cpu_us as f64);
        let plan = ahead_plan::plan(pieces, Vec::new(), description, compute_us, settings.budget_bytes);
        let pacing = Pacing::new(description, false, false, MOST_WORKERS);
        // One worker keeps the order of a disk that seeks.
        let workers = if description.seeks() { 1 } else { pacing.workers };
        let is_held = plan.head_start_steps > 0;
        let run = Arc::new(PlanRun {
            plan,
            next_step: AtomicUsize::new(0),
            description: *description,
            cap_bytes: settings.cap_bytes,
            queue_us: pacing.queue_us,
            first_file: settings.first_file,
            gate: settings.gate,
        });
        let start = Op::Compute { time_ns: ReplayCosts::default().start_ns };
        let worker = |_| Box::new(iter::once(start).chain(PlanWorker::new(run.clone()))) as Ops;
        ((0..workers).map(worker).collect(), is_held)
    }
}

/// What the workers share.
struct PlanRun {
    plan: Plan,
    next_step: AtomicUsize,
    description: DeviceDescription,
    cap_bytes: u64,
    /// The limit on a worker's queued calls, microseconds of the device's time.
    queue_us: f64,
    first_file: u32,
    gate: u32,
}

/// A thread of the prefetch: the operations come one by one, as it takes steps.
struct PlanWorker {
    run: Arc<PlanRun>,
    /// Calls of the current step that are not yet made.
    calls: VecDeque<(FileId, Range<u64>)>,
    /// Calls that were made and not yet awaited.
    queued: Queued<(FileId, Range<u64>)>,
    /// The current step is the last one of the head start.
    ends_head_start: bool,
}

impl PlanWorker {
    fn new(run: Arc<PlanRun>) -> PlanWorker {
        let queued = Queued::new(run.queue_us);
        PlanWorker { run, calls: VecDeque::new(), queued, ends_head_start: false }
    }

    /// Takes the next step. `None`: there is none.
    fn take_step(&mut self) -> Option<()> {
        let PlanRun { plan, next_step, cap_bytes, first_file, .. } = &*self.run;
        let index = next_step.fetch_add(1, Ordering::Relaxed);
        let step = plan.steps.get(index)?;
        if let Some(Source::File(file)) = step.span().map(|span| span.source) {
            let file = FileId(first_file + file as u32);
            self.calls.extend(calls_of(step, *cap_bytes).into_iter().map(|range| (file, range)));
        }
        self.ends_head_start = index + 1 == plan.head_start_steps;
        Some(())
    }
}

impl Iterator for PlanWorker {
    type Item = Op;

    fn next(&mut self) -> Option<Op> {
        if self.queued.overdue(MOST_WAITING).is_some()
            && let Some((file, range)) = self.queued.pop()
        {
            let (first, pages) = (range.start / PAGE_BYTES, pages(&range));
            return Some(Op::Prefetch(PrefetchOp::Await { file, first, pages }));
        }
        loop {
            if let Some((file, range)) = self.calls.pop_front() {
                let takes_us = self.run.description.step_us(range.end - range.start);
                let request = PrefetchOp::Request { file, first: range.start / PAGE_BYTES, pages: pages(&range) };
                self.queued.push((file, range), takes_us);
                return Some(Op::Prefetch(request));
            }
            if std::mem::take(&mut self.ends_head_start) {
                return Some(Op::Prefetch(PrefetchOp::Release { gate: self.run.gate }));
            }
            self.take_step()?;
        }
    }
}

fn pages(range: &Range<u64>) -> u64 {
    range.end.div_ceil(PAGE_BYTES) - range.start / PAGE_BYTES
}
