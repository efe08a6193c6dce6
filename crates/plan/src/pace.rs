//! A rotating disk and the program beside it: when the program starts, and in how many windows the disk is swept. Pure.
//!
//! ```text
//!     one window, late start      ├──── sweep ────┤├ computing ┤
//!     a long recording            ├─ window 1 ─┤├── window 2 ──┤├── window 3 ──┤ …
//!                                               ├ computing … wait ─ computing …
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
//! runs each). Two windows, the first with 50 to 90 % of the data and the start after it, were between 3 % better and 30 %
//! worse than one.
//!
//! Nor does waiting gain anything where the program's own order is the disk's (a file read from its beginning to its
//! end): it starts at once, and follows the sweep.

use crate::{Piece, Plan, Span, Step};
use ahead_model::DeviceDescription;

/// If the program computes for this many sweeps, it starts when the metadata is there: a late start would cost it a third (an
/// estimate: no such program was measured).
const AT_ONCE: f64 = 2.0;

/// The program starts at once if it goes back over at most this share of what it goes over in all, and if at most this share
/// lies at unknown places.
const OUT_OF_ORDER: f64 = 0.05;

/// What an early start in one window overlaps anyway, as a share of the computing.
const OVERLAPS_ANYWAY: f64 = 0.3;

/// A longer sweep is divided into windows of about this time, and the program starts after the first window: the pages that
/// it wants next come before those that it wants in a minute, and no program waits longer for its start. Above the longest
/// measured sweep of a single program (Chromium, 5 s), below the longest head start (`LONGEST_HEAD_START`). Microseconds.
const LONGEST_SWEEP_US: f64 = 8e6;

/// A gap that is passed while the platter turns instead of being jumped over: one track of a large disk, bytes.
const TRACK_BYTES: u64 = 1 << 20;

/// Chooses among plans in one and in two windows and sets when the program starts. `compute_us`: how long it computes, if
/// that is known; `upwards`: see [`goes_upwards`].
pub(super) fn choose(
    compute_us: Option<f64>,
    upwards: bool,
    device: &DeviceDescription,
    plan: impl Fn(usize) -> Plan,
) -> Plan {
    let one = plan(1);
    if upwards {
        return Plan { head_start_steps: one.metadata_steps, ..one };
    }
    let sweep_us = sweep_us(&one, device);
    let compute_us = match compute_us {
        Some(compute_us) if compute_us >= AT_ONCE * sweep_us => compute_us,
        _ if sweep_us <= LONGEST_SWEEP_US => return Plan { head_start_steps: one.usual_steps, ..one },
        _ => {
            let many = plan((sweep_us / LONGEST_SWEEP_US).ceil() as usize);
            return Plan { head_start_steps: many.first_window_steps, ..many };
        }
    };
    let two = plan(2);
    let second_sweep_us = self::sweep_us(&two, device) - sweep_us;
    let gained_us = compute_us.min(sweep_us) * (0.5 - OVERLAPS_ANYWAY);
    let plan = if second_sweep_us < gained_us { two } else { one };
    Plan { head_start_steps: plan.metadata_steps, ..plan }
}

/// What the program will most likely want, in the order of the plan.
fn spans_of(plan: &Plan) -> impl Iterator<Item = &Span> {
    plan.steps[..plan.usual_steps].iter().filter_map(Step::span)
}

/// Whether the program's own order is the disk's, for all that we know: what lies at unknown places is no order.
/// `pieces`: before they are joined, since what is used in any order may come to lie in one span.
pub(super) fn goes_upwards(pieces: &[Piece]) -> bool {
    let data = || pieces.iter().filter(|piece| !piece.seldom && !piece.source.is_metadata());
    let mut places: Vec<(u64, u64)> =
        data().filter_map(|piece| Some((piece.first_use_us, piece.physical_bytes?))).collect();
    let unknown = data().count() - places.len();
    places.sort_unstable();
    let (least, most) = places.iter().fold((u64::MAX, 0), |(least, most), (_, at)| (least.min(*at), most.max(*at)));
    // Saturates: a hostile profile may claim to go back and forth over more than there is.
    let backwards = places.windows(2).fold(0u64, |sum, pair| sum.saturating_add(pair[0].1.saturating_sub(pair[1].1)));
    backwards as f64 <= OUT_OF_ORDER * most.saturating_sub(least) as f64
        && unknown as f64 <= OUT_OF_ORDER * places.len() as f64
}

