//! Chooses a plan by running candidates through the simulator.
//!
//! ```text
//!     rule's plan ──┐
//!     nothing ──────┤                                          best shape           best border
//!     1 sweep ──────┼──▶ simulator, a few head starts each ──▶ its head start ──▶   moved a little ──▶ the plan, what it was expected
//!     2, 3 … sweeps ┤                                          by bisection                            to take, and the others
//!     order of use ─┘
//! ```
//!
//! The work is limited by the number of simulated steps, not by a clock: the choice is the same on every machine.

#[cfg(test)]
mod tests;

use crate::candidates::{Gaps, Items, Planned as Pieces, Shape};
use crate::event::Script;
use crate::orders::Sorted;
use crate::pacing::QUEUE_US;
use crate::script::Program;
use crate::simulator::{Candidate, Outcome, Request, Simulator};
use crate::{LookUp, Piece, Plan, Span, Step, WINDOW_US, by_rule, importance, keep_within, orders, total_bytes};
use ahead_model::DeviceDescription;
use serde::{Deserialize, Serialize};

/// Maximum number of simulated steps: events of the program, and requests. 4 to 8 ms, at 25 to 50 ns each (two x86_64 machines).
const MOST_STEPS: u64 = 150_000;

/// The cost of making the plan of a shape, simulated steps for each piece and lookup.
const STEPS_OF_A_SHAPE: u64 = 6;

/// A profile of which fewer than this number of runs can be simulated is planned by the rule.
const LEAST_RUNS: u64 = 8;

/// A plan other than the rule's has to be expected to gain this share of the time, because expectations are not more exact.
const LEAST_GAIN: f64 = 0.03;

/// And this time, microseconds: starting threads and opening files take as long.
const LEAST_GAIN_US: f64 = 1000.0;

/// Maximum device time in the queue of a rotating disk beside a program, microseconds, as candidates. Two requests: the disk is never idle, and a
/// page that the program reads itself waits for little. No limit: a program that needs the pages in the order of the disk finds them in
/// flight and does not move the head.
const QUEUES_US: [Option<f64>; 2] = [Some(24_000.0), None];

/// The order of a chosen plan.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ChosenOrder {
    /// That of the rule for the device.
    #[default]
    Rule,
    /// Ascending on the disk, in one or several windows.
    ByPosition,
    /// In the order of the program's own timeline.
    ByUse,
    /// Nothing is prefetched: without, the program was expected to be faster.
    Nothing,
}

impl ChosenOrder {
    /// The name in messages.
    pub fn name(self) -> &'static str {
        match self {
            ChosenOrder::Rule => "rule",
            ChosenOrder::ByPosition => "by position",
            ChosenOrder::ByUse => "by use",
            ChosenOrder::Nothing => "nothing",
        }
    }
}

/// What was chosen, and what it was expected to take. Times in microseconds since the beginning of the prefetch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Choice {
    /// The order.
    pub order: ChosenOrder,
    /// The number of windows; 1: no borders.
    pub windows: u32,
    /// Candidates that were simulated; 0: the rule decided.
    pub candidates: u32,
    /// Simulated steps.
    pub simulated_steps: u64,
    /// Whether the program's own timeline was known. Without it, the computing is an assumption.
    pub timeline: bool,
    /// When the program was expected to start.
    pub head_start_us: u64,
    /// When it was expected to end: head start and program.
    pub expected_us: u64,
    /// The same with the plan of the rule.
    pub rule_us: u64,
    /// The same without a prefetch.
    pub nothing_us: u64,
    /// From the program's start to its end with everything cached.
    pub warm_us: u64,
}

/// A plan and why it was chosen.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Planned {
    /// The plan.
    pub plan: Plan,
    /// Why.
    pub choice: Choice,
}

