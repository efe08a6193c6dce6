//! The least time of a rotating disk.
//!
//! Each byte passes under the head once at least, and no byte passes while the head moves between pieces. So the time is at least the
//! sum of both: the platter time of the bytes, and the shares of their pieces in the moves (`potentials.rs`). The first
//! visited piece has no move to it, and the last one no move away from it: the largest of these shares are subtracted.
//!
//! A long extent is cut into pieces, so that a move from its middle differs from a move from its end. (The drive may read on by itself, and bytes
//! from its buffer have passed the head before: the positions of requests do not matter.)

use super::platter::{Platter, Span};
use super::potentials::Potentials;
use crate::hdd::Hdd;
use crate::time::{BYTES_PER_MB, NS_PER_S};
use ahead_model::PAGE_BYTES;
use std::ops::Range;

/// Pieces at most, unless there are more extents: the time to compute the shares grows with the square.
const MAX_PIECES: u64 = 4096;

/// The times of a rotating disk for each extent.
#[derive(Clone, Debug)]
pub(super) struct HeadTimes {
    platter: Platter,
    extents: Vec<HeadExtent>,
    overhead_ns: f64,
    interface_ns_per_byte: f64,
    max_request_bytes: u64,
}

#[derive(Clone, Debug)]
struct HeadExtent {
    range: Range<u64>,
    pass_ns: i64,
    piece_bytes: u64,
    /// Sums of the shares of its pieces, the smallest share first: least share of 1, 2, ... pieces.
    shares_ns: Vec<i64>,
    most_leave_ns: i64,
    most_arrive_ns: i64,
}

/// What the set has of a rotating disk.
#[derive(Clone, Debug, Default)]
pub(super) struct HeadSet {
    bytes: u64,
    pass_ns: i64,
    shares_ns: i64,
    /// The largest shares of the extents of the set.
    most_ns: Option<(i64, i64)>,
}

impl HeadTimes {
    pub(super) fn new(hdd: &Hdd, max_request_bytes: u64, capacity_bytes: u64, extents: &[Range<u64>]) -> HeadTimes {
        let platter = Platter::new(hdd, capacity_bytes);
        let piece_bytes = if platter.is_fixed() { u64::MAX } else { piece_bytes(extents) };
        let all = extents.iter().flat_map(|extent| pieces(extent, piece_bytes));
        let spans: Vec<Span> = all.map(|piece| platter.span(&piece)).collect();
        let potentials = Potentials::new(&platter, &spans);
        let mut next = 0;
        let extents = extents
            .iter()
            .map(|extent| {
                let own = next..next + pieces(extent, piece_bytes).count();
                next = own.end;
                HeadExtent::new(&platter, extent, piece_bytes, &spans[own.clone()], &potentials, own)
            })
            .collect();
        HeadTimes {
            platter,
            extents,
            overhead_ns: hdd.overhead_ns() as f64,
            interface_ns_per_byte: NS_PER_S / BYTES_PER_MB / hdd.interface_mb_per_s,
            max_request_bytes,
        }
    }

    /// The part of an extent in the set grows from `before` to `after` bytes.
    pub(super) fn grow(&self, set: &mut HeadSet, index: usize, before: u64, after: u64) {
        let extent = &self.extents[index];
        set.bytes += after - before;
        set.pass_ns += extent.part_pass_ns(&self.platter, after) - extent.part_pass_ns(&self.platter, before);
        set.shares_ns += extent.part_share_ns(after) - extent.part_share_ns(before);
        let own = (extent.most_leave_ns, extent.most_arrive_ns);
        set.most_ns = Some(set.most_ns.map_or(own, |(leave, arrive)| (leave.max(own.0), arrive.max(own.1))));
    }

    /// The larger of the head's time, and the time of the commands and the interface.
    pub(super) fn least_ns(&self, set: &HeadSet) -> u64 {
        let (leave_ns, arrive_ns) = set.most_ns.unwrap_or_default();
        let head_ns = set.pass_ns + (set.shares_ns - leave_ns - arrive_ns).max(0);
        let requests = set.bytes.div_ceil(self.max_request_bytes);
        let interface_ns = set.bytes as f64 * self.interface_ns_per_byte + requests as f64 * self.overhead_ns;
        (head_ns as u64).max(interface_ns as u64)
    }
}

impl HeadExtent {
    fn new(
        platter: &Platter,
        range: &Range<u64>,
        piece_bytes: u64,
        pieces: &[Span],
        potentials: &Potentials,
        own: Range<usize>,
    ) -> HeadExtent {
        let (leave_ns, arrive_ns) = (&potentials.leave_ns[own.clone()], &potentials.arrive_ns[own]);
        let mut shares_ns: Vec<i64> = leave_ns.iter().zip(arrive_ns).map(|(leave, arrive)| leave + arrive).collect();
        shares_ns.sort_unstable();
        let mut sum_ns = 0;
        for share_ns in &mut shares_ns {
            sum_ns += *share_ns;
            *share_ns = sum_ns;
        }
        HeadExtent {
            range: range.clone(),
            // A change of tracks between two pieces is a move.
            pass_ns: pieces.iter().map(|piece| platter.pass_ns(piece)).sum(),
            piece_bytes,
            shares_ns,
            most_leave_ns: leave_ns.iter().max().copied().unwrap_or(0),
            most_arrive_ns: arrive_ns.iter().max().copied().unwrap_or(0),
        }
    }

    fn part_pass_ns(&self, platter: &Platter, bytes: u64) -> i64 {
        if bytes >= self.range.end - self.range.start {
            return self.pass_ns;
        }
        // Rounded like the whole, which is never shorter.
        (platter.part_ns(self.range.start, bytes) as i64).min(self.pass_ns)
    }

    /// The least share of the pieces that hold this number of bytes.
    fn part_share_ns(&self, bytes: u64) -> i64 {
        let pieces = (bytes.div_ceil(self.piece_bytes) as usize).min(self.shares_ns.len());
        pieces.checked_sub(1).map_or(0, |last| self.shares_ns[last])
    }
}

/// Length of pieces: as short as their number permits.
fn piece_bytes(extents: &[Range<u64>]) -> u64 {
    let mut length_bytes = PAGE_BYTES;
    loop {
        let count: u64 = extents.iter().map(|extent| (extent.end - extent.start).div_ceil(length_bytes)).sum();
        if count <= MAX_PIECES.max(extents.len() as u64) {
            return length_bytes;
        }
        length_bytes *= 2;
    }
}

fn pieces(extent: &Range<u64>, piece_bytes: u64) -> impl Iterator<Item = Range<u64>> + use<> {
    let extent = extent.clone();
    (0..(extent.end - extent.start).div_ceil(piece_bytes)).map(move |index| {
        let start = extent.start + index * piece_bytes;
        start..extent.end.min(start.saturating_add(piece_bytes))
    })
}
