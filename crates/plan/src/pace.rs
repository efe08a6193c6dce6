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
//! If a program starts early, some of its pages are cached, some are in flight, and it reads the others itself before they are
//! submitted. Each of these reads costs two seeks, there and back. Programs also need most of their pages early: six measured
//! programs needed three quarters of their pages within the first fifth of their computing (median). So a program starts early
//! only if it computes for much longer than the sweep.
//!
//! Measured on a modelled 7200 rpm disk with programs that compute for 0.3 to 0.9 of a sweep, late start against early start: a
//! JVM 1.43 and 1.60 s, Node.js 1.81 and 2.04 s, LibreOffice 3.21 and 3.43 s, Python 1.28 and 1.33 s (the better of two runs
//! each). Two windows, the first with 50 to 90 % of the data and the start after it, were between 3 % better and 30 % worse than
//! one window.
//!
//! If the program's own order is that of the disk (it reads a file from beginning to end), a late start has no advantage: the
//! program starts at once and follows the sweep.

use crate::{Piece, Plan, Span, Step};
use ahead_model::DeviceDescription;

/// If the program computes for this number of sweeps, it starts when the metadata has arrived: a late start would make it a third
/// slower (an estimate: no such program was measured).
const AT_ONCE: f64 = 2.0;

/// The program starts at once if its backward distances are at most this share of the used region of the disk, and if at most this
/// share of its pieces is at unknown places.
const OUT_OF_ORDER: f64 = 0.05;

/// Share of the computing that overlaps with reading after an early start in one window.
const OVERLAPS_ANYWAY: f64 = 0.3;

/// A longer sweep is divided into windows of about this time, and the program starts after the first one: pages that it needs
/// soon are read before pages that it needs in a minute, and the head start is limited. Longer than the longest measured sweep
/// of a single program (Chromium, 5 s), shorter than the longest head start (`LONGEST_HEAD_START`). Microseconds.
const LONGEST_SWEEP_US: f64 = 8e6;

/// Chooses between plans with one window and with several, and sets when the program starts. `compute_us`: the program's
/// processor time, if known; `upwards`: see [`goes_upwards`].
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

/// The spans that at least half of the runs used, in the order of the plan.
fn spans_of(plan: &Plan) -> impl Iterator<Item = &Span> {
    plan.steps[..plan.usual_steps].iter().filter_map(Step::span)
}

/// Whether the program's own order is that of the disk; ranges at unknown places count against it. `pieces`: before they are
/// joined, because a span has lost the order of its pieces.
pub(super) fn goes_upwards(pieces: &[Piece]) -> bool {
    let data = || pieces.iter().filter(|piece| !piece.late && !piece.source.is_metadata());
    let mut places: Vec<(u64, u64)> =
        data().filter_map(|piece| Some((piece.first_use_us, piece.physical_bytes?))).collect();
    let unknown = data().count() - places.len();
    places.sort_unstable();
    let (least, most) = places.iter().fold((u64::MAX, 0), |(least, most), (_, at)| (least.min(*at), most.max(*at)));
    // Saturates: the distances of a hostile profile may sum up to more than 2^64 bytes.
    let backwards = places.windows(2).fold(0u64, |sum, pair| sum.saturating_add(pair[0].1.saturating_sub(pair[1].1)));
    backwards as f64 <= OUT_OF_ORDER * most.saturating_sub(least) as f64
        && unknown as f64 <= OUT_OF_ORDER * places.len() as f64
}

/// Estimated time of the disk for the spans that at least half of the runs used.
fn sweep_us(plan: &Plan, device: &DeviceDescription) -> f64 {
    let mut head = 0;
    let mut total_us = 0.0;
    for span in spans_of(plan) {
        let whole = span.whole();
        let at = span.physical_bytes.unwrap_or(head);
        let passed_us = at.checked_sub(head).and_then(|gap| device.pass_us(gap));
        total_us += passed_us.unwrap_or(device.hop_us());
        total_us += device.transfer_us(whole.end - whole.start);
        head = at.saturating_add(whole.end - whole.start);
    }
    total_us
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Source, plan};

    /// Adjacent files on the disk, used alternately in its two halves, or in ascending order.
    fn pieces(alternating: bool) -> Vec<Piece> {
        let piece = |index: u64| {
            let place = if alternating { index / 2 + index % 2 * 500 } else { index };
            let physical_bytes = Some(place * 3_000_000);
            Piece {
                source: Source::File(place as usize),
                range: 0..65_536,
                late: false,
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
        // Both halves of the disk are used in each half of the time: two sweeps together have as many hops as one.
        assert_eq!(sweeps(&planned(true, Some(20.0))), 2);
        assert_eq!(sweeps(&planned(true, Some(3.0))), 1);
    }

    #[test]
    fn unknown_computing_waits_for_the_sweep() {
        assert_eq!(planned(true, None).head_start_steps, 1000);
    }

    /// Regression: a program that reads a file from beginning to end was held until all of the file was read, and was no faster.
    #[test]
    fn a_program_in_the_order_of_the_disk_starts_at_once() {
        assert_eq!(planned(false, Some(0.2)).head_start_steps, 0);
        assert_eq!(planned(false, None).head_start_steps, 0);
    }

    /// Regression: a long recording was a single sweep, so that the first pages needed arrived as late as the last ones.
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

    /// Regression: files at unknown places counted as used in the order of the disk.
    #[test]
    fn unknown_places_are_no_order() {
        let mut pieces = pieces(false);
        pieces.iter_mut().for_each(|piece| piece.physical_bytes = None);
        assert_eq!(plan(pieces, Vec::new(), &DeviceDescription::ROTATING, None, u64::MAX).head_start_steps, 1000);
    }

    /// Regression: a file that is read densely in random order is one span, which counted as read in ascending order.
    #[test]
    fn one_file_in_any_order_is_not_the_order_of_the_disk() {
        let piece = |index: u64| {
            let at = index * 37 % 1000 * 4096;
            let (range, physical_bytes) = (at..at + 4096, Some((1 << 30) + at));
            Piece { source: Source::File(0), range, late: false, first_use_us: index, physical_bytes }
        };
        let plan = plan((0..1000).map(piece).collect(), Vec::new(), &DeviceDescription::ROTATING, None, u64::MAX);
        assert_eq!((plan.steps.len(), plan.head_start_steps), (1, 1));
    }
}