/// Orders the pieces and lookups of one device for a program that waits: as [`plan`], but the order, the windows, and the head start are those
/// with which the program is expected to end first. `budget_bytes`: as there.
///
/// `may_wait`: the program can be held back for a head start.
pub fn plan_for(
    mut pieces: Vec<Piece>,
    mut lookups: Vec<LookUp>,
    device: &DeviceDescription,
    program: &Program<'_>,
    may_wait: bool,
    budget_bytes: u64,
) -> Planned {
    pieces.sort_by_key(importance);
    let over_budget_bytes = keep_within(&mut pieces, budget_bytes);
    let planned_bytes = total_bytes(&pieces);
    let sorted = Sorted::new(pieces);
    let rule = by_rule(&sorted, lookups.clone(), device, program.compute_us);
    let pieces = sorted.pieces;
    lookups.sort_unstable_by_key(|lookup| lookup.path);
    let events =
        pieces.len() + lookups.len() + program.timeline.map_or(0, |t| t.wakeups.len() * 2 + t.threads.len() * 2);
    let is_small = (events as u64).saturating_mul(2 * LEAST_RUNS) <= MOST_STEPS;
    if !is_small || pieces.iter().all(|piece| piece.late) && lookups.is_empty() {
        let choice = Choice { windows: 1, ..Choice::default() };
        return Planned { plan: Plan { planned_bytes, over_budget_bytes, ..rule }, choice };
    }
    let script = Script::new(program, &pieces, &lookups);
    let items = Items::new(&pieces, &lookups);
    let simulator = Simulator::new(&script, &items.all, device, program.processors);
    let mut search = Search {
        simulator,
        items: &items,
        pieces: by_use(pieces, lookups, script.is_recorded, device),
        requests: Vec::new(),
        tried: 0,
        may_wait,
        best: Best::default(),
    };
    let choice = search.choose(rule, script.is_recorded);
    let plan = std::mem::take(&mut search.best.plan);
    let choice = Choice { timeline: script.is_recorded, ..choice };
    Planned { plan: Plan { planned_bytes, over_budget_bytes, ..plan }, choice }
}

/// The pieces by importance and the lookups by use, with the times of the timeline if there is one.
fn by_use(
    mut pieces: Vec<Piece>,
    mut lookups: Vec<LookUp>,
    is_recorded: bool,
    device: &DeviceDescription,
) -> Pieces<'_> {
    if is_recorded {
        let known = pieces.iter().filter_map(|piece| Some((piece.first_use_us, piece.warm_use?.time_us)));
        let mut times: Vec<(u64, u64)> = known.collect();
        times.sort_unstable();
        // Those without a place on the timeline come with the one before.
        let like = |first_use_us: u64| {
            let before = times.partition_point(|(cold_us, _)| *cold_us <= first_use_us);
            before.checked_sub(1).map_or(0, |index| times[index].1)
        };
        for piece in &mut pieces {
            piece.first_use_us = piece.warm_use.map_or_else(|| like(piece.first_use_us), |warm| warm.time_us);
        }
        for lookup in &mut lookups {
            lookup.first_use_us = lookup.warm_use_us.unwrap_or_else(|| like(lookup.first_use_us));
        }
    }
    let pieces = Sorted::new(pieces);
    let mut lookups_by_inode = lookups.clone();
    lookups_by_inode.sort_by_key(|lookup| (lookup.inode, lookup.path));
    lookups.sort_by_key(|lookup| (lookup.first_use_us, lookup.path));
    Pieces { pieces, lookups, lookups_by_inode, device }
}

#[derive(Default)]
struct Best {
    plan: Plan,
    shape: Option<Shape>,
    order: ChosenOrder,
    outcome: Outcome,
}

/// A head start and a queue that were simulated.
struct Tried {
    head_start: usize,
    queue_us: Option<f64>,
    outcome: Outcome,
}

struct Search<'a> {
    simulator: Simulator<'a>,
    items: &'a Items,
    pieces: Pieces<'a>,
    requests: Vec<Request>,
    tried: u32,
    may_wait: bool,
    best: Best,
}

