//! A rotating disk and the program beside it: when the program starts, and in how many windows the disk is swept. Pure.
//!
//! ```text
//!     one window, late start      ├──── sweep ────┤├ computing ┤
//!     two windows                 ├─ window 1 ─┤├── window 2 ──┤
//!                                         ├ computing … wait ─ computing ┤     computing is twice the sweep and more
//! ```
//!
//! A program that starts early finds some of its pages there, waits for those that are on their way, and reads for
//! itself those that are not yet submitted: two seeks each, there and back. And it wants most of its pages at once: of
//! six programs, three quarters within the first fifth of their computing (median). So it only starts early where it
//! computes for much longer than the disk sweeps.
//!
//! Measured on a modelled 7200 rpm disk with programs that compute 0.3 to 0.9 of a sweep, late against early start: a JVM
//! 1.43 and 1.60 s, Node.js 1.81 and 2.04 s, LibreOffice 3.21 and 3.43 s, Python 1.28 and 1.33 s (the better of two
//! runs each). Two windows, the first
//! with 50 to 90 % of the data and the start after it, were between 3 % better and 30 % worse than one.

use super::{Plan, Span, Step};
use crate::traits::DeviceTraits;

/// Computing this many sweeps: the program starts when the metadata is there, because late would cost it a third (by
/// reckoning: no such program was measured).
const AT_ONCE: f64 = 2.0;

/// What an early start in one window overlaps anyway, as a share of the computing.
const OVERLAPS_ANYWAY: f64 = 0.3;

/// A gap that is passed while the platter turns instead of being jumped over: one track of a large disk, bytes.
const TRACK_BYTES: u64 = 1 << 20;

/// A jump within a sweep as a share of an access anywhere: the seek is shorter, the turn of the platter is not.
const HOP: f64 = 0.5;

/// Chooses among plans in one and in two windows and sets when the program starts. `compute_us`: how long it computes, if
/// that is known.
pub(super) fn choose(compute_us: Option<f64>, traits: &DeviceTraits, plan: impl Fn(usize) -> Plan) -> Plan {
    let one = plan(1);
    let sweep_us = sweep_us(&one, traits);
    let compute_us = match compute_us {
        Some(compute_us) if compute_us >= AT_ONCE * sweep_us => compute_us,
        _ => return Plan { head_start_steps: one.steps.len(), ..one },
    };
    let two = plan(2);
    let second_sweep_us = self::sweep_us(&two, traits) - sweep_us;
    let gained_us = compute_us.min(sweep_us) * (0.5 - OVERLAPS_ANYWAY);
    let plan = if second_sweep_us < gained_us { two } else { one };
    Plan { head_start_steps: plan.metadata_steps, ..plan }
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
    fn one_that_computes_for_many_sweeps_starts_at_once() {
        let plan = planned(true, Some(20.0));
        assert_eq!(plan.head_start_steps, 0);
    }

    #[test]
    fn a_second_window_is_made_where_it_costs_little() {
        // In each half of the time both halves of the disk are used: the second sweep costs hops, but no more of them.
        assert_eq!(sweeps(&planned(true, Some(20.0))), 2);
        assert_eq!(sweeps(&planned(true, Some(3.0))), 1);
    }

    #[test]
    fn unknown_computing_waits_for_the_sweep() {
        assert_eq!(planned(false, None).head_start_steps, 1000);
    }
}