/// About how long the disk takes for what the program will most likely want.
fn sweep_us(plan: &Plan, device: &DeviceDescription) -> f64 {
    let hop_us = device.hop_ns.unwrap_or(device.access_ns) as f64 / 1e3;
    let mut head = 0;
    let mut total_us = 0.0;
    for span in spans_of(plan) {
        let whole = span.whole();
        let at = span.physical_bytes.unwrap_or(head);
        total_us += match at.checked_sub(head) {
            Some(gap) if gap <= TRACK_BYTES => device.transfer_us(gap).min(hop_us),
            _ => hop_us,
        };
        total_us += device.transfer_us(whole.end - whole.start);
        head = at.saturating_add(whole.end - whole.start);
    }
    total_us
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Source, plan};

    /// Files side by side on the disk, used in an order that alternates between its two halves, or goes upwards.
    fn pieces(alternating: bool) -> Vec<Piece> {
        let piece = |index: u64| {
            let place = if alternating { index / 2 + index % 2 * 500 } else { index };
            let physical_bytes = Some(place * 3_000_000);
            Piece {
                source: Source::File(place as usize),
                range: 0..65_536,
                seldom: false,
                first_use_us: index,
                physical_bytes,
            }
        };
        (0..1000).map(piece).collect()
    }

    fn planned(alternating: bool, compute_s: Option<f64>) -> Plan {
        plan(pieces(alternating), Vec::new(), &DeviceDescription::ROTATING, compute_s.map(|s| s * 1e6), u64::MAX)
    }

    fn sweeps(plan: &Plan) -> usize {
        let places: Vec<u64> =
            plan.steps.iter().filter_map(Step::span).filter_map(|span| span.physical_bytes).collect();
        1 + places.windows(2).filter(|pair| pair[1] < pair[0]).count()
    }

    // 1000 hops of 6 ms: one sweep takes 6.5 s.

    #[test]
    fn a_program_that_hardly_computes_waits_for_the_sweep() {
        let plan = planned(true, Some(0.2));
        assert_eq!((plan.head_start_steps, sweeps(&plan)), (plan.steps.len(), 1));
    }

    #[test]
    fn program_that_computes_for_many_sweeps_starts_at_once() {
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
        assert_eq!(planned(true, None).head_start_steps, 1000);
    }

    /// Regression: a file read from its beginning to its end waited for all of it, and gained nothing.
    #[test]
    fn a_program_in_the_order_of_the_disk_starts_at_once() {
        assert_eq!(planned(false, Some(0.2)).head_start_steps, 0);
        assert_eq!(planned(false, None).head_start_steps, 0);
    }

    /// Regression: a long recording was one sweep, however long, and what was wanted first came with what was wanted last.
    #[test]
    fn a_long_recording_is_swept_in_windows_and_the_program_starts_after_the_first() {
        let four_times = (0..4).flat_map(|round: u64| {
            pieces(true).into_iter().map(move |piece| {
                let Source::File(index) = piece.source else { unreachable!("only files") };
                let (source, first_use_us) =
                    (Source::File(index + 1000 * round as usize), piece.first_use_us + 1000 * round);
                Piece { source, first_use_us, ..piece }
            })
        });
        let plan = plan(four_times.collect(), Vec::new(), &DeviceDescription::ROTATING, None, u64::MAX);
        assert_eq!((sweeps(&plan), plan.head_start_steps, plan.steps.len()), (4, 1000, 4000));
    }

    /// Regression: files at unknown places, in the order of their first use, were taken for the order of the disk.
    #[test]
    fn unknown_places_are_no_order() {
        let mut pieces = pieces(false);
        pieces.iter_mut().for_each(|piece| piece.physical_bytes = None);
        assert_eq!(plan(pieces, Vec::new(), &DeviceDescription::ROTATING, None, u64::MAX).head_start_steps, 1000);
    }

    /// Regression: a file read densely but in any order is one span, and one span has only one order.
    #[test]
    fn one_file_in_any_order_is_not_the_order_of_the_disk() {
        let piece = |index: u64| {
            let at = index * 37 % 1000 * 4096;
            let (range, physical_bytes) = (at..at + 4096, Some((1 << 30) + at));
            Piece { source: Source::File(0), range, seldom: false, first_use_us: index, physical_bytes }
        };
        let plan = plan((0..1000).map(piece).collect(), Vec::new(), &DeviceDescription::ROTATING, None, u64::MAX);
        assert_eq!((plan.steps.len(), plan.head_start_steps), (1, 1));
    }
}