impl Search<'_> {
    /// `is_recorded`: there is a timeline. Without, the rule decides, and only its time is simulated.
    fn choose(&mut self, rule: Plan, is_recorded: bool) -> Choice {
        let head_start = if self.may_wait { rule.head_start_steps } else { 0 };
        let rule = Plan { head_start_steps: head_start, ..rule };
        self.items.requests(&rule, &mut self.requests);
        let of_rule = self.simulate(head_start, None);
        let usual_steps = rule.usual_steps;
        let own = || Best { plan: rule.clone(), shape: None, order: ChosenOrder::Rule, outcome: of_rule };
        self.best = own();
        let nothing = Plan { usual_steps: 0, ..Plan::default() };
        self.requests.clear();
        let of_nothing = self.simulate(0, None);
        let warm_us = self.simulator.warm_us();
        if is_recorded {
            if self.pieces.device.seeks() {
                self.sweep();
            } else {
                self.follow_use();
            }
            if of_nothing.end_us < self.best.outcome.end_us && usual_steps > 0 {
                self.best = Best { plan: nothing, shape: None, order: ChosenOrder::Nothing, outcome: of_nothing };
            }
            if of_rule.end_us - self.best.outcome.end_us < (LEAST_GAIN * of_rule.end_us).max(LEAST_GAIN_US) {
                self.best = own();
            }
        }
        Choice {
            order: self.best.order,
            windows: self.windows(),
            candidates: self.tried,
            simulated_steps: self.simulator.steps,
            timeline: false,
            head_start_us: self.best.outcome.start_us as u64,
            expected_us: self.best.outcome.end_us as u64,
            rule_us: of_rule.end_us as u64,
            nothing_us: of_nothing.end_us as u64,
            warm_us: warm_us as u64,
        }
    }

    fn windows(&self) -> u32 {
        match &self.best.shape {
            Some(Shape::Sweeps(borders)) => borders.len() as u32 + 1,
            _ => 1,
        }
    }

    /// Simulates the plan whose requests are in the list, with this head start and queue.
    fn simulate(&mut self, head_start: usize, queue_us: Option<f64>) -> Outcome {
        self.tried += 1;
        let seeks = self.pieces.device.seeks();
        let queue_us = queue_us.unwrap_or(if seeks { f64::INFINITY } else { QUEUE_US });
        self.simulator.run(&Candidate { requests: &self.requests, head_start, queue_us })
    }

    /// The queues to try for a plan with this head start.
    fn queues_us(&self, head_start: usize, usual_steps: usize) -> &'static [Option<f64>] {
        if self.pieces.device.seeks() && head_start < usual_steps { &QUEUES_US } else { &[None] }
    }

    /// Simulates the requests in the list with this head start, and returns the best queue with it.
    fn try_queues(&mut self, head_start: usize, usual_steps: usize) -> Option<Tried> {
        let mut best: Option<Tried> = None;
        for queue_us in self.queues_us(head_start, usual_steps) {
            if !self.has_time() {
                break;
            }
            let outcome = self.simulate(head_start, *queue_us);
            if best.as_ref().is_none_or(|best| outcome.end_us < best.outcome.end_us) {
                best = Some(Tried { head_start, queue_us: *queue_us, outcome });
            }
        }
        best
    }

    fn has_time(&self) -> bool {
        self.simulator.steps < MOST_STEPS
    }

    /// Candidates of a disk that seeks: the most promising first.
    fn sweep(&mut self) {
        self.try_shape(Shape::Sweeps(Vec::new()), &[1.0, 0.0, 0.5, 0.75]);
        for border in [0.75, 0.5, 0.9, 0.25] {
            self.try_shape(Shape::Sweeps(vec![border]), &[border, 1.0, 0.0]);
        }
        for windows in [3, 4, 8] {
            self.try_shape(Shape::Sweeps(orders::equal_borders(windows)), &[1.0 / windows as f64, 0.0]);
        }
        self.try_shape(Shape::ByUse(WINDOW_US, Gaps::Rule), &[0.0, 0.25]);
        self.refine_head_start();
        self.refine_border();
        self.refine_head_start();
    }

    /// Candidates of a disk that does not seek. The program starts at once there.
    fn follow_use(&mut self) {
        for (window_us, gaps) in [
            (WINDOW_US, Gaps::Rule),
            (WINDOW_US / 40.0, Gaps::Rule),
            (WINDOW_US / 400.0, Gaps::Rule),
            (WINDOW_US / 40.0, Gaps::None),
            (WINDOW_US / 40.0, Gaps::Wide),
        ] {
            self.try_shape(Shape::ByUse(window_us, gaps), &[0.0]);
        }
    }

    /// Tries a shape with head starts that end after these shares of its data. Keeps it if it is the best.
    fn try_shape(&mut self, shape: Shape, head_starts: &[f64]) {
        if !self.has_time() {
            return;
        }
        let plan = self.pieces.plan(&shape);
        self.simulator.steps += (self.items.all.len() as u64) * STEPS_OF_A_SHAPE;
        self.items.requests(&plan, &mut self.requests);
        let shares = head_starts.iter().filter(|share| **share <= 0.0 || self.may_wait);
        let starts: Vec<usize> = shares.map(|share| steps_of_share(&plan, *share)).collect();
        let tried = starts.into_iter().filter_map(|steps| self.try_queues(steps, plan.usual_steps));
        let best = tried.min_by(|a, b| a.outcome.end_us.total_cmp(&b.outcome.end_us));
        let Some(Tried { head_start: steps, queue_us, outcome }) = best else { return };
        if outcome.end_us < self.best.outcome.end_us {
            let order = match shape {
                Shape::Sweeps(_) => ChosenOrder::ByPosition,
                Shape::ByUse(..) => ChosenOrder::ByUse,
            };
            let plan = Plan { head_start_steps: steps, queue_us, ..plan };
            self.best = Best { plan, shape: Some(shape), order, outcome };
        }
    }

    /// Moves the head start of the best candidate in smaller and smaller strides.
    fn refine_head_start(&mut self) {
        if self.best.shape.is_none() || !self.may_wait {
            return;
        }
        self.items.requests(&self.best.plan, &mut self.requests);
        let usual_steps = self.best.plan.usual_steps;
        let mut stride = usual_steps / 8;
        while stride > usual_steps / 128 {
            let at = self.best.plan.head_start_steps;
            for steps in [at.saturating_sub(stride), (at + stride).min(usual_steps)] {
                let Some(tried) = self.try_queues(steps, usual_steps) else { return };
                if tried.outcome.end_us < self.best.outcome.end_us {
                    let plan = &mut self.best.plan;
                    (plan.head_start_steps, plan.queue_us) = (steps, tried.queue_us);
                    self.best.outcome = tried.outcome;
                }
            }
            stride /= 2;
        }
    }

    /// Moves the border of two windows.
    fn refine_border(&mut self) {
        for stride in [0.1, 0.05, 0.025] {
            let Some(Shape::Sweeps(borders)) = self.best.shape.clone() else { return };
            let &[border] = &borders[..] else { return };
            for moved in [border - stride, border + stride] {
                if moved > 0.0 && moved < 1.0 {
                    self.try_shape(Shape::Sweeps(vec![moved]), &[moved, 1.0]);
                }
            }
        }
    }
}

/// The number of leading steps with this share of the data bytes; 0: with the metadata on a disk that seeks.
fn steps_of_share(plan: &Plan, share: f64) -> usize {
    if share <= 0.0 {
        return plan.metadata_steps;
    }
    let usual = &plan.steps[..plan.usual_steps];
    if share >= 1.0 {
        return usual.len();
    }
    let bytes = |step: &Step| step.span().filter(|s| !s.source.is_metadata()).map_or(0, Span::used_bytes);
    let mut left = (usual.iter().map(bytes).sum::<u64>() as f64 * share) as u64;
    let counted = usual.iter().take_while(|step| {
        let goes_on = left > 0;
        left = left.saturating_sub(bytes(step));
        goes_on
    });
    counted.count().max(plan.metadata_steps)
}
