//! A rotating disk and the program beside it: when the program starts, and in how many windows the disk is swept. Pure.
//!
//! ```text
//!     one window, late start      ├──── sweep ────┤├ computing ┤                    little computing
//!     one window, early start     ├──── sweep ────┤
//!                                      ├ comp … wait … uting ┤                      more of it
//!     two windows                 ├─ window 1 ─┤├── window 2 ──┤
//!                                         ├ computing … wait ─ computing ┤          more than a sweep is long
//! ```
//!
//! A program that starts early finds some of its pages there, waits for those that are on their way, and reads for
//! itself those that are not yet submitted: two seeks each, there and back. As the queue is kept full there are few of
//! these, because each waits behind the whole queue. Two windows let it compute on the first while the second is read,
//! for the price of a second sweep over the same tracks.
//!
//! Where the limits lie was found by replaying recorded starts of nine programs on a modelled 7200 rpm disk: late is
//! best up to 0.35 of a sweep, early by 2 to 8 % from 0.5 on; two windows are better only for a program that computes as
//! long as the disk sweeps. Three windows were never better.

use super::{Plan, Span, Step};
use crate::traits::DeviceTraits;

/// Computing this much of a sweep: the program starts when half of the data is submitted.
const EARLY: f64 = 0.4;

/// Computing this much: it starts when the metadata is.
const AT_ONCE: f64 = 0.8;

/// What an early start in one window overlaps anyway, as a share of the computing.
const OVERLAPS_ANYWAY: f64 = 0.3;

/// A gap that is passed while the platter turns instead of being jumped over: one track of a large disk, bytes.
const TRACK_BYTES: u64 = 1 << 20;

/// A jump within a sweep as a share of an access anywhere: the seek is shorter, the turn of the platter is not.
const HOP: f64 = 0.5;

/// Chooses among plans in one and in two windows and sets when the program starts. `None`: how long it computes is not
/// known; half of the data is a middle that is never far from the best.
pub(super) fn choose(compute_us: Option<f64>, traits: &DeviceTraits, plan: impl Fn(usize) -> Plan) -> Plan {
    let one = plan(1);
    let Some(compute_us) = compute_us else { return started_after(one, 0.5) };
    let sweep_us = sweep_us(&one, traits);
    if compute_us < EARLY * sweep_us {
        return started_after(one, 1.0);
    }
    if compute_us < AT_ONCE * sweep_us {
        return started_after(one, 0.5);
    }
    let two = plan(2);
    let second_sweep_us = self::sweep_us(&two, traits) - sweep_us;
    let gained_us = compute_us.min(sweep_us) * (0.5 - OVERLAPS_ANYWAY);
    started_after(if second_sweep_us < gained_us { two } else { one }, 0.0)
}

/// The plan with the program starting after this share of its data.
fn started_after(plan: Plan, share: f64) -> Plan {
    let data_steps = plan.steps.len() - plan.metadata_steps;
    Plan { head_start_steps: plan.metadata_steps + (data_steps as f64 * share) as usize, ..plan }
}

/// About how long the disk takes for a plan.
fn sweep_us(plan: &Plan, traits: &DeviceTraits) -> f64 {
    let mut head = 0;
    let mut total_us = 0.0;
    for span in plan.steps.iter().filter_map(span_of) {
        let whole = span.whole();
        let at = span.physical_bytes.unwrap_or(head);
        total_us += match at.checked_sub(head) {
            Some(gap) if gap <= TRACK_BYTES => traits.transfer_us(gap).min(HOP * traits.access_us),
            _ => HOP * traits.access_us,
        };
        total_us += traits.transfer_us(whole.end - whole.start);
        head = at.saturating_add(whole.end - whole.start);
    }
    total_us
}

fn span_of(step: &Step) -> Option<&Span> {
    match step {
        Step::Fetch(span) => Some(span),
        Step::LookUp(_) | Step::Open(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Piece, Source, plan};
    use super::*;

    /// Files side by side on the disk, used in an order that alternates between its two halves, or goes upwards.
    fn pieces(alternating: bool) -> Vec<Piece> {
        let piece = |index: u64| {
            let place = if alternating { index / 2 + index % 2 * 500 } else { index };
            let physical_bytes = Some(place * 3_000_000);
            Piece { source: Source::File(place as usize), range: 0..65_536, first_use_us: index, physical_bytes }
        };
        (0..1000).map(piece).collect()
    }

    fn planned(alternating: bool, compute_s: Option<f64>) -> Plan {
        plan(pieces(alternating), Vec::new(), &DeviceTraits::ROTATING, compute_s.map(|s| s * 1e6), u64::MAX)
    }

    fn sweeps(plan: &Plan) -> usize {
        let places: Vec<u64> = plan.steps.iter().filter_map(span_of).filter_map(|span| span.physical_bytes).collect();
        1 + places.windows(2).filter(|pair| pair[1] < pair[0]).count()
    }

    // 1000 hops of 6 ms: one sweep takes 6.5 s.

    #[test]
    fn a_program_that_hardly_computes_waits_for_the_sweep() {
        let plan = planned(true, Some(0.2));
        assert_eq!((plan.head_start_steps, sweeps(&plan)), (plan.steps.len(), 1));
    }

    #[test]
    fn one_that_computes_as_long_as_the_sweep_starts_at_once() {
        let plan = planned(true, Some(8.0));
        assert_eq!(plan.head_start_steps, 0);
    }

    #[test]
    fn a_second_window_is_made_where_it_costs_little() {
        // In each half of the time both halves of the disk are used: the second sweep costs hops, but no more of them.
        assert_eq!(sweeps(&planned(true, Some(8.0))), 2);
        assert_eq!(sweeps(&planned(true, Some(3.0))), 1);
    }

    #[test]
    fn unknown_computing_takes_the_middle() {
        assert_eq!(planned(false, None).head_start_steps, 500);
    }
}
