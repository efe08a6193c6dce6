//! The least time of a disk for a set of extents: a lower bound for every schedule.
//!
//! In: the model, and the extents that a program uses. Out: a time before which no schedule can have delivered all of them. The bound holds for
//! every order of requests, every split of extents into requests up to the model's longest one, every gap that is read between extents, any
//! number of requests at the same time, and any pause. It starts at the first submission, with an empty buffer, the head at any position, and
//! the full burst of a network volume. Writes are not covered: a drive may serve a read from its write cache.
//!
//! ```text
//!   rotating disk    every byte passes the head, and the head comes to every extent but the first from another one    least/platter.rs
//!   flash, cloud     bytes, requests and the gaps between extents at the best of some prices                          least/requests.rs
//! ```
//!
//! The bounds are relaxations: no schedule may reach them. `tests/least.rs` compares them with exhaustive orders.

mod platter;
mod requests;

use crate::hdd::Hdd;
use crate::time::{BYTES_PER_MB, NS_PER_S};
use crate::{MAX_CAPACITY_BYTES, Model};
use platter::{Platter, Span};
use std::ops::Range;

/// The least time from the first submission until a disk of this model and size, at most 64 TiB, has delivered all extents, nanoseconds.
///
/// `extents`: in bytes: ascending, disjoint, in whole pages, adjacent ones merged. What is beyond the end of the disk takes no time. A schedule
/// may read other parts of the disk, too, but nothing is gained by it.
///
/// ```
/// use ahead_device::{Model, least_ns};
///
/// let model = Model::builtin("hdd").expect("built in");
/// let first_ns = least_ns(&model, 4 << 30, &[0..65_536]);
/// let both_ns = least_ns(&model, 4 << 30, &[0..65_536, 1 << 30..(1 << 30) + 8192]);
/// // The head has to move to the second extent, or back.
/// assert!(first_ns < 500_000 && both_ns > 2_000_000);
/// ```
pub fn least_ns(model: &Model, capacity_bytes: u64, extents: &[Range<u64>]) -> u64 {
    let capacity_bytes = capacity_bytes.clamp(1, MAX_CAPACITY_BYTES);
    let inside = extents.iter().map(|extent| extent.start..extent.end.min(capacity_bytes));
    let extents: Vec<Range<u64>> = inside.filter(|extent| !extent.is_empty()).collect();
    if extents.is_empty() {
        return 0;
    }
    match model {
        Model::Hdd(hdd) => head_ns(hdd, model.max_request_bytes(), capacity_bytes, &extents),
        Model::Flash(flash) => requests::flash_ns(flash, model.max_request_bytes(), &extents),
        Model::Cloud(cloud) => requests::cloud_ns(cloud, model.max_request_bytes(), &extents),
    }
}

/// The larger of the head's time, and the time of the commands and the interface.
///
/// No byte passes the head while it moves between extents, so passing and moving sum up. The drive may read on by itself, and bytes from its
/// buffer have passed the head before: the positions of requests do not matter.
fn head_ns(hdd: &Hdd, max_request_bytes: u64, capacity_bytes: u64, extents: &[Range<u64>]) -> u64 {
    let platter = Platter::new(hdd, capacity_bytes);
    let spans: Vec<Span> = extents.iter().map(|extent| platter.span(extent)).collect();
    let passes_ns: i64 = spans.iter().map(|span| platter.pass_ns(span)).sum();
    let arrivals_ns = (0..spans.len()).map(|to| arrival_ns(&platter, &spans, to));
    // Nothing is known of the way to the extent that is read first.
    let (sum_ns, most_ns) =
        arrivals_ns.fold((0, 0), |(sum_ns, most_ns): (i64, i64), ns| (sum_ns + ns, most_ns.max(ns)));
    let bytes: u64 = extents.iter().map(|extent| extent.end - extent.start).sum();
    let interface_ns_per_byte = NS_PER_S / BYTES_PER_MB / hdd.interface_mb_per_s;
    let commands_ns = bytes.div_ceil(max_request_bytes) as f64 * hdd.overhead_ns() as f64;
    ((passes_ns + sum_ns - most_ns) as u64).max((bytes as f64 * interface_ns_per_byte + commands_ns) as u64)
}

/// Extents that are compared for each one at most; farther ones count with the least time of their distance.
const MAX_COMPARED: usize = 4096;

/// The least time of a move to this extent from any other one.
fn arrival_ns(platter: &Platter, spans: &[Span], to: usize) -> i64 {
    let mut least_ns = i64::MAX;
    for (compared, (from, floor_ns)) in outwards(platter, spans, to).enumerate() {
        if floor_ns >= least_ns {
            break;
        }
        if compared >= MAX_COMPARED {
            return floor_ns;
        }
        least_ns = least_ns.min(platter.move_ns(&spans[from], &spans[to]));
    }
    // A single extent has no moves.
    if least_ns == i64::MAX { 0 } else { least_ns }
}

/// The other extents, the nearest first, each with the least time of a move between it or a farther one and this extent.
fn outwards<'a>(platter: &'a Platter, spans: &'a [Span], index: usize) -> impl Iterator<Item = (usize, i64)> + 'a {
    let (mut before, mut after) = (index, index + 1);
    std::iter::from_fn(move || {
        let left = before.checked_sub(1).map(|at| (Platter::distance(&spans[at], &spans[index]), at));
        let right = (after < spans.len()).then(|| (Platter::distance(&spans[index], &spans[after]), after));
        let (distance, at) = match (left, right) {
            (Some(left), Some(right)) => left.min(right),
            (one, other) => one.or(other)?,
        };
        if at < index {
            before = at;
        } else {
            after = at + 1;
        }
        Some((at, platter.floor_ns(distance)))
    })
}
