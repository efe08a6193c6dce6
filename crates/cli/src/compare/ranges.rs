//! Sets of byte ranges per file and device, to say how much of what was fetched was used.

use ahead_model::RangeSet;
use std::collections::BTreeMap;
use std::ops::Range;

/// What ranges are of.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Whose {
    /// The file of this path.
    File(Vec<u8>),
    /// The block device that is mounted here. Its node tells nothing: it may be another one's by now.
    Device(Vec<u8>),
}

/// Ranges by file and device.
pub type ByOwner = BTreeMap<Whose, RangeSet>;

/// Gathers ranges in any order.
pub fn by_owner(ranges: impl IntoIterator<Item = (Whose, Range<u64>)>) -> ByOwner {
    let mut gathered = ByOwner::new();
    for (whose, range) in ranges {
        gathered.entry(whose).or_default().insert(range);
    }
    gathered
}

/// Bytes that are in both, over all files and devices.
pub fn common_bytes(a: &ByOwner, b: &ByOwner) -> u64 {
    a.iter().filter_map(|(whose, ranges)| Some(ranges.count_common(b.get(whose)?))).sum()
}
