//! Sets of byte ranges per file and device, to find out how much of the prefetched data was used.

use ahead_model::RangeSet;
use std::collections::BTreeMap;
use std::ops::Range;

/// The owner of ranges.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Owner {
    /// The file of this path.
    File(Vec<u8>),
    /// The block device that is mounted here. Its node does not identify it: another device may have it by now.
    Device(Vec<u8>),
}

/// Ranges by file and device.
pub type ByOwner = BTreeMap<Owner, RangeSet>;

/// Gathers ranges in any order.
pub fn by_owner(ranges: impl IntoIterator<Item = (Owner, Range<u64>)>) -> ByOwner {
    let mut gathered = ByOwner::new();
    for (owner, range) in ranges {
        gathered.entry(owner).or_default().insert(range);
    }
    gathered
}

/// Bytes that are in both, over all files and devices.
pub fn common_bytes(a: &ByOwner, b: &ByOwner) -> u64 {
    a.iter().filter_map(|(owner, ranges)| Some(ranges.count_common(b.get(owner)?))).sum()
}
