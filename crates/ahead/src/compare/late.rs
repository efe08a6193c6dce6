//! Late data: prefetched, but asked for before it had arrived. One more cold run with `ahead` is observed from both sides: the first use of
//! each page, and its delivery by the disk. The observation costs time, so this run is not timed.
//!
//! Data only: the use of a metadata block cannot be seen. And only where the physical address that the file system reports is an address of
//! the disk (not on btrfs, which maps its own addresses to disks).

use ahead_model::FileSystemKind;
use ahead_model::{DeviceNumber, RangeSet, sorting};
use ahead_observe::Arrival;
use ahead_profile::{Extent, Profile};
use ahead_sys::diskstats;
use std::collections::BTreeMap;
use std::ops::Range;

/// Whether the physical addresses of all files are addresses of their disks.
pub fn is_observable(profile: &Profile) -> bool {
    profile.files.iter().all(|file| FileSystemKind::named(&file.fs_type).has_addresses_of_disk)
}

/// Bytes of `issued` that arrived after their first use.
///
/// `seen`: the pages that the observed run used, with times relative to `started_ns`.
pub fn bytes(
    seen: &Profile,
    started_ns: u64,
    issued: &BTreeMap<(bool, &[u8]), RangeSet>,
    mut arrivals: Vec<Arrival>,
) -> u64 {
    sorting::sort_by_key(&mut arrivals, |read| (read.device, read.offset_bytes));
    let mut late = 0;
    for file in &seen.files {
        let Some(issued) = issued.get(&(false, &*file.path)) else { continue };
        let device = DeviceNumber::from_key(file.device);
        let Ok((disk, start)) = diskstats::place_on_disk(device) else { continue };
        late += file
            .extents
            .iter()
            .map(|extent| late_bytes(extent, issued, &arrivals, disk, start, started_ns))
            .sum::<u64>();
    }
    late
}

fn late_bytes(
    extent: &Extent,
    issued: &RangeSet,
    arrivals: &[Arrival],
    disk: DeviceNumber,
    start: u64,
    started_ns: u64,
) -> u64 {
    let Some(physical) = extent.physical_bytes else { return 0 };
    let used_ns = started_ns.saturating_add(extent.first_use_us.saturating_mul(1000));
    let in_file = extent.range();
    let on_disk = |range: &Range<u64>| {
        let place = |at: u64| start + physical + (at - extent.offset_bytes);
        place(range.start)..place(range.end)
    };
    issued.within(&in_file).map(|range| bytes_after(arrivals, disk, on_disk(&range), used_ns)).sum()
}

/// Bytes of a range of a disk that were delivered after `time_ns`, by reads in order of device and offset. A cold run reads hardly anything twice:
/// an overlap is then counted twice at most.
fn bytes_after(reads: &[Arrival], disk: DeviceNumber, range: Range<u64>, time_ns: u64) -> u64 {
    // No request is longer than the block layer's limit.
    let is_before = |read: &Arrival| (read.device, read.offset_bytes + LONGEST_REQUEST_BYTES) < (disk, range.start);
    let near = reads[reads.partition_point(is_before)..].iter();
    let near = near.take_while(|read| read.device == disk && read.offset_bytes < range.end);
    let late = near.filter(|read| read.time_ns > time_ns);
    let end = |read: &Arrival| (read.offset_bytes + read.length_bytes).min(range.end);
    let common = late.map(|read| end(read).saturating_sub(read.offset_bytes.max(range.start)));
    common.sum::<u64>().min(range.end - range.start)
}

/// BLK_DEF_MAX_SECTORS_CAP is 4 MiB in today's kernels; `max_hw_sectors_kb` of no common device is above this.
const LONGEST_REQUEST_BYTES: u64 = 64 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_that_arrives_after_its_use_is_late() {
        let arrival = |offset_bytes, time_ns| Arrival {
            time_ns,
            device: DeviceNumber::new(7, 1),
            offset_bytes,
            length_bytes: 8192,
        };
        let reads = [arrival(0, 100), arrival(8192, 500)];
        let after = |device, range, time_ns| bytes_after(&reads, DeviceNumber::new(7, device), range, time_ns);
        assert_eq!(after(1, 4096..12288, 200), 4096);
        assert_eq!(after(1, 4096..12288, 50), 8192);
        assert_eq!(after(2, 0..8192, 0), 0);
        assert_eq!(after(0, 0..8192, 0), 0);
    }
}
