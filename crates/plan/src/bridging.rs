//! Which gaps between used ranges are read, too, so that one request serves both sides.
//!
//! ```text
//!     a disk that seeks       a small gap passes under the head in any case: reading it saves a command
//!     a limited volume        requests ├r┤├r┤├r┤├r┤├r┤├r┤      the limit that takes longer decides: if it is that of requests,
//!                             bytes    ├────────┤              a gap costs nothing
//!     anything else           a gap costs its bytes, and saves a system call and an interrupt
//! ```

use crate::{Piece, total_bytes};
use ahead_model::DeviceDescription;
use std::collections::BTreeMap;

/// Which gaps requests may include.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Bridging {
    /// Gaps up to this are read, bytes.
    pub max_gap_bytes: u64,
    /// Maximum share of gaps in all bytes that are read; the smallest gaps are bridged first.
    pub max_share: f64,
    /// If set, gaps are read only while requests cost more time than bytes: the cost of a request, bytes.
    request_bytes: Option<u64>,
}

/// Gives the rules for a device and its pieces.
pub(crate) type BridgingRule<'a> = &'a dyn Fn(&DeviceDescription, &[Piece]) -> Bridging;

/// Largest gap on a disk that seeks, bytes. It costs memory, but no time.
const SEEKING_GAP_BYTES: u64 = 128 << 10;

/// Their maximum share. A fifth, less than the permitted quarter, because some of the used pages will be resident.
const GENEROUS_SHARE: f64 = 0.20;

/// Largest gap on other disks, bytes. A bridged gap saves one request, about 20 us of processor time (system call, block layer,
/// interrupt): two or three pages at 500 MB/s.
const CHEAP_GAP_BYTES: u64 = 16 << 10;

/// Their maximum share. On these disks a gap costs as much time as used bytes.
const SMALL_SHARE: f64 = 0.04;

impl Bridging {
    /// No gap is read: each costs memory.
    pub const NONE: Bridging = Bridging { max_gap_bytes: 0, max_share: 0.0, request_bytes: None };

    /// The rules for these pieces, which are in order of source and place.
    pub fn of(device: &DeviceDescription, pieces: &[Piece]) -> Bridging {
        if device.seeks() {
            return Bridging { max_gap_bytes: SEEKING_GAP_BYTES, max_share: GENEROUS_SHARE, request_bytes: None };
        }
        let cheap = Bridging { max_gap_bytes: CHEAP_GAP_BYTES, max_share: SMALL_SHARE, request_bytes: None };
        // Only for a known limit of requests. Without one, the device serves other requests during an access.
        let request_bytes = device.pages_per_request() * ahead_model::PAGE_BYTES;
        let costs_more = joined(pieces).saturating_mul(request_bytes) > total_bytes(pieces);
        if request_bytes <= CHEAP_GAP_BYTES || !costs_more {
            return cheap;
        }
        Bridging { max_gap_bytes: request_bytes, max_share: GENEROUS_SHARE, request_bytes: Some(request_bytes) }
    }

    /// Bytes of gaps that may be read in addition to `used_bytes`.
    pub fn allowance_bytes(&self, used_bytes: u64) -> u64 {
        (used_bytes as f64 * self.max_share / (1.0 - self.max_share)) as u64
    }
}

/// Number of requests for these pieces if no gap is bridged. The pieces are in order of source and place.
fn joined(pieces: &[Piece]) -> u64 {
    let touch = |pair: &&[Piece]| pair[0].source == pair[1].source && pair[0].range.end >= pair[1].range.start;
    (pieces.len() - pieces.windows(2).filter(touch).count()) as u64
}

/// Device time of a piece in a full queue, microseconds: its transfer, and its share of the requests. Most pieces have a neighbour and share its
/// request. The pieces are in order of source and place.
pub(crate) fn cost_us(device: &DeviceDescription, pieces: &[Piece]) -> impl Fn(&Piece) -> f64 {
    let share_us = device.request_us() * joined(pieces) as f64 / pieces.len().max(1) as f64;
    let device = *device;
    move |piece| share_us + device.transfer_us(piece.bytes())
}

/// The largest gap to bridge: if all smaller gaps are bridged, the share is used up, or bytes begin to cost more time than requests.
/// The pieces are in order of source and place.
pub(crate) fn largest_gap(pieces: &[Piece], bridging: &Bridging) -> u64 {
    let mut bytes_by_gap: BTreeMap<u64, u64> = BTreeMap::new();
    for pair in pieces.windows(2).filter(|pair| pair[0].source == pair[1].source) {
        let gap = pair[1].range.start.saturating_sub(pair[0].range.end);
        if (1..=bridging.max_gap_bytes).contains(&gap) {
            *bytes_by_gap.entry(gap).or_default() += gap;
        }
    }
    let mut fetched = total_bytes(pieces);
    let mut requests = joined(pieces);
    let mut left = bridging.allowance_bytes(fetched);
    let mut largest = 0;
    for (gap, bytes) in bytes_by_gap {
        let pays = bridging.request_bytes.is_none_or(|request_bytes| requests.saturating_mul(request_bytes) > fetched);
        if left < gap || !pays {
            break;
        }
        largest = gap;
        left = left.saturating_sub(bytes);
        requests = requests.saturating_sub(bytes / gap);
        fetched = fetched.saturating_add(bytes);
    }
    largest
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Source;

    const VOLUME: DeviceDescription = DeviceDescription {
        access_ns: 1_000_000,
        hop_ns: None,
        bandwidth_bytes_per_s: 125e6,
        parallelism: 128,
        request_ns: 333_333,
        burst: None,
    };

    /// `count` pieces of `pages` pages each, with `gap_pages` pages between two of them.
    fn pieces(count: u64, pages: u64, gap_pages: u64) -> Vec<Piece> {
        let piece = |index: u64| {
            let start = index * (pages + gap_pages) * 4096;
            let range = start..start + pages * 4096;
            Piece { source: Source::File(0), range, late: false, first_use_us: index, physical_bytes: None }
        };
        (0..count).map(piece).collect()
    }

    fn largest(device: &DeviceDescription, pieces: &[Piece]) -> u64 {
        largest_gap(pieces, &Bridging::of(device, pieces))
    }

    #[test]
    fn limited_requests_make_gaps_cheap() {
        // Eight pages and gaps of two: an eighth of the cost of requests, a fifth of the bytes.
        let short = pieces(100, 8, 2);
        assert_eq!(largest(&VOLUME, &short), 8192);
        assert_eq!(largest(&DeviceDescription::FLASH, &short), 8192);
        let wide = pieces(100, 24, 5);
        assert_eq!((largest(&VOLUME, &wide), largest(&DeviceDescription::FLASH, &wide)), (0, 0));
        let near_limit = pieces(100, 9, 9);
        assert_eq!((largest(&VOLUME, &near_limit), largest(&DeviceDescription::FLASH, &near_limit)), (9 * 4096, 0));
    }

    #[test]
    fn neighbours_share_the_cost_of_a_request() {
        let cost = |gap_pages| {
            let pieces = pieces(100, 1, gap_pages);
            cost_us(&VOLUME, &pieces)(&pieces[0]) as u64
        };
        assert_eq!([cost(0), cost(1)], [36, 366]);
    }

    #[test]
    fn no_gap_is_bridged_if_its_bytes_cost_more_than_a_request() {
        // The transfer of 32 pages takes longer than the limit of requests.
        assert_eq!(Bridging::of(&VOLUME, &pieces(100, 32, 9)), Bridging::of(&DeviceDescription::FLASH, &[]));
    }
}
